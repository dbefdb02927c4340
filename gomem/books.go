package gomem

import (
	"math"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// Which counter holds a buffer's bytes (cold.book, guarded by Books.Lock). A buffer's bytes are in exactly one of them from the moment
// it is built until the program lets go of it.
type book uint8

const (
	bookNone    book = iota // building, dropped, or freed
	bookInUse               // Books.InUse
	bookSpilled             // Books.Spilled
)

// lock takes the books' leaf lock. Its holders do a few loads and stores and never block, so spinning is right; the yield is for a
// holder that lost its processor.
func (b *Books) lock() {
	for i := 0; !atomic.CompareAndSwapUint32(&b.Lock, 0, 1); i++ {
		switch {
		case i < 64:
		case i < 256:
			runtime.Gosched()
		default:
			time.Sleep(time.Microsecond)
		}
	}
	acquired(rankBooks)
}

func (b *Books) unlock() {
	released(rankBooks)
	atomic.StoreUint32(&b.Lock, 0)
}

// tick advances the device's clock and returns it. C does the same with a plain load and store, so ticks can be lost: two uses are equally old then, and
// where its thread loses the processor between the two, the clock goes back by what others ticked meanwhile. Only the order of those uses suffers.
func (b *Books) tick() uint64 { return atomic.AddUint64(&b.Clock, 1) }

// countableLocked reports whether n bytes more can be counted. Each rise of a counter was asked so, or moves bytes from another counter, so the sum of the
// three, and of any two, never passes the range of int64.
func (b *Books) countableLocked(n int64) bool {
	return n <= math.MaxInt64-(b.InUse+b.Reserved+b.Spilled)
}

// reserveLocked counts n bytes that are about to be allocated, if the budget has room for them. For none there always is, also above the budget.
func (b *Books) reserveLocked(n int64) bool {
	if !b.countableLocked(n) || b.Budget >= 0 && n > 0 && b.InUse+b.Reserved+n > b.Budget {
		return false
	}
	b.Reserved += n
	return true
}

// raisedLocked is called after each rise of InUse (model: peak.rise): the peaks of the device and of each open scope are exact because
// the rise and the maxima are one step under the lock. Sequence was raised with InUse.
func (b *Books) raisedLocked() {
	b.Peak = max(b.Peak, b.InUse)
	if b.Budget >= 0 && b.InUse > b.Budget {
		atomic.AddInt64(&b.OverBudgetCount, 1) // TellOverBudget reads it without the lock
	}
	for s := (*Scope)(b.Scopes); s != nil; s = (*Scope)(s.Next) {
		if b.InUse > s.Peak {
			s.Peak, s.Moment = b.InUse, b.Sequence
			if s.Whole != 0 {
				s.reachedLocked(b)
			}
		}
		s.Footprint = max(s.Footprint, b.InUse+b.Spilled)
	}
}

// unrestoredLocked takes back a restore of n bytes that was counted and then failed: also from the scopes that were opened in between, or they would
// end with less than nothing restored. Restores are one at a time (moving lock), so nothing else was restored meanwhile.
func (b *Books) unrestoredLocked(n int64) {
	b.RestoredBytes -= n
	for s := (*Scope)(b.Scopes); s != nil; s = (*Scope)(s.Next) {
		s.RestoredBytes = min(s.RestoredBytes, b.RestoredBytes)
	}
}

// bornLocked counts a new buffer of n bytes and returns its sequence number.
func (b *Books) bornLocked(n int64) (sequence uint64) {
	b.Sequence++
	b.AllocateCount++
	b.InUse += n
	for s := (*Scope)(b.Scopes); s != nil; s = (*Scope)(s.Next) {
		s.OwnNow += n // every open scope was opened before this buffer was made
		s.Own = max(s.Own, s.OwnNow)
	}
	b.raisedLocked()
	return b.Sequence
}

// receivedLocked is bornLocked for a buffer that begins in host memory: InUse is as it was, and so are the peaks; the footprint rises.
func (b *Books) receivedLocked(n int64) (sequence uint64) {
	b.Sequence++
	b.AllocateCount++
	b.Spilled += n
	b.ReceivedBytes += n
	for s := (*Scope)(b.Scopes); s != nil; s = (*Scope)(s.Next) {
		s.OwnNow += n
		s.Own = max(s.Own, s.OwnNow)
		s.Footprint = max(s.Footprint, b.InUse+b.Spilled)
	}
	return b.Sequence
}

// goneLocked takes a buffer that was let go out of the scopes that it is an own buffer of.
func (b *Books) goneLocked(n int64, sequence uint64) {
	b.FreeCount++
	for s := (*Scope)(b.Scopes); s != nil; s = (*Scope)(s.Next) {
		if sequence > s.Sequence {
			s.OwnNow -= n
		}
	}
}

// copyLocked copies the counters. The fields that others write without the lock are left zero.
func (b *Books) copyLocked() Books {
	return Books{
		Device: b.Device, Strict: b.Strict, InUse: b.InUse, Peak: b.Peak, Spilled: b.Spilled, Reserved: b.Reserved, PendingFree: b.PendingFree, Budget: b.Budget,
		OverBudgetCount: b.OverBudgetCount, SpillCount: b.SpillCount, RestoreCount: b.RestoreCount, SpilledBytes: b.SpilledBytes,
		RestoredBytes: b.RestoredBytes, ReceivedBytes: b.ReceivedBytes, FreedSpilled: b.FreedSpilled, AllocateCount: b.AllocateCount, FreeCount: b.FreeCount, Sequence: b.Sequence,
	}
}

// OpenScope begins a peak scope: s must be zero and stay at its address until CloseScope. Any number may be open, in any threads. C has
// the same few lines over the same memory (bindings/fast/peak.c).
func (d *Device) OpenScope(s *Scope) { d.openScope(s, 0) }

func (d *Device) openScope(s *Scope, watched uint32) {
	d.books.lock()
	defer d.books.unlock()
	d.books.openLocked(s, watched)
}

func (b *Books) openLocked(s *Scope, watched uint32) {
	*s = Scope{Next: b.Scopes, Books: unsafe.Pointer(b), Sequence: b.Sequence, Start: b.InUse, Peak: b.InUse, Footprint: b.InUse + b.Spilled,
		SpilledBytes: b.SpilledBytes, RestoredBytes: b.RestoredBytes, Moment: b.Sequence, Watched: watched}
	b.Watched += watched
	if s.Next != nil {
		(*Scope)(s.Next).Prev = unsafe.Pointer(s)
	}
	b.Scopes = unsafe.Pointer(s)
}

// CloseScope ends a peak scope and freezes it. Scopes may be closed in any order.
func (d *Device) CloseScope(s *Scope) {
	d.books.lock()
	defer d.books.unlock()
	d.books.closeLocked(s)
}

func (b *Books) closeLocked(s *Scope) {
	if s.Prev != nil {
		(*Scope)(s.Prev).Next = s.Next
	} else {
		b.Scopes = s.Next
	}
	if s.Next != nil {
		(*Scope)(s.Next).Prev = s.Prev
	}
	s.Next, s.Prev, s.Books = nil, nil, nil
	b.Watched -= s.Watched
	s.End = b.InUse
	s.SpilledBytes = b.SpilledBytes - s.SpilledBytes
	s.RestoredBytes = b.RestoredBytes - s.RestoredBytes
}

// ResetPeak sets the device's peak to what is in use now: what was live at the device's peak is what is live now. Nothing else changes: scopes that others have opened
// are untouched.
func (d *Device) ResetPeak() {
	d.books.lock()
	defer d.books.unlock()
	d.books.resetPeakLocked()
}

// Info is the figures of one device, bytes. The embedded Books are a copy made in one moment (copyLocked).
type Info struct {
	Books
	Live          int64 // buffers alive
	DriverPending int64 // given to the driver's deferred free, not back yet; PendingFree does not contain it
	Unfreed       int64 // bytes that the driver failed to free so far: they are in no other figure, and a notice said why
	HostCopies    int64 // bytes of host memory that hold spilled contents, of all devices that share the pool
	HostPooled    int64 // bytes of host memory kept warm
	Driver        DriverMemory
}

// Info reads the figures. It asks the driver only when told to; otherwise Driver is all Unknown.
//
// On a broken device Driver is unknown as well, and DriverPending 0: nothing of the driver's is asked any more, but the books can be read.
func (d *Device) Info(askDriver bool) (info Info, err error) {
	defer d.guard(&err)
	d.books.lock()
	books := d.books.copyLocked()
	d.books.unlock()
	return d.infoOf(books, askDriver)
}

// infoOf adds to a copy of the books what is not in them.
func (d *Device) infoOf(books Books, askDriver bool) (info Info, err error) {
	info.Books = books
	info.Live = info.AllocateCount - info.FreeCount
	info.Unfreed = d.Unfreed()
	info.HostCopies, info.HostPooled = d.pool.Bytes()
	info.Driver = DriverMemory{Unknown, Unknown, Unknown, Unknown, Unknown}
	if d.broken.Load() != nil {
		return info, nil
	}
	info.DriverPending = int64(d.driver.PendingFree())
	if askDriver {
		memory, err := d.driver.Memory()
		if err != nil {
			return info, d.driverFault(err)
		}
		info.Driver = memory
	}
	return info, nil
}
