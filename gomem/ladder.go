package gomem

import (
	"errors"
	"time"
)

// The ladder: what is done, in this order, to make room for a request. First within the budget (reserveRoomLocked), then on the device (ladderLocked).
// Neither counts its tries: both go on as long as there is progress, and each round leaves less to spill.

// reserveRoomLocked counts nbytes as reserved, and spills until the budget has room for them. A soft budget gives way to what cannot be
// spilled, be it because it is held or because host memory has no place for its copy: the device may have room all the same. A strict one does
// not: errAwait when waiting can help, else a *MemoryError.
func (d *Device) reserveRoomLocked(nbytes int64, w Wait) error {
	b := d.books
	w = w.because(SpillForBudget)
	for {
		b.lock()
		if b.reserveLocked(nbytes) {
			b.unlock()
			return nil
		}
		if !b.countableLocked(nbytes) {
			b.unlock()
			return d.memoryErrorLocked(ReasonTooLarge, nbytes, nil)
		}
		over, strict := b.InUse+b.Reserved+nbytes-b.Budget, b.Strict != 0
		b.unlock()
		var room room
		if strict || w.Cancel.cancelled() || !d.hostIsFullLocked() {
			var err error
			if room, err = d.spillBytesLocked(uint64(over), w, strict && !w.Nested); err != nil {
				return err
			}
		}
		if room.left > 0 {
			continue // bounded by progress: each round has fewer bytes left to spill
		}
		switch {
		case !strict:
			b.lock()
			countable := b.countableLocked(nbytes) // others may have reserved meanwhile
			if countable {
				b.Reserved += nbytes
			}
			b.unlock()
			if !countable {
				return d.memoryErrorLocked(ReasonTooLarge, nbytes, nil)
			}
			return nil
		case room.awaited > 0:
			return errAwaitBudget
		case room.refused != nil:
			return d.memoryErrorLocked(ReasonHost, nbytes, room.refused)
		}
		return d.memoryErrorLocked(ReasonBudget, nbytes, nil)
	}
}

func (d *Device) unreserve(nbytes int64) {
	d.books.lock()
	d.books.Reserved -= nbytes
	d.books.unlock()
}

// unmake ends the reservation of memory that the driver has made and that goes back to it.
func (d *Device) unmake(nbytes int64) {
	d.books.lock()
	defer d.books.unlock()
	d.books.Reserved -= nbytes
	d.madeLocked(nbytes)
}

// driverAllocateLocked gets device memory that is reserved, down the ladder.
func (d *Device) driverAllocateLocked(nbytes uint64, w Wait) (address uint64, err error) {
	err = d.ladderLocked(nbytes, w, func() error {
		address, err = d.driverAllocate(nbytes)
		return err
	})
	return address, err
}

// ladderLocked tries until it is told something else than ErrOutOfMemory. In between: wait for the device, so that deferred frees complete; empty the
// driver's cache; then spill at least what is missing, as long as anything can be spilled.
func (d *Device) ladderLocked(nbytes uint64, w Wait, try func() error) error {
	err := try()
	if !errors.Is(err, ErrOutOfMemory) {
		return d.allocateFaultLocked(err, nbytes)
	}
	w = w.because(SpillForDevice)
	if w.Help && !w.Helped && d.reliefDueLocked() {
		return ErrRelieve
	}
	for {
		d.drainLocked()
		if err := d.settleLocked(); err != nil {
			return err
		}
		if err = try(); !errors.Is(err, ErrOutOfMemory) {
			return d.allocateFaultLocked(err, nbytes)
		}
		room, spillErr := d.spillBytesLocked(d.missing(nbytes), w, !w.Nested)
		switch {
		case spillErr != nil:
			return spillErr
		case room.left > 0:
		case room.awaited > 0:
			return errAwait
		case room.refused != nil:
			return d.memoryErrorLocked(ReasonHost, int64(nbytes), room.refused)
		default:
			if err = d.lastTriesLocked(err, w, try); !errors.Is(err, ErrOutOfMemory) {
				return d.allocateFaultLocked(err, nbytes)
			}
			return d.memoryErrorLocked(ReasonDevice, int64(nbytes), err)
		}
		if err = try(); !errors.Is(err, ErrOutOfMemory) { // frees are in stream order, so this often works without waiting
			return d.allocateFaultLocked(err, nbytes)
		}
	}
}

// missing is how much has to be freed for an allocation that just failed. Where the driver says that enough is free, it is in pieces: one
// more buffer at a time then.
func (d *Device) missing(nbytes uint64) uint64 {
	if d.overcommits != nil {
		if room, reserved, err := d.room(nbytes); err == nil && reserved > room {
			return reserved - room
		}
	}
	free := d.driverFree()
	switch {
	case free == Unknown:
		return nbytes
	case uint64(free) >= nbytes:
		return 1
	}
	return nbytes - uint64(free)
}

// lastTriesLocked tries again before an error is raised, where the driver takes memory back some time after it was freed and cannot be asked to wait for it
// (Level Zero's deferred frees): on a busy machine that was seen to take longer than Synchronize waits. 63 ms in all, and only before an error. err: of the
// try before. Where no driver is that late it is given back.
func (d *Device) lastTriesLocked(err error, w Wait, try func() error) error {
	for wait := time.Millisecond; d.overcommits != nil && wait <= 32*time.Millisecond; wait *= 2 {
		select {
		case <-time.After(wait):
		case <-w.Cancel.Done():
			return ErrCancelled
		}
		if settleErr := d.settleLocked(); settleErr != nil {
			return settleErr
		}
		if err = try(); !errors.Is(err, ErrOutOfMemory) {
			return err
		}
	}
	return err
}

// allocateFaultLocked makes the error of a driver's Allocate ours; nil stays nil.
func (d *Device) allocateFaultLocked(err error, nbytes uint64) error {
	if errors.Is(err, ErrTooLarge) {
		return d.memoryErrorLocked(ReasonTooLarge, int64(nbytes), err)
	}
	return d.driverFault(err)
}

// settleLocked waits for the device, so that deferred frees complete, and empties the driver's cache.
func (d *Device) settleLocked() error {
	if err := d.driver.Synchronize(); err != nil {
		return d.driverFault(err)
	}
	_, err := d.driver.Trim()
	return d.driverFault(err)
}

// driverFree is how much device memory the driver says is free; Unknown where it does not say.
func (d *Device) driverFree() int64 {
	memory, err := d.driver.Memory()
	if err != nil {
		return Unknown // only used to spill less; the next call that needs the driver meets its error
	}
	return memory.Free
}
