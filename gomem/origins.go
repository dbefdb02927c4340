package gomem

import (
	"time"
	"unsafe"
)

// Origins says what is recorded of where buffers are allocated. Who allocates gives it (AllocateOptions.Origin); the core has to know because it keeps more while
// it is on: what was live at each device's own peak (Device.whole), and why buffers were spilled (spills.go).
type Origins uint8

// The modes, each more than the one before.
const (
	OriginsOff Origins = iota
	OriginsLine
	OriginsStack
)

var originsNames = [...]string{"off", "line", "stack"}

func (o Origins) String() string {
	if int(o) >= len(originsNames) {
		return "unknown"
	}
	return originsNames[o]
}

// SetOrigins says what is recorded from now on. While it is not OriginsOff, Report tells what was live at the device's peak, and why buffers were spilled. It takes no
// lock but the books', so it may be called with the GIL.
func (d *Device) SetOrigins(mode Origins) {
	defer d.guard(nil)
	b := d.books
	b.lock()
	defer b.unlock()
	d.origins = mode
	switch open := d.whole.Books != nil; {
	case mode != OriginsOff && !open:
		b.openWholeLocked(d.whole)
	case mode == OriginsOff && open: // nobody notes from now on what leaves, so what was live at the peak is not known any more
		b.closeLocked(d.whole)
	}
}

// The device's own scope (Device.whole) is watched and open while origins are on. Other than all others it lives as long as the device, in memory beside the books, so
// that C may begin it anew when the peak is reset; and it notes when its peak was reached, and how much lay in host memory then: of both kinds of bytes Report tells
// whose they were.

// booksAndWhole are mapped together.
type booksAndWhole struct {
	books Books
	whole Scope
}

// openWholeLocked begins the device's own scope. It stands first in the list, as the newest: what stands behind it has its peak at the same moment or earlier
// (newestLocked).
func (b *Books) openWholeLocked(s *Scope) {
	b.openLocked(s, 1)
	s.Whole = 1
	s.reachedLocked(b)
}

// reachedLocked notes what else is told of the peak that the device's own scope has just reached.
func (s *Scope) reachedLocked(b *Books) {
	s.When, s.SpilledThen = time.Now().UnixNano(), b.Spilled
}

// resetPeakLocked sets the device's peak to what is in use now, and begins its own scope anew. C has the same lines (bindings/fast/peak.c).
func (b *Books) resetPeakLocked() {
	b.Peak = b.InUse
	for s := (*Scope)(b.Scopes); s != nil; s = (*Scope)(s.Next) {
		if s.Whole != 0 {
			b.closeLocked(s)
			b.openWholeLocked(s)
			return
		}
	}
}

// PeakHolders is what was live when a device's peak was reached: the Holders' Resident add up to Bytes, their Spilled to Spilled.
type PeakHolders struct {
	Bytes, Spilled int64
	Nanoseconds    int64 // since 1970
	Holders        []Holder
}

// devicePeak is the peak of the device's own scope at one moment.
type devicePeak struct {
	known                bool
	moment               uint64
	bytes, spilled, when int64
}

// peakLocked is the device's peak, where its own scope has seen it: it may have been reached before origins were on. The books' lock is held.
func (d *Device) peakLocked() devicePeak {
	s := d.whole
	if s.Books == nil || s.Peak != d.books.Peak {
		return devicePeak{}
	}
	return devicePeak{true, s.Moment, s.Peak, s.SpilledThen, s.When}
}

// peakHolders groups what was live at a peak. The moving lock is held and d.ended is read for a later moment (reportLocked), so what contains the peak is kept.
func (d *Device) peakHolders(p devicePeak) *PeakHolders {
	if !p.known {
		return nil
	}
	groups := holderGroups{device: d.name}
	d.eachLiveAt(p.moment, true, func(s *stay, _ bool) { groups.add(s) })
	return &PeakHolders{Bytes: p.bytes, Spilled: p.spilled, Nanoseconds: p.when, Holders: groups.sorted()}
}

// newBooks maps the books and the device's own scope.
func newBooks() (*Books, *Scope, error) {
	memory, err := mapSlab(unsafe.Sizeof(booksAndWhole{}))
	if err != nil {
		return nil, nil, err
	}
	both := (*booksAndWhole)(memory)
	return &both.books, &both.whole, nil
}
