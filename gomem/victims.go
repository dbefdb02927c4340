package gomem

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// How victims are chosen. Spilling takes the buffers used least recently first, exactly, and must neither sort nor scan all buffers for
// each choice. One linear pass over the records selects a batch: every buffer whose last use is at or below a threshold, which is estimated
// from a random sample so that about one buffer in batchFraction falls below it. Everything outside the batch was used later than
// everything inside, and any use from then on is later still; so as long as the batch has a candidate that was not used since, the oldest
// of these is the oldest of all. When the batch is empty, the next pass is due. The hot path does nothing for it but store its last use.
//
// The one flaw in "later still" is C's plain tick (Books.tick), which can set the clock back for a moment: a buffer used then counts as older than it
// is, and may be taken early. Nothing here relies on more than that. Above all, which buffers a choice has looked at already is not told by their last
// uses (once by a floor under them: a buffer used with the clock set back fell below it, and the choice ended with "nothing is left" although
// it was there), but by the number of the choice in each record's cold half.
//
// Amortised, a choice costs batchFraction record reads and its share of sorting the batch (a heap was slower: it pays its logarithm in cache
// misses). The worst case, all buffers used between two choices, is one pass a choice. bench/ measures both.
const (
	batchFraction = 32  // one buffer in so many is selected by a pass
	batchAll      = 256 // with fewer records than this, a batch is everything: sorting them costs less than a sample
	sampleSize    = 256 // most reads of a sample; its 256/32 = 8th value is within some 35 % of the wanted rank, and 1024 reads cost more than they gain
)

// candidate is a buffer as it was when the batch was selected. The generation tells whether the record still has the same buffer
// (model: batch.generation).
type candidate struct {
	lastUse    uint64
	index      uint32
	generation uint32
}

// newerFirst orders candidates by last use, the newest first; equal ones go by index so that runs repeat.
func newerFirst(a, b candidate) int {
	return cmp.Or(cmp.Compare(b.lastUse, a.lastUse), cmp.Compare(b.index, a.index))
}

// victims chooses what to spill. Guarded by the device's moving lock.
type victims struct {
	batch  []candidate // newest first, so that the oldest is taken from the end
	upTo   uint64      // newest last use in the batch when it was selected: what is not in it was used later, or is parked
	passed []candidate // taken out of the batch and found held by launches, or without a place in host memory: they go back at the end of a choice
	looked bool        // the choice under way made a pass already
	choice uint32      // number of the choice under way: cold.looked of what was looked at since its first pass
	seen   uint64      // parking.ends when what was parked and is no longer held was last fetched
	passes int64       // linear passes so far, for tests and the bench
	random *rand.Rand  // only for sampling; its state decides speed, never the result
}

// nextVictimLocked returns the oldest candidate of the choice under way, or false when there is none left. The caller spills it, or gives it to
// passLocked when it is held; afterwards it calls doneChoosingLocked.
func (d *Device) nextVictimLocked() (*Record, bool) {
	v := &d.victims
	d.unparkLocked()
	for {
		for len(v.batch) == 0 {
			if !d.selectBatchLocked() {
				return nil, false
			}
		}
		c := v.batch[len(v.batch)-1]
		v.batch = v.batch[:len(v.batch)-1]
		r, half := d.registry.record(c.index), d.registry.cold(c.index)
		if r.Generation != c.generation || loadUse(r) != c.lastUse || !isVictim(r, half) {
			continue // freed, used since, or moved since: whatever it is now, it is younger than the batch, and the next pass finds it
		}
		half.looked = v.choice
		return r, true
	}
}

// passLocked keeps a candidate that cannot be spilled now, or whose spill failed, for later choices. parked: until its holds have ended.
func (d *Device) passLocked(r *Record) (parked bool) {
	c := candidate{loadUse(r), r.Index, r.Generation}
	if d.holds.park(c) {
		d.registry.cold(r.Index).parked = true
		return true
	}
	d.victims.passed = append(d.victims.passed, c)
	return false
}

// passedOverLocked is everything that a choice which came to its end did not spill, the oldest first.
func (d *Device) passedOverLocked() []candidate {
	candidates := d.holds.allParked()
	for i := range candidates {
		candidates[i].lastUse = loadUse(d.registry.record(candidates[i].index)) // it may have been used since it was parked
	}
	candidates = append(candidates, d.victims.passed...)
	slices.SortFunc(candidates, func(a, b candidate) int { return newerFirst(b, a) })
	return candidates
}

// returnToBatch puts a candidate into its place in the batch.
func (v *victims) returnToBatch(c candidate) {
	at, _ := slices.BinarySearchFunc(v.batch, c, newerFirst)
	v.batch = slices.Insert(v.batch, at, c)
}

// doneChoosingLocked ends a choice: what was passed over goes back. The batch then still has everything at or below its newest last use.
func (d *Device) doneChoosingLocked() {
	v := &d.victims
	for _, c := range slices.Backward(v.passed) { // the newest of them first: most were taken from the end and go to the end
		v.returnToBatch(c)
	}
	v.passed = v.passed[:0]
	v.looked = false
}

// isVictim reports whether a buffer may be looked at as a victim: resident (or marked for a waiting launch), movable, not empty, not parked.
func isVictim(r *Record, c *cold) bool {
	word := r.word()
	return (word == uint32(Resident) || word == uint32(Spilling)) && !c.unmovable && !c.parked && r.Size > 0
}

// selectBatchLocked fills the batch with the oldest buffers that the choice under way has not looked at. False: there are none.
func (d *Device) selectBatchLocked() bool {
	v := &d.victims
	if !v.looked { // the first pass of a choice starts from the oldest, and finds again what was passed over
		v.looked, v.passed = true, v.passed[:0]
		d.beginChoiceLocked()
	}
	used := d.registry.used.Load()
	threshold := uint64(math.MaxUint64)
	if used > batchAll {
		threshold = d.sampleThresholdLocked(used)
	}
	for {
		v.passes++
		d.collectLocked(threshold)
		if len(v.batch) > 0 {
			break
		}
		if threshold == math.MaxUint64 {
			return false
		}
		threshold = math.MaxUint64 // the sample was unlucky
	}
	slices.SortFunc(v.batch, newerFirst)
	v.upTo = v.batch[0].lastUse
	return true
}

// beginChoiceLocked gives the choice under way a number that no record has.
func (d *Device) beginChoiceLocked() {
	v := &d.victims
	if v.choice++; v.choice != 0 {
		return
	}
	v.choice = 1 // after 2^32 choices the numbers begin anew
	if slabs := d.registry.slabs.Load(); slabs != nil {
		for _, s := range *slabs {
			for i := range s.cold {
				s.cold[i].looked = 0
			}
		}
	}
}

// collectLocked appends to the batch every possible victim with a last use at or below the threshold that this choice has not looked at.
func (d *Device) collectLocked(threshold uint64) {
	v := &d.victims
	slabs := d.registry.slabs.Load()
	if slabs == nil {
		return
	}
	left := d.registry.used.Load()
	for _, s := range *slabs {
		in := min(left, slabRecords)
		left -= in
		for i := range s.records[:in] {
			r := &s.records[i]
			use := loadUse(r)
			if use > threshold || !isVictim(r, &s.cold[i]) || s.cold[i].looked == v.choice {
				continue
			}
			v.batch = append(v.batch, candidate{use, r.Index, r.Generation})
		}
	}
}

// sampleThresholdLocked estimates the last use below which one possible victim in batchFraction lies.
func (d *Device) sampleThresholdLocked(used uint32) uint64 {
	v := &d.victims
	if v.random == nil {
		v.random = rand.New(rand.NewPCG(1, uint64(d.books.Device)))
	}
	var sample [sampleSize]uint64
	n := 0
	for range min(sampleSize, used/8) {
		index := v.random.Uint32N(used)
		r, half := d.registry.record(index), d.registry.cold(index)
		if isVictim(r, half) && half.looked != v.choice {
			sample[n] = loadUse(r)
			n++
		}
	}
	if n < batchFraction {
		return math.MaxUint64 // few are left: take them all
	}
	slices.Sort(sample[:n])
	return sample[n/batchFraction]
}
