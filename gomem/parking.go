package gomem

import "sync/atomic"

// parking has the victims that holds or exports keep. A choice of victims that found one leaves it here, and neither choices nor passes look at it again
// until the last of its holds has ended: so what is held for long costs a choice nothing, however much it is. Guarded by holdTable.mu, since
// what is parked must have a hold in the table: the end of that hold is what brings it back.
type parking struct {
	parked map[uint32]candidate // by index
	ended  []candidate          // were parked until their last hold ended, and no choice has fetched them yet
	ends   atomic.Uint64        // how many have ended so far: raised with mu, read without
}

// park keeps a candidate until its holds have ended. False: it has none.
func (t *holdTable) park(c candidate) bool {
	t.lock()
	defer t.unlock()
	if t.counts[c.index].all == 0 {
		return false
	}
	if t.parked == nil {
		t.parked = map[uint32]candidate{}
	}
	t.parked[c.index] = c
	return true
}

// endedLocked says that the last hold of a buffer has ended. mu is held.
func (t *holdTable) endedLocked(index uint32) {
	if c, parked := t.parked[index]; parked {
		delete(t.parked, index)
		t.ended = append(t.ended, c)
		t.ends.Add(1)
	}
}

// fetchEnded returns what was parked until its holds ended, once each.
func (t *holdTable) fetchEnded() []candidate {
	t.lock()
	defer t.unlock()
	ended := t.ended
	t.ended = nil
	return ended
}

// allParked is everything that is parked now, or was until its holds ended and was not fetched yet, in no order. Without these, what a choice has passed
// over would be in no list for a moment: the hold may end after the choice fetched for the last time.
func (t *holdTable) allParked() []candidate {
	t.lock()
	defer t.unlock()
	candidates := make([]candidate, 0, len(t.parked)+len(t.ended))
	candidates = append(candidates, t.ended...)
	for _, c := range t.parked {
		candidates = append(candidates, c)
	}
	return candidates
}

// unparkLocked makes victims of buffers again whose holds have ended. One that was used while it was parked takes the place of that use: it goes into the
// batch only where everything of that age is in it; else the next pass finds it.
func (d *Device) unparkLocked() {
	v := &d.victims
	ends := d.holds.ends.Load()
	if ends == v.seen {
		return
	}
	v.seen = ends
	for _, c := range d.holds.fetchEnded() {
		r, half := d.registry.record(c.index), d.registry.cold(c.index)
		if r.Generation != c.generation {
			continue // freed; what has the record now was not parked by this
		}
		half.parked, half.looked = false, 0 // no choice has the number 0: the one under way may look at it again
		if c.lastUse = loadUse(r); c.lastUse <= v.upTo {
			v.returnToBatch(c)
		}
	}
}
