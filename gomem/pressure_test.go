package gomem_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// What is done, and in which order, when a request has no room, and what its error says.

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

// A device that is full of other things than budgets know: what is free need not be made free. One buffer more than is missing may go, no more.
func TestAFullDeviceSpillsWhatIsMissingAndNoMore(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 100 * kib})
	var live []uint32
	for range 8 {
		live = append(live, b.allocate(10*kib))
	}
	for _, wanted := range []struct{ nbytes, spilled int64 }{{25 * kib, 10 * kib}, {15*kib + 1, 20 * kib}} {
		before := b.info()
		index := b.allocate(uint64(wanted.nbytes)) // 20 KiB are free, then 5
		require.Equal(t, wanted.spilled, b.info().SpilledBytes-before.SpilledBytes, "for %d bytes", wanted.nbytes)
		live = append(live, index)
	}
	b.drop(live...)
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

// Memory that is free but in the wrong pieces, or in a cache: caches are emptied first, then buffers spilled, then it is tried again.
func TestCachesAreEmptiedBeforeAnythingIsSpilled(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 40 * kib, Pool: true, DeferFrees: true})
	resident := b.allocate(10 * kib)
	b.drop(b.allocate(25 * kib)) // deferred, then cached for blocks of 25 KiB
	x := b.allocate(30 * kib)
	require.Zero(t, b.info().SpillCount)
	b.drop(resident, x)
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

// A host's own allocation failed: what was dropped, and what its caches release when asked, counts before anything is spilled.
func TestMakeRoomSpillsOnlyWhatIsMissing(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 100 * kib, DeferFrees: true})
	keep := []uint32{b.allocate(10 * kib), b.allocate(10 * kib), b.allocate(10 * kib)}
	dropped := []uint32{b.allocate(10 * kib), b.allocate(10 * kib)}
	cache, err := b.driver.Allocate(40 * kib) // of the host's
	require.NoError(t, err)
	makeRoom := func(nbytes uint64, o gomem.AllocateOptions) uint64 {
		t.Helper()
		freed, err := b.MakeRoom(nbytes, o)
		require.NoError(t, err)
		return freed
	}

	b.LetGo(dropped[0]) // and nobody has drained yet
	require.EqualValues(t, 10*kib, makeRoom(8*kib, gomem.AllocateOptions{}))
	require.Zero(t, b.info().SpillCount)
	b.LetGo(dropped[1])
	require.EqualValues(t, 20*kib, makeRoom(15*kib, gomem.AllocateOptions{}), "10 dropped, and one buffer")
	require.EqualValues(t, 1, b.info().SpillCount)

	_, err = b.MakeRoom(30*kib, gomem.AllocateOptions{HasHelper: true})
	require.ErrorIs(t, err, gomem.ErrRelieve)
	require.NoError(t, b.driver.Free(gomem.Block{Address: cache, Bytes: 40 * kib}))
	relieved := gomem.AllocateOptions{HasHelper: true, Collected: true, Relieved: true}
	require.EqualValues(t, 40*kib, makeRoom(30*kib, relieved))
	require.EqualValues(t, 1, b.info().SpillCount, "the host's cache made the room")
	require.EqualValues(t, 10*kib, makeRoom(1, relieved), "it is counted once")
	require.EqualValues(t, 10*kib, makeRoom(1, relieved))
	b.drop(b.allocate(5 * kib)) // drained already, but the driver has deferred it
	require.EqualValues(t, 5*kib, makeRoom(1, gomem.AllocateOptions{}))
	require.Zero(t, makeRoom(1, relieved), "nothing is left")
	b.drop(keep...)
}
