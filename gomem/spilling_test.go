package gomem_test

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// Properties of spilling, each of them one that went wrong somewhere else. The model test and the fault matrix check them in
// general; here they can be read.

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

// A copy between two spilled buffers can be cancelled like any other access.
func TestCopyBetweenSpilledBuffersCanBeCancelled(t *testing.T) {
	b := open(t, fakedriver.Options{})
	x, y := b.allocate(kib), b.allocate(kib)
	_, err := b.SpillAll(gomem.Wait{})
	require.NoError(t, err)
	stopped := gomem.Wait{Cancel: new(gomem.Cancel)}
	stopped.Cancel.Cancel()
	require.ErrorIs(t, b.Copy(x, 0, y, 0, kib, stopped), gomem.ErrCancelled)
	b.has(x, uint64(x))
	require.NoError(t, b.Copy(x, 0, y, 0, kib, gomem.Wait{}))
	b.has(x, uint64(y))
	require.EqualValues(t, 2*kib, b.info().Spilled, "nothing came back for it")
	b.drop(x, y)
}
