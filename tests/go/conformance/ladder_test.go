package conformance

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// core is gomem over a rig.
type core struct {
	*rig
	device *gomem.Device
	pool   *gomem.HostPool
}

func newCore(t *testing.T, f flavour, more settings) *core {
	t.Helper()
	return coreOn(t, newRig(t, f, more))
}

func coreOn(t *testing.T, r *rig) *core {
	t.Helper()
	c := &core{rig: r, pool: gomem.NewHostPool()}
	device, err := gomem.NewDevice(r.Driver, gomem.Options{Movable: r.counted == nil, Pool: c.pool, Check: true})
	require.NoError(t, err)
	c.device = device
	if r.real != nil { // much larger than the tests' devices: a budget stands in for its end
		_, _, err := device.SetBudget(rigCapacity, false, gomem.Wait{})
		require.NoError(t, err)
	}
	return c
}

// buffer makes a buffer with contents.
func (c *core) buffer(n int, seed uint32) uint32 {
	c.T.Helper()
	index, err := c.device.Allocate(uint64(n), gomem.AllocateOptions{})
	require.NoError(c.T, err)
	host, pointer := soft.Bytes(c.T, n)
	copy(host, soft.Noise(n, seed))
	require.NoError(c.T, c.device.CopyFromHost(index, 0, pointer, uint64(n), gomem.Wait{}))
	return index
}

// requireContents compares a buffer with what buffer put there.
func (c *core) requireContents(index uint32, n int, seed uint32) {
	c.T.Helper()
	host, pointer := soft.Bytes(c.T, n)
	require.NoError(c.T, c.device.CopyToHost(index, 0, pointer, uint64(n), gomem.Wait{}))
	require.Equal(c.T, soft.Noise(n, seed), append([]byte(nil), host...))
}

func (c *core) info() gomem.Info {
	c.T.Helper()
	info, err := c.device.Info(true)
	require.NoError(c.T, err)
	return info
}

func (c *core) end(indexes ...uint32) {
	c.T.Helper()
	for _, index := range indexes {
		c.device.Drop(index)
	}
	require.NoError(c.T, c.device.Synchronize())
	_, err := c.device.Trim()
	require.NoError(c.T, err)
	require.NoError(c.T, c.device.Check())
	require.NoError(c.T, c.device.Close())
	used, _ := c.pool.Bytes()
	assert.Zero(c.T, used, "host memory of copies")
}

// TestLadderCachesGoFirst: a device that is full of dropped memory of other sizes gives that back before anything is spilled.
func TestLadderCachesGoFirst(t *testing.T) {
	forEachThatSpills(t, func(t *testing.T, f flavour) {
		c := newCore(t, f, settings{"delay_us": 100})
		const small, large = 256 << 10, 5 << 20
		kept := c.buffer(small, 1)
		var dropped []uint32
		for i := range rigCapacity/small - 2 {
			dropped = append(dropped, c.buffer(small, uint32(i)))
		}
		for _, index := range dropped {
			c.device.Drop(index)
		}
		if f.vendor == &levelZeroVendor && c.Software != nil { // it has no cache: a driver that is late, as on a busy machine, is waited for a few milliseconds only
			require.NoError(t, c.device.Synchronize())
			require.Eventually(t, func() bool { return c.Figure("deferred") == 0 }, time.Minute, time.Millisecond)
		}
		big := c.buffer(large, 2)
		assert.Zero(t, c.info().SpillCount, "there was room enough without a spill")
		c.requireContents(kept, small, 1)
		c.requireContents(big, large, 2)
		c.end(kept, big)
	})
}

// TestLadderSpillsWhatIsNeeded: live memory moves only when caches do not help, the least recently used first, no more of it than needed and one
// buffer, and every byte comes back.
func TestLadderSpillsWhatIsNeeded(t *testing.T) {
	forEachThatSpills(t, func(t *testing.T, f flavour) {
		c := newCore(t, f, settings{"pageable": 1, "jitter_us": 100})
		const n = 1 << 20
		var indexes []uint32
		for i := range rigCapacity / n { // the device is full
			indexes = append(indexes, c.buffer(n, uint32(i)))
		}
		spilled := c.info().SpilledBytes
		assert.LessOrEqual(t, spilled, int64(n), "perhaps one, where something of the device is in use otherwise")
		const more = 3 * n
		extra := c.buffer(more, 99)
		assert.LessOrEqual(t, c.info().SpilledBytes-spilled, int64(more+n))
		for i, index := range indexes[:3] {
			state, _ := gomem.StateOf(c.device.Record(index).Word)
			assert.Equal(t, gomem.Spilled, state, "buffer %d is the least recently used", i)
		}
		c.requireContents(extra, more, 99)
		for i, index := range indexes {
			require.NoError(t, c.device.MakeResident(index, gomem.Wait{})) // spills others in turn
			c.requireContents(index, n, uint32(i))
		}
		info := c.info()
		assert.Equal(t, info.Spilled, info.SpilledBytes-info.RestoredBytes-info.FreedSpilled)
		c.end(append(indexes, extra)...)
	})
}

// TestLadderOfPinnedMemory: where nothing can move, the error says so, nothing changed, and the next smaller request works.
func TestLadderOfPinnedMemory(t *testing.T) {
	forEachThatSpills(t, func(t *testing.T, f flavour) {
		c := newCore(t, f, nil)
		const n = 4 << 20
		var indexes []uint32
		for range 3 {
			index, err := c.device.Allocate(n, gomem.AllocateOptions{Unmovable: true, Reason: gomem.Intern("test")})
			require.NoError(t, err)
			indexes = append(indexes, index)
		}
		_, err := c.device.Allocate(2*n, gomem.AllocateOptions{})
		var full *gomem.MemoryError
		require.ErrorAs(t, err, &full)
		assert.Equal(t, gomem.ReasonDevice, full.Reason)
		assert.ErrorIs(t, err, gomem.ErrOutOfMemory, "the driver's own error is the cause")
		_, err = c.device.Allocate(rigCapacity+1, gomem.AllocateOptions{})
		require.ErrorAs(t, err, &full)
		assert.Equal(t, gomem.ReasonTooLarge, full.Reason)
		assert.EqualValues(t, 3*n, c.info().InUse)
		small := c.buffer(n/4, 1)
		c.requireContents(small, n/4, 1)
		c.end(append(indexes, small)...)
	})
}
