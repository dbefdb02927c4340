package gomem_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// What MakeRoom says that it has made free is free: its caller tries again as long as there is progress.

// openCopying makes a device over a driver that can be stopped in the middle of a copy.
func openCopying(t *testing.T, options fakedriver.Options) (*bench, *copyDriver) {
	t.Helper()
	b := &bench{t: t, driver: fakedriver.New(options), pool: gomem.NewHostPool()}
	copying := &copyDriver{Device: b.driver}
	var err error
	b.Device, err = gomem.NewDevice(copying, gomem.Options{Movable: true, Pool: b.pool, Check: true})
	require.NoError(t, err)
	return b, copying
}

func (b *bench) deviceFree() int64 {
	b.t.Helper()
	memory, err := b.driver.Memory()
	require.NoError(b.t, err)
	return memory.Free
}

// A victim that is dropped while it is copied out makes room as well: at once, and once.
func TestVictimThatIsDroppedMeanwhileMakesRoomOnce(t *testing.T) {
	for _, options := range []fakedriver.Options{{Capacity: 30 * kib}, {Capacity: 30 * kib, DeferFrees: true, Pool: true}} {
		b, driver := openCopying(t, options)
		x, y := b.allocate(10*kib), b.allocate(10*kib)
		before := b.deviceFree()
		driver.onCopyOut = func() {
			driver.onCopyOut = nil
			b.LetGo(x)
		}
		freed, err := b.MakeRoom(5*kib, gomem.AllocateOptions{})
		require.NoError(t, err)
		require.EqualValues(t, 10*kib, freed)
		require.EqualValues(t, freed, b.deviceFree()-before)
		require.Zero(t, b.info().SpillCount)
		require.Equal(t, gomem.Resident, b.state(y), "no more went than was needed")
		require.Zero(t, b.info().PendingFree+b.info().HostCopies)

		freed, err = b.MakeRoom(5*kib, gomem.AllocateOptions{})
		require.NoError(t, err)
		require.EqualValues(t, 10*kib, freed, "y, and x not again")
		require.Equal(t, gomem.Spilled, b.state(y))
		freed, err = b.MakeRoom(5*kib, gomem.AllocateOptions{})
		require.NoError(t, err)
		require.Zero(t, freed)
		b.drop(y)
		require.NoError(t, b.Close())
	}
}

// The room that a dropped victim makes is there before its drop has come to the drop list.
func TestDroppedVictimMakesRoomBeforeItsDropIsListed(t *testing.T) {
	b, driver := openCopying(t, fakedriver.Options{Capacity: 10 * kib})
	x := b.allocate(10 * kib)
	list := func() {}
	driver.onCopyOut = func() {
		driver.onCopyOut = nil
		list = b.LetGoUnlisted(x)
	}
	y := b.allocate(10 * kib)
	require.NoError(t, b.Check())
	list()
	b.Drain()
	require.NoError(t, b.Check())
	b.drop(y)
	require.Zero(t, b.info().Live+b.info().HostCopies+b.info().PendingFree)
	require.NoError(t, b.Close())
}

// What the driver failed to free is not free. The next victim has to make the room.
func TestBlockThatCouldNotBeFreedMakesNoRoom(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 40 * kib})
	x, y, z := b.allocate(10*kib), b.allocate(10*kib), b.allocate(10*kib)
	before := b.deviceFree()
	b.driver.Fail(fakedriver.Free, 1, b.driver.Error(fakedriver.Free, nil))
	freed, err := b.MakeRoom(5*kib, gomem.AllocateOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 10*kib, freed)
	require.EqualValues(t, freed, b.deviceFree()-before)
	require.Equal(t, []gomem.State{gomem.Spilled, gomem.Spilled, gomem.Resident}, []gomem.State{b.state(x), b.state(y), b.state(z)})
	require.EqualValues(t, 10*kib, b.info().Unfreed)
	require.Len(t, faults(b.Notices().Take()), 1)

	b.driver.Fail(fakedriver.Free, 1, b.driver.Error(fakedriver.Free, nil))
	b.LetGo(z)
	freed, err = b.MakeRoom(5*kib, gomem.AllocateOptions{})
	require.NoError(t, err)
	require.Zero(t, freed, "the same for what was dropped")
	freed, err = b.Spill(x, gomem.Wait{})
	require.NoError(t, err)
	require.Zero(t, freed)
	b.has(x, uint64(x))
	b.has(y, uint64(y))
	b.drop(x, y)
}

// A free that fails is no reason to give up while others can still go.
func TestRequestGoesOnAfterAFreeThatFailed(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 20 * kib})
	x, y := b.allocate(10*kib), b.allocate(10*kib)
	b.driver.Fail(fakedriver.Free, 1, b.driver.Error(fakedriver.Free, nil))
	z := b.allocate(10 * kib)
	require.Equal(t, []gomem.State{gomem.Spilled, gomem.Spilled, gomem.Resident}, []gomem.State{b.state(x), b.state(y), b.state(z)})
	b.drop(x, y, z)
}

// What the caller's relief has freed counts also where the driver has no figure of free memory.
func TestWhatWasDrainedByTheReliefMakesRoom(t *testing.T) {
	b := open(t, fakedriver.Options{})
	garbage, keep := b.allocate(10*kib), b.allocate(10*kib)
	_, err := b.MakeRoom(8*kib, gomem.AllocateOptions{HasHelper: true})
	require.ErrorIs(t, err, gomem.ErrRelieve)
	b.drop(garbage)
	relieved := gomem.AllocateOptions{HasHelper: true, Collected: true, Relieved: true}
	freed, err := b.MakeRoom(8*kib, relieved)
	require.NoError(t, err)
	require.EqualValues(t, 10*kib, freed)
	require.Equal(t, gomem.Resident, b.state(keep))
	freed, err = b.MakeRoom(8*kib, relieved)
	require.NoError(t, err)
	require.EqualValues(t, 10*kib, freed, "the garbage does not count again")
	require.Equal(t, gomem.Spilled, b.state(keep))
	b.drop(keep)
}
