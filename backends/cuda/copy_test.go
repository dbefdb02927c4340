package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFillUsesTheShortestForm(t *testing.T) {
	r := open(t, nil, 0)
	a := r.Allocate(1 << 20)
	before := r.Software.Calls("*")
	require.NoError(t, r.Driver.Fill(a, make([]byte, 16), 1<<20))
	assert.Equal(t, 1, r.Software.Calls("cuMemsetD8Async"), "sixteen zeros are one memset")
	assert.LessOrEqual(t, r.Software.Calls("*")-before, 7)
	require.NoError(t, r.Driver.Fill(a, []byte{1, 2, 1, 2, 1, 2}, 1<<20))
	assert.Equal(t, 1, r.Software.Calls("cuMemsetD16Async"))
	assert.Error(t, r.Driver.Fill(a, nil, 1))
	assert.Error(t, r.Driver.Fill(a, make([]byte, 17), 1))
	r.Free(a, 1<<20)
}

// TestDetourIsShort: moving by a few bytes does not make a copy for each few bytes.
func TestDetourIsShort(t *testing.T) {
	r := open(t, nil, 0)
	a := r.Allocate(1 << 20)
	before := r.Software.Calls("cuMemcpyDtoDAsync_v2")
	require.NoError(t, r.Driver.CopyWithin(a+1, a, 1<<20-1))
	assert.LessOrEqual(t, r.Software.Calls("cuMemcpyDtoDAsync_v2")-before, 4)
	r.Free(a, 1<<20)
}
