package gomem_test

import (
	"errors"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// What other threads do in the middle of a move: they drop its buffer, open a peak scope, press Ctrl-C.

// midwayDriver runs something before a call reaches the driver.
type midwayDriver struct {
	*fakedriver.Device
	onAllocate, onCopyOut func()
	onCopyIn              func() error
}

func (d *midwayDriver) Allocate(nbytes uint64) (uint64, error) {
	if d.onAllocate != nil {
		d.onAllocate()
	}
	return d.Device.Allocate(nbytes)
}

func (d *midwayDriver) CopyOut(host unsafe.Pointer, address, nbytes uint64) error {
	if d.onCopyOut != nil {
		d.onCopyOut()
	}
	return d.Device.CopyOut(host, address, nbytes)
}

func (d *midwayDriver) CopyIn(address uint64, host unsafe.Pointer, nbytes uint64) error {
	if d.onCopyIn != nil {
		if err := d.onCopyIn(); err != nil {
			return err
		}
	}
	return d.Device.CopyIn(address, host, nbytes)
}

// openMidway makes a device of 20 KiB over a midwayDriver.
func openMidway(t *testing.T) (*bench, *midwayDriver) {
	t.Helper()
	driver := &midwayDriver{Device: fakedriver.New(fakedriver.Options{Capacity: 20 * kib})}
	b := &bench{t: t, driver: driver.Device, pool: gomem.NewHostPool()}
	var err error
	b.Device, err = gomem.NewDevice(driver, gomem.Options{Movable: true, Pool: b.pool})
	require.NoError(t, err)
	t.Cleanup(func() {
		if !t.Failed() {
			require.NoError(t, b.Check())
			require.NoError(t, b.Close())
		}
	})
	return b, driver
}

// RestoreAll has no reference to the buffers that it brings back: one that is dropped while its device memory is asked for must not be freed, or used
// for another buffer, under the restore. A full device is where it matters: there the restore itself drains what was dropped.
func TestBufferDroppedWhileItIsRestored(t *testing.T) {
	for _, fits := range []bool{true, false} {
		b, driver := openMidway(t)
		x := b.allocate(15 * kib)
		_, err := b.Spill(x, gomem.Wait{})
		require.NoError(t, err)
		other := b.allocate(15 * kib)
		dropped := false
		driver.onAllocate = func() {
			if dropped {
				return
			}
			dropped = true
			b.LetGo(x)
			if fits {
				b.LetGo(other)
			}
		}
		err = b.RestoreAll(gomem.Wait{})
		driver.onAllocate = nil
		if fits {
			require.NoError(t, err)
		} else {
			var full *gomem.MemoryError
			require.ErrorAs(t, err, &full)
			b.has(other, uint64(other))
			b.Drop(other)
		}
		b.Drain()
		require.Zero(t, b.info().PendingFree)
		require.Zero(t, b.info().Live)
		used, _ := b.pool.Bytes()
		require.Zero(t, used, "the host copy was given back")
	}
}

// A victim that is dropped while it is copied out makes room all the same: the request that needed it does not fail.
func TestVictimDroppedWhileItIsSpilledMakesRoom(t *testing.T) {
	for _, strict := range []bool{false, true} {
		b, driver := openMidway(t)
		if strict {
			b.budget(16*kib, true)
		}
		victim := b.allocate(15 * kib)
		driver.onCopyOut = func() { b.LetGo(victim) }
		x, err := b.Allocate(14*kib, gomem.AllocateOptions{})
		driver.onCopyOut = nil
		require.NoError(t, err)
		require.Zero(t, b.info().SpillCount)
		b.drop(x)
	}
}

// A restore is counted when its device memory is there, and taken back when its copy fails. A scope that was opened in between counts neither.
func TestScopeOpenedDuringARestoreThatFails(t *testing.T) {
	b, driver := openMidway(t)
	x := b.allocate(kib)
	_, err := b.Spill(x, gomem.Wait{})
	require.NoError(t, err)
	var before, during gomem.Scope
	failure := errors.New("no copy")
	driver.onCopyIn = func() error {
		b.OpenScope(&during)
		return failure
	}
	b.OpenScope(&before)
	require.ErrorIs(t, b.MakeResident(x, gomem.Wait{}), failure)
	driver.onCopyIn = nil
	b.use(x)
	b.CloseScope(&before)
	b.CloseScope(&during)
	require.EqualValues(t, kib, before.RestoredBytes)
	require.EqualValues(t, kib, during.RestoredBytes)
	b.drop(x)
}

// Ctrl-C ends the wait for another thread's long spill at once.
func TestWaitForTheMovingLockCanBeCancelled(t *testing.T) {
	b, _ := openMidway(t)
	x := b.allocate(kib)
	_, err := b.Spill(x, gomem.Wait{})
	require.NoError(t, err)
	release := b.HoldMoving()
	w := gomem.Wait{Cancel: new(gomem.Cancel)}
	ended := make(chan error, 1)
	go func() { ended <- b.MakeResident(x, w) }()
	time.Sleep(10 * time.Millisecond) // mostly it waits by now
	w.Cancel.Cancel()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, gomem.ErrCancelled)
	case <-time.After(20 * time.Second):
		t.Error("the cancelled call waits for the lock")
	}
	release()
	b.drop(x)
}

// Ctrl-C ends a long fill, wherever the bytes are: between two parts. What was filled by then stays filled; a buffer that was to be made is not made.
func TestFillsCanBeCancelled(t *testing.T) {
	const nbytes, first = 80 << 20, 1 << 20 // the first part is longer
	stopped := func() gomem.Wait {
		w := gomem.Wait{Cancel: new(gomem.Cancel)}
		w.Cancel.Cancel()
		return w
	}
	pattern := []byte{1, 2, 3}
	for name, prepare := range map[string]func(b *bench, index uint32) (fill func(gomem.Wait) error){
		"resident": func(b *bench, index uint32) func(gomem.Wait) error {
			return func(w gomem.Wait) error { return b.Fill(index, 0, pattern, nbytes, w) }
		},
		"spilled": func(b *bench, index uint32) func(gomem.Wait) error {
			_, err := b.Spill(index, gomem.Wait{})
			require.NoError(b.t, err)
			return func(w gomem.Wait) error { return b.Fill(index, 0, pattern, nbytes, w) }
		},
		"not ours": func(b *bench, index uint32) func(gomem.Wait) error {
			return func(w gomem.Wait) error { return b.ForeignFill(b.Record(index).Address, pattern, nbytes, w) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, fakedriver.Options{})
			index, err := b.Allocate(nbytes, gomem.AllocateOptions{Zero: true})
			require.NoError(t, err)
			ends := func() (ends [2]byte) {
				for i, at := range []uint64{first, nbytes - 1} {
					require.NoError(t, b.CopyToHost(index, at, unsafe.Pointer(&ends[i]), 1, gomem.Wait{}))
				}
				return ends
			}
			fill := prepare(b, index)
			require.ErrorIs(t, fill(stopped()), gomem.ErrCancelled)
			require.Equal(t, [2]byte{pattern[first%3], 0}, ends())
			require.NoError(t, fill(gomem.Wait{Cancel: new(gomem.Cancel)}))
			require.Equal(t, [2]byte{pattern[first%3], pattern[(nbytes-1)%3]}, ends())
			b.drop(index)
		})
	}
	t.Run("new", func(t *testing.T) {
		b := open(t, fakedriver.Options{})
		_, err := b.Allocate(nbytes, gomem.AllocateOptions{Zero: true, Wait: stopped()})
		require.ErrorIs(t, err, gomem.ErrCancelled)
		require.Zero(t, b.info().Live)
		require.Zero(t, b.info().Reserved)
		index, err := b.Allocate(nbytes, gomem.AllocateOptions{Zero: true, Wait: gomem.Wait{Cancel: new(gomem.Cancel)}})
		require.NoError(t, err)
		b.drop(index)
	})
}
