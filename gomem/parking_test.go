package gomem_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// What holds and exports keep is parked. Wherever the last of them ends in a request's work, the request still finds the buffer: to spill, or to wait for.

func TestHoldThatEndsBetweenAChoiceAndItsMarks(t *testing.T) {
	for name, hold := range map[string]func(b *bench, index uint32) (release func()){
		"hold": func(b *bench, index uint32) func() {
			id, err := b.Hold(index, gomem.HoldScope, 0, gomem.Wait{})
			require.NoError(t, err)
			return func() { b.Release(index, id) }
		},
		"export": (*bench).export,
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, fakedriver.Options{})
			index := b.allocate(8 * kib)
			release := hold(b, index)
			require.EqualValues(t, 8*kib, b.AwaitedBy(kib, release), "nothing keeps it any more")
			_, err := b.Spill(index, gomem.Wait{})
			require.NoError(t, err)
			require.Equal(t, gomem.Spilled, b.state(index))
			b.has(index, uint64(index))
			b.drop(index)
		})
	}
}

func TestExportIsNotWaitedFor(t *testing.T) {
	b := open(t, fakedriver.Options{})
	index := b.allocate(8 * kib)
	release := b.export(index)
	require.Zero(t, b.AwaitedBy(kib, func() {}))
	release()
	b.drop(index)
}

// The same with threads, and through the whole of a request.
func TestStrictRequestsBesideShortHolds(t *testing.T) {
	for name, kind := range map[string]gomem.HoldKind{"holds": gomem.HoldScope, "launches": gomem.HoldLaunch} {
		t.Run(name, func(t *testing.T) {
			b := open(t, fakedriver.Options{})
			held := b.allocate(8 * kib)
			b.budget(9*kib, true)
			var ended atomic.Bool
			var work sync.WaitGroup
			work.Go(func() {
				for !ended.Load() {
					if kind == gomem.HoldScope {
						if id, err := b.Hold(held, kind, 0, gomem.Wait{}); err == nil {
							time.Sleep(50 * time.Microsecond)
							b.Release(held, id)
						}
					} else if err := b.Admit([]uint32{held}, gomem.Wait{}); err == nil {
						time.Sleep(50 * time.Microsecond)
						b.Discharge([]uint32{held})
					}
				}
			})
			for range gomem.Fewer(3000, 300) {
				index, err := b.Allocate(8*kib, gomem.AllocateOptions{})
				if err != nil {
					t.Errorf("refused, though a hold that is over soon was all that kept the room: %v", err)
					break
				}
				b.drop(index)
			}
			ended.Store(true)
			work.Wait()
			b.drop(held)
		})
	}
}

// A launch is not taken for an export, however the looks at what keeps the buffer fall.
func TestLaunchesAreNotTakenForExports(t *testing.T) {
	b := open(t, fakedriver.Options{})
	index := b.allocate(8 * kib)
	launches := []uint32{index}
	var ended atomic.Bool
	var work sync.WaitGroup
	work.Go(func() {
		defer ended.Store(true)
		for range gomem.Fewer(1_000_000, 30_000) {
			if _, err := b.lane.enter(launches, gomem.Wait{}); err != nil {
				t.Error(err)
				return
			}
			b.lane.leave(launches)
		}
	})
	for !ended.Load() {
		if b.Stays(index) {
			t.Error("a launch was taken for an export")
			break
		}
	}
	work.Wait()
	b.drop(index)
}
