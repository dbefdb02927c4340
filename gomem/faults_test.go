package gomem_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// The fault matrix: every operation, on a device that is full, with buffers in every state; every call into the driver and the host pool that the
// operation makes fails once, in every way. Whatever fails: no byte is lost, the books are exact, the error is typed, a smaller request works,
// and the operation works when it is tried again.

// faultWorld is a full device with a buffer in each state.
type faultWorld struct {
	*bench
	first, second, third       uint32 // resident, in this order of last use
	spilled, alsoSpilled       uint32
	held, exported, stay, none uint32 // none has no bytes
	launched                   uint32
	hold, export               uint64
	want                       map[uint32][]byte // contents of the living
}

// unit is the scale of all sizes here; small, because the matrix has hundreds of cases.
const unit = 128

// hostFault is the name for the host pool among the driver's methods.
const hostFault = "host pool"

func newFaultWorld(t *testing.T, options fakedriver.Options) *faultWorld {
	b := open(t, options)
	w := &faultWorld{bench: b, want: map[uint32][]byte{}}
	make := func(nbytes uint64, o gomem.AllocateOptions) uint32 {
		index, err := b.Allocate(nbytes, o)
		require.NoError(t, err)
		b.write(index, nbytes)
		w.want[index] = contents(nbytes, nbytes)
		return index
	}
	w.spilled, w.alsoSpilled = make(8*unit, gomem.AllocateOptions{}), make(8*unit+1, gomem.AllocateOptions{})
	for _, index := range []uint32{w.spilled, w.alsoSpilled} {
		_, err := b.Spill(index, gomem.Wait{})
		require.NoError(t, err)
	}
	w.stay = make(2*unit, gomem.AllocateOptions{Unmovable: true, Reason: gomem.Intern("MPI")})
	w.none = make(0, gomem.AllocateOptions{})
	w.held, w.exported, w.launched = make(2*unit+1, gomem.AllocateOptions{}), make(2*unit+2, gomem.AllocateOptions{}), make(2*unit+3, gomem.AllocateOptions{})
	w.first, w.second, w.third = make(16*unit, gomem.AllocateOptions{}), make(12*unit, gomem.AllocateOptions{}), make(8*unit+2, gomem.AllocateOptions{})
	var err error
	w.hold, err = b.Hold(w.held, gomem.HoldScope, gomem.Intern("texture"), gomem.Wait{})
	require.NoError(t, err)
	w.export, err = b.Hold(w.exported, gomem.HoldExport, gomem.Intern("dlpack"), gomem.Wait{})
	require.NoError(t, err)
	_, err = b.lane.enter([]uint32{w.launched}, gomem.Wait{})
	require.NoError(t, err)
	return w
}

// faultOps are the operations. Each returns what to change in the expected contents when it succeeds. again: it can be done once more.
var faultOps = []struct {
	name  string
	again bool
	run   func(w *faultWorld) (then func(), err error)
}{
	{"allocate", true, func(w *faultWorld) (func(), error) { return w.allocateMore(14*unit, gomem.AllocateOptions{}) }},
	{"allocate, cleared", true, func(w *faultWorld) (func(), error) { return w.allocateMore(14*unit, gomem.AllocateOptions{Zero: true}) }},
	{"allocate, twice spilling", true, func(w *faultWorld) (func(), error) { return w.allocateMore(27*unit, gomem.AllocateOptions{}) }},
	{"launch", true, func(w *faultWorld) (func(), error) {
		buffers := []uint32{w.spilled, w.second, w.alsoSpilled, w.none}
		_, err := w.lane.enter(buffers, nested)
		if err == nil {
			w.lane.leave(buffers)
		}
		return nil, err
	}},
	{"pointer", true, func(w *faultWorld) (func(), error) { return nil, w.MakeResident(w.spilled, nested) }},
	{"hold", true, func(w *faultWorld) (func(), error) {
		id, err := w.Hold(w.spilled, gomem.HoldScope, 0, nested)
		if err == nil {
			w.Release(w.spilled, id)
		}
		return nil, err
	}},
	{"spill", true, func(w *faultWorld) (func(), error) { _, err := w.Spill(w.first, nested); return nil, err }},
	{"spill all", true, func(w *faultWorld) (func(), error) { _, err := w.SpillAll(nested); return nil, err }},
	{"restore all", false, func(w *faultWorld) (func(), error) { // does not fit, fault or not
		err := w.RestoreAll(nested)
		if err == nil {
			return nil, errors.New("more came back than there is room for")
		}
		return nil, err
	}},
	{"read resident", true, func(w *faultWorld) (func(), error) { return nil, w.readAll(w.first) }},
	{"read spilled", true, func(w *faultWorld) (func(), error) { return nil, w.readAll(w.spilled) }},
	{"write resident", true, func(w *faultWorld) (func(), error) { return w.overwrite(w.first) }},
	{"write spilled", true, func(w *faultWorld) (func(), error) { return w.overwrite(w.spilled) }},
	{"fill resident", true, func(w *faultWorld) (func(), error) { return w.fill(w.first) }},
	{"fill spilled", true, func(w *faultWorld) (func(), error) { return w.fill(w.spilled) }},
	{"copy, both resident", true, func(w *faultWorld) (func(), error) { return w.copy(w.first, w.second) }},
	{"copy from spilled", true, func(w *faultWorld) (func(), error) { return w.copy(w.first, w.spilled) }},
	{"copy to spilled", true, func(w *faultWorld) (func(), error) { return w.copy(w.spilled, w.second) }},
	{"copy, both spilled", true, func(w *faultWorld) (func(), error) { return w.copy(w.spilled, w.alsoSpilled) }},
	{"free resident", false, func(w *faultWorld) (func(), error) {
		return func() { delete(w.want, w.first) }, w.Free(w.first, nested)
	}},
	{"free spilled", false, func(w *faultWorld) (func(), error) {
		return func() { delete(w.want, w.spilled) }, w.Free(w.spilled, nested)
	}},
	{"drop resident", false, func(w *faultWorld) (func(), error) {
		w.Drop(w.first)
		return func() { delete(w.want, w.first) }, nil
	}},
	{"drop spilled", false, func(w *faultWorld) (func(), error) {
		w.Drop(w.spilled)
		return func() { delete(w.want, w.spilled) }, nil
	}},
	{"soft budget", true, func(w *faultWorld) (func(), error) { _, _, err := w.SetBudget(20*unit, false, nested); return nil, err }},
	{"strict budget", true, func(w *faultWorld) (func(), error) { _, _, err := w.SetBudget(20*unit, true, nested); return nil, err }},
	{"trim", true, func(w *faultWorld) (func(), error) { _, err := w.Trim(); return nil, err }},
	{"synchronize", true, func(w *faultWorld) (func(), error) { return nil, w.Synchronize() }},
	{"make room", true, func(w *faultWorld) (func(), error) {
		_, err := w.MakeRoom(20*unit, gomem.AllocateOptions{Wait: nested})
		return nil, err
	}},
	{"reserve", true, func(w *faultWorld) (func(), error) {
		token, err := w.Reserve(10*unit, gomem.AllocateOptions{Wait: nested})
		w.Unreserve(token)
		return nil, err
	}},
	{"disown spilled", false, func(w *faultWorld) (func(), error) {
		address, err := w.Disown(w.spilled, nested)
		if err != nil {
			return nil, err
		}
		delete(w.want, w.spilled)
		if err := w.driver.Free(gomem.Block{Address: address, Bytes: 8 * unit}); err != nil {
			return nil, err // the memory's new owner has lost it
		}
		return nil, nil
	}},
	{"figures", true, func(w *faultWorld) (func(), error) { _, err := w.Info(true); return nil, err }},
	{"stream", true, func(w *faultWorld) (func(), error) { return nil, w.SetStream(1, 2) }},
}

// nested: the test's thread has a launch and holds open.
var nested = gomem.Wait{Nested: true}

func (w *faultWorld) allocateMore(nbytes uint64, o gomem.AllocateOptions) (func(), error) {
	o.Wait = nested
	index, err := w.Allocate(nbytes, o)
	if err != nil {
		return nil, err
	}
	got := make([]byte, nbytes)
	if err := w.CopyToHost(index, 0, unsafe.Pointer(&got[0]), nbytes, nested); err == nil && o.Zero && !bytes.Equal(got, make([]byte, nbytes)) {
		err = errors.New("a cleared buffer is not clear")
		return nil, err
	}
	w.Drop(index)
	return nil, nil
}

func (w *faultWorld) readAll(index uint32) error {
	got := make([]byte, len(w.want[index]))
	err := w.CopyToHost(index, 0, unsafe.Pointer(&got[0]), uint64(len(got)), nested)
	if err == nil && !bytes.Equal(got, w.want[index]) {
		return errors.New("other contents were read")
	}
	return err
}

func (w *faultWorld) overwrite(index uint32) (func(), error) {
	data := contents(uint64(len(w.want[index])), 77)
	err := w.CopyFromHost(index, 0, unsafe.Pointer(&data[0]), uint64(len(data)), nested)
	return func() { w.want[index] = data }, err
}

func (w *faultWorld) fill(index uint32) (func(), error) {
	err := w.Fill(index, 1, []byte{1, 2, 3}, 1000, nested)
	return func() {
		for i := range 1000 {
			w.want[index][1+i] = byte(1 + i%3)
		}
	}, err
}

func (w *faultWorld) copy(to, from uint32) (func(), error) {
	err := w.Copy(to, 5, from, 3, 4*unit, nested)
	return func() { copy(w.want[to][5:], slices.Clone(w.want[from][3:3+4*unit])) }, err
}

// verify reads everything back and checks the books.
func (w *faultWorld) verify(t *testing.T, name string) {
	require.NoError(t, w.Check(), name)
	var total int64
	for index, want := range w.want {
		state := w.state(index)
		require.True(t, state == gomem.Resident || state == gomem.Spilled, "%s: buffer %d is %v", name, index, state)
		require.True(t, bytes.Equal(want, w.read(index)), "%s: buffer %d has other contents", name, index)
		total += int64(len(want))
	}
	info := w.info()
	require.Equal(t, total, info.InUse+info.Spilled, name)
	require.Zero(t, info.Reserved, name)
	require.EqualValues(t, len(w.want), info.Live, name)
	require.False(t, w.Waiting(), name)
	for _, index := range []uint32{w.held, w.exported, w.launched, w.stay} {
		require.Equal(t, gomem.Resident, w.state(index), name)
	}
	_, onDevice := w.driver.Live()
	require.EqualValues(t, info.InUse, onDevice, name)
}

// finish ends everything and expects nothing left.
func (w *faultWorld) finish(t *testing.T, name string) {
	w.Release(w.held, w.hold)
	w.Release(w.exported, w.export)
	w.lane.leave([]uint32{w.launched})
	for index := range w.want {
		w.Drop(index)
	}
	require.NoError(t, w.Synchronize(), name)
	info := w.info()
	require.Zero(t, info.InUse+info.Spilled+info.Reserved+info.PendingFree+info.HostCopies+info.DriverPending+info.Live, name)
	blocks, _ := w.driver.Live()
	require.Zero(t, blocks, name)
}

func (w *faultWorld) arm(method string, nth int, err error) {
	if method != hostFault {
		w.driver.Fail(method, nth, err)
		return
	}
	left := nth
	w.pool.SetFault(func(nbytes uint64) error {
		if left--; left == 0 {
			return &gomem.HostMemoryError{Requested: int64(nbytes), Limit: gomem.Unknown, Used: gomem.Unknown, Available: gomem.Unknown, Cause: err}
		}
		return nil
	})
}

func (w *faultWorld) disarm() {
	for _, method := range fakedriver.Methods {
		w.driver.Fail(method, 0, nil)
	}
	w.pool.SetFault(nil)
}

// typed reports whether an error is one of those that a caller can match.
func typed(err error) bool {
	var memory *gomem.MemoryError
	var driver *gomem.DriverError
	return errors.As(err, &memory) || errors.As(err, &driver)
}

func TestFaults(t *testing.T) {
	cases := 0
	for _, options := range []fakedriver.Options{
		{Capacity: 48 * unit, Quarantine: true},
		{Capacity: 48 * unit, Pool: true, DeferFrees: true},
	} {
		for _, op := range faultOps {
			// How often is each called when nothing fails?
			w := newFaultWorld(t, options)
			hosts := 0
			w.pool.SetFault(func(uint64) error { hosts++; return nil })
			before := map[string]int{}
			for _, method := range fakedriver.Methods {
				before[method] = w.driver.Calls(method)
			}
			then, err := op.run(w)
			w.disarm()
			if err == nil && then != nil {
				then()
			}
			w.verify(t, op.name)
			if op.name != "restore all" {
				require.NoError(t, err, op.name)
			}
			calls := map[string]int{hostFault: hosts}
			for _, method := range fakedriver.Methods {
				calls[method] = w.driver.Calls(method) - before[method]
			}
			w.finish(t, op.name)

			for method, n := range calls {
				kinds := []error{nil}
				if method == fakedriver.Allocate {
					kinds = append(kinds, gomem.ErrOutOfMemory)
				}
				for nth := 1; nth <= n; nth++ {
					for _, kind := range kinds {
						cases++
						name := fmt.Sprintf("%s; call %d of %s fails with %v; %+v", op.name, nth, method, kind, options)
						w := newFaultWorld(t, options)
						w.arm(method, nth, w.driver.Error(method, kind))
						then, err := op.run(w)
						w.disarm()
						require.True(t, err == nil || typed(err), "%s: %v", name, err)
						if err == nil && then != nil {
							then()
						}
						w.verify(t, name)
						// A smaller request works, and the operation itself when tried again.
						_, err = w.allocateMore(1*unit, gomem.AllocateOptions{})
						require.NoError(t, err, name)
						if op.again && method != fakedriver.Free { // memory that could not be freed is gone
							then, err := op.run(w)
							require.NoError(t, err, "%s: again", name)
							if then != nil {
								then()
							}
							w.verify(t, name)
						}
						w.finish(t, name)
					}
				}
			}
		}
	}
	t.Logf("%d cases", cases)
	require.Greater(t, cases, 150)
}

// When the device is lost, every call says so, the books can still be read, and dropping still works.
func TestLostDevice(t *testing.T) {
	for _, op := range faultOps {
		if op.name == "restore all" {
			continue
		}
		w := newFaultWorld(t, fakedriver.Options{Capacity: 48 * unit})
		before := w.info()
		w.driver.Lose()
		_, err := op.run(w)
		if err != nil {
			var lost *gomem.LostError
			require.ErrorAs(t, err, &lost, op.name)
			require.ErrorIs(t, err, gomem.ErrLost, op.name)
			_, err = w.Allocate(1, gomem.AllocateOptions{})
			require.ErrorAs(t, err, &lost, op.name)
		}
		require.NoError(t, w.Check(), op.name)
		after := w.info()
		if err != nil {
			require.Equal(t, before.InUse+before.Spilled, after.InUse+after.Spilled, op.name)
		}
		require.Zero(t, after.Reserved, op.name)
		blocks, nbytes := w.driver.Live()
		require.EqualValues(t, w.info().InUse, nbytes, "%s: %d blocks", op.name, blocks)
	}
}
