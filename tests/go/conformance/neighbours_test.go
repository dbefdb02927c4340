package conformance

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
)

// TestTwoDevices: each has its own memory, streams and figures, and pressure on one moves nothing on the other.
func TestTwoDevices(t *testing.T) {
	forAll(t, func(t *testing.T, f flavour) {
		l := f.open(t, nil)
		first, second := coreOn(t, f.rigOn(t, l, 0)), coreOn(t, f.rigOn(t, l, 1))
		const n = 1 << 20
		calm := []uint32{first.buffer(n, 1), first.buffer(n, 2)}
		var busy []uint32
		for i := range rigCapacity/n + 4 { // more than the device has
			busy = append(busy, second.buffer(n, uint32(100+i)))
		}
		assert.Equal(t, f.counted == nil, second.info().SpillCount > 0)
		assert.Zero(t, first.info().SpillCount)
		assert.EqualValues(t, 2*n, first.info().InUse)
		if f.steered() {
			assert.EqualValues(t, 2, first.Figure("live"))
			assert.GreaterOrEqual(t, first.info().Driver.Free, int64(rigCapacity-4*n))
		}
		first.requireContents(calm[0], n, 1)
		first.requireContents(calm[1], n, 2)
		for i, index := range busy {
			second.requireContents(index, n, uint32(100+i))
		}
		first.end(calm...)
		assert.Positive(t, second.info().InUse, "the end of one is not the end of the other")
		second.end(busy...)
	})
}

// TestMemoryThatAnotherProcessTakes shows in the device's free memory and nowhere else; what is missing then is spilled for, and when it comes
// back it can be used.
func TestMemoryThatAnotherProcessTakes(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		c := newCore(t, f, nil)
		const n = 1 << 20
		var indexes []uint32
		for i := range 4 {
			indexes = append(indexes, c.buffer(n, uint32(i)))
		}
		before := c.info()
		const taken = rigCapacity - 6*n
		require.NoError(t, c.Software.Set("taken", taken))
		after := c.info()
		assert.EqualValues(t, before.Driver.Free-taken, after.Driver.Free)
		assert.Equal(t, before.InUse, after.InUse)
		assert.Equal(t, before.Driver.Cached, after.Driver.Cached)

		indexes = append(indexes, c.buffer(4*n, 4))
		info := c.info()
		assert.GreaterOrEqual(t, info.SpilledBytes, int64(2*n))
		assert.LessOrEqual(t, info.SpilledBytes, int64(3*n), "what was missing, and one buffer at most: what is free need not be made so")
		for i, index := range indexes[:4] {
			c.requireContents(index, n, uint32(i))
		}
		require.NoError(t, c.Software.Set("taken", 0))
		require.NoError(t, c.device.RestoreAll(gomem.Wait{}))
		assert.Zero(t, c.info().Spilled)
		for i, index := range indexes[:4] {
			c.requireContents(index, n, uint32(i))
		}
		c.end(indexes...)
	})
}

// TestMemoryThatTheHostTakes: a host framework allocates by itself, in the same process. That is not in the books, but it is in the device's
// figures, and its own pressure is met by the core's MakeRoom.
func TestMemoryThatTheHostTakes(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		c := newCore(t, f, nil)
		const n = 2 << 20
		var indexes []uint32
		for i := range rigCapacity/n - 1 {
			indexes = append(indexes, c.buffer(n, uint32(i)))
		}
		before := c.info()
		_, err := c.device.MakeRoom(2*n, gomem.AllocateOptions{})
		require.NoError(t, err)
		require.NoError(t, c.device.Synchronize())
		_, err = c.device.Trim()
		require.NoError(t, err)
		alien := c.host.allocate(2 * n)
		assert.Equal(t, before.InUse+before.Spilled, c.info().InUse+c.info().Spilled, "not ours")
		for i, index := range indexes {
			c.requireContents(index, n, uint32(i))
		}
		c.host.free(alien)
		c.end(indexes...)
	})
}

// TestForeignPool: what a host framework's pool keeps is cached memory, too, since adopted memory goes back to it.
func TestForeignPool(t *testing.T) {
	keeps := func(f flavour) bool {
		return f.counted == nil && f.settings["pools"] != 0 && f.settings["ignore_threshold"] != 1
	}
	run(t, keeps, func(t *testing.T, f flavour) {
		r := newRig(t, f, nil)
		host, has := r.host.(poolHost)
		require.True(t, has)
		const n = 8 << 20
		r.Free(r.Allocate(1), 1)
		require.NoError(t, r.Driver.Synchronize())
		_, err := r.Driver.Trim()
		require.NoError(t, err)
		host.keepAll()
		before := r.Memory().Cached
		a := host.allocateOrdered(n, r.Driver.Stream())
		require.NoError(t, r.Driver.Free(gomem.Block{Address: a, Bytes: n, How: f.ordered}))
		require.NoError(t, r.Driver.Synchronize())
		assert.GreaterOrEqual(t, r.Memory().Cached-before, int64(n))
		released, err := r.Driver.Trim()
		require.NoError(t, err)
		assert.GreaterOrEqual(t, released, uint64(n))
		assert.Zero(t, r.Memory().Cached)
	})
}
