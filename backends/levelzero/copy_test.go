package levelzero_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// TestFill compares every length of pattern, at every alignment, with a few lengths around the edges; what lies around the range stays.
// The device takes patterns of any power of two, or short ones only.
func TestFill(t *testing.T) {
	for _, mode := range []settings{{}, {"fill_pattern": 1}, {"fill_pattern": 6}, {"api_version": version(4)}, {"api_version": version(4), "fill_pattern": 2}} {
		t.Run(mode.String(), func(t *testing.T) {
			r := open(t, mode, 0)
			const room = 600
			a := r.Allocate(room)
			background := soft.Noise(room, 1)
			for length := 1; length <= 16; length++ {
				pattern := soft.Noise(length, uint32(100+length))
				for _, offset := range []int{0, 1, 2, 3, 5, 8, 15, 16} {
					for _, n := range []int{1, 3, 4, 5, length, length + 1, 3*length - 1, 16 * length, 500} {
						r.Write(a, background)
						require.NoError(t, r.Driver.Fill(a+uint64(offset), pattern, uint64(n)))
						want := bytes.Clone(background)
						copy(want[offset:offset+n], bytes.Repeat(pattern, n))
						require.Equal(t, want, r.Read(a, room), "pattern of %d at +%d over %d", length, offset, n)
					}
				}
			}
			r.Free(a, room)
		})
	}
}

func TestFillUsesTheShortestForm(t *testing.T) {
	r := open(t, nil, 0)
	a := r.Allocate(1 << 20)
	before := r.Software.Calls("*")
	require.NoError(t, r.Driver.Fill(a, make([]byte, 16), 1<<20))
	assert.Equal(t, 1, r.Software.Calls("*")-before, "sixteen zeros are one fill, and an in-order list needs nothing else")
	require.NoError(t, r.Driver.Fill(a, []byte{1, 2, 1, 2, 1, 2}, 1<<20))
	assert.Equal(t, 2, r.Software.Calls("zeCommandListAppendMemoryFill"))
	assert.Error(t, r.Driver.Fill(a, nil, 1))
	assert.Error(t, r.Driver.Fill(a, make([]byte, 17), 1))
	r.Free(a, 1<<20)
}

// TestDetourIsShort: moving by a few bytes does not make a copy for each few bytes.
func TestDetourIsShort(t *testing.T) {
	r := open(t, nil, 0)
	a := r.Allocate(1 << 20)
	before := r.Software.Calls("zeCommandListAppendMemoryCopy")
	require.NoError(t, r.Driver.CopyWithin(a+1, a, 1<<20-1))
	assert.LessOrEqual(t, r.Software.Calls("zeCommandListAppendMemoryCopy")-before, 4)
	r.Free(a, 1<<20)
}
