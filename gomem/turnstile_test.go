package gomem_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

func TestLaunchThatCannotFitBesideExportsFails(t *testing.T) {
	for _, strict := range []bool{false, true} {
		options := fakedriver.Options{Capacity: 30 * kib}
		if strict {
			options.Capacity = 0
		}
		b := open(t, options)
		exported := b.allocate(10 * kib)
		release := b.export(exported)
		if strict {
			b.budget(30*kib, true)
		}
		x, y := b.allocate(15*kib), b.allocate(15*kib)
		soon(t, "a launch that cannot fit", func() {
			_, err := b.lane.enter([]uint32{x, y}, gomem.Wait{})
			var full *gomem.MemoryError
			require.ErrorAs(t, err, &full)
			require.GreaterOrEqual(t, full.Requested, int64(15*kib))
			require.EqualValues(t, 10*kib, full.Unspillable["export: dlpack"])
		})
		require.Zero(t, b.Record(x).Admitted)
		require.Zero(t, b.Record(y).Launches)
		require.False(t, b.Waiting())
		release()
		soon(t, "the same launch after the export", func() {
			_, err := b.lane.enter([]uint32{x, y}, gomem.Wait{})
			require.NoError(t, err)
			b.lane.leave([]uint32{x, y})
		})
		b.drop(exported, x, y)
	}
}

// A launch waits also for a hold that earlier choices of victims have met, and have not looked at since.
func TestLaunchWaitsForAHoldThatWasParked(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 30 * kib})
	held, exported, x := b.allocate(10*kib), b.allocate(10*kib), b.allocate(10*kib)
	id, err := b.Hold(held, gomem.HoldScope, 0, gomem.Wait{})
	require.NoError(t, err)
	release := b.export(exported)
	_, err = b.SpillAll(gomem.Wait{})
	require.NoError(t, err)
	require.Equal(t, gomem.Spilled, b.state(x))
	y := b.allocate(10 * kib)
	soon(t, "the launch", func() {
		var launch sync.WaitGroup
		launch.Go(func() {
			_, err := b.lane.enter([]uint32{x, y}, gomem.Wait{})
			assert.NoError(t, err)
		})
		marked := assert.Eventually(t, func() bool { return b.state(held) == gomem.Spilling }, 10*time.Second, time.Millisecond, "the launch does not wait")
		assert.True(t, !marked || b.state(exported) == gomem.Resident, "what is exported is not waited for")
		b.Release(held, id)
		launch.Wait()
	})
	if t.Failed() {
		return
	}
	require.Equal(t, gomem.Spilled, b.state(held))
	b.lane.leave([]uint32{x, y})
	release()
	for _, index := range []uint32{held, exported, x, y} {
		b.has(index, uint64(index))
	}
	b.drop(held, exported, x, y)
}

// A launch that would fit alone does not fail because another one runs: it waits, and both get their turn.
func TestTwoLaunchesThatEachNeedTheWholeDevice(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 20 * kib, Quarantine: true})
	pairs := [2][]uint32{{b.allocate(10 * kib), b.allocate(10 * kib)}, {b.allocate(10 * kib), b.allocate(10 * kib)}}
	const rounds = 200
	soon(t, "two launches in turns", func() {
		var both sync.WaitGroup
		for _, pair := range pairs {
			both.Go(func() {
				for range rounds {
					addresses, err := b.lane.enter(pair, gomem.Wait{})
					if err != nil {
						t.Error(err)
						return
					}
					for i, address := range addresses {
						b.driver.Bytes(address, b.Record(pair[i]).Size)[0]++ // panics where the buffer has moved
					}
					b.lane.leave(pair)
				}
			})
		}
		both.Wait()
	})
	for _, pair := range pairs {
		for _, index := range pair {
			require.Equal(t, contents(10*kib, uint64(index))[0]+byte(rounds%256), b.read(index)[0])
			b.drop(index)
		}
	}
}

// A launch that needs everything is not starved by small ones that come and go without a pause: its victims are marked, and no new launch
// takes them.
func TestLargeLaunchIsNotStarvedBySmallOnes(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 30 * kib})
	small := []uint32{b.allocate(10 * kib), b.allocate(10 * kib), b.allocate(10 * kib)}
	large := b.allocate(30 * kib)
	var stop atomic.Bool
	var others sync.WaitGroup
	for n := range 3 * len(small) {
		mine := small[n%len(small):][:1]
		others.Go(func() { // three threads a buffer: one begins before another ends, so the buffer is never free by itself
			for !stop.Load() {
				if _, err := b.lane.enter(mine, gomem.Wait{}); err != nil {
					t.Error(err)
					return
				}
				time.Sleep(300 * time.Microsecond)
				b.lane.leave(mine)
			}
		})
	}
	soon(t, "the large launch", func() {
		for range 5 {
			_, err := b.lane.enter([]uint32{large}, gomem.Wait{})
			require.NoError(t, err)
			b.lane.leave([]uint32{large})
		}
	})
	stop.Store(true)
	soon(t, "the small launches", others.Wait)
	b.drop(large)
	b.drop(small...)
}

// Two that wait are served in the order they came.
func TestTurnstileIsFirstComeFirstServed(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 10 * kib})
	held := []uint32{b.allocate(10 * kib)}
	_, err := b.lane.enter(held, gomem.Wait{})
	require.NoError(t, err)
	require.NoError(t, spillNone(b))
	const waiters = 8
	var waiting []uint32
	b.lane.leave(held)
	for range waiters {
		waiting = append(waiting, b.allocate(10*kib))
	}
	_, err = b.lane.enter(held, gomem.Wait{})
	require.NoError(t, err)
	var mu sync.Mutex
	var served []int
	var all sync.WaitGroup
	for n := range waiters {
		all.Go(func() {
			_, err := b.lane.enter(waiting[n:n+1], gomem.Wait{})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			served = append(served, n)
			mu.Unlock()
			b.lane.leave(waiting[n : n+1])
		})
		if n == 0 {
			for !b.Waiting() {
				time.Sleep(time.Millisecond)
			}
		}
		for b.Waiters() < n { // the first waits for the launch, the others for the first
			time.Sleep(time.Millisecond)
		}
	}
	b.lane.leave(held)
	soon(t, "eight launches in turn", all.Wait)
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, served)
	b.drop(held...)
	b.drop(waiting...)
}

func spillNone(b *bench) error {
	_, err := b.SpillAll(gomem.Wait{})
	return err
}

// A launch inside another launch of the same thread never waits: it fails at once, with what keeps the room in the error.
func TestNestedLaunchFailsInsteadOfWaiting(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 20 * kib}, func(o *gomem.Options) { o.MaxWait = time.Hour })
	outer, inner := []uint32{b.allocate(15 * kib)}, []uint32{b.allocate(15 * kib)}
	_, err := b.lane.enter(outer, gomem.Wait{})
	require.NoError(t, err)
	soon(t, "a nested launch", func() {
		_, err := b.lane.enter(inner, gomem.Wait{Nested: true})
		var full *gomem.MemoryError
		require.ErrorAs(t, err, &full)
		require.EqualValues(t, 15*kib, full.Unspillable["launch"])
		_, err = b.Allocate(10*kib, gomem.AllocateOptions{Wait: gomem.Wait{Nested: true}})
		require.ErrorAs(t, err, &full)
	})
	b.lane.leave(outer)
	b.has(inner[0], uint64(inner[0]))
	b.drop(outer[0], inner[0])
}

// A host's own lock: the waiter holds it, and the launch that it waits for needs it to end. The wait has an end, the launch gets its
// error, and everybody goes on.
func TestWaitOnAHostsOwnLockEndsByTheDeadline(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 20 * kib}, func(o *gomem.Options) { o.MaxWait = 200 * time.Millisecond })
	first, second := []uint32{b.allocate(15 * kib)}, []uint32{b.allocate(15 * kib)}
	var dispatch sync.Mutex
	_, err := b.lane.enter(first, gomem.Wait{})
	require.NoError(t, err)
	dispatch.Lock()
	var other sync.WaitGroup
	other.Go(func() {
		dispatch.Lock() // inside its launch
		b.lane.leave(first)
		dispatch.Unlock()
	})
	soon(t, "a wait on a host's lock", func() {
		_, err = b.lane.enter(second, gomem.Wait{})
	})
	var full *gomem.MemoryError
	require.ErrorAs(t, err, &full)
	var late *gomem.WaitError
	require.ErrorAs(t, err, &late)
	require.Equal(t, gomem.Resident, b.state(first[0]), "no mark is left behind")
	require.False(t, b.Waiting())
	dispatch.Unlock()
	other.Wait()
	_, err = b.lane.enter(second, gomem.Wait{})
	require.NoError(t, err)
	b.lane.leave(second)
	b.drop(first[0], second[0])
}

// Who keeps launches that may be over is asked about them before they are waited for; nothing has changed then.
func TestLaunchesThatMayBeOverAreAskedForFirst(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 24 * kib})
	running := []uint32{b.allocate(15 * kib)}
	_, err := b.lane.enter(running, gomem.Wait{})
	require.NoError(t, err)
	soon(t, "a request that does not wait", func() { _, err = b.Allocate(15*kib, gomem.AllocateOptions{Wait: gomem.Wait{Late: true}}) })
	require.ErrorIs(t, err, gomem.ErrLate)
	require.Equal(t, gomem.Resident, b.state(running[0]), "no mark is left behind")
	require.Zero(t, b.info().Reserved)
	b.lane.leave(running)
	more, err := b.Allocate(15*kib, gomem.AllocateOptions{Wait: gomem.Wait{Late: true}})
	require.NoError(t, err)
	require.Equal(t, gomem.Spilled, b.state(running[0]))
	b.drop(running[0], more)
}

// The error of a wait in vain says what the room was missing in.
func TestReasonOfAWaitThatTookTooLong(t *testing.T) {
	for reason, budget := range map[string]int64{gomem.ReasonBudget: 20 * kib, gomem.ReasonDevice: -1} {
		b := open(t, fakedriver.Options{Capacity: 24 * kib}, func(o *gomem.Options) { o.MaxWait = time.Millisecond })
		held := b.allocate(15 * kib)
		id, err := b.Hold(held, gomem.HoldScope, 0, gomem.Wait{})
		require.NoError(t, err)
		b.budget(budget, true)
		soon(t, "a wait for a hold", func() { _, err = b.Allocate(15*kib, gomem.AllocateOptions{}) })
		var full *gomem.MemoryError
		require.ErrorAs(t, err, &full)
		var late *gomem.WaitError
		require.ErrorAs(t, err, &late)
		require.Equal(t, reason, full.Reason)
		b.Release(held, id)
		b.drop(held)
	}
}

// Ctrl-C ends the wait for a launch.
func TestWaitForALaunchCanBeCancelled(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 20 * kib}, func(o *gomem.Options) { o.MaxWait = time.Hour })
	first, second, third := []uint32{b.allocate(15 * kib)}, []uint32{b.allocate(15 * kib)}, []uint32{b.allocate(15 * kib)}
	_, err := b.lane.enter(first, gomem.Wait{})
	require.NoError(t, err)
	for _, w := range [][]uint32{second, third} { // at the head of the turnstile, and behind it
		w := w
		cancels := []*gomem.Cancel{new(gomem.Cancel), new(gomem.Cancel)}
		ends := make(chan error, 2)
		for i := range cancels {
			go func() {
				_, err := b.lane.enter(w, gomem.Wait{Cancel: cancels[i]})
				ends <- err
			}()
		}
		for !b.Waiting() || b.Waiters() < 1 {
			time.Sleep(time.Millisecond)
		}
		cancels[0].Cancel()
		cancels[1].Cancel()
		soon(t, "a cancelled launch", func() {
			require.ErrorIs(t, <-ends, gomem.ErrCancelled)
			require.ErrorIs(t, <-ends, gomem.ErrCancelled)
		})
		require.Equal(t, gomem.Resident, b.state(first[0]))
	}
	b.lane.leave(first)
	b.drop(first[0], second[0], third[0])
}

// An export keeps its buffer as long as its consumer likes, so nobody waits for it.
func TestNobodyWaitsForAnExport(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 20 * kib}, func(o *gomem.Options) { o.MaxWait = time.Hour })
	exported, other := b.allocate(15*kib), b.allocate(15*kib)
	release := b.export(exported)
	soon(t, "an allocation beside an export", func() {
		var full *gomem.MemoryError
		_, err := b.lane.enter([]uint32{other}, gomem.Wait{})
		require.ErrorAs(t, err, &full)
		require.Equal(t, gomem.ReasonDevice, full.Reason)
		_, err = b.Allocate(10*kib, gomem.AllocateOptions{})
		require.ErrorAs(t, err, &full)
	})
	release()
	b.use(other)
	b.drop(exported, other)
}

// A hold is waited for like a launch.
func TestHoldOfAnotherThreadIsWaitedFor(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 20 * kib})
	held, wanted := b.allocate(15*kib), b.allocate(15*kib)
	id, err := b.Hold(held, gomem.HoldScope, gomem.Intern("texture"), gomem.Wait{})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- b.MakeResident(wanted, gomem.Wait{}) }()
	for !b.Waiting() {
		time.Sleep(time.Millisecond)
	}
	b.Release(held, id)
	soon(t, "the wait for a hold", func() { require.NoError(t, <-done) })
	require.Equal(t, gomem.Spilled, b.state(held))
	b.has(held, uint64(held))
	b.drop(held, wanted)
}

// An allocation that fits does not wait for somebody's long spill.
func TestAllocationThatFitsDoesNotWaitForTheMovingLock(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 100 * kib})
	resident := b.allocate(10 * kib)
	release := b.HoldMoving()
	soon(t, "what needs no moving lock", func() {
		index, err := b.Allocate(10*kib, gomem.AllocateOptions{})
		require.NoError(t, err)
		b.write(index, 1)
		b.has(index, 1)
		_, err = b.lane.enter([]uint32{index, resident}, gomem.Wait{})
		require.NoError(t, err)
		b.lane.leave([]uint32{index, resident})
		id, err := b.Hold(index, gomem.HoldScope, 0, gomem.Wait{})
		require.NoError(t, err)
		b.Release(index, id)
		_, err = b.Info(true)
		require.NoError(t, err)
		b.drop(index) // never waits
	})
	require.EqualValues(t, 10*kib, b.info().PendingFree)
	release() // drains what was dropped meanwhile
	require.Zero(t, b.info().PendingFree)
	require.False(t, b.Dropped())
	blocks, _ := b.driver.Live()
	require.Equal(t, 1, blocks)
	b.drop(resident)
}
