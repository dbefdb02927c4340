package gomem

import (
	"errors"
	"sync/atomic"
	"time"
)

// The slow path of launches. A launch whose buffers are not all resident comes here without the GIL; C's fast path (bindings/fast)
// handles all others. Admit holds the buffers by Record.Admitted; back under the GIL, C raises Launches and then calls Discharge, so that
// the end of a launch is the same for both paths (model: launch.admit).

// Admit makes all these buffers resident in one pass and raises Admitted in each (twice where an index stands twice). Buffers that launches
// or holds of other threads keep are waited for, first come, first served (model: launch.ticket), unless w.Nested. On an error
// nothing is held.
//
// Errors: *MemoryError, *LostError, ErrCancelled, ErrFreed, ErrRelieve (only with w.Help), ErrLate (only with w.Late), and the driver's.
func (d *Device) Admit(indexes []uint32, w Wait) (err error) {
	defer d.guard(&err)
	if err := d.unusable(); err != nil {
		return err
	}
	requested := d.sizeOf(indexes)
	err = d.slowly(w, requested, func() error {
		if err := d.neverFitTogetherLocked(indexes); err != nil {
			return err
		}
		for _, index := range indexes {
			atomic.AddUint32(&d.registry.record(index).Admitted, 1)
		}
		d.admitting = indexes
		err := d.restoreAllLocked(indexes, w)
		d.admitting = nil
		var full *MemoryError
		if errors.As(err, &full) {
			full.Requested = requested // of the launch, not of the one buffer that had no room
		}
		if err != nil {
			d.discharge(indexes) // never wait, or fail, while keeping holds: two launches that each hold half would wait for ever
		}
		return err
	})
	d.verify()
	return err
}

// slowly runs a step that moves memory, under the turnstile (unless nested) and the moving lock, and runs it again after waiting
// as long as it returns errAwait (with w.Late it returns ErrLate instead of waiting). requested is for the error when the waiting takes too long.
func (d *Device) slowly(w Wait, requested int64, step func() error) error {
	if !w.Nested {
		if !d.turnstile.lock(w.Cancel) { // model: launch.ticket
			return d.notHad()
		}
		defer d.turnstile.unlock() // by a panic as well: whoever comes next wants the moving lock, and is turned away there (broken.go)
	}
	err, reason := d.lockMoving(w), ReasonDevice
	for err == nil {
		if err = step(); errors.Is(err, errAwait) && w.Late {
			err = ErrLate
		}
		if !errors.Is(err, errAwait) {
			if !w.Nested {
				d.unmarkLocked()
			}
			d.unlockMoving()
			return err
		}
		// The marked victims stay marked, so that no new launch takes them while this one waits for the launches that have them now.
		if d.unlockMoving(); errors.Is(err, errAwaitBudget) {
			reason = ReasonBudget
		} else {
			reason = ReasonDevice
		}
		if err = d.awaitMarked(w); err == nil {
			err = d.lockMoving(w)
		}
	}
	if w.Nested || len(d.marked) == 0 {
		return err // cancelled before anything began: it does not wait for the lock again
	}
	if !d.moving.lock(nil) {
		return d.notHad()
	}
	d.unmarkLocked()
	var late *WaitError
	if errors.As(err, &late) {
		err = d.memoryErrorLocked(reason, requested, late)
	}
	d.unlockMoving()
	return err
}

// restoreAllLocked restores what is spilled of admitted buffers.
func (d *Device) restoreAllLocked(indexes []uint32, w Wait) error {
	if w.Progress != nil {
		sum := uint64(0)
		for _, index := range indexes {
			if r := d.registry.record(index); r.is(Spilled) {
				sum += r.Size
			}
		}
		w.Progress.expect(moveRestore, sum)
	}
	for _, index := range indexes {
		r := d.registry.record(index)
		if state, dropped := StateOf(r.word()); dropped || state == Free {
			return ErrFreed
		}
		if r.is(Spilling) {
			r.transition(Spilling, Resident) // marked for another launch: it is admitted here, so that one waits for us
		}
		if r.is(Spilled) {
			if err := d.restoreLocked(r, w); err != nil {
				return err
			}
		}
		d.use(r)
	}
	return nil
}

// sizeOf is the bytes of these buffers, each counted once.
func (d *Device) sizeOf(indexes []uint32) int64 {
	if len(indexes) == 1 {
		return int64(d.registry.record(indexes[0]).Size)
	}
	var sum int64
	seen := make(map[uint32]struct{}, len(indexes))
	for _, index := range indexes {
		if _, again := seen[index]; !again {
			seen[index] = struct{}{}
			sum += int64(d.registry.record(index).Size)
		}
	}
	return sum
}

// neverFitTogetherLocked is neverFitsLocked for buffers that are to be resident at one time. It refuses nothing where they all are, or are only marked: they
// may have come before a budget, or passed a soft one, and need no room.
func (d *Device) neverFitTogetherLocked(indexes []uint32) error {
	for _, index := range indexes {
		if d.registry.record(index).is(Spilled) {
			return d.neverFitsLocked(d.sizeOf(indexes))
		}
	}
	return nil
}

// neverFitsLocked refuses what cannot fit, before anything moves: more than the device has, or more than a strict budget.
func (d *Device) neverFitsLocked(nbytes int64) error {
	d.books.lock()
	budget, strict := d.books.Budget, d.books.Strict != 0
	d.books.unlock()
	total := d.learnTotal()
	if strict && budget >= 0 && nbytes > budget || total != Unknown && nbytes > total {
		return d.memoryErrorLocked(ReasonTooLarge, nbytes, nil)
	}
	return nil
}

// Discharge ends what Admit began.
func (d *Device) Discharge(indexes []uint32) { d.discharge(indexes) }

func (d *Device) discharge(indexes []uint32) {
	for _, index := range indexes {
		atomic.AddUint32(&d.registry.record(index).Admitted, ^uint32(0))
	}
	d.wakeWaiter()
}

// Ended tells a waiting launch that a launch ended. C calls it after the end of a fast launch when Books.Waiting is not 0.
func (d *Device) Ended() { d.wakeWaiter() }

// Waiting reports whether a call waits for launches to end.
func (d *Device) Waiting() bool { return atomic.LoadUint32(&d.books.Waiting) != 0 }

func (d *Device) wakeWaiter() {
	if !d.Waiting() {
		return
	}
	select {
	case d.wake <- struct{}{}:
	default: // it was woken already
	}
}

// ends reports whether what keeps this buffer ends by itself soon: launches, host accesses, `with hold`. An export lives as
// long as its consumer, and nobody waits for it. Admitted is read first, as in held.
func (d *Device) ends(r *Record) bool {
	return atomic.LoadUint32(&r.Admitted) != 0 || atomic.LoadUint32(&r.Launches) != 0 ||
		atomic.LoadUint32(&r.Pins) > d.holds.exportsOf(r.Index)
}

// stays reports whether only exports keep this buffer. A buffer that nothing keeps any more does not: what kept it a moment ago has ended, so it
// is worth another try. (Not `held` after `ends`: a launch that begins between the two looks would be taken for an export.)
func (d *Device) stays(r *Record) bool { return !d.ends(r) && d.holds.exportsOf(r.Index) > 0 }

// awaitMarked waits until what keeps the marked victims has ended (model: launch.wait). It has an end: a host's own lock that the waiter
// holds and the other launch wants would make it last for ever, and nothing here can know. Every victim that becomes free starts the
// time anew; a *WaitError says that nothing ended in time. The caller holds the turnstile and not the moving lock.
func (d *Device) awaitMarked(w Wait) error {
	atomic.StoreUint32(&d.books.Waiting, 1)
	defer atomic.StoreUint32(&d.books.Waiting, 0)
	const shortest, longest = 20 * time.Microsecond, time.Millisecond
	pause := shortest
	timer := time.NewTimer(pause)
	defer timer.Stop()
	began, fewest := time.Now(), len(d.marked)+1
	for {
		kept := 0
		for _, c := range d.marked {
			if r := d.registry.record(c.index); atomic.LoadUint32(&r.Generation) == c.generation && r.is(Spilling) && d.ends(r) {
				kept++
			}
		}
		if kept == 0 {
			return nil
		}
		if kept < fewest {
			fewest, began = kept, time.Now()
		}
		if waited := time.Since(began); waited > time.Duration(d.maxWait.Load()) {
			return &WaitError{Device: d.name, Waited: waited, Launches: kept}
		}
		select {
		case <-d.wake:
		case <-timer.C: // launches end by a plain decrement, so look now and then
			pause = min(2*pause, longest)
			timer.Reset(pause)
		case <-w.Cancel.Done():
			return ErrCancelled
		case <-d.stopped:
			return d.notHad()
		}
	}
}

// unmarkLocked makes the marked victims ordinary resident buffers again. The caller holds turnstile and moving.
func (d *Device) unmarkLocked() {
	for _, c := range d.marked {
		if r := d.registry.record(c.index); r.Generation == c.generation && r.is(Spilling) {
			r.transition(Spilling, Resident)
		}
	}
	d.marked = d.marked[:0]
}

// MakeResident makes one buffer resident and counts a use: the slow path of a pointer read, and restore. The buffer may be spilled again as
// soon as another call needs room.
func (d *Device) MakeResident(index uint32, w Wait) (err error) {
	defer d.guard(&err)
	if err := d.refusal(); err != nil {
		return err
	}
	r := d.registry.record(index)
	if r.is(Resident) {
		d.use(r)
		return nil
	}
	one := [1]uint32{index}
	if err := d.Admit(one[:], w); err != nil {
		return err
	}
	d.discharge(one[:])
	return nil
}
