package gomem

import (
	"errors"
	"fmt"
)

// Drivers that give more memory than the device has. Nobody is told that such a device is full, so the core asks how much room there is before each
// allocation: its own, and one that a host framework is about to make by itself (which would never fail either, and so never ask for room).
//
// No byte may be in no figure, or the device would be over-committed: so a block that goes back to the driver counts as live until its free has returned
// (PendingFree, leaving). The price is that some bytes are in two figures for a moment. What a host has reserved and allocated, and not given to Adopt
// yet, is one of these: the driver's figure of free memory has them gone already, and nothing tells the core, or the driver, whose they are. So
// while that lasts (from a host's allocation to the adoption that it ends with) up to the sum of the open reservations is spilled too early, and
// where nothing is left to spill, a request that would just fit is refused. The other way to count, as if each host had allocated already, would
// give the same memory away twice.

// hasRoom is an error that wraps ErrOutOfMemory where the driver would give nbytes that the device has not. They are reserved already. What others have
// reserved counts as well: it is on its way.
func (d *Device) hasRoom(nbytes uint64) error {
	if d.overcommits == nil || nbytes == 0 {
		return nil
	}
	room, reserved, err := d.room(nbytes)
	if err != nil || reserved <= room {
		return err
	}
	promised := ""
	if reserved > nbytes {
		promised = fmt.Sprintf(" and %s promised to others", SizeText(reserved-nbytes))
	}
	return fmt.Errorf("%s: %w: there is room for %s; %s wanted%s (the driver would give it all the same)",
		d.name, ErrOutOfMemory, SizeText(room), SizeText(nbytes), promised)
}

// room is how much the driver says may still be allocated, by one call for nbytes in the end, and how much of that is reserved.
func (d *Device) room(nbytes uint64) (room, reserved uint64, err error) {
	b := d.books
	b.lock()
	live, waiting := uint64(b.InUse+b.PendingFree+d.leaving+d.made), uint64(b.Reserved-d.made)
	b.unlock()
	room, err = d.overcommits.Room(live, nbytes)
	return room, waiting, err
}

// neverAtOnceLocked refuses one allocation that the driver never makes, before anything is spilled for it: by the budget, which knows nothing of the
// driver's limits. Any other error comes again when room is looked for.
func (d *Device) neverAtOnceLocked(nbytes uint64) error {
	if d.overcommits == nil || nbytes == 0 {
		return nil
	}
	if _, _, err := d.room(nbytes); errors.Is(err, ErrTooLarge) {
		return d.memoryErrorLocked(ReasonTooLarge, figure(nbytes), err)
	}
	return nil
}

// driverAllocate is the driver's Allocate, for nbytes that are reserved.
func (d *Device) driverAllocate(nbytes uint64) (address uint64, err error) {
	if d.overcommits == nil {
		return d.driver.Allocate(nbytes)
	}
	if err := d.hasRoom(nbytes); err != nil {
		return 0, err
	}
	// From here to the commit the driver may count them already while they are still reserved: they must not count twice.
	d.countMade(int64(nbytes))
	address, err = d.driver.Allocate(nbytes)
	if err != nil {
		d.countMade(-int64(nbytes))
	}
	return address, err
}

func (d *Device) countMade(nbytes int64) {
	d.books.lock()
	defer d.books.unlock()
	d.made += nbytes
}

// madeLocked says that nbytes of the driver's memory are no longer only reserved: they are in use, or go back. The books are locked.
func (d *Device) madeLocked(nbytes int64) {
	if d.overcommits != nil {
		d.made -= nbytes
	}
}

// roomForHost makes room on the device for nbytes that are reserved and that a host is about to allocate. Errors as for Allocate.
func (d *Device) roomForHost(nbytes uint64, o AllocateOptions) error {
	err := d.hasRoom(nbytes)
	if errors.Is(err, ErrTooLarge) {
		return d.memoryError(ReasonTooLarge, figure(nbytes), err)
	}
	if !errors.Is(err, ErrOutOfMemory) {
		return d.driverFault(err)
	}
	w := o.asks(figure(nbytes))
	w.Help, w.Helped = o.HasHelper || w.Help, o.Relieved || w.Helped
	err = d.slowly(w, figure(nbytes), func() error {
		if err := d.neverFitsLocked(figure(nbytes)); err != nil {
			return err
		}
		return d.ladderLocked(nbytes, w, func() error { return d.hasRoom(nbytes) })
	})
	d.verify()
	return err
}
