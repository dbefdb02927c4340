package gomem

import "time"

// Garbage may hold buffers: cycles of objects that nobody can reach, which go when Python's collector looks for them. Before the budget spills for a
// request its caller is asked to collect (ErrCollect), so that they are not copied out. But a collection looks at all objects of the program, tens of
// milliseconds where there are many, however little device memory they have. Two bounds keep that cheap.
//
// In bytes: what the last collection has not seen was allocated since. So it is asked for again after a quarter of the budget, but not before
// collectFloor bytes: to copy out fewer takes about a millisecond, less than any collection. (Under a budget of 64 KiB, with which programs run
// their own tests, each 16 KiB would be a collection.)
//
// In time: collections take at most one part in collectShare of it, whatever the program allocates. Their length is measured here, from ErrCollect to the
// same request's next attempt. The clock is read only where the bound in bytes lets one through: never by an allocation that fits.
const (
	collectFloor = 4 << 20
	collectShare = 10
)

// garbage is what is known of a device's collections.
type garbage struct {
	askedAt int64         // Device.bornBytes when the last one was asked for; -1: none was
	began   time.Time     // when it was asked for; zero: word came that it is done
	ended   time.Time     // when the last one ended. One that nobody brings word of, because an exception ended it, counts as done when it was asked for
	took    time.Duration // how long the last one took that word came of
	clock   func() time.Time
}

// collectDueLocked reports whether the budget would spill for nbytes and a collection is worth it first, which the caller is asked for then. Under
// a budget of 0 bytes it never is: nothing that is collected could make it fit.
func (d *Device) collectDueLocked(nbytes int64) bool {
	b, g := d.books, &d.garbage
	b.lock()
	defer b.unlock()
	if b.Budget <= 0 || b.InUse+b.Reserved+nbytes <= b.Budget {
		return false
	}
	if g.askedAt >= 0 && d.bornBytes-g.askedAt < max(b.Budget/4, collectFloor) {
		return false
	}
	now := g.clock()
	if now.Sub(g.ended) < (collectShare-1)*g.took {
		return false
	}
	g.askedAt, g.began, g.ended = d.bornBytes, now, now
	return true
}

// garbageCollected measures the collection that was asked for last, at the first word of it.
func (d *Device) garbageCollected() {
	b, g := d.books, &d.garbage
	b.lock()
	defer b.unlock()
	if g.began.IsZero() {
		return
	}
	g.ended = g.clock()
	g.took = g.ended.Sub(g.began)
	g.began = time.Time{}
}
