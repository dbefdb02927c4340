package gomem

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// Whoever wants to be told of each allocation, free and move while it happens (tack_memory.event_hook) is told from here. The core calls nobody: with the books' lock
// held, so that the events of one address are in their order, it writes an event into a ring in C's memory, and whoever has Python's GIL takes it from there. This
// file is Go's half of that ring; bindings/events/events.h is C's, and a test in bindings/fast compares them.

// Cause is who causes an event: the system's number of the thread in the low bits (0: not known), and above it how deep that thread is in hooks (0: not in one). C
// makes it, in one word, for it goes through every call.
type Cause uint32

const (
	causeThreadBits = 22
	causeThread     = 1<<causeThreadBits - 1
)

// The kinds of events, domains and reasons, as tack_memory.h numbers them.
const (
	toldNew   = 1
	toldFree  = 2
	toldRenew = 3

	toldDomain = 1 // TACK_DEVICE

	toldPlain   = 0
	toldAdopt   = 1
	toldSpill   = 2
	toldRestore = 3
)

// ToldNumbers are these numbers by name, to be compared with C's.
func ToldNumbers() map[string]uint32 {
	return map[string]uint32{
		"New": toldNew, "Free": toldFree, "Renew": toldRenew, "Device": toldDomain,
		"Plain": toldPlain, "Adopt": toldAdopt, "Spill": toldSpill, "Restore": toldRestore, "ThreadBits": causeThreadBits,
	}
}

// Told is one event: tack_event.
type Told struct {
	Length    uint32 // of this struct
	Kind      uint8
	Domain    uint8
	Device    int16
	Sequence  uint64 // 0: who takes it numbers it
	Old       uint64
	New       uint64
	OldSize   uint64
	NewSize   uint64
	Requested uint64
	Stream    uint64
	Site      uint32 // Intern: the line where the buffer was allocated
	Thread    uint32
	Reason    uint32
	_         uint32
}

// ToldSlot is a place in the ring: tm_event_slot.
type ToldSlot struct {
	Turn  uint64
	Event Told
	Nest  uint32
	_     uint32
}

// ToldRing is the ring: tm_event_ring.
type ToldRing struct {
	Active  uint32 // bit per domain; atomic
	Mask    uint32
	Slots   unsafe.Pointer // *ToldSlot, Mask + 1 of them
	Dropped uint64         // atomic
	_       [5]uint64
	Head    uint64 // atomic
	_       [7]uint64
	Tail    uint64 // atomic
	_       [7]uint64
}

// listener is where events go; nil: nobody ever asked for any.
var listener atomic.Pointer[ToldRing]

// Tell has the events of all devices written into this ring from now on. The ring stays where it is until the process ends.
func Tell(ring *ToldRing) { listener.Store(ring) }

// push writes an event into the ring, or counts it as lost where the ring is full. It takes no lock and never waits.
func (r *ToldRing) push(e *Told, nest uint32) {
	for {
		at := atomic.LoadUint64(&r.Head)
		slot := (*ToldSlot)(unsafe.Add(r.Slots, uintptr(at&uint64(r.Mask))*unsafe.Sizeof(ToldSlot{})))
		lap := at &^ uint64(r.Mask)
		switch turn := atomic.LoadUint64(&slot.Turn); {
		case turn == 2*lap:
			if !atomic.CompareAndSwapUint64(&r.Head, at, at+1) {
				continue
			}
			slot.Event, slot.Nest = *e, nest
			atomic.StoreUint64(&slot.Turn, 2*lap+1)
			return
		case turn < 2*lap: // what is in it was not taken yet
			atomic.AddUint64(&r.Dropped, 1)
			return
		}
	}
}

// tellLocked tells of an event of one buffer; the books' lock is held. state is the buffer's before the event, which says where its bytes were.
//
// For those who are told, a buffer lies at one address at a time: that of its host copy from its spill on, and that on the device again from its restore on. Each
// event comes before the address that it takes away can be given to another buffer: a spill is committed before the device memory is freed, a restore before the
// host copy is, and the books fall before a dropped buffer is drained.
func (d *Device) tellLocked(kind EventKind, r *Record, c *cold, state State, cause Cause) {
	ring := listener.Load()
	if ring == nil || r.Size == 0 || atomic.LoadUint32(&ring.Active)&(1<<toldDomain) == 0 {
		return
	}
	device, host, n := atomic.LoadUint64(&r.Address), uint64(c.host.Address), r.Size
	e := Told{Length: uint32(unsafe.Sizeof(Told{})), Domain: toldDomain, Device: int16(r.Device), Site: OriginLine(c.origin), Thread: uint32(cause & causeThread)}
	switch kind {
	case EventAllocate, EventAdopt:
		e.Kind, e.New, e.NewSize = toldNew, device, n
		if kind == EventAdopt {
			e.Reason = toldAdopt
		}
	case EventReceive:
		e.Kind, e.New, e.NewSize = toldNew, host, n
	case EventFree:
		e.Kind, e.Old, e.OldSize = toldFree, device, n
		if state == Spilled || state == Restoring {
			e.Old = host
		}
	case EventSpill:
		e.Kind, e.Reason, e.Old, e.New, e.OldSize, e.NewSize = toldRenew, toldSpill, device, host, n, n
	case EventRestore:
		e.Kind, e.Reason, e.Old, e.New, e.OldSize, e.NewSize = toldRenew, toldRestore, host, device, n, n
	default:
		return
	}
	e.Requested = e.NewSize
	ring.push(&e, uint32(cause>>causeThreadBits))
}

// tellMovedLocked tells that a host copy lies elsewhere now. The books' lock is held.
func (d *Device) tellMovedLocked(r *Record, c *cold, from, to HostBlock, cause Cause) {
	ring := listener.Load()
	if ring == nil || atomic.LoadUint32(&ring.Active)&(1<<toldDomain) == 0 {
		return
	}
	e := Told{Length: uint32(unsafe.Sizeof(Told{})), Kind: toldRenew, Reason: toldSpill, Domain: toldDomain, Device: int16(r.Device), Site: OriginLine(c.origin),
		Thread: uint32(cause & causeThread), Old: uint64(from.Address), New: uint64(to.Address), OldSize: r.Size, NewSize: r.Size, Requested: r.Size}
	ring.push(&e, uint32(cause>>causeThreadBits))
}

// happenedLocked notes an event of a buffer in the device's own ring, and tells of it.
func (d *Device) happenedLocked(kind EventKind, r *Record, c *cold, state State, began time.Time, cause Cause) {
	d.noteLocked(kind, r.Index, int64(r.Size), began)
	d.tellLocked(kind, r, c, state, cause)
}
