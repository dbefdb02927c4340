package gomem

import (
	"slices"
	"sync"
	"sync/atomic"
)

// What lay on the device at a moment that has passed: a watched peak scope (Scope.Watched) tells what was live at its peak.
//
// A moment is a value of Books.Sequence, which every change of InUse raises. A buffer's stay on the device begins when its bytes come into InUse
// (it was built, or restored) and ends when they leave (it was let go, or spilled). Live at a moment were the buffers with a stay that
// began by then and had not ended. What lay in host memory at a moment is told alike, by stays there, where somebody wants to know (wantsHostLocked). Stays that go on are in the registry (cold.entered); those that ended are kept here, as long as they
// contain the peak of a watched scope that is open. A scope whose peak moves on needs none of those before, so what is kept is bounded by what
// was live at these peaks, however much comes and goes, and nothing is ever lost, as it is when a ring of events overflows.

// stay is one buffer's stay on the device that ended. It contains the moments from <= m < to.
type stay struct {
	from, to      uint64
	bytes         int64
	label, origin uint32
	index         uint32 // of the buffer's record
	spilled       bool   // no stay on the device: it lay in host memory
}

func (s *stay) contains(moment uint64) bool { return s.from <= moment && moment < s.to }

// staysPerChunk bounds what is allocated at a time under the books' lock: 2.5 KiB. A slice that grows would be copied as a whole under it.
const staysPerChunk = 64

type stayChunk struct {
	next  *stayChunk
	n     int
	stays [staysPerChunk]stay
}

// stayLog has the stays that ended and may still be asked for. Guarded by Books.Lock, except mu and crowded; who reads or thins holds mu, and
// then looks at chunks that nobody adds to any more without the books' lock.
type stayLog struct {
	mu sync.Mutex // rankStays

	first, last *stayChunk
	count       int
	limit       int    // thin when there are more; 0: fewestThinned
	reading     bool   // somebody collects what was live at `moment`, of a scope that may be closed already
	moment      uint64 // valid while reading
	reporting   bool   // a report is being made, which tells of host memory, too (reportLocked)

	crowded atomic.Bool // there are more than limit: the next Drain thins
}

// fewestThinned: looking through fewer stays is not worth while.
const fewestThinned = 1024

// leftLocked lowers InUse by a buffer's bytes; its stay on the device ends. The books' lock is held, and c.book is still what it was.
func (d *Device) leftLocked(r *Record, c *cold) {
	b, l := d.books, &d.ended
	b.InUse -= int64(r.Size)
	b.Sequence++
	switch {
	case b.Watched != 0: // model: stays.end
		if newest, asked := l.newestLocked(b); asked && c.entered <= newest {
			l.addLocked(stay{from: c.entered, to: b.Sequence, bytes: int64(r.Size), label: c.label, origin: c.origin, index: r.Index})
		}
	case l.first != nil: // the last scope that needed them was closed
		l.first, l.last, l.count, l.limit = nil, nil, 0, 0
		l.crowded.Store(false)
	}
}

// wantsHostLocked reports whether somebody will tell what lay in host memory: a report, at its own moment and at the device's peak. The books' lock is held.
func (d *Device) wantsHostLocked() bool { return d.ended.reporting || d.whole.Books != nil }

// leftHostLocked ends a buffer's stay in host memory. The books' lock is held, c.entered is still what it was, and this moment is a new one (Books.Sequence): by
// that eachLiveAt tells whether the buffer was counted where it was.
func (d *Device) leftHostLocked(r *Record, c *cold) {
	if !d.wantsHostLocked() {
		return
	}
	b, l := d.books, &d.ended
	if newest, asked := l.newestLocked(b); asked && c.entered <= newest {
		l.addLocked(stay{from: c.entered, to: b.Sequence, bytes: int64(r.Size), label: c.label, origin: c.origin, index: r.Index, spilled: true})
	}
}

// newestLocked is the newest moment that may be asked for; asked is false where there is none. Of two open scopes, the one that was opened later, which
// stands first in the list, has its peak at the same moment as the other or later: its interval is the end of the other's.
func (l *stayLog) newestLocked(b *Books) (newest uint64, asked bool) {
	if l.reading {
		newest, asked = l.moment, true
	}
	for s := (*Scope)(b.Scopes); s != nil; s = (*Scope)(s.Next) {
		if s.Watched != 0 {
			return max(newest, s.Moment), true
		}
	}
	return newest, asked
}

func (l *stayLog) addLocked(s stay) {
	if l.last == nil || l.last.n == staysPerChunk {
		c := new(stayChunk)
		if l.last == nil {
			l.first = c
		} else {
			l.last.next = c
		}
		l.last = c
	}
	l.last.stays[l.last.n] = s
	l.last.n++
	if l.count++; l.count > max(l.limit, fewestThinned) && !l.crowded.Load() {
		l.crowded.Store(true)
	}
}

// thinStays forgets the stays that contain the peak of no watched scope any more. It leaves the books' lock alone while it looks through them, and
// does nothing while somebody reads or thins.
func (d *Device) thinStays() {
	defer d.guard(nil)
	l, b := &d.ended, d.books
	if !l.mu.TryLock() {
		return
	}
	acquired(rankStays)
	defer l.unlock()
	b.lock() // model: stays.detach
	first := l.first
	l.first, l.last, l.count = nil, nil, 0
	b.unlock()
	if first == nil {
		return
	}
	first, last, count := thin(first, d.watchedMoments())
	b.lock() // model: stays.attach
	if count > 0 {
		last.next = l.first
		if l.first == nil {
			l.last = last
		}
		l.first = first
	}
	l.count += count
	l.limit = 2 * count
	l.crowded.Store(false)
	b.unlock()
}

// watchedMoments are the peaks' moments of the watched scopes that are open, in order (model: stays.moments). Whatever ended before now, and contains
// none of them, will never be asked for: peaks only move on to later moments, and scopes that are opened from now on begin later. What ends after
// this may be asked for all the same, so the stays to thin are taken first.
func (d *Device) watchedMoments() []uint64 {
	b := d.books
	var moments []uint64
	for {
		b.lock()
		n := int(b.Watched)
		if n <= cap(moments) {
			for s := (*Scope)(b.Scopes); s != nil; s = (*Scope)(s.Next) {
				if s.Watched != 0 {
					moments = append(moments, s.Moment)
				}
			}
			b.unlock()
			slices.Sort(moments)
			return slices.Compact(moments)
		}
		b.unlock()
		moments = make([]uint64, 0, n) // without the lock
	}
}

// thin moves the stays that contain one of the moments, which are in order, to the front of the chunks, and cuts off the rest. At least one chunk is given.
func thin(first *stayChunk, moments []uint64) (_, last *stayChunk, count int) {
	last = first
	n := 0 // kept in last
	for c := first; c != nil; c = c.next {
		for i := range c.stays[:c.n] {
			s := c.stays[i]
			at, _ := slices.BinarySearch(moments, s.from)
			if at == len(moments) || moments[at] >= s.to {
				continue
			}
			if n == staysPerChunk { // no more is kept than was looked at, so this goes on in c or before it
				last.n = n
				last, n = last.next, 0
			}
			last.stays[n] = s
			n++
			count++
		}
	}
	last.n, last.next = n, nil
	return first, last, count
}

// beginReadingLocked keeps the stays that contain this moment until endReading, also when the scope that it is of is closed. mu and the books' lock are
// held.
func (l *stayLog) beginReadingLocked(b *Books, moment uint64) {
	l.reading, l.moment = true, moment
	b.Watched++
}

func (l *stayLog) endReading(b *Books) {
	b.lock()
	l.reading = false
	b.Watched--
	b.unlock()
}

func (l *stayLog) lock() {
	l.mu.Lock()
	acquired(rankStays)
}

func (l *stayLog) unlock() {
	released(rankStays)
	l.mu.Unlock()
}

// allLocked returns a function that calls f for each stay that is here now. It may be called without the books' lock, which is held now, as long as mu is
// held.
func (l *stayLog) allLocked() (each func(f func(*stay))) {
	first, last, n := l.first, l.last, 0
	if last != nil {
		n = last.n // more may come into the last one meanwhile
	}
	return func(f func(*stay)) {
		for c := first; c != nil; c = c.next {
			in := n
			if c != last {
				in = c.n
			}
			stays := c.stays[:in]
			for i := range stays {
				f(&stays[i])
			}
			if c == last {
				return
			}
		}
	}
}
