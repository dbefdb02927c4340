package gomem_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// Properties of spilling, each of them one that went wrong somewhere else. The model test and the fault matrix check them in
// general; here they can be read.

func TestUnderTheBudgetNothingIsSpilled(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.budget(100*kib, false)
	var live []uint32
	for i := range 200 {
		live = append(live, b.allocate(10*kib))
		b.use(live[i%len(live)])
		if len(live) == 10 { // exactly the budget
			b.drop(live[3])
			live = append(live[:3], live[4:]...)
		}
	}
	info := b.info()
	require.Zero(t, info.SpillCount)
	require.EqualValues(t, 100*kib, info.Peak)
	require.Zero(t, info.OverBudgetCount)
	b.drop(live...)
}

func TestSpilledIsLessThanNeededAndOneArray(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.budget(200*kib, false)
	random := rand.New(rand.NewPCG(1, 1))
	const largest = 30 * kib
	var live []uint32
	for range 300 {
		before := b.info()
		n := 1 + random.Uint64N(largest)
		live = append(live, b.allocate(n))
		after := b.info()
		needed := max(0, before.InUse+int64(n)-200*kib)
		spilled := after.SpilledBytes - before.SpilledBytes
		require.True(t, spilled == 0 && needed == 0 || spilled >= needed && spilled < needed+largest, "needed %d, spilled %d", needed, spilled)
		require.LessOrEqual(t, after.InUse, int64(200*kib))
	}
	for _, index := range live {
		b.has(index, uint64(index))
	}
	b.drop(live...)
}

func TestReadingAResidentBufferDoesNotSpillIt(t *testing.T) {
	b := open(t, fakedriver.Options{})
	x := b.allocate(10 * kib)
	b.has(x, uint64(x))
	require.Equal(t, gomem.Resident, b.state(x))
	require.Zero(t, b.info().SpillCount)
	b.drop(x)
}

func TestSpillReturnsWhatIsReallyFreed(t *testing.T) {
	b := open(t, fakedriver.Options{})
	x, y, empty := b.allocate(10*kib), b.allocate(5*kib), b.allocate(0)
	release := b.export(y)
	for _, c := range []struct {
		index uint32
		freed uint64
	}{{x, 10 * kib}, {x, 0}, {y, 0}, {empty, 0}} {
		_, before := b.driver.Live()
		freed, err := b.Spill(c.index, gomem.Wait{})
		require.NoError(t, err)
		_, after := b.driver.Live()
		require.Equal(t, c.freed, freed)
		require.Equal(t, before-after, freed)
	}
	release()
	b.drop(x, y, empty)
}

// A copy to the host is no export: the buffer can be spilled right after it.
func TestCopiesToTheHostLeaveABufferSpillable(t *testing.T) {
	b := open(t, fakedriver.Options{})
	x := b.allocate(kib)
	b.has(x, uint64(x))
	freed, err := b.Spill(x, gomem.Wait{})
	require.NoError(t, err)
	require.EqualValues(t, kib, freed)
	b.drop(x)
}

func TestBufferCanBeSpilledAgainWhenItsLastExportEnds(t *testing.T) {
	b := open(t, fakedriver.Options{})
	x := b.allocate(kib)
	first, second := b.export(x), b.export(x)
	require.Equal(t, []gomem.HoldInfo{{Kind: gomem.HoldExport, Reason: "dlpack", Count: 2}}, b.Holds(x))
	for _, release := range []func(){first, second} {
		freed, err := b.Spill(x, gomem.Wait{})
		require.NoError(t, err)
		require.Zero(t, freed)
		release()
	}
	require.Empty(t, b.Holds(x))
	freed, err := b.Spill(x, gomem.Wait{})
	require.NoError(t, err)
	require.EqualValues(t, kib, freed)
	b.drop(x)
}

func TestRestoreAtAnotherAddressIsSeenByEveryLaterUse(t *testing.T) {
	b := open(t, fakedriver.Options{Quarantine: true})
	x := b.allocate(kib)
	stale := b.Record(x).Address
	_, err := b.Spill(x, gomem.Wait{})
	require.NoError(t, err)
	require.Panics(t, func() { b.driver.Bytes(stale, 1) }, "the device would notice a stale pointer")
	addresses, err := b.lane.enter([]uint32{x}, gomem.Wait{})
	require.NoError(t, err)
	require.NotEqual(t, stale, addresses[0])
	require.Equal(t, contents(kib, uint64(x)), b.driver.Bytes(addresses[0], kib))
	b.lane.leave([]uint32{x})
	index, offset, found := b.Find(addresses[0]+100, 10)
	require.True(t, found)
	require.Equal(t, x, index)
	require.EqualValues(t, 100, offset)
	_, _, found = b.Find(stale, 1)
	require.False(t, found)
	b.drop(x)
}

// A view is an offset and a size of the same buffer: what is written through it, wherever the buffer lies, is there everywhere.
func TestWritesThroughAViewSurviveSpillAndRestore(t *testing.T) {
	b := open(t, fakedriver.Options{})
	x := b.allocate(100)
	want := contents(100, uint64(x))
	for n, move := range []func() error{
		func() error { _, err := b.Spill(x, gomem.Wait{}); return err },
		func() error { return b.MakeResident(x, gomem.Wait{}) },
		func() error { _, err := b.SpillAll(gomem.Wait{}); return err },
	} {
		require.NoError(t, move())
		data := []byte{byte(n), 2, 3}
		require.NoError(t, b.CopyFromHost(x, 10+uint64(n), unsafe.Pointer(&data[0]), 3, gomem.Wait{}))
		copy(want[10+n:], data)
		require.NoError(t, b.Fill(x, 50, []byte{9, byte(n)}, 5, gomem.Wait{}))
		copy(want[50:], []byte{9, byte(n), 9, byte(n), 9})
		require.Equal(t, want, b.read(x))
	}
	var outside *gomem.RangeError
	require.ErrorAs(t, b.Fill(x, 96, []byte{1}, 5, gomem.Wait{}), &outside)
	require.ErrorAs(t, b.Fill(x, ^uint64(0), []byte{1}, 5, gomem.Wait{}), &outside)
	require.Equal(t, want, b.read(x))
	b.drop(x)
}

func TestOutOfMemoryErrorSaysWhatIsHeldAndWhy(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 40 * kib})
	exported, held, launched := b.allocate(10*kib), b.allocate(5*kib), []uint32{b.allocate(3 * kib)}
	stay, err := b.Allocate(2*kib, gomem.AllocateOptions{Unmovable: true, Reason: gomem.Intern("MPI"), Label: gomem.Intern("halo"), Origin: gomem.Intern("solver.py:7")})
	require.NoError(t, err)
	spilled := b.allocate(15 * kib)
	release := b.export(exported)
	id, err := b.Hold(held, gomem.HoldScope, gomem.Intern("texture"), gomem.Wait{})
	require.NoError(t, err)
	_, err = b.lane.enter(launched, gomem.Wait{})
	require.NoError(t, err)
	_, err = b.Spill(spilled, gomem.Wait{})
	require.NoError(t, err)

	_, err = b.Allocate(30*kib, gomem.AllocateOptions{Wait: nested})
	var full *gomem.MemoryError
	require.ErrorAs(t, err, &full)
	require.Equal(t, gomem.ReasonDevice, full.Reason)
	require.Equal(t, "fake:0", full.Device)
	require.EqualValues(t, 30*kib, full.Requested)
	require.EqualValues(t, 20*kib, full.InUse)
	require.EqualValues(t, 15*kib, full.Spilled)
	require.EqualValues(t, 20*kib, full.DeviceFree)
	require.EqualValues(t, 40*kib, full.DeviceTotal)
	require.Equal(t, map[string]int64{"export: dlpack": 10 * kib, "hold: texture": 5 * kib, "launch": 3 * kib, "unmovable: MPI": 2 * kib}, full.Unspillable)
	var sum, inHolders int64
	for _, n := range full.Unspillable {
		sum += n
	}
	require.Equal(t, full.InUse, sum, "the figures do not contradict each other")
	for _, h := range full.Holders {
		inHolders += h.Bytes
	}
	require.Equal(t, full.InUse+full.Spilled, inHolders)
	require.ErrorIs(t, err, gomem.ErrOutOfMemory)
	require.Contains(t, err.Error(), "export: dlpack")

	// After the error a smaller request works.
	small := b.allocate(20 * kib)
	release()
	b.Release(held, id)
	b.lane.leave(launched)
	b.drop(exported, held, launched[0], stay, spilled, small)
}

// Temporaries that live for one operation count against the budget like everything else.
func TestBudgetCoversTemporaries(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.budget(40*kib, false)
	inputs := []uint32{b.allocate(10 * kib), b.allocate(10 * kib)}
	idle := []uint32{b.allocate(10 * kib), b.allocate(10 * kib)}
	_, err := b.lane.enter(inputs, gomem.Wait{})
	require.NoError(t, err)
	temporary, err := b.Allocate(15*kib, gomem.AllocateOptions{Wait: nested})
	require.NoError(t, err)
	require.LessOrEqual(t, b.info().InUse, int64(40*kib))
	b.drop(temporary)
	b.lane.leave(inputs)
	require.LessOrEqual(t, b.info().Peak, int64(40*kib))
	require.Equal(t, gomem.Resident, b.state(inputs[0]), "arrays of a launch are never victims")
	require.Equal(t, gomem.Resident, b.state(inputs[1]))
	b.drop(inputs...)
	b.drop(idle...)
}

func TestRestoreIsAccountedAndMaySpillOthers(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.budget(20*kib, false)
	x, y, z := b.allocate(10*kib), b.allocate(10*kib), b.allocate(10*kib)
	require.Equal(t, gomem.Spilled, b.state(x))
	b.use(x)
	require.Equal(t, gomem.Resident, b.state(x))
	require.Equal(t, gomem.Spilled, b.state(y), "the oldest went")
	require.Equal(t, gomem.Resident, b.state(z))
	info := b.info()
	require.EqualValues(t, 20*kib, info.InUse)
	require.EqualValues(t, 20*kib, info.Peak)
	require.EqualValues(t, 20*kib, info.SpilledBytes)
	require.EqualValues(t, 10*kib, info.RestoredBytes)
	require.EqualValues(t, 1, info.RestoreCount)
	b.drop(x, y, z)
}

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

// Retries end when nothing more can be freed: a request that cannot succeed asks the driver a few times, not for ever.
func TestRetriesAreBoundedByProgress(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 100 * kib})
	var live []uint32
	for range 8 {
		live = append(live, b.allocate(10*kib))
	}
	stay, err := b.Allocate(kib, gomem.AllocateOptions{Unmovable: true})
	require.NoError(t, err)
	calls := b.driver.Calls(fakedriver.Allocate)
	_, err = b.Allocate(100*kib, gomem.AllocateOptions{})
	var full *gomem.MemoryError
	require.ErrorAs(t, err, &full)
	require.LessOrEqual(t, b.driver.Calls(fakedriver.Allocate)-calls, 2+2*len(live))
	require.EqualValues(t, 8*10*kib, b.info().Spilled, "everything that could move did")

	calls = b.driver.Calls(fakedriver.Allocate)
	spilled := b.info().SpillCount
	for _, index := range live {
		b.use(index)
	}
	_, err = b.Allocate(101*kib, gomem.AllocateOptions{})
	require.ErrorAs(t, err, &full)
	require.Equal(t, gomem.ReasonTooLarge, full.Reason)
	require.Equal(t, spilled, b.info().SpillCount, "what can never fit is refused before anything moves")
	b.drop(live...)
	b.drop(stay)
}

// A spill right after an asynchronous launch has the launch's result, and the memory is given back after it.
func TestSpillRightAfterAnAsynchronousLaunch(t *testing.T) {
	b := open(t, fakedriver.Options{Asynchronous: true, Delay: 2 * time.Millisecond, Quarantine: true})
	x := []uint32{b.allocate(kib)}
	for n := range 5 {
		addresses, err := b.lane.enter(x, gomem.Wait{})
		require.NoError(t, err)
		memory := b.driver.Bytes(addresses[0], kib)
		b.driver.Run(func() {
			for i := range memory {
				memory[i] = byte(n + i)
			}
		})
		b.lane.leave(x)
		freed, err := b.Spill(x[0], gomem.Wait{})
		require.NoError(t, err)
		require.EqualValues(t, kib, freed)
		got := b.read(x[0])
		for i := range got {
			require.Equal(t, byte(n+i), got[i])
		}
	}
	b.drop(x[0])
}

// callbackDriver runs something in the middle of a call.
type callbackDriver struct {
	*fakedriver.Device
	onFill func()
}

func (d *callbackDriver) Fill(address uint64, pattern []byte, nbytes uint64) error {
	if d.onFill != nil {
		d.onFill()
	}
	return d.Device.Fill(address, pattern, nbytes)
}

func TestBufferIsInvisibleToSpillingUntilItIsBuilt(t *testing.T) {
	driver := &callbackDriver{Device: fakedriver.New(fakedriver.Options{})}
	d, err := gomem.NewDevice(driver, gomem.Options{Movable: true})
	require.NoError(t, err)
	other, err := d.Allocate(kib, gomem.AllocateOptions{})
	require.NoError(t, err)
	driver.onFill = func() {
		freed, err := d.SpillAll(gomem.Wait{})
		require.NoError(t, err)
		require.EqualValues(t, kib, freed, "only what is complete")
		info, err := d.Info(false)
		require.NoError(t, err)
		require.EqualValues(t, 2*kib, info.Reserved)
		require.EqualValues(t, 1, info.Live)
		require.NoError(t, d.Check())
	}
	x, err := d.Allocate(2*kib, gomem.AllocateOptions{Zero: true})
	require.NoError(t, err)
	state, _ := gomem.StateOf(d.Record(x).Word)
	require.Equal(t, gomem.Resident, state)
	d.Drop(other)
	d.Drop(x)
	require.NoError(t, d.Close())
}

func TestSizeZeroIsLegalEverywhereAndNeverAVictim(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: kib}) // the fake panics where a size of zero reaches it
	x := b.allocate(0)
	b.write(x, 1)
	require.Empty(t, b.read(x))
	require.NoError(t, b.Fill(x, 0, []byte{1}, 0, gomem.Wait{}))
	require.NoError(t, b.Copy(x, 0, x, 0, 0, gomem.Wait{}))
	b.use(x)
	freed, err := b.Spill(x, gomem.Wait{})
	require.NoError(t, err)
	require.Zero(t, freed)
	_, err = b.SpillAll(gomem.Wait{})
	require.NoError(t, err)
	require.NoError(t, b.RestoreAll(gomem.Wait{}))
	require.Equal(t, gomem.Resident, b.state(x))
	_, err = b.lane.enter([]uint32{x, x}, gomem.Wait{})
	require.NoError(t, err)
	b.lane.leave([]uint32{x, x})
	release := b.export(x)
	release()
	token, err := b.Reserve(0, gomem.AllocateOptions{})
	require.NoError(t, err)
	adopted, err := b.Adopt(0, 0, gomem.AdoptOptions{How: gomem.HowCUDA, Token: token})
	require.NoError(t, err)
	b.budget(512, true)
	large, err := b.Allocate(512, gomem.AllocateOptions{Unmovable: true})
	require.NoError(t, err)
	b.budget(256, true)
	token, err = b.Reserve(0, gomem.AllocateOptions{})
	require.NoError(t, err, "also above a strict budget")
	b.Unreserve(token)
	b.drop(large)
	b.budget(0, true)
	y := b.allocate(0)
	require.NoError(t, b.Free(y, gomem.Wait{}))
	_, _, found := b.Find(0, 0)
	require.False(t, found)
	b.drop(x, adopted)
}

// Memory that is free but in the wrong pieces, or in a cache: caches are emptied first, then buffers spilled, then it is tried again.
func TestCachesAreEmptiedBeforeAnythingIsSpilled(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 40 * kib, Pool: true, DeferFrees: true})
	resident := b.allocate(10 * kib)
	b.drop(b.allocate(25 * kib)) // deferred, then cached for blocks of 25 KiB
	x := b.allocate(30 * kib)
	require.Zero(t, b.info().SpillCount)
	b.drop(resident, x)
}

func TestDeviceWhoseMemoryIsTheHostsSpillsNothing(t *testing.T) {
	b := open(t, fakedriver.Options{}, func(o *gomem.Options) { o.Movable = false })
	b.budget(10*kib, false)
	x, y := b.allocate(10*kib), b.allocate(10*kib)
	freed, err := b.SpillAll(gomem.Wait{})
	require.NoError(t, err)
	require.Zero(t, freed)
	freed, err = b.Spill(x, gomem.Wait{})
	require.NoError(t, err)
	require.Zero(t, freed)
	info := b.info()
	require.EqualValues(t, 20*kib, info.InUse)
	require.EqualValues(t, 1, info.OverBudgetCount)
	require.Zero(t, info.SpillCount)
	b.drop(x, y)
}

// Wrapping a pointer into memory of ours gives the same buffer, counted once.
func TestPointerIntoOurMemoryIsTheSameBuffer(t *testing.T) {
	b := open(t, fakedriver.Options{})
	x := b.allocate(kib)
	address := b.Record(x).Address
	index, offset, found := b.Find(address+24, kib-24)
	require.True(t, found)
	require.Equal(t, x, index)
	require.EqualValues(t, 24, offset)
	_, _, found = b.Find(address+24, kib)
	require.False(t, found, "more than the buffer has")
	_, err := b.Adopt(address, kib, gomem.AdoptOptions{How: gomem.HowCUDA})
	var overlap *gomem.OverlapError
	require.ErrorAs(t, err, &overlap)
	require.EqualValues(t, kib, b.info().InUse)
	b.drop(x)
	_, _, found = b.Find(address+24, 1)
	require.False(t, found)
}

// A budget that is strict refuses; a soft one gives way and counts it.
func TestSoftAndStrictBudget(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.budget(20*kib, false)
	x := b.allocate(15 * kib)
	release := b.export(x)
	y := b.allocate(10 * kib)
	require.EqualValues(t, 1, b.info().OverBudgetCount)
	require.EqualValues(t, 25*kib, b.info().InUse)
	larger := b.allocate(30 * kib) // larger than the whole budget
	require.EqualValues(t, 45*kib, b.info().InUse)
	require.EqualValues(t, 2, b.info().OverBudgetCount)
	b.drop(larger)

	b.budget(20*kib, true)
	require.EqualValues(t, 15*kib, b.info().InUse, "y went")
	spilled := b.info().SpillCount
	_, err := b.Allocate(21*kib, gomem.AllocateOptions{})
	var full *gomem.MemoryError
	require.ErrorAs(t, err, &full)
	require.Equal(t, gomem.ReasonTooLarge, full.Reason)
	require.Equal(t, spilled, b.info().SpillCount)
	_, err = b.Allocate(10*kib, gomem.AllocateOptions{})
	require.ErrorAs(t, err, &full)
	require.Equal(t, gomem.ReasonBudget, full.Reason)
	require.ErrorAs(t, b.MakeResident(y, gomem.Wait{}), &full)
	require.Equal(t, gomem.Spilled, b.state(y))
	b.has(y, uint64(y))
	_, err = b.lane.enter([]uint32{y}, gomem.Wait{})
	require.ErrorAs(t, err, &full)
	_, err = b.Reserve(10*kib, gomem.AllocateOptions{})
	require.ErrorAs(t, err, &full)
	release()
	b.use(y)
	require.EqualValues(t, 2, b.info().OverBudgetCount)
	b.drop(x, y)
}

// Python's garbage may hold buffers: before the budget spills, the caller is told to collect, but not all the time.
func TestGarbageIsCollectedBeforeTheBudgetSpills(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.budget(40*kib, false)
	live := []uint32{b.allocate(20 * kib), b.allocate(20 * kib)}
	o := gomem.AllocateOptions{HasHelper: true}
	collections := 0
	allocate := func() uint32 {
		index, err := b.Allocate(2*kib, o)
		if errors.Is(err, gomem.ErrCollect) {
			collections++
			again := o
			again.Collected = true
			index, err = b.Allocate(2*kib, again)
		}
		require.NoError(t, err)
		return index
	}
	for range 20 {
		live = append(live, allocate())
	}
	require.GreaterOrEqual(t, collections, 2)
	require.LessOrEqual(t, collections, 5, "once per quarter of the budget newly allocated: 40 KiB in steps of 10")

	// What the collection frees is not copied out.
	b.budget(-1, false)
	for _, index := range live {
		b.drop(index)
	}
	b.budget(40*kib, false)
	garbage := b.allocate(40 * kib)
	spilled := b.info().SpillCount
	_, err := b.Allocate(10*kib, o)
	if errors.Is(err, gomem.ErrCollect) {
		b.drop(garbage)
		o.Collected = true
		_, err = b.Allocate(10*kib, o)
		require.NoError(t, err)
		require.Equal(t, spilled, b.info().SpillCount)
	} else {
		t.Fatalf("no collection was asked for: %v", err)
	}
}

// A full device: garbage and the host's caches first, once, then spilling.
func TestHostsCachesAreEmptiedBeforeSpillingOnAFullDevice(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 40 * kib})
	x := b.allocate(40 * kib)
	_, err := b.Allocate(10*kib, gomem.AllocateOptions{HasHelper: true})
	require.ErrorIs(t, err, gomem.ErrRelieve)
	require.Zero(t, b.info().SpillCount)
	y, err := b.Allocate(10*kib, gomem.AllocateOptions{HasHelper: true, Collected: true, Relieved: true})
	require.NoError(t, err)
	require.Equal(t, gomem.Spilled, b.state(x))
	b.drop(x, y)
}

// Ctrl-C during a spill or a restore: nothing is lost, and the call says so.
func TestCancelledMovesLoseNothing(t *testing.T) {
	driver := &callbackDriver{Device: fakedriver.New(fakedriver.Options{})}
	d, err := gomem.NewDevice(driver, gomem.Options{Movable: true})
	require.NoError(t, err)
	x, err := d.Allocate(kib, gomem.AllocateOptions{Zero: true})
	require.NoError(t, err)
	w := gomem.Wait{Cancel: new(gomem.Cancel)}
	w.Cancel.Cancel()
	_, err = d.Spill(x, w)
	require.ErrorIs(t, err, gomem.ErrCancelled)
	state, _ := gomem.StateOf(d.Record(x).Word)
	require.Equal(t, gomem.Resident, state)
	_, err = d.Spill(x, gomem.Wait{})
	require.NoError(t, err)
	require.ErrorIs(t, d.MakeResident(x, w), gomem.ErrCancelled)
	state, _ = gomem.StateOf(d.Record(x).Word)
	require.Equal(t, gomem.Spilled, state)
	require.NoError(t, d.Check())
	require.NoError(t, d.MakeResident(x, gomem.Wait{}))
	d.Drop(x)
	require.NoError(t, d.Close())
}
