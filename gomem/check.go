package gomem

import (
	"errors"
	"fmt"
)

// Check compares the books with the buffers: every identity of the books, and every buffer's state with the copies it has. It takes the moving
// lock, so nothing moves meanwhile, and holds the books' lock over one pass over all buffers: it is for tests and for TACK_MEMORY_CHECK.
func (d *Device) Check() (err error) {
	defer d.guard(&err)
	return d.whileNothingMoves(d.checkLocked)
}

func (d *Device) checkLocked() error {
	d.ended.lock() // nobody reads or thins what ended
	defer d.ended.unlock()
	b := d.books
	b.lock()
	defer b.unlock()
	var faults []error
	wrong := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s: "+format, append([]any{d.name}, args...)...))
	}
	var inUse, spilled, pending, live int64
	d.registry.each(func(r *Record, c *cold) bool {
		state, dropped := StateOf(r.word())
		if state == Building {
			return true // its builder owns it
		}
		switch c.book {
		case bookInUse:
			inUse += int64(r.Size)
		case bookSpilled:
			spilled += int64(r.Size)
		}
		if c.pending {
			pending += int64(r.Size)
		}
		if !dropped {
			live++
		}
		wantBook, onDevice, onHost := bookInUse, r.Size > 0, false
		switch state {
		case Spilled:
			wantBook, onDevice, onHost = bookSpilled, false, true
		case Restoring:
			wrong("buffer %d is restoring while nobody moves memory", r.Index)
		}
		if dropped {
			wantBook = bookNone
		}
		if c.book != wantBook {
			wrong("buffer %d (%v, dropped %v) is in book %d, not %d", r.Index, state, dropped, c.book, wantBook)
		}
		if c.device != onDevice && !(dropped && state == Spilling) { // dropped while it was spilled: freed already, and on its way to the drop list
			wrong("buffer %d (%v) has device memory: %v", r.Index, state, c.device)
		}
		if (c.host.Address != 0) != onHost {
			wrong("buffer %d (%v) has a host copy: %v", r.Index, state, c.host.Address != 0)
		}
		return true
	})
	if inUse != b.InUse {
		wrong("in_use is %d, the buffers have %d", b.InUse, inUse)
	}
	if spilled != b.Spilled {
		wrong("spilled is %d, the buffers have %d", b.Spilled, spilled)
	}
	if pending != b.PendingFree {
		wrong("pending_free is %d, the dropped buffers have %d", b.PendingFree, pending)
	}
	if d.leaving != 0 {
		wrong("%d bytes are on their way back to the driver while nobody moves memory", d.leaving)
	}
	if d.made < 0 || d.made > b.Reserved {
		wrong("%d bytes of %d reserved ones are made by the driver", d.made, b.Reserved)
	}
	if n := b.AllocateCount - b.FreeCount; n != live {
		wrong("%d buffers made and not freed, %d are there", n, live)
	}
	if left := b.SpilledBytes + b.ReceivedBytes - b.RestoredBytes - b.FreedSpilled; left != b.Spilled {
		wrong("spilled out %d + received %d - restored %d - freed while spilled %d = %d, but spilled is %d", b.SpilledBytes, b.ReceivedBytes, b.RestoredBytes,
			b.FreedSpilled, left, b.Spilled)
	}
	if b.InUse > b.Peak {
		wrong("in_use %d is above the peak %d", b.InUse, b.Peak)
	}
	for name, value := range map[string]int64{"in_use": b.InUse, "spilled": b.Spilled, "reserved": b.Reserved, "pending_free": b.PendingFree,
		"spilled_bytes": b.SpilledBytes, "restored_bytes": b.RestoredBytes, "received_bytes": b.ReceivedBytes} {
		if value < 0 {
			wrong("%s is negative: %d", name, value)
		}
	}
	watched := uint32(0)
	for s := (*Scope)(b.Scopes); s != nil; s = (*Scope)(s.Next) {
		watched += s.Watched
		if s.Watched != 0 {
			live, spilled := d.bytesAtLocked(s.Moment)
			if live != s.Peak {
				wrong("a watched scope's peak is %d, and what was live at that moment has %d", s.Peak, live)
			}
			if s.Whole != 0 && spilled != s.SpilledThen {
				wrong("at the device's peak %d bytes were spilled, and what lay in host memory then has %d", s.SpilledThen, spilled)
			}
		}
		if s.Peak < b.InUse || s.Peak < s.Start || s.OwnNow < 0 || s.Own < s.OwnNow || s.Own > s.Footprint || s.Footprint < s.Peak {
			wrong("a peak scope contradicts itself or the books: %+v with in_use %d", *s, b.InUse)
		}
	}
	if b.Watched != watched {
		wrong("%d watched scopes are counted, %d are open", b.Watched, watched)
	}
	return errors.Join(faults...)
}

// bytesAtLocked is the plain sum of what liveAt groups. The books' lock is held, and the lock of the stays that ended.
func (d *Device) bytesAtLocked(moment uint64) (onDevice, onHost int64) {
	add := func(s *stay) {
		if s.spilled {
			onHost += s.bytes
		} else {
			onDevice += s.bytes
		}
	}
	d.registry.each(func(r *Record, _ *cold) bool {
		if s, live := d.stayLocked(r.Index); live && s.from <= moment {
			add(&s)
		}
		return true
	})
	d.ended.allLocked()(func(s *stay) {
		if s.contains(moment) {
			add(s)
		}
	})
	return onDevice, onHost
}
