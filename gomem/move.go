package gomem

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"
)

// errAwait: room can be made only when launches or holds of other threads end; the victims are marked.
var errAwait = errors.New("wait for launches")

// held reports whether anything keeps the buffer where it is now. It is exact only after the state has left Resident and processBarrier ran.
//
// Admitted is read first: a launch that came through the slow path raises Launches (or Pins) and then lowers Admitted, so in the other order both
// could be seen as 0 while it runs (model: mutation LAUNCHESFIRST).
func (r *Record) held() bool {
	return atomic.LoadUint32(&r.Admitted) != 0 || atomic.LoadUint32(&r.Launches) != 0 || atomic.LoadUint32(&r.Pins) != 0
}

// spillLocked moves one buffer to host memory and frees its device memory. held: something keeps it on the device, nothing changed. freed
// is 0 when it was dropped or is not on the device any more. At an error the buffer is as it was.
//
// A buffer that was already in state Spilling when the call began is marked for the holder of the turnstile: it stays marked if it is held.
func (d *Device) spillLocked(r *Record, w Wait) (freed uint64, held bool, err error) {
	if r.held() {
		return 0, true, nil // a look that may be wrong the other way round only: it saves the barrier for what is held for long
	}
	ours := r.transition(Resident, Spilling) // model: spill.mark
	if !ours && !r.is(Spilling) {
		return 0, false, nil
	}
	putBack := func() {
		if ours {
			r.transition(Spilling, Resident) // fails when it was dropped meanwhile: then the drain frees it
		}
	}
	processBarrier() // model: spill.barrier
	if r.held() {    // model: spill.check
		putBack()
		return 0, true, nil
	}
	c, n, began := d.registry.cold(r.Index), r.Size, time.Now()
	host, err := d.pool.Get(n)
	if err != nil {
		putBack()
		return 0, false, err
	}
	if err := d.copyOut(host.Pointer(), r.Address, n, w.Cancel); err != nil { // model: spill.copy
		d.pool.Put(host)
		putBack()
		return 0, false, err
	}
	c.host = host
	if !d.commitSpillLocked(r, c, began) {
		return 0, false, nil // dropped meanwhile: the drain frees both copies
	}
	d.freeDeviceLocked(r, c) // model: spill.free
	d.wakeWaiter()
	return n, false, nil
}

// commitSpillLocked makes the host copy the true one, together with the books (model: spill.commit). False: it was dropped meanwhile.
func (d *Device) commitSpillLocked(r *Record, c *cold, began time.Time) (done bool) {
	b, n := d.books, int64(r.Size)
	b.lock()
	defer b.unlock()
	if !r.transition(Spilling, Spilled) {
		return false
	}
	d.leftLocked(r, c)
	c.book = bookSpilled
	b.Spilled += n
	b.SpillCount++
	b.SpilledBytes += n
	d.noteLocked(EventSpill, r.Index, n, began)
	return true
}

// room is what spillBytesLocked could do.
type room struct {
	freed   uint64           // bytes that left the device
	awaited uint64           // bytes of buffers that were marked, to be waited for
	refused *HostMemoryError // not nil: host memory was refused for the copy of at least one buffer, which stays where it is

	full refusedSizes
}

// spillBytesLocked spills in order of last use until nbytes are freed or nothing is left that can move. A buffer whose copy the host has no memory
// for is passed over, and smaller ones go instead. With mark, what is missing then is covered, if it can be, by marking buffers that
// launches or holds of others keep: awaited is their size, they stay in state Spilling so that no new launch takes them, and the caller
// waits for them (awaitMarked). Only the holder of the turnstile may mark. At an error, room says what was done before.
func (d *Device) spillBytesLocked(nbytes uint64, w Wait, mark bool) (room room, err error) {
	if !d.movable {
		return room, nil
	}
	defer d.doneChoosingLocked()
	for room.freed < nbytes {
		if w.Cancel.cancelled() {
			return room, ErrCancelled
		}
		r, ok := d.nextVictimLocked()
		if !ok {
			break
		}
		if room.full.has(r.Size) {
			d.passLocked(r)
			continue
		}
		n, held, err := d.spillLocked(r, w)
		if err != nil || held {
			d.passLocked(r)
		}
		if errors.As(err, &room.refused) {
			room.full.add(r.Size)
			continue
		}
		if err != nil {
			return room, err
		}
		if _, dropped := StateOf(r.word()); dropped {
			n = r.Size // while it was copied out: that made room, too; its books have fallen, and the next drain frees it
		}
		room.freed += n
	}
	if mark && room.freed < nbytes {
		d.markLocked(nbytes, &room)
	}
	return room, nil
}

// markLocked marks what was passed over for the holder of the turnstile, until it would cover nbytes.
func (d *Device) markLocked(nbytes uint64, room *room) {
	for _, c := range d.victims.passed {
		r := d.registry.record(c.index)
		if r.Generation != c.generation || d.stays(r) || slices.Contains(d.admitting, c.index) || room.full.has(r.Size) {
			continue // exports are not waited for, nor what has no place in host memory, and the launch under way does not wait for itself
		}
		if r.transition(Resident, Spilling) {
			d.marked = append(d.marked, c)
		} else if !r.is(Spilling) {
			continue
		}
		room.awaited += r.Size
		if room.freed+room.awaited >= nbytes {
			return
		}
	}
}

// restoreLocked brings one spilled buffer back to the device, and makes room for it, if need be, by spilling others. The caller has
// admitted or pinned it, so it is no victim; it may be dropped meanwhile all the same, then nothing is left to do. At an error it is
// spilled as before and its host copy is whole.
func (d *Device) restoreLocked(r *Record, w Wait) error {
	began := time.Now()
	if err := d.reserveRoomLocked(int64(r.Size), w); err != nil { // model: restore.room
		return err
	}
	if !r.transition(Spilled, Restoring) {
		d.unreserve(int64(r.Size))
		return nil
	}
	d.restoring = r                                   // it may be dropped, and the ladder drains
	address, err := d.driverAllocateLocked(r.Size, w) // model: restore.allocate
	d.restoring = nil
	if err != nil {
		d.unreserve(int64(r.Size))
		r.transition(Restoring, Spilled)
		return err
	}
	c := d.registry.cold(r.Index)
	atomic.StoreUint64(&r.Address, address)
	c.device, c.how, c.stream = true, HowDriver, 0
	d.countRestoreLocked(r, c)
	if err := d.copyIn(address, c.host.Pointer(), r.Size, w.Cancel); err != nil { // model: restore.copy
		d.uncountRestoreLocked(r, c)
		d.freeDeviceLocked(r, c)
		r.transition(Restoring, Spilled)
		return err
	}
	d.use(r)
	if d.commitRestoreLocked(r, began) {
		d.pool.Put(c.host)
		c.host = HostBlock{}
		d.addresses.note(r.Index)
	}
	return nil
}

// countRestoreLocked moves a restoring buffer's bytes in the books, once the driver has given it memory. One that was dropped is in none: the drain frees
// both copies.
func (d *Device) countRestoreLocked(r *Record, c *cold) {
	b, n := d.books, int64(r.Size)
	b.lock()
	defer b.unlock()
	b.Reserved -= n
	d.madeLocked(n)
	if c.book != bookSpilled {
		return
	}
	b.Spilled -= n
	b.RestoredBytes += n
	b.InUse += n
	b.Sequence++
	c.book, c.entered = bookInUse, b.Sequence
	b.raisedLocked()
}

// uncountRestoreLocked takes countRestoreLocked back: the copy failed.
func (d *Device) uncountRestoreLocked(r *Record, c *cold) {
	b, n := d.books, int64(r.Size)
	b.lock()
	defer b.unlock()
	if c.book != bookInUse {
		return
	}
	d.leftLocked(r, c)
	c.book = bookSpilled
	b.unrestoredLocked(n)
	b.Spilled += n
}

// commitRestoreLocked makes the device copy the true one (model: restore.commit). False: it was dropped meanwhile.
func (d *Device) commitRestoreLocked(r *Record, began time.Time) (done bool) {
	b := d.books
	b.lock()
	defer b.unlock()
	if !r.transition(Restoring, Resident) {
		return false
	}
	b.RestoreCount++
	d.noteLocked(EventRestore, r.Index, int64(r.Size), began)
	return true
}

// reserveRoomLocked counts nbytes as reserved, and spills until the budget has room for them. A soft budget gives way to what cannot be
// spilled; a strict one does not: errAwait when waiting can help, else a *MemoryError.
func (d *Device) reserveRoomLocked(nbytes int64, w Wait) error {
	b := d.books
	for {
		b.lock()
		if b.reserveLocked(nbytes) {
			b.unlock()
			return nil
		}
		over, strict := b.InUse+b.Reserved+nbytes-b.Budget, b.Strict != 0
		b.unlock()
		room, err := d.spillBytesLocked(uint64(over), w, strict && !w.Nested)
		if err != nil {
			return err
		}
		if room.freed > 0 {
			continue // bounded by progress: each round has fewer bytes left to spill
		}
		if room.refused != nil && room.awaited == 0 {
			return d.memoryErrorLocked(ReasonHost, nbytes, room.refused)
		}
		if !strict {
			b.lock()
			b.Reserved += nbytes
			b.unlock()
			return nil
		}
		if room.awaited > 0 {
			return errAwait
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
		case room.freed > 0:
		case room.awaited > 0:
			return errAwait
		case room.refused != nil:
			return d.memoryErrorLocked(ReasonHost, int64(nbytes), room.refused)
		default:
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
		if room, reserved, err := d.room(); err == nil && reserved > room {
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

// allocateFaultLocked makes the error of a driver's Allocate ours; nil stays nil.
func (d *Device) allocateFaultLocked(err error, nbytes uint64) error {
	if errors.Is(err, ErrTooLarge) {
		return d.memoryErrorLocked(ReasonTooLarge, int64(nbytes), err)
	}
	return d.driverFault(err)
}

// spillFaultLocked makes the error of a spill the error of the request that needed it.
func (d *Device) spillFaultLocked(err error, requested int64) error {
	var host *HostMemoryError
	if errors.As(err, &host) {
		return d.memoryErrorLocked(ReasonHost, requested, err)
	}
	return err
}

// slice is the most that is copied between two looks at a Cancel: some 10 ms.
const slice = 64 << 20

func (d *Device) copyOut(host unsafe.Pointer, address, nbytes uint64, cancel *Cancel) error {
	for done := uint64(0); done < nbytes; done += slice {
		if err := cancel.err(); err != nil {
			return err
		}
		if err := d.driver.CopyOut(unsafe.Add(host, done), address+done, min(slice, nbytes-done)); err != nil {
			return d.driverFault(err)
		}
	}
	return nil
}

func (d *Device) copyIn(address uint64, host unsafe.Pointer, nbytes uint64, cancel *Cancel) error {
	for done := uint64(0); done < nbytes; done += slice {
		if err := cancel.err(); err != nil {
			return err
		}
		if err := d.driver.CopyIn(address+done, unsafe.Add(host, done), min(slice, nbytes-done)); err != nil {
			return d.driverFault(err)
		}
	}
	return nil
}

// Spill moves one buffer to host memory now and returns the bytes of device memory that this freed: 0 when it is held, unmovable, spilled
// already, or empty.
func (d *Device) Spill(index uint32, w Wait) (freed uint64, err error) {
	defer d.guard(&err)
	if err := d.refusal(); err != nil {
		return 0, err
	}
	if !d.movable || d.registry.cold(index).unmovable || d.registry.record(index).Size == 0 {
		return 0, nil
	}
	if err := d.lockMoving(w); err != nil {
		return 0, err
	}
	r := d.registry.record(index)
	freed, _, err = d.spillLocked(r, w)
	if err != nil {
		err = d.spillFaultLocked(err, int64(r.Size))
	}
	d.unlockMoving()
	d.verify()
	return freed, err
}

// SpillAll spills everything that can be spilled. A *MemoryError of reason "host" says that host memory ran out before that: what had a place in it is
// spilled, and Requested is what all copies would have taken.
func (d *Device) SpillAll(w Wait) (freed uint64, err error) {
	defer d.guard(&err)
	if err := d.lockMoving(w); err != nil {
		return 0, err
	}
	d.books.lock()
	resident := d.books.InUse
	d.books.unlock()
	room, err := d.spillBytesLocked(math.MaxUint64, w, false)
	if err == nil && room.refused != nil {
		err = d.memoryErrorLocked(ReasonHost, resident, room.refused)
	}
	d.unlockMoving()
	d.verify()
	return room.freed, err
}

// RestoreAll brings every spilled buffer back to the device. It spills nothing for that: where they do not all fit, it returns the error
// and some are back.
func (d *Device) RestoreAll(w Wait) (err error) {
	defer d.guard(&err)
	if err := d.lockMoving(w); err != nil {
		return err
	}
	w.Nested = true
	var spilled []*Record
	d.registry.each(func(r *Record, _ *cold) bool {
		if r.is(Spilled) {
			spilled = append(spilled, r)
			atomic.AddUint32(&r.Pins, 1)
		} else if r.is(Resident) {
			atomic.AddUint32(&r.Pins, 1) // no victim while the others come back
			spilled = append(spilled, r)
		}
		return true
	})
	for _, r := range spilled {
		if err == nil && r.is(Spilled) {
			err = d.restoreLocked(r, w)
		}
	}
	for _, r := range spilled {
		atomic.AddUint32(&r.Pins, ^uint32(0))
	}
	d.wakeWaiter()
	d.unlockMoving()
	d.verify()
	if err != nil {
		return fmt.Errorf("%s: not every spilled buffer could be brought back: %w", d.name, err)
	}
	return nil
}
