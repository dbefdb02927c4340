package gomem

import (
	"errors"
	"fmt"
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
	b := d.books
	b.lock() // model: spill.commit
	c.host = host
	done := r.transition(Spilling, Spilled)
	if done {
		c.book = bookSpilled
		b.InUse -= int64(n)
		b.Spilled += int64(n)
		b.SpillCount++
		b.SpilledBytes += int64(n)
		d.noteLocked(EventSpill, r.Index, int64(n), began)
	}
	b.unlock()
	if !done {
		return 0, false, nil // dropped meanwhile: the drain frees both copies
	}
	d.freeDeviceLocked(r, c) // model: spill.free
	d.wakeWaiter()
	return n, false, nil
}

// spillBytesLocked spills in order of last use until nbytes are freed or nothing is left that can move. With mark, what is missing then is
// covered, if it can be, by marking buffers that launches or holds of others keep: awaited is their size, they stay in state Spilling so
// that no new launch takes them, and the caller waits for them (awaitMarked). Only the holder of the turnstile may mark.
func (d *Device) spillBytesLocked(nbytes uint64, w Wait, mark bool) (freed, awaited uint64, err error) {
	if !d.movable {
		return 0, 0, nil
	}
	defer d.doneChoosingLocked()
	for freed < nbytes {
		if w.Cancel.cancelled() {
			return freed, 0, ErrCancelled
		}
		r, ok := d.nextVictimLocked()
		if !ok {
			break
		}
		n, held, err := d.spillLocked(r, w)
		if err != nil || held {
			d.passLocked(r)
		}
		if err != nil {
			return freed, 0, err
		}
		if _, dropped := StateOf(r.word()); dropped {
			n = r.Size // while it was copied out: that made room, too; its books have fallen, and the next drain frees it
		}
		freed += n
	}
	if !mark || freed >= nbytes {
		return freed, 0, nil
	}
	for _, c := range d.victims.passed {
		r := d.registry.record(c.index)
		if r.Generation != c.generation || d.stays(r) || slices.Contains(d.admitting, c.index) {
			continue // exports are not waited for, and the launch under way does not wait for itself
		}
		if r.transition(Resident, Spilling) {
			d.marked = append(d.marked, c)
		} else if !r.is(Spilling) {
			continue
		}
		awaited += r.Size
		if freed+awaited >= nbytes {
			break
		}
	}
	return freed, awaited, nil
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
	c, n, b := d.registry.cold(r.Index), int64(r.Size), d.books
	atomic.StoreUint64(&r.Address, address)
	c.device, c.how, c.stream = true, HowDriver, 0
	b.lock()
	b.Reserved -= n
	if c.book == bookSpilled { // else it was dropped, and the drain frees both copies
		c.book = bookInUse
		b.Spilled -= n
		b.RestoredBytes += n
		b.InUse += n
		b.raisedLocked()
	}
	b.unlock()
	if err := d.copyIn(address, c.host.Pointer(), r.Size, w.Cancel); err != nil { // model: restore.copy
		b.lock()
		if c.book == bookInUse {
			c.book = bookSpilled
			b.InUse -= n
			b.unrestoredLocked(n)
			b.Spilled += n
		}
		b.unlock()
		d.freeDeviceLocked(r, c)
		r.transition(Restoring, Spilled)
		return err
	}
	d.use(r)
	b.lock() // model: restore.commit
	done := r.transition(Restoring, Resident)
	if done {
		b.RestoreCount++
		d.noteLocked(EventRestore, r.Index, n, began)
	}
	b.unlock()
	if done {
		d.pool.Put(c.host)
		c.host = HostBlock{}
		d.addresses.note(r.Index)
	}
	return nil
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
		freed, awaited, err := d.spillBytesLocked(uint64(over), w, strict && !w.Nested)
		if err != nil {
			return d.spillFaultLocked(err, nbytes)
		}
		if freed > 0 {
			continue // bounded by progress: each round has fewer bytes left to spill
		}
		if !strict {
			b.lock()
			b.Reserved += nbytes
			b.unlock()
			return nil
		}
		if awaited > 0 {
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

// driverAllocateLocked gets device memory, down the ladder: try; wait for the device, so that deferred frees complete; empty the driver's
// cache; try; then spill at least what is missing and try again, as long as anything can be spilled.
func (d *Device) driverAllocateLocked(nbytes uint64, w Wait) (address uint64, err error) {
	address, err = d.driver.Allocate(nbytes)
	if !errors.Is(err, ErrOutOfMemory) {
		return address, d.allocateFaultLocked(err, nbytes)
	}
	if w.Help && !w.Helped && d.reliefDueLocked() {
		return 0, ErrRelieve
	}
	for {
		d.drainLocked()
		if err := d.driver.Synchronize(); err != nil {
			return 0, d.driverFault(err)
		}
		if _, err := d.driver.Trim(); err != nil {
			return 0, d.driverFault(err)
		}
		address, err = d.driver.Allocate(nbytes)
		if !errors.Is(err, ErrOutOfMemory) {
			return address, d.allocateFaultLocked(err, nbytes)
		}
		freed, awaited, spillErr := d.spillBytesLocked(d.missing(nbytes), w, !w.Nested)
		if spillErr != nil {
			return 0, d.spillFaultLocked(spillErr, int64(nbytes))
		}
		if freed == 0 {
			if awaited > 0 {
				return 0, errAwait
			}
			return 0, d.memoryErrorLocked(ReasonDevice, int64(nbytes), err)
		}
		address, err = d.driver.Allocate(nbytes) // frees are in stream order, so this often works without waiting
		if !errors.Is(err, ErrOutOfMemory) {
			return address, d.allocateFaultLocked(err, nbytes)
		}
	}
}

// missing is how much has to be freed for an allocation that just failed. Where the driver says that enough is free, it is in pieces: one
// more buffer at a time then.
func (d *Device) missing(nbytes uint64) uint64 {
	memory, err := d.driver.Memory()
	switch {
	case err != nil || memory.Free == Unknown:
		return nbytes
	case uint64(memory.Free) >= nbytes:
		return 1
	}
	return nbytes - uint64(memory.Free)
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

// SpillAll spills everything that can be spilled.
func (d *Device) SpillAll(w Wait) (freed uint64, err error) {
	if err := d.lockMoving(w); err != nil {
		return 0, err
	}
	freed, _, err = d.spillBytesLocked(maxSize, w, false)
	if err != nil {
		err = d.spillFaultLocked(err, maxSize)
	}
	d.unlockMoving()
	d.verify()
	return freed, err
}

// RestoreAll brings every spilled buffer back to the device. It spills nothing for that: where they do not all fit, it returns the error
// and some are back.
func (d *Device) RestoreAll(w Wait) error {
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
	var err error
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
