package gomem

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"
)

// Thrashing: arrays that take turns on a device that is too small for all of them, so that each use moves memory.
//
// The rule: a buffer is pushed out *too soon* when it leaves for want of room within a second of its restore, or within ten times what that restore took (with the
// room that was made for it), whichever is longer. A buffer that was pushed out too soon three times in a row or more, the last time within the last minute, takes
// part in thrashing. The reason: what stays for less than ten times the time of its way in is paid for by a tenth of the run time at least, and a second is a
// time in which a program that meant to be done with an array does not want it back. Once is chance, and twice is a program that went over its data again; three
// times is a pattern. It has to go on: a program that has got over it, or was given more memory, is not told of it any more. What the program spills by itself, or by
// a lower budget, is no sign of anything.

const (
	soonAtLeast   = int64(time.Second)
	soonFactor    = 10
	fewestTurns   = 3
	thrashingLast = int64(time.Minute)
)

// trip is what is known of a buffer's ways to host memory and back. Guarded by the moving lock, place by the books' lock.
type trip struct {
	generation uint32 // of the record that it is about
	turns      uint32 // how often in a row it was pushed out too soon
	place      uint16 // 1 + index of the group of spills that counts its time in host memory; 0: it is not there, or nobody counts
	soon       int64  // spills.clock up to which it is pushed out too soon; 0: it never came back
	first      int64  // when the first of these turns was: nanoseconds since 1970
	last       int64  // spills.clock when the last of them was
}

// trips are those of one slab: made at its first spill, so that a program that spills nothing pays nothing.
type trips [slabRecords]trip

// tripOf is the trip of a record whose buffer was spilled; nil: it never was. Who holds neither the moving lock nor the books' may not look into it.
func (g *registry) tripOf(r *Record) *trip {
	all := (*g.slabs.Load())[r.Index/slabRecords].trips.Load()
	if all == nil {
		return nil
	}
	t := &all[r.Index%slabRecords]
	if t.generation != atomic.LoadUint32(&r.Generation) {
		return nil // of a buffer that had the record before
	}
	return t
}

// beginTripLocked is tripOf for a buffer that is about to be spilled, without the books' lock: it makes what is missing. The moving lock is held. A record's
// generation is raised when it is freed, which takes that lock, too.
func (d *Device) beginTripLocked(r *Record) *trip {
	slab := (*d.registry.slabs.Load())[r.Index/slabRecords]
	all := slab.trips.Load()
	if all == nil {
		all = new(trips)
		slab.trips.Store(all)
	}
	t, generation := &all[r.Index%slabRecords], atomic.LoadUint32(&r.Generation)
	if t.generation != generation {
		d.books.lock() // who lets go of it looks at its generation and place
		*t = trip{generation: generation}
		d.books.unlock()
	}
	return t
}

// pushedOut notes a spill that began and ended at these times; wall is the end by the other clock.
func (t *trip) pushedOut(began, now, wall int64, cause SpillCause) {
	switch {
	case cause != SpillForBudget && cause != SpillForDevice:
	case t.soon == 0 || began > t.soon:
		t.turns = 0
	default:
		if t.turns == 0 {
			t.first = wall
		}
		t.turns++
		t.last = now
	}
}

// broughtBack notes a restore that began and ended at these times.
func (t *trip) broughtBack(began, now int64) {
	t.soon = now + max(soonAtLeast, soonFactor*(now-began))
}

// thrashes reports whether the buffer takes part in thrashing.
func (t *trip) thrashes(now int64) bool { return t.turns >= fewestTurns && now-t.last <= thrashingLast }

// Thrashing is what arrays that take turns cost so far.
type Thrashing struct {
	Rounds  int64 // the most that one of these buffers was pushed out too soon
	Bytes   int64 // moved by that, out and back
	Since   int64 // when the first of them was: nanoseconds since 1970
	Holders []Turning
}

// Turning is a place whose buffers take turns.
type Turning struct {
	Label, Origin    string
	Stack            []string
	Spills, Restores int64 // of these buffers, since it began
	Bytes            int64 // moved by these
}

// turns adds up the buffers that take turns, of those that are live at one moment.
type turns struct {
	now    int64
	byKey  map[holderKey]*Turning
	rounds int64
	since  int64
}

// add looks at a buffer that is live. The moving lock is held.
func (a *turns) add(s *stay, t *trip) {
	if t == nil || !t.thrashes(a.now) {
		return
	}
	key := holderKey{s.label, s.origin}
	h := a.byKey[key]
	if h == nil {
		if a.byKey == nil {
			a.byKey, a.since = map[holderKey]*Turning{}, t.first
		}
		h = &Turning{Label: Text(key.label), Origin: OriginText(key.origin), Stack: OriginStack(key.origin)}
		a.byKey[key] = h
	}
	spills, restores := int64(t.turns), int64(t.turns)
	if !s.spilled {
		restores++ // it has come back since
	}
	h.Spills += spills
	h.Restores += restores
	h.Bytes += s.bytes * (spills + restores)
	a.rounds, a.since = max(a.rounds, spills), min(a.since, t.first)
}

// told is nil where nothing takes turns.
func (a *turns) told() *Thrashing {
	if a.byKey == nil {
		return nil
	}
	t := &Thrashing{Rounds: a.rounds, Since: a.since}
	for _, h := range a.byKey {
		t.Bytes += h.Bytes
		t.Holders = append(t.Holders, *h)
	}
	slices.SortFunc(t.Holders, func(a, b Turning) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Label, b.Label), cmp.Compare(a.Origin, b.Origin), slices.Compare(a.Stack, b.Stack))
	})
	return t
}
