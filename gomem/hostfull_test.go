package gomem_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// Host memory for the copies of spilled buffers runs out.

func TestHostMemoryThatRunsOutLeavesTheArrayOnTheDevice(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 40 * kib})
	b.pool.SetLimit(12 * kib)
	x, y := b.allocate(20*kib), b.allocate(10*kib)
	_, err := b.Spill(x, gomem.Wait{})
	var full *gomem.MemoryError
	require.ErrorAs(t, err, &full)
	require.Equal(t, gomem.ReasonHost, full.Reason)
	var host *gomem.HostMemoryError
	require.ErrorAs(t, err, &host)
	require.EqualValues(t, 12*kib, host.Limit)
	require.Equal(t, gomem.Resident, b.state(x))
	b.has(x, uint64(x))

	_, err = b.Allocate(25*kib, gomem.AllocateOptions{})
	require.ErrorAs(t, err, &full)
	b.has(x, uint64(x))
	b.has(y, uint64(y))
	z := b.allocate(10 * kib) // a smaller one works
	b.pool.SetLimit(-1)
	w := b.allocate(25 * kib)
	for _, index := range []uint32{x, y, z, w} {
		b.has(index, uint64(index))
	}
	b.drop(x, y, z, w)
}

// One large buffer that host memory refuses does not keep the smaller ones behind it from making room. The others go in order of last use.
func TestRefusedCopyLeavesRoomToSmallerOnes(t *testing.T) {
	for _, strict := range []bool{false, true} {
		options := fakedriver.Options{Capacity: 60 * kib}
		if strict {
			options.Capacity = 0
		}
		b := open(t, options)
		b.pool.SetLimit(20 * kib)
		large, small := b.allocate(30*kib), []uint32{b.allocate(10 * kib), b.allocate(10 * kib), b.allocate(10 * kib)}
		if strict {
			b.budget(60*kib, true)
		}
		more := b.allocate(8 * kib)
		require.Equal(t, gomem.Resident, b.state(large))
		require.Equal(t, gomem.Spilled, b.state(small[0]))
		require.Equal(t, gomem.Resident, b.state(small[1]), "no more went than was needed")
		// Only when none helps is the request refused: one more copy of 10 KiB fits, and nothing else is small enough.
		_, err := b.Allocate(25*kib, gomem.AllocateOptions{})
		var full *gomem.MemoryError
		require.ErrorAs(t, err, &full)
		require.Equal(t, gomem.ReasonHost, full.Reason)
		require.EqualValues(t, 25*kib, full.Requested)
		var host *gomem.HostMemoryError
		require.ErrorAs(t, err, &host)
		require.EqualValues(t, 20*kib, host.Limit)
		require.Equal(t, gomem.Spilled, b.state(small[1]))
		require.Equal(t, gomem.Resident, b.state(large))
		// The large one is the next victim again as soon as there is room.
		b.pool.SetLimit(-1)
		most := b.allocate(25 * kib)
		require.Equal(t, gomem.Spilled, b.state(large))
		for _, index := range append([]uint32{large, more, most}, small...) {
			b.has(index, uint64(index))
		}
		b.drop(large, more, most)
		b.drop(small...)
	}
}

// What host memory has no place for cannot be spilled, and so may pass a soft budget as what is held may: the device has room. Only a device that is
// full, or a strict budget, refuses.
func TestSoftBudgetGivesWayToWhatHostMemoryHasNoPlaceFor(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 60 * kib})
	b.budget(20*kib, false)
	b.pool.SetLimit(12 * kib)
	x, y := b.allocate(10*kib), b.allocate(10*kib)
	z := b.allocate(10 * kib)
	require.Equal(t, gomem.Spilled, b.state(x), "as long as there is a place, it is kept")
	require.Zero(t, b.info().OverBudgetCount)

	w := b.allocate(10 * kib)
	require.Equal(t, gomem.Resident, b.state(y))
	require.EqualValues(t, 30*kib, b.info().InUse)
	require.EqualValues(t, 1, b.info().OverBudgetCount)
	b.use(x) // restored: its own copy is still in the way of y's
	require.EqualValues(t, 2, b.info().OverBudgetCount)
	token, err := b.Reserve(10*kib, gomem.AllocateOptions{})
	require.NoError(t, err, "a host's own allocation is no other")
	b.Unreserve(token)

	before := b.info()
	_, err = b.Allocate(55*kib, gomem.AllocateOptions{})
	var full *gomem.MemoryError
	require.ErrorAs(t, err, &full)
	require.Equal(t, gomem.ReasonHost, full.Reason, "the device is full, and now it is host memory that keeps it so")
	require.Zero(t, b.info().Reserved)
	require.Equal(t, before.OverBudgetCount, b.info().OverBudgetCount)

	_, _, err = b.SetBudget(20*kib, true, gomem.Wait{}) // what can be spilled goes, and the rest is told
	require.ErrorAs(t, err, &full)
	_, err = b.Allocate(10*kib, gomem.AllocateOptions{})
	require.ErrorAs(t, err, &full)
	require.Equal(t, gomem.ReasonHost, full.Reason)
	for _, index := range []uint32{x, y, z, w} {
		b.has(index, uint64(index))
	}
	b.drop(x, y, z, w)
}

// As long as nothing can be spilled, an allocation above a soft budget looks at no victim again; as soon as something can, it goes.
func TestHostMemoryThatIsUsedUpIsRemembered(t *testing.T) {
	for name, change := range map[string]struct {
		with func(b *bench, spilled uint32, exported uint32, release func())
		goes func(spilled, exported, oldest uint32) uint32 // what makes room then
	}{
		"the limit is raised": {func(b *bench, _, _ uint32, _ func()) { b.pool.SetLimit(40 * kib) },
			func(_, _, oldest uint32) uint32 { return oldest }},
		"a copy is given back": {func(b *bench, spilled, _ uint32, _ func()) { b.drop(spilled) },
			func(_, _, oldest uint32) uint32 { return oldest }},
		"a small buffer is not exported any more": {func(_ *bench, _, _ uint32, release func()) { release() },
			func(_, exported, _ uint32) uint32 { return exported }},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, fakedriver.Options{})
			b.pool.SetLimit(12 * kib)
			spilled, exported, oldest := b.allocate(10*kib), b.allocate(kib), b.allocate(10*kib)
			release := b.export(exported)
			_, err := b.Spill(spilled, gomem.Wait{})
			require.NoError(t, err)
			indexes := []uint32{exported, oldest}
			for range 300 {
				indexes = append(indexes, b.allocate(10*kib))
			}
			_, _, err = b.SetBudget(20*kib, false, gomem.Wait{}) // which the exported one and 300 others pass
			var full *gomem.MemoryError
			require.ErrorAs(t, err, &full)
			require.Equal(t, gomem.ReasonHost, full.Reason)
			indexes = append(indexes, b.allocate(10*kib))
			passes := b.VictimPasses()
			for range 100 {
				indexes = append(indexes, b.allocate(10*kib))
			}
			require.Equal(t, passes, b.VictimPasses())
			require.EqualValues(t, 1, b.info().SpillCount)

			change.with(b, spilled, exported, release)
			indexes = append(indexes, b.allocate(10*kib))
			require.Equal(t, gomem.Spilled, b.state(change.goes(spilled, exported, oldest)))
			if name != "a small buffer is not exported any more" {
				release()
			}
			if name != "a copy is given back" {
				indexes = append(indexes, spilled)
			}
			for _, index := range indexes {
				b.has(index, uint64(index))
			}
			b.drop(indexes...)
		})
	}
}

// A choice that ends early, since it has made room enough, has not looked at all that was released since the last complete one, and forgets none of it.
func TestWhatWasReleasedIsRememberedThroughAChoiceThatEndsEarly(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.pool.SetLimit(25 * kib)
	spilled := b.allocate(20 * kib)
	_, err := b.Spill(spilled, gomem.Wait{})
	require.NoError(t, err)
	oldest, large, released := b.allocate(20*kib), b.allocate(30*kib), b.allocate(4*kib)
	release := b.export(released)
	b.budget(56*kib, false)
	over := b.allocate(15 * kib) // looks at all of them: two have no place in host memory, and one is exported
	require.EqualValues(t, 1, b.info().OverBudgetCount)
	b.drop(over)
	release()
	b.drop(spilled)
	more := b.allocate(15 * kib) // spills the oldest one, which is enough
	require.Equal(t, gomem.Spilled, b.state(oldest))
	require.Equal(t, gomem.Resident, b.state(released))
	require.EqualValues(t, 1, b.info().OverBudgetCount)

	most := b.allocate(10 * kib)
	require.Equal(t, gomem.Spilled, b.state(released), "its copy has a place, and nothing keeps it")
	require.EqualValues(t, 1, b.info().OverBudgetCount)
	for _, index := range []uint32{oldest, large, released, more, most} {
		b.has(index, uint64(index))
	}
	b.drop(oldest, large, released, more, most)
}

// The same for what was not there when host memory was seen to be used up: a buffer that is made or comes back, and whose copy is small enough.
func TestSmallBufferGoesThoughHostMemoryIsUsedUpForOthers(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.pool.SetLimit(12 * kib)
	b.budget(0, false)
	large := []uint32{b.allocate(30 * kib), b.allocate(30 * kib)}
	small := b.allocate(8 * kib)
	large = append(large, b.allocate(30*kib))
	require.Equal(t, gomem.Spilled, b.state(small))
	b.use(small)
	large = append(large, b.allocate(30*kib))
	require.Equal(t, gomem.Spilled, b.state(small))
	tiny := b.allocate(kib)
	large = append(large, b.allocate(30*kib))
	require.Equal(t, gomem.Spilled, b.state(tiny))
	for _, index := range append(large, small, tiny) {
		b.has(index, uint64(index))
	}
	b.drop(append(large, small, tiny)...)
}

// What host memory has no place for is not waited for: only launches on buffers that could go then are.
func TestRefusedCopyIsNotWaitedFor(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 70 * kib}, func(o *gomem.Options) { o.MaxWait = time.Hour })
	large, running, small := b.allocate(30*kib), []uint32{b.allocate(30 * kib)}, []uint32{b.allocate(10 * kib)}
	b.pool.SetLimit(15 * kib)
	_, err := b.lane.enter(small, gomem.Wait{})
	require.NoError(t, err)
	done := make(chan uint32)
	go func() {
		index, err := b.Allocate(5*kib, gomem.AllocateOptions{}) // waits for the launch on the small one
		if err != nil {
			t.Error(err)
		}
		done <- index
	}()
	for !b.Waiting() {
		time.Sleep(time.Millisecond)
	}
	b.lane.leave(small)
	more := <-done
	require.Equal(t, gomem.Spilled, b.state(small[0]))

	_, err = b.lane.enter(running, gomem.Wait{}) // its copy would have no place either
	require.NoError(t, err)
	soon(t, "a request that waiting cannot help", func() {
		_, err = b.Allocate(20*kib, gomem.AllocateOptions{})
	})
	var full *gomem.MemoryError
	require.ErrorAs(t, err, &full)
	b.lane.leave(running)
	b.drop(large, running[0], small[0], more)
}

// The same where nothing was refused before it: the only buffer that could make room is in a launch, and its copy has no place.
func TestLaunchWhoseBuffersHaveNoPlaceInHostMemoryIsNotWaitedFor(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 40 * kib}, func(o *gomem.Options) { o.MaxWait = time.Hour })
	running := []uint32{b.allocate(10 * kib), b.allocate(10 * kib), b.allocate(10 * kib)}
	_, err := b.lane.enter(running, gomem.Wait{})
	require.NoError(t, err)
	b.pool.SetLimit(5 * kib)
	soon(t, "a request that waiting cannot help", func() {
		_, err = b.Allocate(39*kib, gomem.AllocateOptions{})
	})
	var full *gomem.MemoryError
	require.ErrorAs(t, err, &full)
	require.Equal(t, gomem.ReasonHost, full.Reason)
	var host *gomem.HostMemoryError
	require.ErrorAs(t, err, &host)
	require.EqualValues(t, 5*kib, host.Limit)
	require.False(t, b.Waiting())
	b.lane.leave(running)
	b.drop(running...)
}

// SpillAll goes on behind what was refused, and its error has real figures.
func TestSpillAllSpillsWhatHasAPlace(t *testing.T) {
	b := open(t, fakedriver.Options{})
	indexes := []uint32{b.allocate(2 * kib), b.allocate(30 * kib), b.allocate(3 * kib)}
	b.pool.SetLimit(10 * kib)
	freed, err := b.SpillAll(gomem.Wait{})
	require.EqualValues(t, 5*kib, freed)
	var full *gomem.MemoryError
	require.ErrorAs(t, err, &full)
	require.Equal(t, gomem.ReasonHost, full.Reason)
	require.EqualValues(t, 35*kib, full.Requested)
	require.EqualValues(t, 30*kib, full.InUse)
	require.EqualValues(t, 5*kib, full.Spilled)
	b.drop(indexes...)
}
