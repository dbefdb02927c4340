package gomem_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// The room of a reservation is not asked for a second time: adopting with it neither fails nor moves anything, whatever the budget has become.
func TestAdoptionWithARoomOfItsOwnWaitsForNothing(t *testing.T) {
	b := open(t, fakedriver.Options{})
	older := b.allocate(2 * kib)
	address, err := b.driver.Allocate(4 * kib)
	require.NoError(t, err)
	token, err := b.ReserveToAdopt(address, 4*kib, gomem.HowCUDA, gomem.AllocateOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 4*kib, b.info().Reserved)
	_, _, err = b.SetBudget(3*kib, true, gomem.Wait{})
	require.NoError(t, err)
	spills := b.info().SpillCount

	cancelled := new(gomem.Cancel)
	cancelled.Cancel()
	index, err := b.Adopt(address, 4*kib, gomem.AdoptOptions{Wait: gomem.Wait{Cancel: cancelled}, How: gomem.HowCUDA, Token: token})
	require.NoError(t, err, "it wants no lock, so there is nothing to cancel")
	require.EqualValues(t, address, b.Record(index).Address)
	info := b.info()
	require.Zero(t, info.Reserved)
	require.Equal(t, spills, info.SpillCount)
	b.drop(older, index)
}

// A reservation that is larger than what is adopted gives the rest back; a smaller one is room for so much only.
func TestAReservationOfAnotherSizeThanWhatIsAdopted(t *testing.T) {
	b := open(t, fakedriver.Options{})
	for _, reserved := range []uint64{4 * kib, kib} {
		token, err := b.Reserve(reserved, gomem.AllocateOptions{})
		require.NoError(t, err)
		address, err := b.driver.Allocate(2 * kib)
		require.NoError(t, err)
		index, err := b.Adopt(address, 2*kib, gomem.AdoptOptions{How: gomem.HowCUDA, Token: token})
		require.NoError(t, err)
		require.EqualValues(t, 2*kib, b.info().InUse)
		require.Zero(t, b.info().Reserved)
		b.drop(index)
	}
}

// What can never be adopted is refused before anything is spilled for it.
func TestRoomIsMadeForNothingThatCannotBeAdopted(t *testing.T) {
	b := open(t, fakedriver.Options{})
	mine := b.allocate(3 * kib)
	_, _, err := b.SetBudget(4*kib, false, gomem.Wait{})
	require.NoError(t, err)
	at := b.Record(mine).Address
	var overlap *gomem.OverlapError
	_, err = b.ReserveToAdopt(at+kib, 2*kib, gomem.HowCUDA, gomem.AllocateOptions{})
	require.ErrorAs(t, err, &overlap)
	var how *gomem.HowError
	_, err = b.ReserveToAdopt(1<<40, 2*kib, gomem.HowDriver, gomem.AllocateOptions{})
	require.ErrorAs(t, err, &how)
	var full *gomem.MemoryError
	_, err = b.ReserveToAdopt(1<<40, ^uint64(0)>>1, gomem.HowCUDA, gomem.AllocateOptions{})
	require.ErrorAs(t, err, &full)
	require.Zero(t, b.info().SpillCount+b.info().Reserved)
	b.drop(mine)
}

// A strict budget refuses memory that has no room within it, and what is larger than all of it before anything is spilled for it. The caller keeps the memory,
// and the books are as before: it can be adopted once there is room.
func TestAStrictBudgetRefusesAdoption(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.budget(4*kib, true)
	mine := b.allocate(3 * kib)
	var held uint64
	before, frees := b.info(), b.driver.Calls(fakedriver.Free)
	for _, refused := range []struct {
		nbytes uint64
		reason string
	}{{4*kib + 1, gomem.ReasonTooLarge}, {2 * kib, gomem.ReasonBudget}} {
		if refused.reason == gomem.ReasonBudget { // else what is ours would be spilled for it
			var err error
			held, err = b.Hold(mine, gomem.HoldScope, gomem.Intern("in the way"), gomem.Wait{})
			require.NoError(t, err)
		}
		address, err := b.driver.Allocate(refused.nbytes)
		require.NoError(t, err)
		adopt := map[string]func() error{
			"at once": func() error {
				_, err := b.Adopt(address, refused.nbytes, gomem.AdoptOptions{Wait: nested, How: gomem.HowCUDA})
				return err
			},
			"in two steps": func() error {
				_, err := b.ReserveToAdopt(address, refused.nbytes, gomem.HowCUDA, gomem.AllocateOptions{Wait: nested})
				return err
			},
		}
		for name, adopt := range adopt {
			var full *gomem.MemoryError
			require.ErrorAs(t, adopt(), &full, name)
			require.Equal(t, refused.reason, full.Reason, name)
			require.EqualValues(t, refused.nbytes, full.Requested, name)
			after := b.info()
			require.Equal(t, [4]int64{before.InUse, before.Spilled, before.Reserved, int64(before.SpillCount)}, [4]int64{after.InUse, after.Spilled, after.Reserved, int64(after.SpillCount)}, name)
			require.Equal(t, before.OverBudgetCount, after.OverBudgetCount, name)
			require.NoError(t, b.Overlapping(address, refused.nbytes), "%s: it is not ours", name)
		}
		require.Equal(t, frees, b.driver.Calls(fakedriver.Free), "the caller keeps it")
		require.NoError(t, b.driver.Free(gomem.Block{Address: address, Bytes: refused.nbytes}))
		frees = b.driver.Calls(fakedriver.Free)
	}

	b.Release(mine, held)
	address, err := b.driver.Allocate(2 * kib)
	require.NoError(t, err)
	index, err := b.Adopt(address, 2*kib, gomem.AdoptOptions{How: gomem.HowCUDA})
	require.NoError(t, err)
	require.Equal(t, gomem.Spilled, b.state(mine))
	require.EqualValues(t, 2*kib, b.info().InUse)
	b.drop(mine, index)
}

// Memory that is there already must not be counted twice on a device that asks for room: as used, and as wanted.
func TestMemoryThatIsThereNeedsNoRoomOnTheDevice(t *testing.T) {
	b, over := openOvercommitting(t, 3*mib)
	mine := b.allocate(mib)
	address, err := over.Allocate(2 * mib) // a host's own; now the device is full
	require.NoError(t, err)
	token, err := b.ReserveToAdopt(address, 2*mib, gomem.HowLevelZero, gomem.AllocateOptions{})
	require.NoError(t, err)
	index, err := b.Adopt(address, 2*mib, gomem.AdoptOptions{How: gomem.HowLevelZero, Token: token})
	require.NoError(t, err)
	require.Zero(t, b.info().SpillCount)
	require.EqualValues(t, 3*mib, b.info().InUse)
	b.drop(mine, index)
}

// Memory that its host frees by itself is counted and stays where it is: it is never spilled, and never given to the driver. Where it could be spilled, only
// who says that it must not be may adopt it.
func TestMemoryThatItsHostFreesIsCountedAndStays(t *testing.T) {
	b := open(t, fakedriver.Options{})
	address, err := b.driver.Allocate(2 * kib)
	require.NoError(t, err)
	var how *gomem.HowError
	_, err = b.Adopt(address, 2*kib, gomem.AdoptOptions{How: gomem.HowHost})
	require.ErrorAs(t, err, &how)
	require.ErrorContains(t, err, "movable=False")
	_, err = b.ReserveToAdopt(address, 2*kib, gomem.HowHost, gomem.AllocateOptions{})
	require.ErrorAs(t, err, &how)

	token, err := b.ReserveToAdopt(address, 2*kib, gomem.HowHost, gomem.AllocateOptions{Unmovable: true})
	require.NoError(t, err)
	index, err := b.Adopt(address, 2*kib, gomem.AdoptOptions{How: gomem.HowHost, Unmovable: true, Reason: gomem.Intern("exportable memory"), Token: token})
	require.NoError(t, err)
	require.EqualValues(t, 2*kib, b.info().InUse)
	freed, err := b.SpillAll(gomem.Wait{})
	require.NoError(t, err)
	require.Zero(t, freed)
	require.Equal(t, map[string]int64{"unmovable: exportable memory": 2 * kib}, b.unspillable())
	b.drop(index)
	info := b.info()
	require.Zero(t, info.InUse+info.PendingFree)
	require.Zero(t, b.driver.Calls(fakedriver.Free))
	require.NoError(t, b.driver.Free(gomem.Block{Address: address, Bytes: 2 * kib}))
}

// The caller has the last word, and where it says no, or the call is cancelled meanwhile, the buffer is whole.
func TestDisownIfChangesNothingWhereItMayNot(t *testing.T) {
	b := open(t, fakedriver.Options{})
	index := b.allocate(kib)
	_, err := b.Spill(index, gomem.Wait{})
	require.NoError(t, err)
	_, err = b.DisownIf(index, gomem.Wait{}, func() bool { return false })
	require.ErrorIs(t, err, gomem.ErrNotNow)
	cancelled := new(gomem.Cancel)
	_, err = b.DisownIf(index, gomem.Wait{Cancel: cancelled}, func() bool {
		cancelled.Cancel()
		return false
	})
	require.ErrorIs(t, err, gomem.ErrCancelled)
	require.Equal(t, gomem.Resident, b.state(index))
	b.has(index, uint64(index))
	freed, err := b.Spill(index, gomem.Wait{})
	require.NoError(t, err)
	require.EqualValues(t, kib, freed, "nothing holds it")
	asked := 0
	address, err := b.DisownIf(index, gomem.Wait{}, func() bool { asked++; return true })
	require.NoError(t, err)
	require.Equal(t, 1, asked)
	require.NoError(t, b.driver.Free(gomem.Block{Address: address, Bytes: kib}))
}

// Memory of ours that was dropped stays ours until the driver gets it: a pointer to it, kept too long, is neither adopted nor found, though the driver still
// knows the block. From the driver's free on a host may have the address, and have it adopted, at once.
func TestDroppedMemoryIsOursUntilTheDriverGetsIt(t *testing.T) {
	b := &bench{t: t, driver: fakedriver.New(fakedriver.Options{}), pool: gomem.NewHostPool()}
	watched := &watchedFree{Device: b.driver}
	var err error
	b.Device, err = gomem.NewDevice(watched, gomem.Options{Movable: true, Pool: b.pool, Check: true})
	require.NoError(t, err)
	b.lane = &lane{device: b.Device}
	index := b.allocate(kib)
	address := b.Record(index).Address
	b.LetGo(index) // a Drain comes later
	var overlap *gomem.OverlapError
	_, err = b.Adopt(address, kib, gomem.AdoptOptions{How: gomem.HowCUDA})
	require.ErrorAs(t, err, &overlap)
	require.ErrorContains(t, err, "was freed, and")
	_, err = b.ReserveToAdopt(address+kib/2, kib, gomem.HowCUDA, gomem.AllocateOptions{})
	require.ErrorAs(t, err, &overlap)
	require.Equal(t, [2]uint64{address, kib}, [2]uint64{overlap.OtherAddress, overlap.OtherBytes})
	_, _, found := b.Find(address, kib)
	require.False(t, found, "it is nobody's buffer")
	info := b.info()
	require.Zero(t, info.InUse+info.Reserved)

	inFree := errors.New("the driver's free was not called")
	watched.called = func() { inFree = b.Overlapping(address, kib) }
	b.Drain()
	require.NoError(t, inFree)
	require.NoError(t, b.Overlapping(address, kib))
	require.NoError(t, b.Close())
}

// watchedFree is a driver whose frees are watched.
type watchedFree struct {
	*fakedriver.Device
	called func()
}

func (w *watchedFree) Free(block gomem.Block) error {
	w.called()
	return w.Device.Free(block)
}

// What a host frees by itself it may free, get again and have adopted as soon as it has let go of the buffer.
func TestMemoryThatItsHostFreesIsNotOursOnceItIsDropped(t *testing.T) {
	b := open(t, fakedriver.Options{})
	address, err := b.driver.Allocate(kib)
	require.NoError(t, err)
	for range 3 {
		index, err := b.Adopt(address, kib, gomem.AdoptOptions{How: gomem.HowHost, Unmovable: true})
		require.NoError(t, err)
		b.LetGo(index)
	}
	b.Drain()
	require.Zero(t, b.info().PendingFree)
	require.NoError(t, b.driver.Free(gomem.Block{Address: address, Bytes: kib}))
}
