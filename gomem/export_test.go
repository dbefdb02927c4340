package gomem

import (
	"math"
	"time"
)

// What the tests of the core (package gomem_test, because package fakedriver imports this one) need to see of its inside.

// RaceBuild and Invariants say how the tests were built.
const (
	RaceBuild  = raceBuild
	Invariants = invariants
)

// Fewer returns the smaller number in builds with the race detector, which are some fifty times as slow.
func Fewer(n, checked int) int { return fewerChecked(n, checked) }

// VictimPasses is how many linear passes over all records the choice of victims made so far.
func (d *Device) VictimPasses() int64 {
	d.moving.lock(nil)
	passes := d.victims.passes
	d.unlockMoving()
	return passes
}

// HoldMoving takes the lock for moving memory, as a long spill does, and returns how to let go of it.
func (d *Device) HoldMoving() (release func()) {
	d.moving.lock(nil)
	return d.unlockMoving
}

// Dropped reports whether buffers wait on the drop list.
func (d *Device) Dropped() bool { return d.books.Drops != 0 }

// ProcessBarrier is what the spiller calls between marking a victim and looking at its counts.
func ProcessBarrier() { processBarrier() }

// Waiters is how many calls stand in the turnstile behind the one that has it.
func (d *Device) Waiters() int {
	d.turnstile.mu.Lock()
	defer d.turnstile.mu.Unlock()
	return len(d.turnstile.queue)
}

// KeptStays is how many stays that ended are kept.
func (d *Device) KeptStays() int {
	d.books.lock()
	defer d.books.unlock()
	return d.ended.count
}

// Watched is how many open scopes are watched.
func (d *Device) Watched() uint32 {
	d.books.lock()
	defer d.books.unlock()
	return d.books.Watched
}

// PeakOf is the peak of an open scope so far.
func (d *Device) PeakOf(s *Scope) int64 {
	d.books.lock()
	defer d.books.unlock()
	return s.Peak
}

// HostSizeClass is the class of a host copy of so many bytes.
func HostSizeClass(nbytes int) int {
	class, _ := sizeClass(uint64(nbytes))
	return class
}

// ChooseVictims is one choice that spills nothing: the indexes in the order in which they would be looked at. between is called after each.
func (d *Device) ChooseVictims(between func(index uint32)) (indexes []uint32) {
	d.moving.lock(nil)
	for {
		r, ok := d.nextVictimLocked()
		if !ok {
			break
		}
		indexes = append(indexes, r.Index)
		d.passLocked(r)
		between(r.Index)
	}
	d.doneChoosingLocked()
	d.unlockMoving()
	return indexes
}

// AwaitedBy is how many bytes a request of nbytes would wait for after a choice that spills nothing. between is called when the choice has come to its end,
// before what it passed over is marked.
func (d *Device) AwaitedBy(nbytes uint64, between func()) (awaited uint64) {
	d.turnstile.lock(nil)
	defer d.turnstile.unlock()
	d.moving.lock(nil)
	for {
		r, ok := d.nextVictimLocked()
		if !ok {
			break
		}
		d.passLocked(r)
	}
	between()
	var room room
	d.markLocked(nbytes, &room)
	d.doneChoosingLocked()
	d.unmarkLocked()
	d.unlockMoving()
	return room.awaited
}

// Stays reports whether only exports keep a buffer.
func (d *Device) Stays(index uint32) bool { return d.stays(d.registry.record(index)) }

// SkipToLastChoice makes the next choice of victims the one whose number does not fit any more.
func (d *Device) SkipToLastChoice() {
	d.moving.lock(nil)
	d.victims.choice = math.MaxUint32
	d.unlockMoving()
}

// LetGoUnlisted does the first half of LetGo, as if its thread lost the processor there, and returns the other half.
func (d *Device) LetGoUnlisted(index uint32) (list func()) {
	r := d.registry.record(index)
	d.letGo(r, 0)
	return func() { d.pushDrop(r) }
}

// RoomNow is how much may still be allocated on a device that over-commits, as the core sees it.
func (d *Device) RoomNow() uint64 {
	room, _, err := d.room(0)
	if err != nil {
		panic(err)
	}
	return room
}

// The bounds of collections.
const (
	CollectFloor = collectFloor
	CollectShare = collectShare
)

// SetClock replaces the clock by which collections are measured.
func (d *Device) SetClock(clock func() time.Time) {
	d.books.lock()
	d.garbage.clock = clock
	d.books.unlock()
}

// SetSpillClock replaces the clock by which times in host memory, and what comes too soon after a restore, are measured.
func (d *Device) SetSpillClock(clock func() int64) {
	d.books.lock()
	d.spills.clock = clock
	d.books.unlock()
}

// SpillNotes reports whether anything is kept of spills.
func (d *Device) SpillNotes() bool {
	if d.spills.groups != nil {
		return true
	}
	for _, s := range *d.registry.slabs.Load() {
		if s.trips.Load() != nil {
			return true
		}
	}
	return false
}

// MaxSpillGroups is how many groups of spills are told apart.
const MaxSpillGroups = maxSpillGroups
