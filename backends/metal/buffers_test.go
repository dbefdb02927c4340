package metal_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/metal"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/mac"
)

func TestBuffersAreRealAndReleased(t *testing.T) {
	m, g, d := one(t)
	var addresses []uint64
	for _, nbytes := range []uint64{1, 4096, 1 << 20} {
		address := allocate(t, d, nbytes)
		mac.Bytes(address, nbytes)[nbytes-1] = 7
		buffer := d.Buffer(address)
		require.NotZero(t, buffer, "what a kernel is given")
		assert.EqualValues(t, address, m.Send(buffer, m.Selector("contents")))
		addresses = append(addresses, address)
	}
	assert.EqualValues(t, 1+4096+1<<20, g.Allocated)
	assert.Zero(t, d.Buffer(addresses[0]+1))
	for _, address := range addresses {
		require.NoError(t, d.Free(gomem.Block{Address: address}))
		assert.Zero(t, d.Buffer(address))
	}
	assert.Zero(t, g.Allocated)
	var unknown *metal.NotABufferError
	assert.ErrorAs(t, d.Free(gomem.Block{Address: addresses[0]}), &unknown, "twice")
	assert.Equal(t, addresses[0], unknown.Address)
}

func TestNilIsOutOfMemory(t *testing.T) {
	_, g, d := one(t)
	g.Capacity = 10000
	held := allocate(t, d, 8000)
	_, err := d.Allocate(4000)
	require.ErrorIs(t, err, gomem.ErrOutOfMemory)
	assert.NotErrorIs(t, err, gomem.ErrTooLarge)
	var failed *gomem.DriverError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, gomem.DriverError{Device: "metal:0", Call: "newBufferWithLength:options:", Name: "nil", Kind: gomem.ErrOutOfMemory}, *failed)
	require.NoError(t, d.Free(gomem.Block{Address: held}))
	require.NoError(t, d.Free(gomem.Block{Address: allocate(t, d, 4000)}), "after a free it works")
}

func TestTooLongIsRefusedBeforeMetalSeesIt(t *testing.T) {
	_, g, d := one(t)
	_, err := d.Allocate(g.Longest + 1)
	assert.ErrorIs(t, err, gomem.ErrTooLarge)
	_, err = d.Allocate(1 << 63)
	assert.ErrorIs(t, err, gomem.ErrTooLarge)
	assert.Zero(t, g.MadeBuffers)
	g.Capacity = 0
	_, err = d.Allocate(g.Longest)
	assert.ErrorIs(t, err, gomem.ErrOutOfMemory, "the longest that there may be is Metal's to refuse")
	assert.Equal(t, 1, g.MadeBuffers)
}

func TestABufferWithoutAddressIsReleased(t *testing.T) {
	_, g, d := one(t)
	g.NoContents = true
	_, err := d.Allocate(100)
	assert.EqualError(t, err, "metal:0: contents failed: nil (0)")
	assert.NotErrorIs(t, err, gomem.ErrOutOfMemory)
	assert.Zero(t, g.Allocated)
}

func TestWhatCanBeFreed(t *testing.T) {
	_, _, d := one(t)
	for how := gomem.HowDriver; how <= gomem.HowHost; how++ {
		if how == gomem.HowDriver {
			assert.True(t, d.CanFree(how))
			continue
		}
		assert.False(t, d.CanFree(how))
		assert.ErrorContains(t, d.Free(gomem.Block{Address: 1, Bytes: 1, How: how}), how.String())
	}
}
