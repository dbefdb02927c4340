package gomem

import "time"

// SetBudget sets the budget of a device in bytes, -1 for none, and returns the one before. Lowering it spills at once what it can. A strict
// budget refuses what cannot be made to fit; a soft one is passed by what cannot be spilled (Books.OverBudgetCount).
//
// The budget is set also when the spilling ends early by an error or a cancellation. On a device whose buffers cannot be spilled a
// budget is only counted.
func (d *Device) SetBudget(nbytes int64, strict bool, w Wait) (previous int64, previousStrict bool, err error) {
	defer d.guard(&err)
	if err := d.refusal(); err != nil {
		return 0, false, err
	}
	b := d.books
	previous, previousStrict, over := d.writeBudget(nbytes, strict)
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
		var room room
		room, err = d.spillBytesLocked(uint64(over), w, false)
		if err == nil && room.refused != nil && room.freed < uint64(over) {
			err = d.memoryErrorLocked(ReasonHost, over, room.refused)
		}
	}
	d.unlockMoving()
	d.verify()
	return previous, previousStrict, err
}

// writeBudget sets the figures. over is by how much the device is above the new budget.
func (d *Device) writeBudget(nbytes int64, strict bool) (previous int64, previousStrict bool, over int64) {
	b := d.books
	b.lock()
	defer b.unlock()
	previous, previousStrict = b.Budget, b.Strict != 0
	b.Budget, b.Strict = max(nbytes, -1), 0
	if strict && nbytes >= 0 {
		b.Strict = 1
	}
	d.noteLocked(EventBudget, 0, 0, time.Time{})
	return previous, previousStrict, b.InUse + b.Reserved - b.Budget
}
