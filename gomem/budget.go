package gomem

import "time"

// SetBudget sets the budget of a device in bytes, -1 for none, and returns the one before. Lowering it spills at once what it can. A strict
// budget refuses what cannot be made to fit; a soft one is passed by what cannot be spilled (Books.OverBudgetCount).
//
// The budget is set also when the spilling ends early by an error or a cancellation. On a device whose buffers cannot be spilled a
// budget is only counted.
func (d *Device) SetBudget(nbytes int64, strict bool, w Wait) (previous int64, previousStrict bool, err error) {
	b := d.books
	b.lock()
	previous, previousStrict = b.Budget, b.Strict != 0
	b.Budget, b.Strict = max(nbytes, -1), 0
	if strict && nbytes >= 0 {
		b.Strict = 1
	}
	over := b.InUse + b.Reserved - b.Budget
	d.noteLocked(EventBudget, 0, 0, time.Time{})
	b.unlock()
	if nbytes < 0 || over <= 0 || !d.movable {
		return previous, previousStrict, nil
	}
	if err := d.lockMoving(w); err != nil {
		return previous, previousStrict, err
	}
	b.lock()
	over = b.InUse + b.Reserved - b.Budget
	if b.Budget < 0 {
		over = 0 // another call took the budget away meanwhile
	}
	b.unlock()
	if over > 0 {
		_, _, err = d.spillBytesLocked(uint64(over), w, false)
		if err != nil {
			err = d.spillFaultLocked(err, over)
		}
	}
	d.unlockMoving()
	d.verify()
	return previous, previousStrict, err
}
