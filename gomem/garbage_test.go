package gomem_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// collector is a caller that collects when it is asked to, on a clock of its own.
type collector struct {
	*bench
	now         time.Time
	took        time.Duration // by each collection
	collections int
	interrupted bool // an exception ends the collection, so that nobody asks again
}

func openCollector(t *testing.T, budget int64) *collector {
	t.Helper()
	c := &collector{bench: open(t, fakedriver.Options{}), now: time.Unix(1, 0)}
	c.SetClock(func() time.Time { return c.now })
	c.budget(budget, false)
	return c
}

// ask makes a buffer and drops it, and reports whether a collection was asked for first.
func (c *collector) ask(nbytes uint64) (asked bool) {
	c.t.Helper()
	before := c.collections
	if index, made := c.collect(nbytes); made {
		c.drop(index)
	}
	return c.collections > before
}

// collect makes a buffer, with a collection where one is asked for.
func (c *collector) collect(nbytes uint64) (index uint32, made bool) {
	c.t.Helper()
	o := gomem.AllocateOptions{HasHelper: true}
	index, err := c.Allocate(nbytes, o)
	if errors.Is(err, gomem.ErrCollect) {
		c.collections++
		c.now = c.now.Add(c.took)
		if c.interrupted {
			return 0, false
		}
		o.Collected = true
		index, err = c.Allocate(nbytes, o)
	}
	require.NoError(c.t, err)
	return index, true
}

// Python's garbage may hold buffers: before the budget spills, the caller is told to collect, but not all the time.
func TestGarbageIsCollectedBeforeTheBudgetSpills(t *testing.T) {
	const budget, step = 8 * gomem.CollectFloor, gomem.CollectFloor / 2 // a sixteenth of it
	c := openCollector(t, budget)
	var live []uint32
	for range 16 {
		live = append(live, c.allocate(step))
	}
	for range 16 {
		index, made := c.collect(step)
		require.True(t, made)
		live = append(live, index)
	}
	require.Equal(t, 4, c.collections, "once per quarter of the budget newly allocated")

	// What the collection frees is not copied out.
	c.budget(-1, false)
	c.drop(live...)
	c.budget(budget, false)
	garbage := c.allocate(budget)
	spilled := c.info().SpillCount
	o := gomem.AllocateOptions{HasHelper: true}
	_, err := c.Allocate(step, o)
	require.ErrorIs(t, err, gomem.ErrCollect)
	c.drop(garbage)
	o.Collected = true
	index, err := c.Allocate(step, o)
	require.NoError(t, err)
	require.Equal(t, spilled, c.info().SpillCount)
	c.drop(index)
}

// Under a budget of next to nothing, what the bound in bytes costs is the first collection, and one for each collectFloor allocated.
func TestASmallBudgetCollectsSeldom(t *testing.T) {
	const budget, step = 64 * kib, 8 * kib
	c := openCollector(t, budget)
	kept := c.allocate(budget)
	before := c.info().SpillCount
	require.True(t, c.ask(step), "the first time, before anything is spilled")
	for allocated := step; allocated < 3*gomem.CollectFloor; allocated += step {
		c.use(kept) // back to the device, so that each allocation passes the budget
		c.ask(step)
	}
	require.Equal(t, 3, c.collections)
	require.Greater(t, c.info().SpillCount, before+1000)
	c.drop(kept)
}

// The same for a reservation, which a host makes for what it allocates by itself.
func TestAReservationCollectsFirst(t *testing.T) {
	c := openCollector(t, 64*kib)
	kept := c.allocate(64 * kib)
	c.took = time.Second
	o := gomem.AllocateOptions{HasHelper: true}
	_, err := c.Reserve(kib, o)
	require.ErrorIs(t, err, gomem.ErrCollect)
	c.now = c.now.Add(c.took)
	o.Collected = true
	token, err := c.Reserve(kib, o)
	require.NoError(t, err)
	c.Unreserve(token)
	c.drop(kept, c.allocate(gomem.CollectFloor))

	kept = c.allocate(64 * kib)
	require.False(t, c.ask(kib), "the second was measured")
	c.now = c.now.Add(9 * time.Second)
	c.drop(kept)
	kept = c.allocate(64 * kib)
	require.True(t, c.ask(kib))
	c.drop(kept)
}

// Slow collections are further apart, whatever is allocated.
func TestCollectionsTakeASmallPartOfTheTime(t *testing.T) {
	c := openCollector(t, 64*kib)
	kept := c.allocate(64 * kib)
	allocateALot := func() (asked bool) {
		c.drop(c.allocate(gomem.CollectFloor)) // passes the bound in bytes
		c.use(kept)
		return c.ask(kib)
	}
	c.took = 100 * time.Millisecond
	require.True(t, allocateALot())
	for range 5 {
		require.False(t, allocateALot())
		c.now = c.now.Add((gomem.CollectShare - 1) * c.took)
		require.True(t, allocateALot())
	}
	began := c.now
	for c.collections = 0; c.now.Sub(began) < 10*time.Second; c.now = c.now.Add(50 * time.Millisecond) {
		allocateALot()
	}
	part := float64(c.collections) * float64(c.took) / float64(c.now.Sub(began))
	require.InDelta(t, 1./gomem.CollectShare, part, 0.02)

	// One that an exception ended: its length is not known, and the next request is asked again, without waiting for it for ever.
	c.now = c.now.Add(time.Minute)
	c.interrupted = true
	require.True(t, allocateALot())
	c.interrupted = false
	require.False(t, allocateALot())
	c.now = c.now.Add((gomem.CollectShare - 1) * c.took)
	require.True(t, allocateALot())
	c.drop(kept)
}
