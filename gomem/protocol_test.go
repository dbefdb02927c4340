package gomem_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// Races between two steps of the protocol, run many times. In builds without the race detector launches count by plain stores, as under Python's
// GIL, and the spiller's barrier is what orders them: take processBarrier out of spillLocked, and the first test fails.

func TestLaunchNeverRunsOnABufferThatIsSpilled(t *testing.T) {
	b := open(t, fakedriver.Options{NoContents: true})
	x := []uint32{b.allocate0(64)}
	r := b.Record(x[0])
	end := time.Now().Add(3 * time.Second)
	if testing.Short() {
		end = time.Now().Add(time.Second)
	}
	var stop atomic.Bool
	var spiller sync.WaitGroup
	spills := 0
	spiller.Go(func() {
		for !stop.Load() {
			freed, err := b.Spill(x[0], gomem.Wait{})
			if err != nil {
				t.Error(err)
				return
			}
			if freed > 0 {
				spills++
			}
		}
	})
	launches := 0
	for ; time.Now().Before(end) && !t.Failed(); launches++ {
		addresses, err := b.lane.enter(x, gomem.Wait{})
		require.NoError(t, err)
		for range 5 {
			// A victim may be marked and put back under a launch, but not leave the device.
			if state, _ := gomem.StateOf(atomic.LoadUint32(&r.Word)); state != gomem.Resident && state != gomem.Spilling {
				t.Fatalf("launch %d runs on a buffer that is %v", launches, state)
			}
			if atomic.LoadUint64(&r.Address) != addresses[0] {
				t.Fatalf("launch %d: the buffer moved", launches)
			}
		}
		b.lane.leave(x)
		for range launches % 64 { // leave room for the spiller, of varying length
			_ = atomic.LoadUint32(&r.Launches)
		}
	}
	stop.Store(true)
	spiller.Wait()
	t.Logf("%d launches, %d spills", launches, spills)
	require.Positive(t, spills)
	b.drop(x[0])
}

// allocate0 makes a buffer on a device without contents.
func (b *bench) allocate0(nbytes uint64) uint32 {
	b.t.Helper()
	index, err := b.Allocate(nbytes, gomem.AllocateOptions{})
	require.NoError(b.t, err)
	return index
}

// A buffer may be dropped at any moment of a spill: both copies are freed, and the books are right.
func TestDropDuringASpill(t *testing.T) {
	driver := &copyDriver{Device: fakedriver.New(fakedriver.Options{Quarantine: true})}
	d, err := gomem.NewDevice(driver, gomem.Options{Movable: true})
	require.NoError(t, err)
	for _, early := range []bool{true, false} {
		x, err := d.Allocate(kib, gomem.AllocateOptions{Zero: true})
		require.NoError(t, err)
		driver.onCopyOut = func() {
			driver.onCopyOut = nil
			soonDrop(t, d, x) // never waits for the spill
			info, err := d.Info(false)
			require.NoError(t, err)
			require.Zero(t, info.InUse, "the books fall at once")
			require.EqualValues(t, kib, info.PendingFree)
		}
		driver.before = early
		freed, err := d.Spill(x, gomem.Wait{})
		require.NoError(t, err)
		require.EqualValues(t, kib, freed, "whoever let go of it, the spill gave its memory back")
		info, err := d.Info(false)
		require.NoError(t, err)
		require.Zero(t, info.InUse+info.Spilled+info.PendingFree+info.Live+info.HostCopies)
		require.False(t, d.Dropped(), "whoever lets go of the lock looks at the drop list once more")
		require.NoError(t, d.Check())
		blocks, _ := driver.Live()
		require.Zero(t, blocks)
	}
	require.NoError(t, d.Close())
}

// The same for a restore.
func TestDropDuringARestore(t *testing.T) {
	driver := &copyDriver{Device: fakedriver.New(fakedriver.Options{Quarantine: true})}
	d, err := gomem.NewDevice(driver, gomem.Options{Movable: true})
	require.NoError(t, err)
	x, err := d.Allocate(kib, gomem.AllocateOptions{Zero: true})
	require.NoError(t, err)
	_, err = d.Spill(x, gomem.Wait{})
	require.NoError(t, err)
	driver.onCopyIn = func() {
		driver.onCopyIn = nil
		soonDrop(t, d, x)
	}
	_ = d.MakeResident(x, gomem.Wait{}) // whatever it says of a buffer that is gone
	info, err := d.Info(false)
	require.NoError(t, err)
	require.Zero(t, info.InUse+info.Spilled+info.PendingFree+info.Live+info.HostCopies+info.Reserved)
	require.NoError(t, d.Check())
	blocks, _ := driver.Live()
	require.Zero(t, blocks)
	require.NoError(t, d.Close())
}

// soonDrop drops a buffer from another goroutine and expects that this does not wait.
func soonDrop(t *testing.T, d *gomem.Device, index uint32) {
	t.Helper()
	soon(t, "a drop", func() { d.Drop(index) })
}

// copyDriver runs something in the middle of a copy: before or after the bytes were copied.
type copyDriver struct {
	*fakedriver.Device
	before              bool
	onCopyOut, onCopyIn func()
}

func (d *copyDriver) CopyOut(host unsafe.Pointer, address, nbytes uint64) error {
	return around(d.before, d.onCopyOut, func() error { return d.Device.CopyOut(host, address, nbytes) })
}

func (d *copyDriver) CopyIn(address uint64, host unsafe.Pointer, nbytes uint64) error {
	return around(d.before, d.onCopyIn, func() error { return d.Device.CopyIn(address, host, nbytes) })
}

func around(before bool, callback func(), call func() error) error {
	if before && callback != nil {
		callback()
	}
	err := call()
	if !before && callback != nil {
		callback()
	}
	return err
}

// While a buffer is being copied out, a launch and a host access see it whole: the device copy is true until the host copy is complete.
func TestAccessDuringASpillSeesTheBuffer(t *testing.T) {
	driver := &copyDriver{Device: fakedriver.New(fakedriver.Options{Quarantine: true})}
	d, err := gomem.NewDevice(driver, gomem.Options{Movable: true})
	require.NoError(t, err)
	l := &lane{device: d}
	x, err := d.Allocate(kib, gomem.AllocateOptions{Zero: true})
	require.NoError(t, err)
	done := make(chan error, 2)
	driver.onCopyOut = func() {
		driver.onCopyOut = nil
		require.NotPanics(t, func() { driver.Bytes(d.Record(x).Address, kib) })
		go func() {
			done <- d.Fill(x, 0, []byte{7}, kib, gomem.Wait{}) // waits for the spill, then writes the host copy
		}()
		go func() {
			_, err := l.enter([]uint32{x}, gomem.Wait{}) // waits for the spill, then restores
			if err == nil {
				l.leave([]uint32{x})
			}
			done <- err
		}()
	}
	_, err = d.Spill(x, gomem.Wait{})
	require.NoError(t, err)
	soon(t, "what waited for the spill", func() {
		require.NoError(t, <-done)
		require.NoError(t, <-done)
	})
	got := make([]byte, kib)
	require.NoError(t, d.CopyToHost(x, 0, unsafe.Pointer(&got[0]), kib, gomem.Wait{}))
	for _, c := range got {
		require.EqualValues(t, 7, c, "a write is never lost")
	}
	d.Drop(x)
	require.NoError(t, d.Close())
}
