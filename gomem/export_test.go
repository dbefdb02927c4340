package gomem

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
	defer d.unlockMoving()
	return d.victims.passes
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
