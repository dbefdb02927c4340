package gomem

import (
	"errors"
	"fmt"
	"math"
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

	there bool // the memory is on the device already: only the budget has to have room for it
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
	defer d.guard(&err)
	if err := d.unusable(); err != nil {
		return 0, err
	}
	if nbytes > maxSize {
		return 0, d.memoryError(ReasonTooLarge, figure(nbytes), nil)
	}
	if nbytes == 0 {
		return d.build(0, 0, o, HowDriver)
	}
	if o.Collected {
		d.garbageCollected()
	}
	d.drain() // what was dropped is given back before more is asked for
	if d.quickReserve(int64(nbytes)) {
		address, err := d.driverAllocate(nbytes)
		if err == nil {
			return d.build(address, nbytes, o, HowDriver)
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
	w := o.asks(int64(nbytes))
	w.Help, w.Helped = o.HasHelper || w.Help, o.Relieved || w.Helped
	var address uint64
	err = d.slowly(w, int64(nbytes), func() error {
		if err := d.neverFitsLocked(int64(nbytes)); err != nil {
			return err
		}
		if err := d.neverAtOnceLocked(nbytes); err != nil {
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
	return d.build(address, nbytes, o, HowDriver)
}

// asks is how the call may wait, with what it needs room for.
func (o AllocateOptions) asks(nbytes int64) Wait {
	w := o.needs(o.Label, nbytes)
	if w.Asker == 0 {
		w.Asker = o.Origin
	}
	return w
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
func (d *Device) build(address, nbytes uint64, o AllocateOptions, how How) (index uint32, err error) {
	giveUp := func(err error) (uint32, error) {
		if nbytes > 0 {
			if how == HowDriver {
				if freeErr := d.driver.Free(Block{Address: address, Bytes: nbytes}); freeErr != nil {
					d.unfreed.Add(int64(nbytes))
					err = errors.Join(err, d.driverFault(freeErr))
				}
				d.unmake(int64(nbytes)) // afterwards, so that they are in some figure all the time
			} else {
				d.unreserve(int64(nbytes))
			}
		}
		return 0, err
	}
	r, c, err := d.registry.take(cold{how: how, hosts: how == HowHost, label: o.Label, origin: o.Origin, reason: o.Reason, unmovable: o.Unmovable, device: nbytes > 0})
	if err != nil {
		return giveUp(err)
	}
	if o.Zero && nbytes > 0 {
		if err := d.fillDevice(address, zero, nbytes, o.Wait); err != nil {
			r.transition(Building, Free)
			d.registry.put(r.Index)
			return giveUp(err)
		}
	}
	atomic.StoreUint64(&r.Address, address) // atomic for those who look at any record at any time: Device.lies
	atomic.StoreUint64(&r.Size, nbytes)
	d.use(r)
	d.commitNew(r, c, how, o.Cause)
	index = r.Index
	if nbytes > 0 {
		d.addresses.note(index)
	}
	d.verify()
	return index, nil
}

// commitNew makes a building buffer resident, together with the books (model: new.commit).
func (d *Device) commitNew(r *Record, c *cold, how How, cause Cause) {
	b, n := d.books, int64(r.Size)
	kind := EventAllocate
	if how != HowDriver {
		kind = EventAdopt
	}
	b.lock() // over nothing that can panic, so that it needs no defer: this is the hottest of these steps
	b.Reserved -= n
	if how == HowDriver {
		d.madeLocked(n)
	}
	r.Sequence = b.Sequence + 1
	c.book, c.entered = bookInUse, r.Sequence
	built := r.transition(Building, Resident)
	b.bornLocked(n)
	d.noteVictimLocked(r, c)
	d.bornBytes += n
	d.happenedLocked(kind, r, c, Building, time.Time{}, cause)
	b.unlock()
	if !built {
		panic(fmt.Sprintf("gomem: %s: a building record changed under its builder", d.name))
	}
}

// figure is a size as errors report it.
func figure(nbytes uint64) int64 { return int64(min(nbytes, math.MaxInt64)) }
