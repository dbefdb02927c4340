package gomem

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// AllocateOptions say how a buffer is made and what its allocation may do.
type AllocateOptions struct {
	Wait
	Zero      bool   // clear it
	Unmovable bool   // never spill it
	Reason    uint32 // Intern: why it is unmovable
	Label     uint32 // Intern
	Origin    uint32 // Intern

	HasHelper bool // the caller can collect garbage and empty the host's caches: ErrCollect and ErrRelieve may be returned
	Collected bool // garbage was collected for this request
	Relieved  bool // garbage was collected and the host's caches emptied for this request
}

var zero = []byte{0}

// Allocate makes a buffer of nbytes and returns its index, which is valid until Drop or Free. 0 bytes are legal and never reach the driver.
//
// An allocation that fits takes no lock that is held while memory moves. One that does not goes down the ladder: within the budget by
// spilling (reserveRoomLocked), on the device by waiting, trimming and spilling (driverAllocateLocked).
//
// Errors: ErrCollect and ErrRelieve (only with HasHelper), *MemoryError, *LostError, ErrCancelled, and the driver's; nothing changed then
// except what was spilled.
func (d *Device) Allocate(nbytes uint64, o AllocateOptions) (index uint32, err error) {
	if nbytes > maxSize {
		return 0, d.memoryError(ReasonTooLarge, min(int64(nbytes>>1), maxSize)*2, nil)
	}
	if lost := d.lost.Load(); lost != nil {
		return 0, lost
	}
	if nbytes == 0 {
		return d.build(0, 0, o, HowDriver, 0)
	}
	d.Drain() // what was dropped is given back before more is asked for
	if d.quickReserve(int64(nbytes)) {
		address, err := d.driver.Allocate(nbytes)
		if err == nil {
			return d.build(address, nbytes, o, HowDriver, 0)
		}
		d.unreserve(int64(nbytes))
		if !errors.Is(err, ErrOutOfMemory) && !errors.Is(err, ErrTooLarge) {
			return 0, d.driverFault(err)
		}
	}
	return d.allocateSlowly(nbytes, o)
}

// quickReserve reserves without the moving lock what the budget has room for.
func (d *Device) quickReserve(nbytes int64) bool {
	d.books.lock()
	ok := d.books.reserveLocked(nbytes)
	d.books.unlock()
	return ok
}

func (d *Device) allocateSlowly(nbytes uint64, o AllocateOptions) (index uint32, err error) {
	w := o.Wait
	w.Help, w.Helped = o.HasHelper || w.Help, o.Relieved || w.Helped
	var address uint64
	err = d.slowly(w, int64(nbytes), func() error {
		if err := d.neverFitsLocked(int64(nbytes)); err != nil {
			return err
		}
		if o.HasHelper && !o.Collected && !o.Relieved && d.collectDueLocked(int64(nbytes)) {
			return ErrCollect
		}
		if err := d.reserveRoomLocked(int64(nbytes), w); err != nil {
			return err
		}
		var err error
		if address, err = d.driverAllocateLocked(nbytes, w); err != nil {
			d.unreserve(int64(nbytes))
		}
		return err
	})
	if err != nil {
		d.verify()
		return 0, err
	}
	return d.build(address, nbytes, o, HowDriver, 0)
}

// collectDueLocked reports whether the budget would spill for nbytes while garbage may hold buffers: a collection is asked for at most once
// per quarter of the budget newly allocated, so that dropped cycles are not copied out, and a full device does not collect all the time.
func (d *Device) collectDueLocked(nbytes int64) bool {
	b := d.books
	b.lock()
	defer b.unlock()
	if b.Budget < 0 || b.InUse+b.Reserved+nbytes <= b.Budget || d.collectedAt >= 0 && d.bornBytes-d.collectedAt < b.Budget/4 {
		return false
	}
	d.collectedAt = d.bornBytes
	return true
}

// reliefDueLocked reports whether emptying the host's caches may help: not again until something was allocated.
func (d *Device) reliefDueLocked() bool {
	b := d.books
	b.lock()
	defer b.unlock()
	if d.relievedAt == b.AllocateCount {
		return false
	}
	d.relievedAt = b.AllocateCount
	return true
}

// build turns reserved device memory into a buffer. It is invisible to spilling until it is complete (model: new.build). At an error the
// device memory is given back if it is ours (how == HowDriver; adopted memory stays the caller's) and the reservation ends.
func (d *Device) build(address, nbytes uint64, o AllocateOptions, how How, stream uint64) (index uint32, err error) {
	giveUp := func(err error) (uint32, error) {
		if nbytes > 0 {
			d.unreserve(int64(nbytes))
			if how == HowDriver {
				if freeErr := d.driver.Free(Block{Address: address, Bytes: nbytes}); freeErr != nil {
					d.freeFaults.Add(1)
					err = errors.Join(err, d.driverFault(freeErr))
				}
			}
		}
		return 0, err
	}
	r, c, err := d.registry.take(cold{how: how, stream: stream, label: o.Label, origin: o.Origin, reason: o.Reason, unmovable: o.Unmovable, device: nbytes > 0})
	if err != nil {
		return giveUp(err)
	}
	if o.Zero && nbytes > 0 {
		if err := d.driver.Fill(address, zero, nbytes); err != nil {
			r.transition(Building, Free)
			d.registry.put(r.Index)
			return giveUp(d.driverFault(err))
		}
	}
	atomic.StoreUint64(&r.Address, address) // atomic for those who look at any record at any time: Device.lies
	atomic.StoreUint64(&r.Size, nbytes)
	d.use(r)
	b, n := d.books, int64(nbytes)
	b.lock() // model: new.commit
	b.Reserved -= n
	c.book = bookInUse
	r.Sequence = b.Sequence + 1
	if !r.transition(Building, Resident) {
		panic(fmt.Sprintf("gomem: %s: a building record changed under its builder", d.name))
	}
	b.bornLocked(n)
	d.bornBytes += n
	if how == HowDriver {
		d.noteLocked(EventAllocate, r.Index, n, time.Time{})
	} else {
		d.noteLocked(EventAdopt, r.Index, n, time.Time{})
	}
	b.unlock()
	index = r.Index
	if nbytes > 0 {
		d.addresses.note(index)
	}
	d.verify()
	return index, nil
}

// MakeRoom is for a host framework whose own allocation of nbytes failed: it spills at least as much, in order of last use, or all
// that can be spilled, and returns what it gave back to the driver; 0 means that nothing is left to spill. Errors as for Allocate.
func (d *Device) MakeRoom(nbytes uint64, o AllocateOptions) (freed uint64, err error) {
	if lost := d.lost.Load(); lost != nil {
		return 0, lost
	}
	err = d.slowly(o.Wait, int64(min(nbytes, maxSize)), func() error {
		if o.HasHelper && !o.Relieved && d.reliefDueLocked() {
			return ErrRelieve
		}
		n, awaited, err := d.spillBytesLocked(nbytes-freed, o.Wait, !o.Nested)
		freed += n
		if err != nil {
			return d.spillFaultLocked(err, int64(min(nbytes, maxSize)))
		}
		if freed == 0 && awaited > 0 {
			return errAwait
		}
		if err := d.driver.Synchronize(); err != nil { // the host's allocator may be another pool: what was freed has to be back
			return d.driverFault(err)
		}
		_, err = d.driver.Trim()
		return d.driverFault(err)
	})
	d.verify()
	return freed, err
}
