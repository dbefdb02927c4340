package gomem

import (
	"math"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestEventRingKeepsTheNewest(t *testing.T) {
	var lock sync.Mutex
	for _, capacity := range []int{1, 3, 64, 65, 1000} {
		r, err := newEventRing(capacity)
		require.NoError(t, err)
		for n := range 500 {
			lock.Lock()
			r.record(Event{Index: uint32(n)})
			lock.Unlock()
			events, lost := r.copyOut(lock.Lock, lock.Unlock)
			require.Len(t, events, min(n+1, capacity))
			require.EqualValues(t, n+1-len(events), lost)
			for i, e := range events {
				require.EqualValues(t, int(lost)+i, e.Index)
			}
		}
	}
}

func TestNoEventRing(t *testing.T) {
	r, err := newEventRing(0)
	require.NoError(t, err)
	require.Nil(t, r)
	r.record(Event{})
	events, lost := r.copyOut(func() { t.Fatal("locked") }, nil)
	require.Empty(t, events)
	require.Zero(t, lost)
}

// A copy made while others record has no torn, repeated or reordered event, and counts what it missed.
func TestEventRingCopyWhileOthersRecord(t *testing.T) {
	var lock sync.Mutex
	r, err := newEventRing(200)
	require.NoError(t, err)
	const total = 30_000
	var writer sync.WaitGroup
	writer.Go(func() {
		for n := range int64(total) {
			lock.Lock()
			r.record(Event{Bytes: n, InUse: -n})
			lock.Unlock()
		}
	})
	for done := false; !done; {
		events, lost := r.copyOut(lock.Lock, lock.Unlock)
		var last int64 = -1
		for _, e := range events {
			require.Equal(t, e.Bytes, -e.InUse)
			require.Greater(t, e.Bytes, last)
			last = e.Bytes
		}
		require.Equal(t, last+1, int64(len(events))+lost)
		done = last == total-1
	}
	writer.Wait()
}

func TestEventKindNames(t *testing.T) {
	require.Equal(t, "spill", EventSpill.String())
	require.Equal(t, "unknown", EventKind(99).String())
}

// Without memory for the ring the error says so, and the process goes on.
func TestEventRingWithoutMemory(t *testing.T) {
	r, err := newEventRing(math.MaxInt64 / int(2*unsafe.Sizeof(Event{})))
	var refused *HostMemoryError
	require.ErrorAs(t, err, &refused)
	require.Nil(t, r)
}
