package levelzero

/*
#cgo CFLAGS: -std=gnu17 -Wall -Wextra
#cgo LDFLAGS: -lpthread
#include "device.h"

// The two operations of the hot path. They get the device as a number, so that nothing has to be checked for pointers.
static inline tml_block tml_allocate_on(uintptr_t d, uint64_t bytes) { return tml_allocate((tml_device *)d, bytes); }
static inline tml_status tml_free_on(uintptr_t d, uint64_t address, uint64_t bytes, int ours) {
	return tml_free((tml_device *)d, address, bytes, ours);
}
typedef struct { tml_status status; uint64_t kept; } tml_bound;
static inline tml_bound tml_bind_to(tml_device *d, uint64_t context, uint64_t list) {
	tml_bound bound;
	bound.status = tml_bind(d, (ze_context_handle_t)(uintptr_t)context, (ze_command_list_handle_t)(uintptr_t)list, &bound.kept);
	return bound;
}
typedef struct { tml_status status; bool known; } tml_adoption;
static inline tml_adoption tml_adopt_at(tml_device *d, uint64_t address) {
	tml_adoption adoption;
	adoption.status = tml_adopt(d, address, &adoption.known);
	return adoption;
}
typedef struct { tml_status status; tml_place place; } tml_finding;
static inline tml_finding tml_examine_at(tml_device *d, uint64_t address) {
	tml_finding finding;
	finding.status = tml_examine(d, address, &finding.place);
	return finding;
}
static inline tml_status tml_join_lists(tml_device *d, uint64_t from, uint64_t to) {
	return tml_join(d, (ze_command_list_handle_t)(uintptr_t)from, (ze_command_list_handle_t)(uintptr_t)to);
}

#cgo noescape tml_allocate_on
#cgo nocallback tml_allocate_on
#cgo noescape tml_free_on
#cgo nocallback tml_free_on
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

// Driver is one Level Zero device. It makes a context of its own at the first use (asking for figures is none), or uses the host
// framework's after SetStream. Its methods may be called from any thread.
type Driver struct {
	common.Copies
	name    string
	library *Library
	facts   Facts
	device  *C.tml_device
	life    *common.Life // guards the device's contexts and streams
}

var (
	_ gomem.Driver        = (*Driver)(nil)
	_ gomem.Overcommitter = (*Driver)(nil)
	_ gomem.Examiner      = (*Driver)(nil)
	_ gomem.Adopter       = (*Driver)(nil)
	_ gomem.Disowner      = (*Driver)(nil)
	_ gomem.Reaper        = (*Driver)(nil)
	_ common.Mover        = (*Driver)(nil)
)

// Open opens a device under a name ("level_zero:0"). It makes no context yet.
func (l *Library) Open(name string, ordinal int) (*Driver, error) {
	facts, err := l.facts(name, ordinal)
	if err != nil {
		return nil, err
	}
	device := C.tml_new(l.api, facts.found, &facts.c, C.bool(sysmanAllowed()))
	if device == nil {
		return nil, fmt.Errorf("%s: no host memory for the device", name)
	}
	d := &Driver{name: name, library: l, device: device}
	d.life = common.NewLife(name, func() error { return d.check(C.tml_start(device)) })
	d.Copies = common.NewCopies(name, d.life, transfers{d}, d)
	// Not in Close: figures may be read after it. What the driver holds is given back by Close alone.
	runtime.AddCleanup(d, func(device *C.tml_device) { C.tml_delete(device) }, device)
	if err := l.askFree(name, device, &facts); err != nil {
		return nil, err
	}
	d.facts = facts
	return d, nil
}

// Name is the device's name, "level_zero:0".
func (d *Driver) Name() string { return d.name }

// Facts are the device's properties, as they were when it was opened.
func (d *Driver) Facts() Facts { return d.facts }

// Library is the library that the device belongs to.
func (d *Driver) Library() *Library { return d.library }

func (d *Driver) check(status C.tml_status) error {
	if status.code == 0 {
		return nil
	}
	return failure(d.name, status)
}

// handle is the C device as a number for the calls of the hot path.
func (d *Driver) handle() C.uintptr_t { return C.uintptr_t(uintptr(unsafe.Pointer(d.device))) }

// Allocate returns memory of the device, if it was not promised already: a *CapacityError says so, since the driver would not.
func (d *Driver) Allocate(nbytes uint64) (address uint64, err error) {
	if d.tooLarge(nbytes) {
		return 0, d.tooLargeError()
	}
	if err := d.life.Use(); err != nil {
		return 0, err
	}
	block := C.tml_allocate_on(d.handle(), C.uint64_t(nbytes))
	d.life.Done()
	if bool(block.refused) {
		return 0, d.capacityError(nbytes, block)
	}
	return uint64(block.address), d.check(block.status)
}

// Room is how many bytes may still be allocated while `live` bytes of the core's are there, adopted ones included: the driver itself
// would go on beyond that. What was freed and is not back is counted here. More than one allocation can be, nbytes is an error. It makes no context.
func (d *Driver) Room(live, nbytes uint64) (bytes uint64, err error) {
	if d.tooLarge(nbytes) {
		return 0, d.tooLargeError()
	}
	d.life.Look()
	defer d.life.Done()
	room := C.tml_room(d.device, C.uint64_t(live))
	return uint64(room.value), d.check(room.status)
}

// tooLarge reports whether no amount of freeing can make room.
func (d *Driver) tooLarge(nbytes uint64) bool {
	total := d.facts.Total
	if d.facts.Free == SourceNone {
		total -= uint64(C.tml_spare(C.uint64_t(total)))
	}
	return total != 0 && nbytes > total || nbytes > d.facts.Largest && !d.facts.LargerPossible
}

// tooLargeError is the error that the driver gives for more than it can allocate at once.
func (d *Driver) tooLargeError() error {
	return failure(d.name, C.tml_status{code: C.TML_UNSUPPORTED_SIZE, call: C.TML_CALL_zeMemAllocDevice})
}

func (d *Driver) capacityError(nbytes uint64, block C.tml_block) error {
	e := &CapacityError{Device: d.name, Requested: nbytes, Total: d.facts.Total, Held: uint64(block.held), Pending: uint64(block.pending), Others: gomem.Unknown}
	if block.others != C.TML_UNKNOWN {
		e.Others = int64(block.others)
	}
	return e
}

// Free gives a block back after all work queued on the device's stream before. It counts as pending until that is known to be done. The error is one that will not go away: a block that is none of the driver's, or a lost device.
func (d *Driver) Free(block gomem.Block) error {
	ours := C.int(0)
	switch block.How {
	case gomem.HowDriver:
		ours = 1
	case gomem.HowLevelZero:
	default:
		return fmt.Errorf("%s: memory allocated by %v cannot be freed by Level Zero", d.name, block.How)
	}
	if err := d.life.Use(); err != nil {
		return err
	}
	status := C.tml_free_on(d.handle(), C.uint64_t(block.Address), C.uint64_t(block.Bytes), ours)
	d.life.Done()
	return d.check(status)
}

// Examine refuses what lies on another device, what was freed already and is not back, and what is no whole block of device memory: zeMemFree takes an address inside a block, too, and frees all of it. Memory of a context that
// the device does not know is refused: it could neither be moved nor freed.
func (d *Driver) Examine(block gomem.Block) error {
	if err := d.life.Use(); err != nil {
		return err
	}
	defer d.life.Done()
	finding := C.tml_examine_at(d.device, C.uint64_t(block.Address))
	if err := d.check(finding.status); err != nil {
		return err
	}
	place := finding.place
	switch {
	case bool(place.freed):
		return gomem.Allocation{Freed: true}.Refuse(d.name, block)
	case !bool(place.known):
		return unknownContext(block)
	case bool(place.host):
		return gomem.Allocation{Base: block.Address, Bytes: block.Bytes, Host: true}.Refuse(d.name, block)
	}
	found := gomem.Allocation{Base: block.Address, Bytes: block.Bytes} // believed where the loader is too old to tell
	if bool(place.told) {
		found.Base, found.Bytes = uint64(place.base), uint64(place.bytes)
	}
	if on, other := d.library.other(place.device, d.facts.found.device); other {
		found.Elsewhere = common.NameBeside(d.name, on)
	}
	return found.Refuse(d.name, block)
}

func unknownContext(block gomem.Block) error {
	return fmt.Errorf("%w: %#x is no device memory of a context that this device was told of; the host framework's has to be set before its memory is adopted",
		gomem.ErrInvalidHandle, block.Address)
}

// Adopt counts a block of the host's among those of its context, which must not be changed for another one while it lives. Memory of a context that
// the device does not know is refused: it could neither be moved nor freed.
func (d *Driver) Adopt(block gomem.Block) error {
	if err := d.life.Use(); err != nil {
		return err
	}
	defer d.life.Done()
	adoption := C.tml_adopt_at(d.device, C.uint64_t(block.Address))
	if err := d.check(adoption.status); err != nil || bool(adoption.known) {
		return err
	}
	return unknownContext(block)
}

// Disown counts a block no more: it is somebody else's.
func (d *Driver) Disown(block gomem.Block) {
	d.life.Look()
	defer d.life.Done()
	C.tml_disown(d.device, C.uint64_t(block.Address), C.uint64_t(block.Bytes), C.bool(block.How == gomem.HowDriver))
}

// Reap gives back what was freed and the device is done with.
func (d *Driver) Reap() (waits bool, err error) {
	if !d.life.Shared() {
		return false, nil
	}
	defer d.life.Done()
	return bool(C.tml_reap(d.device)), nil
}

// Synchronize waits for the device's stream, and gives back what was freed before.
func (d *Driver) Synchronize() error {
	if !d.life.Shared() {
		return nil
	}
	defer d.life.Done()
	return d.check(C.tml_synchronize(d.device))
}

// Trim waits for the stream. Nothing is kept for later use, so there is nothing else to give back.
func (d *Driver) Trim() (released uint64, err error) { return 0, d.Synchronize() }

// Memory asks Sysman, else the driver. It makes no context.
func (d *Driver) Memory() (gomem.DriverMemory, error) {
	memory := gomem.DriverMemory{Free: gomem.Unknown, Total: gomem.Unknown, Allocated: gomem.Unknown, LargestFree: gomem.Unknown}
	if d.facts.Total != 0 {
		memory.Total = int64(d.facts.Total)
	}
	figure := C.tml_memory(d.device)
	if figure.source != C.TML_SOURCE_NONE {
		memory.Free = int64(figure.free)
		return memory, nil
	}
	if err := d.check(figure.status); err != nil {
		return gomem.DriverMemory{}, err
	}
	return memory, nil
}

// CanFree knows Level Zero's own call.
func (d *Driver) CanFree(how gomem.How) bool {
	return how == gomem.HowDriver || how == gomem.HowLevelZero
}

// PendingFree is the bytes that were freed and are not known to be back. It only reads memory.
func (d *Driver) PendingFree() uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&d.device.pending_bytes)))
}

// Stream is the handle of the immediate command list that work is queued on, or of the host's that it keeps in step with. Who asks for it is
// going to use the device, so it is made if need be; 0 when that fails, and where a queue is used instead. Work of others may be appended to
// it only while no call of the Driver is under way.
func (d *Driver) Stream() uint64 {
	if d.life.Use() != nil {
		return 0
	}
	defer d.life.Done()
	return uint64(C.tml_handle(d.device))
}

// SetStream takes a host framework's context and immediate command list for all that follows: our work is queued in that context, comes
// after what the list has got when a call begins, and is done when the call returns. The list itself is only waited for, so the host may
// go on appending to it from its own threads. Context 0 is the list's; list 0 is one of our own; both 0: back to our own context. They stay
// the host's, must outlive the Driver or the next SetStream, and the context what was allocated in it: as long as such memory is here, another
// context of a host's is a *ContextError. After an error nothing changed.
func (d *Driver) SetStream(context, stream uint64) error {
	return d.life.Change(func() error {
		bound := C.tml_bind_to(d.device, C.uint64_t(context), C.uint64_t(stream))
		if bound.status.code != 0 {
			return listFailure(d.name, bound.status)
		}
		if bound.kept != 0 {
			return &ContextError{Device: d.name, Blocks: uint64(bound.kept)}
		}
		return nil
	})
}

// Join makes command list `to` wait for what is queued on command list `from`; 0 is the device's stream. It waits for `from` itself, since
// that is what can be done to a list of others.
func (d *Driver) Join(from, to uint64) error {
	if from == to {
		return nil
	}
	if err := d.life.Use(); err != nil {
		return err
	}
	defer d.life.Done()
	if status := C.tml_join_lists(d.device, C.uint64_t(from), C.uint64_t(to)); status.code != 0 {
		return listFailure(d.name, status)
	}
	return nil
}

// Close waits for the stream, gives back what was freed, the streams and the context. After an error it can be called again and goes on
// where it failed.
func (d *Driver) Close() error {
	return d.life.Close(func() error { return d.check(C.tml_close(d.device)) })
}
