package gomem_test

import (
	"errors"
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
	roomErr  error
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
func (o *overcommitting) Room(live uint64) (uint64, error) {
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
