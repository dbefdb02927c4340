package gomem

// FreesWait reports whether freed memory waits in the driver, and Reap may be able to give it back. It only reads memory.
func (d *Device) FreesWait() bool {
	return d.reaper != nil && d.driver.PendingFree() != 0 && d.unusable() == nil
}

// Reap gives freed memory back that the driver keeps until the device is done with it, if nobody moves memory just now, and reports whether more of it
// waits: whoever called calls again a little later. Without that the last block that a program drops stays with the driver until its next call, which in
// a program that has gone idle never comes. A host that adopts what it allocated, and never asks for room, gets all its memory back this way: the reaper of
// bindings/fast looks a millisecond after the last drop, then ever more seldom, and at least once a second, so that is how long the memory stays after the
// device is done with it. Who is about to fill the device does not wait so long: Reserve and Allocate look, too. It waits for nothing, but may ask the driver
// (model: reap.look): without the GIL, please.
func (d *Device) Reap() (waits bool) {
	defer d.guard(nil)
	if !d.FreesWait() {
		return false
	}
	// With the lock, so that Synchronize finds each block either waiting or back, and never on its way.
	if !d.moving.tryLock() {
		return true // whoever has it may be the last who calls (model: mutation TRYONCE)
	}
	var err error
	if !d.closed {
		waits, err = d.reaper.Reap()
	}
	if d.driverFault(err) != nil && d.lost.Load() == nil { // whoever uses a lost device next is told
		d.notices.add(LevelError, "%s: freed device memory could not be given back, and waits for the next call: %v", d.name, err)
	}
	d.unlockMoving()
	return waits && err == nil
}
