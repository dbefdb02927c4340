package cuda

/*
#cgo CFLAGS: -std=gnu17 -Wall -Wextra
#cgo LDFLAGS: -lpthread
#include "device.h"

// The two operations of the hot path. They get the device as a number, so that nothing has to be checked for pointers.
static inline tmc_result tmc_allocate_on(uintptr_t d, uint64_t bytes) { return tmc_allocate((tmc_device *)d, bytes); }
static inline tmc_status tmc_free_on(uintptr_t d, uint64_t address, uint64_t bytes, int stream_ordered, uint64_t stream, int own) {
	tmc_device *device = (tmc_device *)d;
	return tmc_free(device, address, bytes, stream_ordered, own ? device->stream : (CUstream)(uintptr_t)stream);
}
static inline tmc_status tmc_bind_to(tmc_device *d, uint64_t context, uint64_t stream) {
	return tmc_bind(d, (CUcontext)(uintptr_t)context, (CUstream)(uintptr_t)stream);
}
static inline tmc_status tmc_join_streams(tmc_device *d, uint64_t from, uint64_t to) {
	CUstream first = from ? (CUstream)(uintptr_t)from : d->stream, then = to ? (CUstream)(uintptr_t)to : d->stream;
	return tmc_same_stream(first, then) ? TMC_OK : tmc_join(d, first, then);
}
static inline uint64_t tmc_stream(tmc_device *d) { return (uint64_t)(uintptr_t)tmc_publish_stream(d); }

#cgo noescape tmc_allocate_on
#cgo nocallback tmc_allocate_on
#cgo noescape tmc_free_on
#cgo nocallback tmc_free_on
*/
import "C"

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tack-memory/tack-memory/gomem"
)

// Driver is one CUDA device. It uses the device's primary context, which it takes at the first use (asking for figures is none), or the
// host framework's after SetStream. Its methods may be called from any thread; each leaves the thread's current context as it was.
type Driver struct {
	name    string
	library *Library
	facts   Facts
	device  *C.tmc_device

	// bound guards the device's context, streams and pool: shared by operations, exclusive while these change.
	bound   sync.RWMutex
	started bool // the context, the stream and, where there are pools, the pool are there
	closed  bool
}

var _ gomem.Driver = (*Driver)(nil)

// Open opens a device under a name ("cuda:0"). It makes no context yet.
func (l *Library) Open(name string, ordinal int) (*Driver, error) {
	facts, err := l.Facts(name, ordinal)
	if err != nil {
		return nil, err
	}
	device := C.tmc_new(l.api, facts.device, C.bool(facts.Pools))
	if device == nil {
		return nil, fmt.Errorf("%s: no host memory for the device", name)
	}
	d := &Driver{name: name, library: l, facts: facts, device: device}
	// Not in Close: figures may be read after it. What the driver holds is given back by Close alone.
	runtime.AddCleanup(d, func(device *C.tmc_device) { C.tmc_delete(device) }, device)
	return d, nil
}

// Name is the device's name, "cuda:0".
func (d *Driver) Name() string { return d.name }

// Facts are the device's properties, as they were when it was opened.
func (d *Driver) Facts() Facts { return d.facts }

// Library is the library that the device belongs to.
func (d *Driver) Library() *Library { return d.library }

// use begins an operation: on success bound is held shared, and the device has a context.
func (d *Driver) use() error {
	d.bound.RLock()
	if d.started {
		return nil
	}
	d.bound.RUnlock()
	if err := d.start(); err != nil {
		return err
	}
	d.bound.RLock()
	if !d.started { // closed in between
		d.bound.RUnlock()
		return d.closedError()
	}
	return nil
}

func (d *Driver) start() error {
	d.bound.Lock()
	defer d.bound.Unlock()
	if d.closed {
		return d.closedError()
	}
	if d.started {
		return nil
	}
	if err := d.check(C.tmc_start(d.device)); err != nil {
		return err
	}
	d.started = true
	return nil
}

func (d *Driver) closedError() error { return fmt.Errorf("%s: %w", d.name, ErrClosed) }

func (d *Driver) check(status C.tmc_status) error {
	if status.code == 0 {
		return nil
	}
	return d.library.failure(d.name, status)
}

// Allocate returns memory of the device's pool, or of cuMemAlloc where there are no pools.
func (d *Driver) Allocate(nbytes uint64) (address uint64, err error) {
	if nbytes > d.facts.Total {
		return 0, &gomem.DriverError{Device: d.name, Call: d.allocator(), Code: C.TMC_OUT_OF_MEMORY, Name: "CUDA_ERROR_OUT_OF_MEMORY", Kind: gomem.ErrTooLarge}
	}
	if err := d.use(); err != nil {
		return 0, err
	}
	result := C.tmc_allocate_on(d.handle(), C.uint64_t(nbytes))
	d.bound.RUnlock()
	if result.status.code != 0 {
		return 0, d.check(result.status)
	}
	return uint64(result.value), nil
}

// handle is the C device as a number for the calls of the hot path.
func (d *Driver) handle() C.uintptr_t { return C.uintptr_t(uintptr(unsafe.Pointer(d.device))) }

// allocator is the vendor's call that Allocate makes.
func (d *Driver) allocator() string {
	if d.facts.Pools {
		return "cuMemAllocFromPoolAsync"
	}
	return "cuMemAlloc_v2"
}

// Free gives a block back in the order of block.Stream. Where its kind of memory has no stream-ordered free, and where the driver refuses
// a free that could work later (during a capture, for one), the block waits on a list: PendingFree counts it, later calls and Synchronize
// free it. The error is one that will not go away: a block that is none of the driver's, or a lost device.
func (d *Driver) Free(block gomem.Block) error {
	if err := d.use(); err != nil {
		return err
	}
	ordered := C.int(0)
	switch block.How {
	case gomem.HowDriver:
		if d.device.pools {
			ordered = 1
		}
	case gomem.HowCUDA:
	case gomem.HowCUDAAsync:
		ordered = 1
	default:
		d.bound.RUnlock()
		return fmt.Errorf("%s: memory allocated by %v cannot be freed by CUDA", d.name, block.How)
	}
	own := C.int(0)
	if block.Stream == 0 {
		own = 1
	}
	status := C.tmc_free_on(d.handle(), C.uint64_t(block.Address), C.uint64_t(block.Bytes), ordered, C.uint64_t(block.Stream), own)
	d.bound.RUnlock()
	return d.check(status)
}

// CopyOut copies to host memory, which is complete at return.
func (d *Driver) CopyOut(host unsafe.Pointer, address, nbytes uint64) error {
	if err := d.use(); err != nil {
		return err
	}
	defer d.bound.RUnlock()
	return d.check(C.tmc_copy_out(d.device, host, C.uint64_t(address), C.uint64_t(nbytes)))
}

// CopyIn copies from host memory, which is no longer needed at return.
func (d *Driver) CopyIn(address uint64, host unsafe.Pointer, nbytes uint64) error {
	if err := d.use(); err != nil {
		return err
	}
	defer d.bound.RUnlock()
	return d.check(C.tmc_copy_in(d.device, C.uint64_t(address), host, C.uint64_t(nbytes)))
}

// Synchronize waits for the device's stream, and frees what waits to be freed.
func (d *Driver) Synchronize() error {
	if !d.shared() {
		return nil
	}
	defer d.bound.RUnlock()
	return d.check(C.tmc_synchronize(d.device))
}

// shared is use for calls that have nothing to do on a device without a context.
func (d *Driver) shared() bool {
	d.bound.RLock()
	if !d.started {
		d.bound.RUnlock()
		return false
	}
	return true
}

// Trim waits for the stream and gives what pools keep back to the system: our own pool's, and that of the device's current pool, which is
// where a host framework's cuMemAllocAsync takes from and where adopted memory goes back to.
func (d *Driver) Trim() (released uint64, err error) {
	if !d.shared() {
		return 0, nil
	}
	defer d.bound.RUnlock()
	result := C.tmc_trim(d.device)
	return uint64(result.value), d.check(result.status)
}

// Memory asks the driver. On a device without a context it knows the total only: asking for more would make one.
func (d *Driver) Memory() (gomem.DriverMemory, error) {
	memory := gomem.DriverMemory{Free: gomem.Unknown, Total: int64(d.facts.Total), Allocated: gomem.Unknown, LargestFree: gomem.Unknown}
	if !d.shared() {
		return memory, nil
	}
	defer d.bound.RUnlock()
	figures := C.tmc_memory(d.device)
	if err := d.check(figures.status); err != nil {
		return gomem.DriverMemory{}, err
	}
	memory.Free, memory.Total, memory.Cached = int64(figures.free), int64(figures.total), int64(figures.cached)
	return memory, nil
}

// CanFree knows CUDA's own calls, as far as the library has them.
func (d *Driver) CanFree(how gomem.How) bool {
	return how == gomem.HowDriver || how == gomem.HowCUDA || how == gomem.HowCUDAAsync && d.library.pools
}

// PendingFree is the bytes that wait to be freed. It only reads memory.
func (d *Driver) PendingFree() uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&d.device.pending_bytes)))
}

// Stream is the handle of the stream that everything is queued on. Who asks for it is going to use the device, so it is made if need be;
// 0 when that fails, and for a host framework's legacy default stream.
func (d *Driver) Stream() uint64 {
	if d.use() != nil {
		return 0
	}
	defer d.bound.RUnlock()
	return uint64(C.tmc_stream(d.device))
}

// SetStream takes a host framework's context (0: the primary one) and stream (0: the context's legacy default stream) for all that
// follows. They stay the framework's and must outlive the Driver, or the next SetStream. After an error nothing changed.
func (d *Driver) SetStream(context, stream uint64) error {
	d.bound.Lock()
	defer d.bound.Unlock()
	if d.closed {
		return d.closedError()
	}
	if err := d.check(C.tmc_bind_to(d.device, C.uint64_t(context), C.uint64_t(stream))); err != nil {
		return err
	}
	d.started = true
	return nil
}

// Join makes stream `to` wait for what is queued on stream `from`; 0 is the device's stream.
func (d *Driver) Join(from, to uint64) error {
	if from == to {
		return nil
	}
	if err := d.use(); err != nil {
		return err
	}
	defer d.bound.RUnlock()
	return d.check(C.tmc_join_streams(d.device, C.uint64_t(from), C.uint64_t(to)))
}

// Close waits for the stream, gives back what was freed, the pool, the stream and the context. After an error it can be called again and
// goes on where it failed.
func (d *Driver) Close() error {
	d.bound.Lock()
	defer d.bound.Unlock()
	if d.closed {
		return nil
	}
	if err := d.check(C.tmc_close(d.device)); err != nil {
		return fmt.Errorf("closing: %w", err)
	}
	d.closed, d.started = true, false
	return nil
}
