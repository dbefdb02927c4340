package gomem

import "time"

// SetBudget sets the budget of a device in bytes, -1 for none, and returns the one before. Lowering it spills at once what it can. A strict
// budget refuses what cannot be made to fit; a soft one is passed by what cannot be spilled (Books.OverBudgetCount). A soft budget of 0 spills
// everything that is not held whenever something else needs device memory.
//
// The budget is set also when the spilling ends early by an error or a cancellation. On a device whose buffers cannot be spilled a
// budget is only counted.
func (d *Device) SetBudget(nbytes int64, strict bool, w Wait) (previous int64, previousStrict bool, err error) {
	defer d.guard(&err)
	if err := d.refusal(); err != nil {
		return 0, false, err
	}
	previous, previousStrict, over := d.writeBudget(nbytes, strict)
	if nbytes < 0 || over <= 0 || !d.movable {
		return previous, previousStrict, nil
	}
	_, err = d.spillToBudget(w.because(SpillBudgetLowered))
	return previous, previousStrict, err
}

// SpillToBudget spills what can be spilled at once until the device is within its budget, and returns the bytes freed. A soft budget may have been passed
// by what was held; when that is held no longer, nothing is spilled before something else needs device memory, and this does it now. It waits for no
// launch or hold, and leaves the driver's cache alone (model: spill.mark to spill.free, unlock.recheck). Errors as for SetBudget.
func (d *Device) SpillToBudget(w Wait) (freed uint64, err error) {
	defer d.guard(&err)
	if err := d.refusal(); err != nil {
		return 0, err
	}
	if d.overBudget() <= 0 || !d.movable {
		return 0, nil
	}
	return d.spillToBudget(w.because(SpillForBudget))
}

// overBudget is by how much the device is above its budget; 0 or less: it is not.
func (d *Device) overBudget() int64 {
	b := d.books
	b.lock()
	defer b.unlock()
	if b.Budget < 0 {
		return 0
	}
	return b.InUse + b.Reserved - b.Budget
}

// spillToBudget spills what the device is above its budget. w has the cause.
func (d *Device) spillToBudget(w Wait) (freed uint64, err error) {
	if err := d.lockMoving(w); err != nil {
		return 0, err
	}
	if over := d.overBudget(); over > 0 { // else another call took the budget away meanwhile, or made room
		var room room
		w.why.nbytes = over
		room, err = d.spillBytesLocked(uint64(over), w, false)
		freed = room.freed
		if err == nil && room.refused != nil && room.left < uint64(over) {
			err = d.memoryErrorLocked(ReasonHost, over, room.refused)
		}
	}
	d.unlockMoving()
	d.verify()
	return freed, err
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
