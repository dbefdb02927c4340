package gomem

import "unsafe"

// EventKind says what an Event tells of.
type EventKind uint8

// The kinds of events. Zero is no event.
const (
	EventAllocate EventKind = iota + 1 // a buffer was made
	EventFree                          // the program let go of a buffer
	EventSpill                         // a buffer went to host memory
	EventRestore                       // a buffer came back to the device
	EventBudget                        // the budget was changed; Bytes is 0
	EventAdopt                         // memory that a host allocated became ours
	EventReceive                       // a buffer was made that begins in host memory
)

var eventNames = [...]string{"none", "allocate", "free", "spill", "restore", "budget", "adopt", "receive"}

func (k EventKind) String() string {
	if int(k) >= len(eventNames) {
		return "unknown"
	}
	return eventNames[k]
}

// Event is one change of a device's books, with the figures right after it. Sizes are bytes.
type Event struct {
	Nanoseconds int64 // since 1970
	Kind        EventKind
	Index       uint32 // of the buffer; indexes are used again after a free
	Bytes       int64  // of the buffer
	InUse       int64
	Spilled     int64
	Budget      int64 // -1: none
	Elapsed     int64 // nanoseconds that the spill or restore took; 0 for other kinds
}

// eventRing keeps the newest events of one device and counts what it had to overwrite. Nothing but the books' lock guards it: record is
// called with that lock held, so it allocates nothing and never blocks. A nil ring records nothing.
type eventRing struct {
	slots []Event // outside Go's heap
	next  uint64  // events recorded so far; event n is in slot n % len(slots)
}

// newEventRing makes a ring for the newest `capacity` events; nil for none. Its memory is mapped, since a heap that cannot grow ends the process. Call it
// without the books' lock. The error is a *HostMemoryError.
func newEventRing(capacity int) (*eventRing, error) {
	if capacity <= 0 {
		return nil, nil
	}
	nbytes := uintptr(capacity) * unsafe.Sizeof(Event{})
	memory, err := mapSlab(nbytes)
	if err != nil {
		return nil, &HostMemoryError{Requested: int64(nbytes), Limit: Unknown, Used: Unknown, Available: Unknown, Cause: err}
	}
	return &eventRing{slots: unsafe.Slice((*Event)(memory), capacity)}, nil
}

// endLocked takes the memory from the ring, for unmapEvents: who still reads the ring finds nothing more in it.
func (r *eventRing) endLocked() (slots []Event) {
	if r == nil {
		return nil
	}
	slots, r.slots = r.slots, nil
	return slots
}

// unmapEvents gives the memory of a ring back. Call it without the books' lock.
func unmapEvents(slots []Event) {
	if len(slots) > 0 {
		unmapSlab(unsafe.Pointer(&slots[0]), uintptr(len(slots))*unsafe.Sizeof(Event{}))
	}
}

// record adds an event. The books' lock is held.
func (r *eventRing) record(e Event) {
	if r == nil {
		return
	}
	r.slots[r.next%uint64(len(r.slots))] = e
	r.next++
}

// readLocked copies the events from number `from` on into `into`, as many as fit, and returns the number of the first one copied (higher than
// `from` when that one was overwritten) and how many. The books' lock is held, so keep `into` short.
func (r *eventRing) readLocked(from uint64, into []Event) (first uint64, n int) {
	if r == nil || r.slots == nil {
		return from, 0
	}
	if kept := uint64(len(r.slots)); r.next > kept && from < r.next-kept {
		from = r.next - kept
	}
	for n < len(into) && from+uint64(n) < r.next {
		into[n] = r.slots[(from+uint64(n))%uint64(len(r.slots))]
		n++
	}
	return from, n
}

// eventsPerLock bounds how long a reader of events holds up everybody who counts: 64 events are 4 KiB to copy, some 100 ns.
const eventsPerLock = 64

// copyOut returns the events that the ring has, oldest first, and how many were recorded but overwritten before they could be read. It takes and
// drops the books' lock by `lock` and `unlock`, for a few events at a time, so that a large ring stops nobody. Events recorded while it
// runs are in the result up to a point: those that were there when it began, at least.
func (r *eventRing) copyOut(lock, unlock func()) (events []Event, lost int64) {
	if r == nil {
		return nil, 0
	}
	lock()
	end, kept := r.next, uint64(len(r.slots))
	unlock()
	events = make([]Event, 0, min(end, kept))
	var part [eventsPerLock]Event
	for from := uint64(0); from < end; {
		lock()
		first, n := r.readLocked(from, part[:min(eventsPerLock, end-from)])
		unlock()
		if n == 0 { // the ring has ended
			break
		}
		lost += int64(first - from)
		events = append(events, part[:n]...)
		from = first + uint64(n)
	}
	return events, lost
}
