package gomem_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// Properties of the books, each of them one that went wrong somewhere else.

// Scopes, nested or overlapping, each report exactly their own interval's maximum, in whatever order they are opened and closed.
func TestScopesReportTheirOwnIntervalsMaximum(t *testing.T) {
	b := open(t, fakedriver.Options{NoContents: true})
	random := rand.New(rand.NewPCG(3, 3))
	type expected struct {
		scope *gomem.Scope
		peak  int64
	}
	var scopes []expected
	var live []uint32
	inUse := func() int64 { return b.info().InUse }
	for range gomem.Fewer(3000, 1000) {
		switch random.IntN(5) {
		case 0, 1:
			index, err := b.Allocate(1+random.Uint64N(1000), gomem.AllocateOptions{})
			require.NoError(t, err)
			live = append(live, index)
			for i := range scopes {
				scopes[i].peak = max(scopes[i].peak, inUse())
			}
		case 2:
			if len(live) > 0 {
				i := random.IntN(len(live))
				b.drop(live[i])
				live = append(live[:i], live[i+1:]...)
			}
		case 3:
			if len(scopes) < 10 {
				s := &gomem.Scope{}
				b.OpenScope(s)
				scopes = append(scopes, expected{s, inUse()})
			}
		case 4:
			if len(scopes) > 0 {
				i := random.IntN(len(scopes))
				b.CloseScope(scopes[i].scope)
				require.Equal(t, scopes[i].peak, scopes[i].scope.Peak)
				require.Equal(t, inUse(), scopes[i].scope.End)
				for j := range i { // opened before, still open: outer
					require.GreaterOrEqual(t, scopes[j].scope.Peak, scopes[i].scope.Peak)
				}
				scopes = append(scopes[:i], scopes[i+1:]...)
			}
		}
	}
	for _, s := range scopes {
		b.CloseScope(s.scope)
	}
	b.drop(live...)
}

// The outer scope's peak is not less than the inner one's also when the outer peaked before the inner opened.
func TestOuterScopeThatPeakedBeforeTheInnerOpened(t *testing.T) {
	b := open(t, fakedriver.Options{})
	var outer, inner gomem.Scope
	b.OpenScope(&outer)
	b.drop(b.allocate(100 * kib))
	b.OpenScope(&inner)
	b.drop(b.allocate(10 * kib))
	b.CloseScope(&outer)
	b.drop(b.allocate(50 * kib))
	b.CloseScope(&inner)
	require.EqualValues(t, 100*kib, outer.Peak)
	require.EqualValues(t, 50*kib, inner.Peak)
	require.EqualValues(t, 100*kib, b.info().Peak)
}

func TestScopeOverBuffersThatComeAndGo(t *testing.T) {
	b := open(t, fakedriver.Options{NoContents: true})
	before, err := b.Allocate(100*mib, gomem.AllocateOptions{})
	require.NoError(t, err)
	var s gomem.Scope
	b.OpenScope(&s)
	var live []uint32
	for range 4 {
		index, err := b.Allocate(256*mib, gomem.AllocateOptions{})
		require.NoError(t, err)
		live = append(live, index)
	}
	b.drop(live...)
	b.CloseScope(&s)
	require.EqualValues(t, 1024*mib, s.Peak-s.Start)
	require.EqualValues(t, 1024*mib, s.Own)
	require.Zero(t, s.OwnNow)
	require.EqualValues(t, 100*mib, b.info().InUse)
	b.drop(before)
}

// What a scope's own buffers need does not depend on what was there before, nor on a budget.
func TestOwnPeakCountsSpilledBuffersToo(t *testing.T) {
	b := open(t, fakedriver.Options{})
	older := b.allocate(20 * kib)
	b.budget(30*kib, false)
	var s gomem.Scope
	b.OpenScope(&s)
	live := []uint32{b.allocate(15 * kib), b.allocate(15 * kib), b.allocate(15 * kib)}
	b.drop(older)
	b.CloseScope(&s)
	require.EqualValues(t, 45*kib, s.Own)
	require.EqualValues(t, 65*kib, s.Footprint)
	require.LessOrEqual(t, s.Peak, int64(30*kib))
	require.Equal(t, b.info().SpilledBytes, s.SpilledBytes)
	b.drop(live...)
}

func TestResetPeakChangesNothingElse(t *testing.T) {
	b, other := open(t, fakedriver.Options{}), open(t, fakedriver.Options{Name: "fake:1"})
	var s gomem.Scope
	b.OpenScope(&s)
	x := b.allocate(10 * kib)
	b.drop(b.allocate(20 * kib))
	other.drop(other.allocate(5 * kib))
	before := b.info()
	b.ResetPeak()
	after := b.info()
	require.EqualValues(t, 30*kib, before.Peak)
	require.EqualValues(t, 10*kib, after.Peak)
	after.Peak = before.Peak
	require.Equal(t, before, after)
	require.EqualValues(t, 5*kib, other.info().Peak)
	b.CloseScope(&s)
	require.EqualValues(t, 30*kib, s.Peak, "open scopes are untouched")
	b.drop(x)
}

// 64 goroutines racing: the peak is at least every sum that was there at one moment, exactly what was highest when all arrive together, and
// nothing is lost.
func TestPeakIsExactWhileManyRace(t *testing.T) {
	b := open(t, fakedriver.Options{NoContents: true})
	const workers, size = 64, 1000
	for range 20 {
		b.ResetPeak()
		var s gomem.Scope
		b.OpenScope(&s)
		indexes := make([]uint32, workers)
		var all sync.WaitGroup
		for n := range workers {
			all.Go(func() {
				for range 5 {
					index, err := b.Allocate(size, gomem.AllocateOptions{})
					if err != nil {
						t.Error(err)
						return
					}
					b.Drop(index)
				}
				index, err := b.Allocate(size, gomem.AllocateOptions{})
				if err != nil {
					t.Error(err)
				}
				indexes[n] = index
			})
		}
		all.Wait()
		// All 64 are alive now, and no more than 64 ever were.
		require.EqualValues(t, workers*size, b.info().Peak)
		b.CloseScope(&s)
		require.EqualValues(t, workers*size, s.Peak)
		require.EqualValues(t, workers*size, s.Own)
		b.drop(indexes...)
	}
}

// The same program has the same peak in 100 runs, whatever the device's delays: the books fall when the program lets go.
func TestPeakIsTheSameInHundredRunsUnderRandomDelays(t *testing.T) {
	var first gomem.Info
	for run := range 100 {
		b := open(t, fakedriver.Options{Asynchronous: true, DeferFrees: run%2 == 0, Jitter: 30 * time.Microsecond, Seed: uint64(run)})
		b.budget(60*kib, false)
		random := rand.New(rand.NewPCG(1, 1)) // the same program each time
		var live []uint32
		for range 40 {
			index, err := b.Allocate(1+random.Uint64N(20*kib), gomem.AllocateOptions{Zero: true})
			require.NoError(t, err)
			live = append(live, index)
			if len(live) > 5 {
				i := random.IntN(len(live))
				b.drop(live[i])
				live = append(live[:i], live[i+1:]...)
			}
			b.use(live[random.IntN(len(live))])
		}
		info := b.info()
		if run == 0 {
			first = info
			require.NotZero(t, first.SpillCount)
		}
		require.Equal(t, first.Peak, info.Peak)
		require.Equal(t, first.SpilledBytes, info.SpilledBytes)
		require.Equal(t, first.InUse, info.InUse)
		b.drop(live...)
	}
}

func TestBooksAreExactAfterAStormOfAllocationsAndFrees(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.budget(100*kib, false)
	storm := gomem.Fewer(1000, 300)
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), 1))
			var live []uint32
			for range storm {
				index, err := b.Allocate(1+random.Uint64N(4*kib), gomem.AllocateOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				if live = append(live, index); len(live) > 8 {
					if i := random.IntN(len(live)); random.IntN(2) == 0 {
						b.Drop(live[i])
						live = append(live[:i], live[i+1:]...)
					} else if err := b.Free(live[i], gomem.Wait{}); err != nil {
						t.Error(err)
					} else {
						live = append(live[:i], live[i+1:]...)
					}
				}
			}
			for _, index := range live {
				b.Drop(index)
			}
		})
	}
	all.Wait()
	require.NoError(t, b.Synchronize())
	info := b.info()
	require.Zero(t, info.InUse+info.Spilled+info.Reserved+info.PendingFree+info.Live)
	require.EqualValues(t, 8*storm, info.AllocateCount)
	require.EqualValues(t, 8*storm, info.FreeCount)
	require.LessOrEqual(t, info.Peak, int64(100*kib))
}

// A snapshot is of one moment, also while others allocate, spill and free.
func TestInfoIsAConsistentCopy(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.budget(20*kib, false)
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				index, err := b.Allocate(4*kib, gomem.AllocateOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				if err := b.MakeResident(index, gomem.Wait{}); err != nil {
					t.Error(err)
				}
				b.Drop(index)
			}
		})
	}
	for range gomem.Fewer(3000, 500) {
		info := b.info()
		require.Equal(t, info.Spilled, info.SpilledBytes-info.RestoredBytes-info.FreedSpilled)
		require.LessOrEqual(t, info.InUse, info.Peak)
		require.Equal(t, info.Live, info.AllocateCount-info.FreeCount)
		require.GreaterOrEqual(t, info.InUse, int64(0))
		require.Zero(t, (info.InUse+info.Spilled)%(4*kib))
	}
	close(stop)
	all.Wait()
}

func TestAllocationOverTheBudgetIsRecordedAndLoweringItBlocksNoFree(t *testing.T) {
	b := open(t, fakedriver.Options{})
	x := b.allocate(20 * kib)
	release := b.export(x)
	b.budget(5*kib, true) // below what cannot move
	info := b.info()
	require.EqualValues(t, 20*kib, info.InUse)
	release()
	require.NoError(t, b.Free(x, gomem.Wait{}))
	b.budget(5*kib, false)
	y := b.allocate(10 * kib)
	require.EqualValues(t, 1, b.info().OverBudgetCount)
	b.drop(y)
}

func TestAfterTrimTheWholeBudgetCanBeAllocated(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 40 * kib, Pool: true, DeferFrees: true})
	b.budget(40*kib, true)
	for n := range 4 {
		b.drop(b.allocate(uint64(5+n) * kib))
	}
	require.NotZero(t, b.driver.PendingFree())
	_, err := b.Trim()
	require.NoError(t, err)
	info, err := b.Info(true)
	require.NoError(t, err)
	require.Zero(t, info.Driver.Cached)
	require.Zero(t, info.DriverPending)
	require.Equal(t, info.Driver.Total, info.Driver.Free)
	b.drop(b.allocate(40 * kib))
}

// The program's free counts at once; what the driver has not given back is a figure of its own.
func TestLogicalFree(t *testing.T) {
	b := open(t, fakedriver.Options{DeferFrees: true})
	x := b.allocate(10 * kib)
	b.drop(x)
	info := b.info()
	require.Zero(t, info.InUse)
	require.EqualValues(t, 10*kib, info.DriverPending)
	require.NoError(t, b.Synchronize())
	require.Zero(t, b.info().DriverPending)
}

func TestOpeningADeviceAllocatesNothing(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.budget(kib, false)
	b.ResetPeak()
	_ = b.info()
	for _, method := range fakedriver.Methods {
		if method != fakedriver.Memory {
			require.Zero(t, b.driver.Calls(method), method)
		}
	}
}

// Reservations that are given back twice, or never were, change nothing; requested bytes and the pool's rounded ones are kept apart.
func TestNoCounterWraps(t *testing.T) {
	b := open(t, fakedriver.Options{})
	token, err := b.Reserve(kib, gomem.AllocateOptions{})
	require.NoError(t, err)
	require.EqualValues(t, kib, b.info().Reserved)
	b.Unreserve(token)
	b.Unreserve(token)
	b.Unreserve(12345)
	b.Unreserve(0)
	require.Zero(t, b.info().Reserved)
	x := b.allocate(1000)
	require.NoError(t, b.Free(x, gomem.Wait{}))
	require.ErrorIs(t, b.Free(x, gomem.Wait{}), gomem.ErrFreed)
	_, err = b.Allocate(1<<63, gomem.AllocateOptions{})
	var full *gomem.MemoryError
	require.ErrorAs(t, err, &full)
	_, err = b.Allocate(^uint64(0), gomem.AllocateOptions{})
	require.ErrorAs(t, err, &full)
	_, err = b.Reserve(^uint64(0), gomem.AllocateOptions{})
	require.ErrorAs(t, err, &full)

	y := b.allocate(1000)
	_, err = b.Spill(y, gomem.Wait{})
	require.NoError(t, err)
	info := b.info()
	require.EqualValues(t, 1000, info.Spilled)
	require.EqualValues(t, 1024, info.HostCopies)
	b.drop(y)
}

// Adopted memory is counted from then on, freed by the call that fits, and given back untouched by disown.
func TestAdoptAndDisown(t *testing.T) {
	b := open(t, fakedriver.Options{})
	address, err := b.driver.Allocate(kib)
	require.NoError(t, err)
	token, err := b.Reserve(kib, gomem.AllocateOptions{})
	require.NoError(t, err)
	x, err := b.Adopt(address, kib, gomem.AdoptOptions{How: gomem.HowCUDAAsync, Stream: 5, Token: token})
	require.NoError(t, err)
	require.Equal(t, 1, b.driver.Calls(fakedriver.Join), "what is queued on its stream comes before our copies")
	info := b.info()
	require.EqualValues(t, kib, info.InUse)
	require.Zero(t, info.Reserved)
	b.write(x, 3)
	_, err = b.Spill(x, gomem.Wait{})
	require.NoError(t, err)
	require.Equal(t, 1, b.driver.FreedAs(gomem.HowCUDAAsync))
	back, err := b.Disown(x, gomem.Wait{})
	require.NoError(t, err)
	got := make([]byte, kib)
	require.NoError(t, b.driver.CopyOut(unsafe.Pointer(&got[0]), back, kib))
	require.Equal(t, contents(kib, 3), got)
	require.Zero(t, b.info().InUse+b.info().Live)
	require.NoError(t, b.driver.Free(gomem.Block{Address: back, Bytes: kib}))
}

func TestReportsGroupByOrigin(t *testing.T) {
	b := open(t, fakedriver.Options{})
	var live []uint32
	for n := range 6 {
		index, err := b.Allocate(uint64(1+n)*kib, gomem.AllocateOptions{Origin: gomem.Intern([]string{"a.py:1", "b.py:2"}[n%2])})
		require.NoError(t, err)
		live = append(live, index)
	}
	_, err := b.Spill(live[1], gomem.Wait{})
	require.NoError(t, err)
	b.SetLabel(live[5], gomem.Intern("mesh"))
	require.Equal(t, []gomem.Holder{
		{Origin: "a.py:1", Device: "fake:0", Bytes: 9 * kib, Resident: 9 * kib, Count: 3},
		{Label: "mesh", Origin: "b.py:2", Device: "fake:0", Bytes: 6 * kib, Resident: 6 * kib, Count: 1},
		{Origin: "b.py:2", Device: "fake:0", Bytes: 6 * kib, Resident: 4 * kib, Spilled: 2 * kib, Count: 2},
	}, ordered(b.holders(0)))
	require.Len(t, b.holders(1), 1)
	b.drop(live...)
	require.Empty(t, b.holders(0))
}

// A report, and each error of a full device, looks at the holds once, not once a held buffer: both are made under the lock for moving memory.
func TestReportsOfManyHeldBuffersAreQuick(t *testing.T) {
	b := open(t, fakedriver.Options{NoContents: true})
	n := gomem.Fewer(30_000, 5_000)
	reason := gomem.Intern("dlpack")
	ids := make(map[uint32]uint64, n)
	for range n {
		x := b.allocate0(64)
		id, err := b.Hold(x, gomem.HoldExport, reason, gomem.Wait{})
		require.NoError(t, err)
		ids[x] = id
	}
	began := time.Now()
	holders := b.holders(0)
	require.Len(t, holders, 1)
	require.Equal(t, "export: dlpack", holders[0].Holds)
	require.Equal(t, map[string]int64{"export: dlpack": int64(n) * 64}, b.unspillable())
	require.Less(t, time.Since(began), 5*time.Second)
	for x, id := range ids {
		b.Release(x, id)
		b.drop(x)
	}
}

// ordered puts the labelled one of two equal groups first.
func ordered(holders []gomem.Holder) []gomem.Holder {
	if len(holders) == 3 && holders[2].Label != "" {
		holders[1], holders[2] = holders[2], holders[1]
	}
	return holders
}

func TestEventsTellWhatHappened(t *testing.T) {
	b := open(t, fakedriver.Options{})
	require.NoError(t, b.RecordEvents(100))
	b.budget(15*kib, false)
	x := b.allocate(10 * kib)
	y := b.allocate(10 * kib)
	b.use(x)
	b.drop(x)
	b.drop(y)
	events, lost := b.Events()
	require.Zero(t, lost)
	var kinds []gomem.EventKind
	for _, e := range events {
		kinds = append(kinds, e.Kind)
		require.EqualValues(t, 15*kib, e.Budget)
	}
	require.Equal(t, []gomem.EventKind{gomem.EventBudget, gomem.EventAllocate, gomem.EventSpill, gomem.EventAllocate, gomem.EventSpill, gomem.EventRestore,
		gomem.EventFree, gomem.EventFree}, kinds)
	require.NoError(t, b.RecordEvents(0))
	events, _ = b.Events()
	require.Empty(t, events)
}

func TestCloseRefusesWhileBuffersLive(t *testing.T) {
	b := open(t, fakedriver.Options{})
	x := b.allocate(kib)
	require.Error(t, b.Close())
	b.has(x, uint64(x))
	b.drop(x)
}

// A driver that cannot be closed now can be closed later.
func TestCloseCanBeRepeatedAfterTheDriverFailed(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.drop(b.allocate(kib))
	for range 2 {
		b.driver.Fail(fakedriver.Close, 1, b.driver.Error(fakedriver.Close, nil))
		var refused *gomem.DriverError
		require.ErrorAs(t, b.Close(), &refused)
		require.NoError(t, b.Check())
	}
	b.drop(b.allocate(kib)) // the device is as it was
	require.NoError(t, b.Close())
	require.NoError(t, b.Close(), "there is nothing left to do")
	require.Equal(t, 3, b.driver.Calls(fakedriver.Close))
}
