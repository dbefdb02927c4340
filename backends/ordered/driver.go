package ordered

/*
#cgo CFLAGS: -std=gnu17 -Wall -Wextra
#cgo LDFLAGS: -lpthread
#include "device.h"

// The two operations of the hot path. They get the device as a number, so that nothing has to be checked for pointers.
static inline tmo_result tmo_allocate_on(uintptr_t d, uint64_t bytes) { return tmo_allocate((tmo_device *)d, bytes); }
static inline tmo_status tmo_free_on(uintptr_t d, uint64_t address, uint64_t bytes, int ours, int stream_ordered) {
	return tmo_free((tmo_device *)d, address, bytes, ours, stream_ordered);
}
static inline tmo_status tmo_join_streams(tmo_device *d, uint64_t from, uint64_t to) {
	uint64_t first = from ? from : d->stream, then = to ? to : d->stream;
	return tmo_same_stream(first, then) ? TMO_OK : tmo_join(d, first, then);
}
typedef struct { tmo_status status; tmo_found found; bool told, freed; } tmo_finding;
static inline tmo_finding tmo_find_at(uintptr_t d, uint64_t address) {
	tmo_finding finding = { .freed = tmo_has_freed((tmo_device *)d, address) };
	if (!finding.freed) finding.status = tmo_find((tmo_device *)d, address, &finding.found, &finding.told);
	return finding;
}

#cgo noescape tmo_allocate_on
#cgo nocallback tmo_allocate_on
#cgo noescape tmo_free_on
#cgo nocallback tmo_free_on
#cgo noescape tmo_find_at
#cgo nocallback tmo_find_at
*/
import "C"

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/tack-memory/tack-memory/backends/common"
	"github.com/tack-memory/tack-memory/gomem"
)

// Driver is one device. It uses the device's primary context, which it takes at the first use (asking for figures is none), or the host
// framework's after SetStream. Its methods may be called from any thread; each leaves the thread's current context or device as it was.
type Driver struct {
	common.Copies
	name    string
	ordinal int
	library *Library
	facts   Facts
	device  *C.tmo_device
	life    *common.Life // guards the device's context, streams and pool

	hostCache atomic.Int64 // what a host framework's own cache keeps on the device, as it told
}

var (
	_ gomem.Driver   = (*Driver)(nil)
	_ gomem.Examiner = (*Driver)(nil)
	_ gomem.Disowner = (*Driver)(nil)
	_ gomem.Reaper   = (*Driver)(nil)
)

// Open opens a device under a name ("cuda:0"). It makes no context yet.
func (l *Library) Open(name string, ordinal int) (*Driver, error) {
	facts, err := l.Facts(name, ordinal)
	if err != nil {
		return nil, err
	}
	device := C.tmo_new(l.functions, unsafe.Pointer(l.api), C.int(facts.device), C.uint64_t(facts.Total), C.bool(facts.Pools))
	if device == nil {
		return nil, fmt.Errorf("%s: no host memory for the device", name)
	}
	d := &Driver{name: name, ordinal: ordinal, library: l, facts: facts, device: device}
	d.life = common.NewLife(name, func() error { return d.check(C.tmo_start(device)) })
	d.Copies = common.NewCopies(name, d.life, transfers{d}, d)
	// Not in Close: figures may be read after it. What the driver holds is given back by Close alone.
	runtime.AddCleanup(d, func(device *C.tmo_device) { C.tmo_delete(device) }, device)
	return d, nil
}

// Name is the device's name, "cuda:0".
func (d *Driver) Name() string { return d.name }

// Facts are the device's properties, as they were when it was opened.
func (d *Driver) Facts() Facts { return d.facts }

// Library is the library that the device belongs to.
func (d *Driver) Library() *Library { return d.library }

func (d *Driver) check(status C.tmo_status) error {
	if status.code == 0 {
		return nil
	}
	return d.library.failure(d.name, status)
}

// Allocate returns memory of the device's pool, or of the vendor's plain call where there are no pools.
func (d *Driver) Allocate(nbytes uint64) (address uint64, err error) {
	if nbytes > d.facts.Total {
		return 0, d.tooLarge()
	}
	if err := d.life.Use(); err != nil {
		return 0, err
	}
	result := C.tmo_allocate_on(d.handle(), C.uint64_t(nbytes))
	d.life.Done()
	if result.status.code != 0 {
		return 0, d.check(result.status)
	}
	return uint64(result.value), nil
}

// handle is the C device as a number for the calls of the hot path.
func (d *Driver) handle() C.uintptr_t { return C.uintptr_t(uintptr(unsafe.Pointer(d.device))) }

// tooLarge is the error that the vendor's call would give, but that no free can help.
func (d *Driver) tooLarge() error {
	v := d.library.vendor
	call := v.AllocateCall
	if d.facts.Pools {
		call = v.AllocateOrderedCall
	}
	return &gomem.DriverError{Device: d.name, Call: call, Code: v.FullCode, Name: v.FullName, Kind: gomem.ErrTooLarge}
}

// Examine refuses what is no block of the library's, which could not be freed, what was freed already and is not back, and what lies on another device, whose own
// it may be. Where the library
// does not tell what lies where, the caller is believed.
func (d *Driver) Examine(block gomem.Block) error {
	if err := d.life.Use(); err != nil {
		return err
	}
	defer d.life.Done()
	finding := C.tmo_find_at(d.handle(), C.uint64_t(block.Address))
	if bool(finding.freed) {
		return gomem.Allocation{Freed: true}.Refuse(d.name, block)
	}
	if err := d.check(finding.status); err != nil || !bool(finding.told) {
		return err
	}
	found := gomem.Allocation{Base: uint64(finding.found.base), Bytes: uint64(finding.found.bytes), Host: bool(finding.found.host)}
	if on := int(finding.found.device); on >= 0 && on != d.ordinal {
		found.Elsewhere = common.NameBeside(d.name, on)
	}
	return found.Refuse(d.name, block)
}

// Disown forgets a block that the driver has made: it is never kept for reuse.
func (d *Driver) Disown(block gomem.Block) {
	d.life.Look()
	defer d.life.Done()
	C.tmo_disown(d.device, C.uint64_t(block.Address))
}

// Free gives a block back in the order of the device's stream. Where its kind of memory has no stream-ordered free, and where the driver refuses
// a free that could work later (during a capture, for one), the block waits on a list: PendingFree counts it, later calls and Synchronize
// free it. So does a later Free, which waits for the device only where the vendor's own call does so, and a good part of the device waits on the list. The error is one that will not go away: a block that is none of the driver's, or a lost device.
func (d *Driver) Free(block gomem.Block) error {
	if err := d.life.Use(); err != nil {
		return err
	}
	ours, ordered := C.int(0), C.int(0)
	switch block.How {
	case gomem.HowDriver:
		ours = 1
		if d.device.pools {
			ordered = 1
		}
	case d.library.vendor.Plain:
	case d.library.vendor.Ordered:
		ordered = 1
	default:
		d.life.Done()
		return fmt.Errorf("%s: memory allocated by %v cannot be freed by %s", d.name, block.How, d.library.vendor.Name)
	}
	status := C.tmo_free_on(d.handle(), C.uint64_t(block.Address), C.uint64_t(block.Bytes), ours, ordered)
	d.life.Done()
	return d.check(status)
}

// Reap frees what waits to be freed and the device is done with. Where the vendor's free waits for the device, it does so only while the device's
// stream has nothing to do.
func (d *Driver) Reap() (waits bool, err error) {
	if !d.life.Shared() {
		return false, nil
	}
	defer d.life.Done()
	var more C.bool
	err = d.check(C.tmo_reap(d.device, &more))
	return bool(more), err
}

// Synchronize waits for the device's stream, and frees what waits to be freed.
func (d *Driver) Synchronize() error {
	if !d.life.Shared() {
		return nil
	}
	defer d.life.Done()
	return d.check(C.tmo_synchronize(d.device))
}

// Trim waits for the stream and gives what pools keep back to the system: our own pool's, and that of the device's current pool, which is
// where a host framework's stream-ordered allocations come from and where adopted memory goes back to.
func (d *Driver) Trim() (released uint64, err error) {
	if !d.life.Shared() {
		return 0, nil
	}
	defer d.life.Done()
	result := C.tmo_trim(d.device)
	return uint64(result.value), d.check(result.status)
}

// Memory asks the driver. On a device without a context it knows the total only: asking for more would make one.
func (d *Driver) Memory() (gomem.DriverMemory, error) {
	memory := gomem.DriverMemory{Free: gomem.Unknown, Total: int64(d.facts.Total), Cached: d.hostCache.Load(), Allocated: gomem.Unknown, LargestFree: gomem.Unknown}
	if !d.life.Shared() {
		return memory, nil
	}
	defer d.life.Done()
	figures := C.tmo_memory(d.device)
	if err := d.check(figures.status); err != nil {
		return gomem.DriverMemory{}, err
	}
	memory.Free, memory.Total = int64(figures.free), int64(figures.total)
	memory.Cached += int64(figures.cached)
	return memory, nil
}

// SetHostCache tells how many bytes the host framework's own cache of dropped buffers keeps for later use, for Memory to report as cached
// beside what the pools keep: for the driver they are in use. Without a framework it is 0.
func (d *Driver) SetHostCache(nbytes int64) error {
	if nbytes < 0 {
		return fmt.Errorf("%s: a cache cannot keep %d bytes", d.name, nbytes)
	}
	d.hostCache.Store(nbytes)
	return nil
}

// CanFree knows the vendor's own calls, as far as the library has them.
func (d *Driver) CanFree(how gomem.How) bool {
	v := d.library.vendor
	return how == gomem.HowDriver || how == v.Plain || how == v.Ordered && d.library.pools
}

// PendingFree is the bytes that wait to be freed. It only reads memory.
func (d *Driver) PendingFree() uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&d.device.pending_bytes)))
}

// Stream is the handle of the stream that everything is queued on. Who asks for it is going to use the device, so it is made if need be;
// 0 when that fails, and for a host framework's legacy default stream.
func (d *Driver) Stream() uint64 {
	if d.life.Use() != nil {
		return 0
	}
	defer d.life.Done()
	return uint64(C.tmo_publish_stream(d.device))
}

// SetStream takes a host framework's context (0: the primary one) and stream (0: the context's legacy default stream) for all that
// follows. They stay the framework's and must outlive the Driver, or the next SetStream. After an error nothing changed.
func (d *Driver) SetStream(context, stream uint64) error {
	return d.life.Change(func() error { return d.check(C.tmo_bind(d.device, C.uint64_t(context), C.uint64_t(stream))) })
}

// Join makes stream `to` wait for what is queued on stream `from`; 0 is the device's stream.
func (d *Driver) Join(from, to uint64) error {
	if from == to {
		return nil
	}
	if err := d.life.Use(); err != nil {
		return err
	}
	defer d.life.Done()
	return d.check(C.tmo_join_streams(d.device, C.uint64_t(from), C.uint64_t(to)))
}

// Close waits for the stream, gives back what was freed, the pool, the stream and the context. After an error it can be called again and
// goes on where it failed.
func (d *Driver) Close() error {
	return d.life.Close(func() error { return d.check(C.tmo_close(d.device)) })
}
