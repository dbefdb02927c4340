package gomem_test

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// What was live at a peak: told afterwards, exactly, however much came and went since.

// closeAtPeak closes a watched scope and returns what it tells. What it tells always adds up to the peak.
func (b *bench) closeAtPeak(s *gomem.Scope) (holders []gomem.Holder) {
	b.t.Helper()
	given := 0
	b.CloseScopeAtPeak(s, func(told []gomem.Holder) { holders, given = told, given+1 })
	require.Equal(b.t, 1, given)
	require.Equal(b.t, s.Peak, bytesOf(holders))
	return holders
}

func bytesOf(holders []gomem.Holder) (sum int64) {
	for _, h := range holders {
		sum += h.Resident
	}
	return sum
}

func (b *bench) labelled(nbytes uint64, label, origin string) uint32 {
	b.t.Helper()
	index, err := b.Allocate(nbytes, gomem.AllocateOptions{Label: gomem.Intern(label), Origin: gomem.Intern(origin)})
	require.NoError(b.t, err)
	return index
}

// holds is what a group on this device is expected to be.
func (b *bench) holds(label, origin string, nbytes, count int64) gomem.Holder {
	return gomem.Holder{Label: label, Origin: origin, Device: b.Name(), Bytes: nbytes, Resident: nbytes, Count: count}
}

func TestAtPeakTellsWhatWasLiveThen(t *testing.T) {
	b := open(t, fakedriver.Options{})
	before := b.labelled(10*kib, "before", "")
	var s gomem.Scope
	b.WatchScope(&s)
	gone := b.labelled(20*kib, "", "a.py:1")
	stays, empty := b.labelled(5*kib, "", "a.py:1"), b.labelled(0, "empty", "")
	b.drop(before)
	spilled := b.labelled(13*kib, "spilled", "") // 38 KiB: the peak
	late := b.labelled(0, "late", "")            // at the same bytes: the peak is the first moment of several
	b.drop(gone)
	_, err := b.Spill(spilled, gomem.Wait{})
	require.NoError(t, err)
	after := b.labelled(37*kib-5*kib, "after", "")
	want := []gomem.Holder{b.holds("", "a.py:1", 25*kib, 2), b.holds("spilled", "", 13*kib, 1), b.holds("empty", "", 0, 1)}
	told, isOpen := b.AtPeak(&s)
	require.True(t, isOpen)
	require.Equal(t, want, told)
	b.use(spilled)
	require.Equal(t, int64(50*kib), s.Peak, "a restore is a rise, too")
	want = []gomem.Holder{b.holds("after", "", 32*kib, 1), b.holds("spilled", "", 13*kib, 1), b.holds("", "a.py:1", 5*kib, 1),
		b.holds("empty", "", 0, 1), b.holds("late", "", 0, 1)}
	require.Equal(t, want, b.closeAtPeak(&s))
	_, isOpen = b.AtPeak(&s)
	require.False(t, isOpen)
	b.drop(stays, empty, spilled, late, after)
}

// A scope that nothing rises in tells what was there when it was opened.
func TestAtPeakOfAScopeThatOnlyFell(t *testing.T) {
	b := open(t, fakedriver.Options{})
	one, other := b.labelled(kib, "one", ""), b.labelled(2*kib, "other", "")
	var s gomem.Scope
	b.WatchScope(&s)
	b.drop(one, other, b.labelled(0, "none", ""))
	require.Equal(t, []gomem.Holder{b.holds("other", "", 2*kib, 1), b.holds("one", "", kib, 1)}, b.closeAtPeak(&s))
	b.WatchScope(&s)
	require.Empty(t, b.closeAtPeak(&s))
}

// A restore counts from the driver's success on. When its copy fails, the peak that it made has happened all the same.
func TestAtPeakOfARestoreThatFailed(t *testing.T) {
	b, driver := openMidway(t)
	x, y := b.labelled(8*kib, "x", ""), b.labelled(4*kib, "y", "")
	_, err := b.Spill(x, gomem.Wait{})
	require.NoError(t, err)
	var s gomem.Scope
	b.WatchScope(&s)
	failure := errors.New("no copy")
	driver.onCopyIn = func() error { return failure }
	require.ErrorIs(t, b.MakeResident(x, gomem.Wait{}), failure)
	driver.onCopyIn = nil
	require.NoError(t, b.Check())
	b.drop(x)
	require.Equal(t, []gomem.Holder{b.holds("x", "", 8*kib, 1), b.holds("y", "", 4*kib, 1)}, b.closeAtPeak(&s))
	b.drop(y)
}

// replay is the obvious model: it follows the device's events, and copies the whole table whenever a scope's peak rises.
type replay struct {
	onDevice map[uint32]*replayed // by index
	labels   map[uint32]string    // of all buffers, by index
	origins  map[uint32]string
	scopes   []*replayedScope
	inUse    int64
}

// replayed is one buffer's stay on the device.
type replayed struct {
	label, origin string // the label: the last one while it was there
	bytes         int64
}

type replayedScope struct {
	scope gomem.Scope
	peak  int64
	live  []*replayed
}

func (r *replay) follow(events []gomem.Event) {
	for _, e := range events {
		switch e.Kind {
		case gomem.EventAllocate, gomem.EventRestore:
			r.onDevice[e.Index] = &replayed{r.labels[e.Index], r.origins[e.Index], e.Bytes}
			r.inUse += e.Bytes
			for _, s := range r.scopes {
				if r.inUse > s.peak {
					s.peak, s.live = r.inUse, r.live()
				}
			}
		case gomem.EventSpill, gomem.EventFree:
			if b := r.onDevice[e.Index]; b != nil { // else it was spilled when it was freed
				r.inUse -= b.bytes
				delete(r.onDevice, e.Index)
			}
		}
	}
}

func (r *replay) live() (list []*replayed) {
	for _, b := range r.onDevice {
		list = append(list, b)
	}
	return list
}

func (s *replayedScope) holders(b *bench) (list []gomem.Holder) {
	groups := map[[2]string]gomem.Holder{}
	for _, r := range s.live {
		key := [2]string{r.label, r.origin}
		h := groups[key]
		groups[key] = b.holds(r.label, r.origin, h.Bytes+r.bytes, h.Count+1)
	}
	for _, h := range groups {
		list = append(list, h)
	}
	slices.SortFunc(list, func(a, b gomem.Holder) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Label, b.Label), cmp.Compare(a.Origin, b.Origin))
	})
	return list
}

// Random work under a budget on a small device, with scopes that open and close in any order, against the replay.
func TestAtPeakAgainstAReplayOfAllEvents(t *testing.T) {
	seed := *modelSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d; run it again with -model.seed or GOMEM_MODEL_SEED", seed)
	for n, c := range []struct {
		capacity uint64
		budget   int64
	}{{0, -1}, {0, 30 * kib}, {36 * kib, -1}} {
		b := open(t, fakedriver.Options{NoContents: true, Capacity: c.capacity}, func(o *gomem.Options) { o.Check = true })
		b.budget(c.budget, false)
		random := rand.New(rand.NewPCG(seed, uint64(n)))
		names := []string{"", "one", "two", "three"}
		name := func() string { return names[random.IntN(len(names))] }
		model := &replay{onDevice: map[uint32]*replayed{}, labels: map[uint32]string{}, origins: map[uint32]string{}}
		var live []uint32
		closed := 0
		for range gomem.Fewer(6000, 1500) {
			require.NoError(t, b.RecordEvents(1000))
			switch op := random.IntN(20); {
			case op < 7:
				label, origin := name(), name()
				index, err := b.Allocate(random.Uint64N(2*kib), gomem.AllocateOptions{Label: gomem.Intern(label), Origin: gomem.Intern(origin)})
				require.NoError(t, err)
				model.labels[index], model.origins[index] = label, origin
				live = append(live, index)
			case op < 12 && len(live) > 0:
				i := random.IntN(len(live))
				b.drop(live[i])
				live = slices.Delete(live, i, i+1)
			case op < 14 && len(live) > 0:
				_, err := b.Spill(live[random.IntN(len(live))], gomem.Wait{})
				require.NoError(t, err)
			case op < 16 && len(live) > 0:
				b.use(live[random.IntN(len(live))])
			case op < 17 && len(live) > 0:
				index, label := live[random.IntN(len(live))], name()
				b.SetLabel(index, gomem.Intern(label))
				model.labels[index] = label
				if r := model.onDevice[index]; r != nil {
					r.label = label
				}
			case op < 18 && len(model.scopes) < 8:
				s := &replayedScope{peak: model.inUse, live: model.live()}
				b.WatchScope(&s.scope)
				model.scopes = append(model.scopes, s)
			case op < 19 && len(model.scopes) > 0:
				i := random.IntN(len(model.scopes))
				s := model.scopes[i]
				model.scopes = slices.Delete(model.scopes, i, i+1)
				require.Equal(t, s.holders(b), append([]gomem.Holder(nil), b.closeAtPeak(&s.scope)...), "seed %d", seed)
				require.Equal(t, s.peak, s.scope.Peak)
				closed++
			case len(model.scopes) > 0:
				s := model.scopes[random.IntN(len(model.scopes))]
				told, isOpen := b.AtPeak(&s.scope)
				require.True(t, isOpen)
				require.Equal(t, s.holders(b), append([]gomem.Holder(nil), told...), "seed %d", seed)
			}
			events, lost := b.Events()
			require.Zero(t, lost)
			model.follow(events)
			require.Equal(t, model.inUse, b.info().InUse)
		}
		for _, s := range model.scopes {
			require.Equal(t, s.holders(b), append([]gomem.Holder(nil), b.closeAtPeak(&s.scope)...), "seed %d", seed)
		}
		require.Greater(t, closed, 20)
		b.drop(live...)
	}
}

// While many allocate, spill and drop, scopes of several goroutines are read and closed. Sizes are random, so a buffer that was missed, or counted
// twice, shows in the sum. There are enough buffers for many of them to come and go while one look is taken.
func TestAtPeakWhileManyRace(t *testing.T) {
	const workerCount, each = 4, 5000
	b := open(t, fakedriver.Options{NoContents: true})
	random := rand.New(rand.NewPCG(5, 5))
	indexes := make([]uint32, workerCount*each)
	for i := range indexes {
		indexes[i] = b.labelled(random.Uint64N(4*kib), "", "")
	}
	random.Shuffle(len(indexes), func(i, j int) { indexes[i], indexes[j] = indexes[j], indexes[i] })
	b.budget(b.info().InUse*9/10, false)
	var stop atomic.Bool
	var workers sync.WaitGroup
	for n := range uint64(workerCount) {
		live := indexes[n*each : (n+1)*each : (n+1)*each]
		workers.Go(func() {
			random := rand.New(rand.NewPCG(n, n))
			label := gomem.Intern(string(rune('a' + n)))
			for !stop.Load() {
				switch random.IntN(8) {
				case 0, 1, 2:
					if len(live) < each {
						index, err := b.Allocate(random.Uint64N(4*kib), gomem.AllocateOptions{Label: label})
						if err != nil {
							t.Error(err)
							return
						}
						live = append(live, index)
					}
				case 3, 4, 5:
					for range min(len(live), random.IntN(3)) {
						i := random.IntN(len(live))
						b.Drop(live[i])
						live[i] = live[len(live)-1]
						live = live[:len(live)-1]
					}
				case 6:
					if len(live) > 0 {
						if _, err := b.Spill(live[random.IntN(len(live))], gomem.Wait{}); err != nil {
							t.Error(err)
						}
					}
				default:
					if len(live) > 0 {
						if err := b.MakeResident(live[random.IntN(len(live))], gomem.Wait{}); err != nil {
							t.Error(err)
						}
					}
				}
			}
			b.drop(live...)
		})
	}
	var readers sync.WaitGroup
	for n := range uint64(3) {
		readers.Go(func() {
			random := rand.New(rand.NewPCG(99, n))
			for range gomem.Fewer(500, 15) {
				var s gomem.Scope
				b.WatchScope(&s)
				time.Sleep(time.Duration(random.IntN(500)) * time.Microsecond)
				before := b.PeakOf(&s)
				told, isOpen := b.AtPeak(&s)
				if sum := bytesOf(told); !isOpen || sum < before || sum > b.PeakOf(&s) {
					t.Errorf("what was live has %d bytes, the peak went from %d to %d meanwhile", sum, before, b.PeakOf(&s))
				}
				b.CloseScopeAtPeak(&s, func(told []gomem.Holder) {
					if sum := bytesOf(told); sum != s.Peak {
						t.Errorf("what was live has %d bytes, the peak is %d", sum, s.Peak)
					}
				})
			}
		})
	}
	readers.Wait()
	stop.Store(true)
	workers.Wait()
	require.Zero(t, b.Watched())
}

// Stays are kept only as long as a scope needs them.
func TestStaysAreKeptForPeaksOnly(t *testing.T) {
	b := open(t, fakedriver.Options{NoContents: true})
	churn := func(n int, nbytes uint64) {
		for range n {
			b.drop(b.labelled(nbytes, "temporary", ""))
		}
	}
	churn(100, kib)
	require.Zero(t, b.KeptStays(), "nobody watches")

	var outer, inner gomem.Scope
	b.WatchScope(&outer)
	live := make([]uint32, 50)
	for i := range live {
		live[i] = b.labelled(kib, "live", "")
	}
	b.drop(live...)
	require.Equal(t, 50, b.KeptStays())
	churn(5000, kib)
	require.Equal(t, 50, b.KeptStays(), "what came and went after the peak is not kept")

	b.WatchScope(&inner)
	for n := range uint64(20_000) { // each a new peak of the inner scope: the stays before are not needed any more
		churn(1, 1+n)
	}
	require.Less(t, b.KeptStays(), 3000)
	require.NoError(t, b.Check())
	require.Equal(t, []gomem.Holder{b.holds("live", "", 50*kib, 50)}, b.closeAtPeak(&outer))
	require.Equal(t, []gomem.Holder{b.holds("temporary", "", 20_000, 1)}, b.closeAtPeak(&inner))
	churn(1, kib)
	require.Zero(t, b.KeptStays(), "nobody watches any more")
}
