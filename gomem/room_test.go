package gomem_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// overcommitting is a driver that gives more memory than the device has. The test fails as soon as that happened.
type overcommitting struct {
	*fakedriver.Device
	t        *testing.T
	capacity uint64
	largest  uint64 // of one allocation; 0: no limit
	roomErr  error
	asked    func() // called when the core asks for room; nil: nothing
}

func (o *overcommitting) Allocate(nbytes uint64) (uint64, error) {
	address, err := o.Device.Allocate(nbytes)
	if _, used := o.Live(); used > o.capacity {
		o.t.Errorf("%d bytes are on a device of %d", used, o.capacity)
	}
	return address, err
}

func (o *overcommitting) Memory() (gomem.DriverMemory, error) {
	return gomem.DriverMemory{Free: gomem.Unknown, Total: int64(o.capacity), Allocated: gomem.Unknown, LargestFree: gomem.Unknown}, nil
}

// Room counts what it has made itself, too, as a real driver sees it on the device.
func (o *overcommitting) Room(live, nbytes uint64) (uint64, error) {
	if o.asked != nil {
		o.asked()
	}
	if o.largest != 0 && nbytes > o.largest {
		return 0, fmt.Errorf("at most %d bytes at once: %w", o.largest, gomem.ErrTooLarge)
	}
	pending := o.PendingFree()
	_, used := o.Live()
	there := max(live, used-min(used, pending)) + pending
	return o.capacity - min(there, o.capacity), o.roomErr
}

// openOvercommitting makes a device with room for `capacity` bytes, whose driver never says that it is full.
func openOvercommitting(t *testing.T, capacity uint64) (*bench, *overcommitting) {
	t.Helper()
	b := &bench{t: t, driver: fakedriver.New(fakedriver.Options{DeferFrees: true}), pool: gomem.NewHostPool()}
	over := &overcommitting{Device: b.driver, t: t, capacity: capacity}
	var err error
	b.Device, err = gomem.NewDevice(over, gomem.Options{Movable: true, Pool: b.pool, Check: true})
	require.NoError(t, err)
	b.lane = &lane{device: b.Device}
	return b, over
}

func TestADriverThatOvercommitsIsAskedForRoom(t *testing.T) {
	b, _ := openOvercommitting(t, 3*mib)
	var buffers []uint32
	for range 6 {
		buffers = append(buffers, b.allocate(mib))
	}
	require.EqualValues(t, 3*mib, b.info().InUse)
	require.EqualValues(t, 3*mib, b.info().Spilled)
	for _, index := range buffers { // each restore needs room, too
		b.use(index)
		b.has(index, uint64(index))
	}
	require.EqualValues(t, 3*mib, b.info().InUse)
	b.drop(buffers...)
	b.allocate(3 * mib) // what was dropped is no obstacle
	require.EqualValues(t, 6, b.info().RestoreCount)
}

// late says for some questions more that memory which was freed is not back.
type late struct {
	*overcommitting
	answers int
}

func (l *late) Room(live, nbytes uint64) (uint64, error) {
	room, err := l.overcommitting.Room(live, nbytes)
	if room >= nbytes && l.answers > 0 {
		l.answers--
		return 0, err
	}
	return room, err
}

// Nothing is left to spill, and what was spilled is not back yet: that is no want of memory.
func TestFreedMemoryThatComesLateIsWaitedFor(t *testing.T) {
	for answers, fits := range map[int]bool{6: true, 1000: false} {
		b, over := openOvercommitting(t, 3*mib)
		device, err := gomem.NewDevice(&late{over, answers}, gomem.Options{Movable: true, Pool: b.pool, Check: true})
		require.NoError(t, err)
		_, err = device.Allocate(mib, gomem.AllocateOptions{})
		if fits {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, gomem.ErrOutOfMemory)
		}
	}
}

func TestRoomIsMadeForAHostWhoseDriverOvercommits(t *testing.T) {
	b, over := openOvercommitting(t, 3*mib)
	host := func(nbytes uint64) uint32 {
		token, err := b.Reserve(nbytes, gomem.AllocateOptions{})
		require.NoError(t, err)
		address, err := over.Allocate(nbytes) // the host's own
		require.NoError(t, err)
		index, err := b.Adopt(address, nbytes, gomem.AdoptOptions{How: gomem.HowLevelZero, Token: token})
		require.NoError(t, err)
		return index
	}
	first, second := host(mib), host(mib)
	require.Zero(t, b.info().SpillCount)
	third := host(mib + mib/2)
	require.Equal(t, []gomem.State{gomem.Spilled, gomem.Resident, gomem.Resident}, []gomem.State{b.state(first), b.state(second), b.state(third)},
		"no more is spilled than is missing")

	release := []func(){b.export(second), b.export(third)}
	_, err := b.Reserve(mib, gomem.AllocateOptions{})
	var full *gomem.MemoryError
	require.ErrorAs(t, err, &full)
	require.Equal(t, gomem.ReasonDevice, full.Reason)
	require.ErrorIs(t, err, gomem.ErrOutOfMemory)
	require.Zero(t, b.info().Reserved)

	_, err = b.Reserve(4*mib, gomem.AllocateOptions{})
	require.ErrorAs(t, err, &full)
	require.Equal(t, gomem.ReasonTooLarge, full.Reason)

	release[0]()
	token, err := b.Reserve(mib, gomem.AllocateOptions{})
	require.NoError(t, err)
	require.Equal(t, gomem.Spilled, b.state(second))
	_, err = b.Reserve(mib, gomem.AllocateOptions{}) // the room is promised already
	require.ErrorAs(t, err, &full)
	b.Unreserve(token)
	require.Zero(t, b.info().Reserved)
	release[1]()
}

// What one allocation can never be is refused before anything is spilled for it, also where the budget would have begun to.
func TestNothingIsSpilledForMoreThanOneAllocationCanBe(t *testing.T) {
	b, over := openOvercommitting(t, 4*mib)
	over.largest = 2 * mib
	var buffers []uint32
	for range 4 {
		buffers = append(buffers, b.allocate(mib))
	}
	for _, budget := range []int64{-1, 4 * mib} {
		_, _, err := b.SetBudget(budget, false, gomem.Wait{})
		require.NoError(t, err)
		_, allocating := b.Allocate(3*mib, gomem.AllocateOptions{})
		_, reserving := b.Reserve(3*mib, gomem.AllocateOptions{})
		for _, err := range []error{allocating, reserving} {
			var full *gomem.MemoryError
			require.ErrorAs(t, err, &full)
			require.Equal(t, gomem.ReasonTooLarge, full.Reason)
			require.ErrorIs(t, err, gomem.ErrTooLarge)
			require.ErrorContains(t, err, "at most")
		}
		require.Zero(t, b.info().SpillCount)
		require.Zero(t, b.info().Reserved)
	}
	b.allocate(2 * mib) // the limit itself is no obstacle
	require.EqualValues(t, 2, b.info().SpillCount)

	// What a host could allocate all the same is adopted: the limit says nothing of memory that is there.
	b.drop(buffers...)
	b.Drain()
	address, err := b.driver.Allocate(3 * mib)
	require.NoError(t, err)
	index, err := b.Adopt(address, 3*mib, gomem.AdoptOptions{How: gomem.HowLevelZero})
	require.NoError(t, err)
	b.drop(index)
}

func TestAHostsCachesAreEmptiedBeforeRoomIsMadeBySpilling(t *testing.T) {
	b, _ := openOvercommitting(t, mib)
	b.allocate(mib)
	_, err := b.Reserve(mib, gomem.AllocateOptions{HasHelper: true})
	require.ErrorIs(t, err, gomem.ErrRelieve)
	require.Zero(t, b.info().Reserved+b.info().SpillCount)
	_, err = b.Reserve(mib, gomem.AllocateOptions{HasHelper: true, Relieved: true})
	require.NoError(t, err)
	require.EqualValues(t, 1, b.info().SpillCount)
}

func TestRoomThatCannotBeToldIsAnErrorOfTheRequest(t *testing.T) {
	b, over := openOvercommitting(t, mib)
	over.roomErr = errors.New("no figures")
	_, err := b.Reserve(1000, gomem.AllocateOptions{})
	require.ErrorIs(t, err, over.roomErr)
	_, err = b.Allocate(1000, gomem.AllocateOptions{})
	require.ErrorIs(t, err, over.roomErr)
	require.Zero(t, b.info().Reserved+b.info().InUse)
}

func TestThreadsTogetherGetNoMoreThanTheDeviceHas(t *testing.T) {
	b, _ := openOvercommitting(t, 4*mib)
	var threads sync.WaitGroup
	for range 8 {
		threads.Go(func() {
			for range 50 {
				index, err := b.Allocate(mib/2, gomem.AllocateOptions{})
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
	threads.Wait()
}

// What the driver has made already and what is still reserved for it are the same bytes.
func TestMemoryIsNotCountedTwiceWhileItIsMade(t *testing.T) {
	b, _ := openOvercommitting(t, 4*mib)
	kept := b.allocate(mib / 2)
	var threads sync.WaitGroup
	for range 4 {
		threads.Go(func() {
			for range 500 {
				index, err := b.Allocate(mib*7/8, gomem.AllocateOptions{Zero: true})
				if err != nil {
					t.Error(err)
					return
				}
				if err := b.Free(index, gomem.Wait{}); err != nil {
					t.Error(err)
				}
				b.Drain()
			}
		})
	}
	threads.Wait()
	require.Zero(t, b.info().SpillCount, "everything fits all the time")
	require.Equal(t, gomem.Resident, b.state(kept))
	require.Zero(t, b.info().Reserved)
}

// counting is a driver without a figure of free memory, which sees what it was given to free and nothing else: all the rest it is told.
type counting struct {
	*overcommitting
	onFree func()
}

func (c *counting) Room(live, _ uint64) (uint64, error) {
	return c.capacity - live - c.PendingFree(), nil
}

func (c *counting) Free(block gomem.Block) error {
	if c.onFree != nil {
		c.onFree()
	}
	return c.overcommitting.Free(block)
}

// A block that goes back to the driver, by whatever way, counts until the driver has got it: in between, nobody may be promised its room.
func TestABlockCountsUntilTheDriverHasGotIt(t *testing.T) {
	fake := fakedriver.New(fakedriver.Options{DeferFrees: true})
	driver := &counting{overcommitting: &overcommitting{Device: fake, t: t, capacity: 8 * mib}}
	d, err := gomem.NewDevice(driver, gomem.Options{Movable: true, Check: true})
	require.NoError(t, err)
	b := &bench{Device: d, t: t, driver: fake}
	x := b.allocate(mib)
	address, err := fake.Allocate(mib)
	require.NoError(t, err)
	adopted, err := d.Adopt(address, mib, gomem.AdoptOptions{How: gomem.HowLevelZero})
	require.NoError(t, err)
	frees := 0
	expect := func(free uint64) {
		driver.onFree = func() {
			frees++
			require.Equal(t, free, d.RoomNow())
		}
	}
	settle := func() {
		driver.onFree = nil
		require.NoError(t, d.Synchronize())
	}

	expect(6 * mib)
	for _, index := range []uint32{adopted, x} {
		_, err = d.Spill(index, gomem.Wait{})
		require.NoError(t, err)
		require.EqualValues(t, 6*mib, d.RoomNow(), "it is pending now")
	}
	settle()
	require.EqualValues(t, 8*mib, d.RoomNow())

	expect(7 * mib)
	fake.Fail(fakedriver.CopyIn, 1, fake.Error(fakedriver.CopyIn, nil))
	require.Error(t, d.MakeResident(x, gomem.Wait{}), "the restored copy goes back")
	require.EqualValues(t, 7*mib, d.RoomNow())
	settle()

	expect(7 * mib)
	fake.Fail(fakedriver.Fill, 1, fake.Error(fakedriver.Fill, nil))
	_, err = d.Allocate(mib, gomem.AllocateOptions{Zero: true})
	require.Error(t, err, "the new block goes back")
	settle()

	b.use(x)
	expect(7 * mib)
	b.drop(x)
	settle()
	require.Equal(t, 5, frees)
	b.drop(adopted)
	require.NoError(t, d.Close())
}

// The same for a buffer that the program lets go of while its device memory is being made for a restore.
func TestARestoreOfADroppedBufferCountsUntilTheDriverHasItBack(t *testing.T) {
	fake := fakedriver.New(fakedriver.Options{})
	driver := &counting{overcommitting: &overcommitting{Device: fake, t: t, capacity: 8 * mib}}
	making := &makingDriver{counting: driver}
	d, err := gomem.NewDevice(making, gomem.Options{Movable: true})
	require.NoError(t, err)
	b := &bench{Device: d, t: t, driver: fake}
	x := b.allocate(mib)
	_, err = d.Spill(x, gomem.Wait{})
	require.NoError(t, err)
	making.onAllocate = func() {
		making.onAllocate = nil
		d.LetGo(x)
	}
	frees, copies := 0, fake.Calls(fakedriver.CopyIn)
	driver.onFree = func() {
		frees++
		require.EqualValues(t, 7*mib, d.RoomNow())
	}
	require.NoError(t, d.MakeResident(x, gomem.Wait{}))
	require.Equal(t, 1, frees)
	require.Equal(t, copies, fake.Calls(fakedriver.CopyIn), "nothing is copied for it")
	require.NoError(t, d.Check())
	info := b.info()
	require.Zero(t, info.InUse+info.Spilled+info.PendingFree+info.Reserved+info.HostCopies)
	require.NoError(t, d.Close())
}

// makingDriver runs something while it makes memory.
type makingDriver struct {
	*counting
	onAllocate func()
}

func (m *makingDriver) Allocate(nbytes uint64) (uint64, error) {
	if m.onAllocate != nil {
		m.onAllocate()
	}
	return m.counting.Allocate(nbytes)
}

// The last tries before an error, while frees may still be on their way, end when the call is cancelled.
func TestTheLastTriesCanBeCancelled(t *testing.T) {
	b, over := openOvercommitting(t, 2*mib)
	held := b.allocate(2 * mib)
	release := b.export(held)
	cancel := new(gomem.Cancel)
	over.asked = func() {
		if over.Calls(fakedriver.Synchronize) >= 2 { // one is the ladder's own, the second comes with the first of the last tries
			cancel.Cancel()
		}
	}
	_, err := b.Allocate(mib, gomem.AllocateOptions{Wait: gomem.Wait{Cancel: cancel}})
	require.ErrorIs(t, err, gomem.ErrCancelled)
	over.asked = nil
	release()
	b.drop(held)
}
