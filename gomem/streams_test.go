package gomem_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// watched is a fake device with streams of others that the host can look at: one that runs until the test says that it is through.
type watched struct {
	*fakedriver.Device
	joinWaits  bool
	runs       atomic.Bool
	unknown    bool  // the driver does not know the other stream
	passFault  error // of Passed
	finishes   atomic.Int32
	finishFail error
	finishWait chan struct{} // Finish returns when this is closed; nil: at once
	asked      atomic.Int32
}

func (w *watched) JoinWaits() bool { return w.joinWaits }

func (w *watched) Passed(uint64, time.Duration) (bool, error) {
	w.asked.Add(1)
	switch {
	case w.unknown:
		return false, w.Error("Passed", gomem.ErrInvalidHandle)
	case w.passFault != nil:
		return false, w.passFault
	}
	return !w.runs.Load(), nil
}

func (w *watched) Finish() error {
	w.finishes.Add(1)
	if w.finishWait != nil {
		<-w.finishWait
	}
	return w.finishFail
}

func watch(t *testing.T) (*watched, *gomem.Device) {
	driver := &watched{Device: fakedriver.New(fakedriver.Options{})}
	device, err := gomem.NewDevice(driver, gomem.Options{Movable: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = device.Close() })
	return driver, device
}

const theirs = 0x77

// The end of a launch on another stream: its holds may end where streams were joined, or where the host has seen that the work is over, and never otherwise.
func TestALaunchOnAnotherStreamIsFollowedOrStillRuns(t *testing.T) {
	driver, device := watch(t)
	driver.runs.Store(true)
	over, err := device.Follow(theirs, false, gomem.Wait{})
	require.NoError(t, err, "joined: nothing is waited for")
	require.True(t, over)
	require.Zero(t, driver.asked.Load())

	refused := driver.Error(fakedriver.Join, nil)
	driver.Fail(fakedriver.Join, 1, refused)
	over, err = device.Follow(theirs, false, gomem.Wait{})
	require.ErrorIs(t, err, gomem.ErrStillRuns)
	require.False(t, over)

	cancel := new(gomem.Cancel)
	time.AfterFunc(10*time.Millisecond, cancel.Cancel)
	driver.Fail(fakedriver.Join, 1, refused)
	over, err = device.Follow(theirs, true, gomem.Wait{Cancel: cancel})
	require.ErrorIs(t, err, gomem.ErrCancelled)
	require.False(t, over, "its work still runs")

	time.AfterFunc(10*time.Millisecond, func() { driver.runs.Store(false) })
	driver.Fail(fakedriver.Join, 1, refused)
	over, err = device.Follow(theirs, true, gomem.Wait{Cancel: new(gomem.Cancel)})
	require.Equal(t, refused, err, "what failed is told, though the wait has made it good")
	require.True(t, over)
	require.Zero(t, driver.finishes.Load())

	driver.passFault = errors.New("no answer")
	driver.Fail(fakedriver.Join, 1, refused)
	over, err = device.Follow(theirs, true, gomem.Wait{})
	require.Equal(t, refused, err)
	require.False(t, over, "nobody knows whether its work is over")
}

// The work of a stream that was destroyed goes on: only the whole context tells when it is over.
func TestAStreamThatIsGoneIsFollowedByItsContext(t *testing.T) {
	driver, device := watch(t)
	driver.unknown = true
	refuse := func() {
		driver.Fail(fakedriver.Join, 1, driver.Error(fakedriver.Join, gomem.ErrInvalidHandle))
	}
	refuse()
	over, err := device.Follow(theirs, false, gomem.Wait{})
	require.ErrorIs(t, err, gomem.ErrStillRuns, "a context is waited for")
	require.False(t, over)
	refuse()
	over, err = device.Follow(theirs, true, gomem.Wait{})
	var stream *gomem.StreamError
	require.ErrorAs(t, err, &stream)
	require.EqualValues(t, theirs, stream.Stream)
	require.True(t, over)
	require.EqualValues(t, 1, driver.finishes.Load())

	driver.finishFail = errors.New("cannot")
	refuse()
	over, err = device.Follow(theirs, true, gomem.Wait{})
	require.ErrorIs(t, err, driver.finishFail)
	require.ErrorAs(t, err, &stream)
	require.False(t, over)
}

// Where a join waits on the host, it is a wait that can be ended, or refused.
func TestAJoinThatWaitsCanBeEnded(t *testing.T) {
	driver, device := watch(t)
	driver.joinWaits = true
	driver.runs.Store(true)
	joins := driver.Calls(fakedriver.Join)
	cancel := new(gomem.Cancel)
	time.AfterFunc(10*time.Millisecond, cancel.Cancel)
	require.ErrorIs(t, device.Join(theirs, 0, gomem.Wait{Cancel: cancel}), gomem.ErrCancelled)
	require.ErrorIs(t, device.Join(theirs, 0, gomem.Wait{Ask: true}), gomem.ErrStillRuns)
	over, err := device.Follow(theirs, false, gomem.Wait{})
	require.ErrorIs(t, err, gomem.ErrStillRuns)
	require.False(t, over)
	require.Equal(t, joins, driver.Calls(fakedriver.Join))
	driver.runs.Store(false)
	require.NoError(t, device.Join(theirs, 0, gomem.Wait{Ask: true}))
	over, err = device.Follow(theirs, false, gomem.Wait{})
	require.NoError(t, err)
	require.True(t, over)
}

// On a device that is lost or broken nothing runs and nothing moves: the holds may end, and the error says why.
func TestHoldsEndOnADeviceThatIsLostOrBroken(t *testing.T) {
	driver, device := watch(t)
	driver.Lose()
	over, err := device.Follow(theirs, true, gomem.Wait{})
	var lost *gomem.LostError
	require.ErrorAs(t, err, &lost)
	require.True(t, over)

	driver, device = watch(t)
	driver.Panic(fakedriver.Join, 1)
	over, err = device.Follow(theirs, true, gomem.Wait{})
	var broken *gomem.BrokenError
	require.ErrorAs(t, err, &broken)
	require.True(t, over)
}

// A copy waits for the device's stream in the driver, where nothing ends it: so it waits before that, where Ctrl-C does, or says that it would have to wait.
func TestACopyBehindALongQueueCanBeEnded(t *testing.T) {
	driver, device := watch(t)
	index, err := device.Allocate(8, gomem.AllocateOptions{})
	require.NoError(t, err)
	var memory [8]byte
	driver.runs.Store(true)
	copies := driver.Calls(fakedriver.CopyOut) + driver.Calls(fakedriver.CopyIn)
	for name, w := range map[string]gomem.Wait{"asks": {Ask: true}, "is ended": {Cancel: new(gomem.Cancel)}} {
		want := gomem.ErrStillRuns
		if w.Cancel != nil {
			want = gomem.ErrCancelled
			time.AfterFunc(10*time.Millisecond, w.Cancel.Cancel)
		}
		require.ErrorIs(t, device.CopyToHost(index, 0, unsafe.Pointer(&memory), 8, w), want, name)
		require.ErrorIs(t, device.CopyFromHost(index, 0, unsafe.Pointer(&memory), 8, w), want, name)
		require.ErrorIs(t, device.ForeignToHost(unsafe.Pointer(&memory), device.Record(index).Address, 8, w), want, name)
	}
	require.Equal(t, copies, driver.Calls(fakedriver.CopyOut)+driver.Calls(fakedriver.CopyIn))
	driver.runs.Store(false)
	require.NoError(t, device.CopyToHost(index, 0, unsafe.Pointer(&memory), 8, gomem.Wait{Ask: true}))
	device.Drop(index)
}

// A stream that other threads go on feeding is never idle: the copy takes its place in the queue instead.
func TestACopyOnAStreamThatIsAlwaysFed(t *testing.T) {
	driver, device := watch(t)
	index, err := device.Allocate(8, gomem.AllocateOptions{})
	require.NoError(t, err)
	driver.runs.Store(true)
	stop := make(chan struct{})
	var feeder sync.WaitGroup
	feeder.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = device.MakeResident(index, gomem.Wait{})
				time.Sleep(time.Millisecond)
			}
		}
	})
	var memory [8]byte
	soon(t, "a copy", func() {
		err = device.CopyToHost(index, 0, unsafe.Pointer(&memory), 8, gomem.Wait{Cancel: new(gomem.Cancel)})
	})
	require.NoError(t, err)
	close(stop)
	feeder.Wait()
	device.Drop(index)
}

// The per-thread stream of another thread has no name here: nothing but the whole context tells when its work is over.
func TestAStreamWithoutANameIsFollowedByItsContext(t *testing.T) {
	driver, device := watch(t)
	joins := driver.Calls(fakedriver.Join)
	over, err := device.Follow(gomem.UnnamedStream, false, gomem.Wait{})
	require.ErrorIs(t, err, gomem.ErrStillRuns)
	require.False(t, over)
	require.Zero(t, driver.finishes.Load())

	driver.finishFail = errors.New("cannot")
	over, err = device.Follow(gomem.UnnamedStream, true, gomem.Wait{})
	require.ErrorIs(t, err, driver.finishFail)
	require.False(t, over)

	driver.finishFail = nil
	over, err = device.Follow(gomem.UnnamedStream, true, gomem.Wait{})
	require.NoError(t, err)
	require.True(t, over)
	require.EqualValues(t, 2, driver.finishes.Load())
	require.Equal(t, joins, driver.Calls(fakedriver.Join))
	require.Zero(t, driver.asked.Load(), "another stream was asked for it")

	device, err = gomem.NewDevice(fakedriver.New(fakedriver.Options{}), gomem.Options{Movable: true}) // it cannot look at streams
	require.NoError(t, err)
	t.Cleanup(func() { _ = device.Close() })
	over, err = device.Follow(gomem.UnnamedStream, true, gomem.Wait{})
	require.ErrorIs(t, err, gomem.ErrStillRuns)
	require.False(t, over, "nobody knows whether its work is over")
}

// The wait for a whole context has no end where its work has none, and no driver can be told to stop: the caller stops waiting all the same.
func TestTheWaitForAContextCanBeEnded(t *testing.T) {
	driver, device := watch(t)
	driver.finishWait = make(chan struct{})
	defer close(driver.finishWait)
	ends := func(stream uint64) {
		before, cancel := driver.finishes.Load(), new(gomem.Cancel)
		go func() {
			for driver.finishes.Load() == before {
				time.Sleep(time.Millisecond)
			}
			cancel.Cancel()
		}()
		over, err := device.Follow(stream, true, gomem.Wait{Cancel: cancel})
		require.ErrorIs(t, err, gomem.ErrCancelled)
		require.False(t, over, "its work may still run")
	}
	ends(gomem.UnnamedStream)
	driver.unknown = true // a stream that was destroyed: its work goes on
	driver.Fail(fakedriver.Join, 1, driver.Error(fakedriver.Join, gomem.ErrInvalidHandle))
	ends(theirs)
}
