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

// errAwait: room can be made only when launches or holds of other threads end; the victims are marked. errAwaitBudget: it is room within a strict budget.
var (
	errAwait       = errors.New("wait for launches")
	errAwaitBudget = fmt.Errorf("%w: the budget", errAwait)
)

// held reports whether anything keeps the buffer where it is now. It is exact only after the state has left Resident and processBarrier ran.
//
// Admitted is read first: a launch that came through the slow path raises Launches (or Pins) and then lowers Admitted, so in the other order both
// could be seen as 0 while it runs (model: mutation LAUNCHESFIRST).
func (r *Record) held() bool {
	return atomic.LoadUint32(&r.Admitted) != 0 || atomic.LoadUint32(&r.Launches) != 0 || atomic.LoadUint32(&r.Pins) != 0
}

// moved is what a spill of one buffer did.
type moved struct {
	held    bool   // something keeps it on the device: nothing changed
	left    uint64 // bytes that are in use no more
	freed   uint64 // of these, what the driver has got back: less where its free failed
	dropped bool   // the program let go of it while it was copied out
}

// spillLocked moves one buffer to host memory and frees its device memory. At an error the buffer is as it was. Where the program lets go of it
// meanwhile, its device memory is freed here all the same, and the drain does the rest: room is wanted now, and the drop may not be on the list yet.
//
// A buffer that was already in state Spilling when the call began is marked for the holder of the turnstile: it stays marked if it is held.
func (d *Device) spillLocked(r *Record, w Wait) (m moved, err error) {
	if r.held() {
		return moved{held: true}, nil // a look that may be wrong the other way round only: it saves the barrier for what is held for long
	}
	ours := r.transition(Resident, Spilling) // model: spill.mark
	if !ours && !r.is(Spilling) {
		return moved{}, nil
	}
	putBack := func() {
		if ours {
			r.transition(Spilling, Resident) // fails when it was dropped meanwhile: then the drain frees it
		}
	}
	processBarrier() // model: spill.barrier
	if r.held() {    // model: spill.check
		putBack()
		return moved{held: true}, nil
	}
	c, n, began, start := d.registry.cold(r.Index), r.Size, time.Now(), d.spills.clock()
	host, err := d.getHost(n)
	if err != nil {
		putBack()
		return moved{}, err
	}
	w.Progress.expect(moveSpill, n)
	if err := d.copyOut(host.Pointer(), r.Address, n, w.moves(moveSpill)); err != nil { // model: spill.copy
		d.pool.Put(host)
		putBack()
		return moved{}, err
	}
	m.left = n
	t, place := d.beginTripLocked(r), d.spillPlaceLocked(c, w)
	if d.commitSpillLocked(r, c, host, began, w.Cause, func() { d.spilledLocked(r, t, place, start, w) }) {
		m.freed = d.freeDeviceLocked(r, c, r.Address) // model: spill.free
		d.leave(-int64(n))
		d.tellSpilledLocked(r, c, w)
	} else {
		d.pool.Put(host)
		m.freed, m.dropped = d.giveBackLocked(r, c), true
	}
	d.wakeWaiter()
	return m, nil
}

// commitSpillLocked makes the host copy the true one, together with the books (model: spill.commit). False: it was dropped meanwhile. count is called where it was not.
func (d *Device) commitSpillLocked(r *Record, c *cold, host HostBlock, began time.Time, cause Cause, count func()) (done bool) {
	b, n := d.books, int64(r.Size)
	b.lock()
	defer b.unlock()
	if !r.transition(Spilling, Spilled) {
		return false
	}
	c.host = host
	d.leftLocked(r, c)
	d.leaving += n
	c.book, c.entered = bookSpilled, b.Sequence
	b.Spilled += n
	b.SpillCount++
	b.SpilledBytes += n
	count()
	d.happenedLocked(EventSpill, r, c, Spilling, began, cause)
	return true
}

// leave counts bytes that have left the books and that the driver has not got back yet; less than 0: it has got them.
func (d *Device) leave(nbytes int64) {
	d.books.lock()
	defer d.books.unlock()
	d.leaving += nbytes
}

// room is what spillBytesLocked could do. Whether it made progress is told by left: each round has fewer bytes to spill.
type room struct {
	left    uint64           // bytes that are in use no more
	freed   uint64           // of these, what the driver has got back
	dropped uint64           // of freed: of buffers that the program let go of meanwhile (they are in Device.drained)
	awaited uint64           // bytes of buffers that were marked, to be waited for
	refused *HostMemoryError // not nil: host memory was refused for the copy of at least one buffer, which stays where it is

	full refusedSizes
}

// spillBytesLocked spills in order of last use until nbytes have left the device or nothing is left that can move. A buffer whose copy the host has
// no memory for is passed over, and smaller ones go instead. With mark, what is missing then is covered, if it can be, by marking buffers that
// launches or holds of others keep: awaited is their size, they stay in state Spilling so that no new launch takes them, and the caller
// waits for them (awaitMarked). Only the holder of the turnstile may mark. At an error, room says what was done before.
func (d *Device) spillBytesLocked(nbytes uint64, w Wait, mark bool) (room room, err error) {
	if !d.movable {
		return room, nil
	}
	if w.Progress != nil {
		d.books.lock()
		resident := uint64(d.books.InUse)
		d.books.unlock()
		w.Progress.expect(moveSpill, min(nbytes, resident))
	}
	defer d.doneChoosingLocked()
	sizes, complete := d.beginSizesLocked(), false
	defer func() { sizes.end(complete) }()
	for room.left < nbytes {
		if w.Cancel.cancelled() {
			return room, ErrCancelled
		}
		r, ok := d.nextVictimLocked()
		if !ok {
			complete = true
			break
		}
		if room.full.has(r.Size) {
			sizes.passLocked(r)
			continue
		}
		m, err := d.spillLocked(r, w)
		if err != nil || m.held {
			sizes.passLocked(r)
		}
		if errors.As(err, &room.refused) {
			room.full.add(r.Size)
			continue
		}
		if err != nil {
			return room, err
		}
		room.add(m)
	}
	if mark && room.left < nbytes {
		d.markLocked(nbytes, &room)
	}
	return room, nil
}

func (o *room) add(m moved) {
	o.left += m.left
	o.freed += m.freed
	if m.dropped {
		o.dropped += m.freed
	}
}

// markLocked marks what a choice passed over for the holder of the turnstile, the oldest first, until it would cover nbytes.
func (d *Device) markLocked(nbytes uint64, room *room) {
	for _, c := range d.passedOverLocked() {
		r := d.registry.record(c.index)
		if r.Generation != c.generation || d.stays(r) || slices.Contains(d.admitting, c.index) || room.full.has(r.Size) {
			continue // exports are not waited for, nor what has no place in host memory, and the launch under way does not wait for itself
		}
		if refused := d.hostRefusal(room.awaited + r.Size); refused != nil {
			room.refused = refused // its copy would have no place beside those of the others that are waited for
			continue
		}
		if r.transition(Resident, Spilling) {
			d.marked = append(d.marked, c)
		} else if !r.is(Spilling) {
			continue
		}
		room.awaited += r.Size
		if room.left+room.awaited >= nbytes {
			return
		}
	}
}

// restoreLocked brings one spilled buffer back to the device, and makes room for it, if need be, by spilling others. The caller has
// admitted or pinned it, so it is no victim; it may be dropped meanwhile all the same, then nothing is left to do. At an error it is
// spilled as before and its host copy is whole.
func (d *Device) restoreLocked(r *Record, w Wait) error {
	began, start := time.Now(), d.spills.clock()
	d.beginTripLocked(r) // what was received was never spilled
	w = w.brings(d.registry.cold(r.Index), int64(r.Size))
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
	c.device, c.how = true, HowDriver
	if !d.countRestoreLocked(r, c) {
		return nil // dropped: the drain frees both copies
	}
	w.Progress.expect(moveRestore, r.Size)
	if err := d.copyIn(address, c.host.Pointer(), r.Size, w.moves(moveRestore)); err != nil { // model: restore.copy
		left := d.uncountRestoreLocked(r, c)
		d.freeDeviceLocked(r, c, address)
		if left {
			d.leave(-int64(r.Size))
		}
		r.transition(Restoring, Spilled)
		return err
	}
	d.use(r)
	if d.commitRestoreLocked(r, c, began, start, w.Cause) {
		d.pool.Put(c.host)
		c.host = HostBlock{}
		d.addresses.note(r.Index)
	}
	return nil
}

// countRestoreLocked moves a restoring buffer's bytes in the books, once the driver has given it memory. False: it was dropped meanwhile, and that
// memory waits to be given back.
func (d *Device) countRestoreLocked(r *Record, c *cold) (done bool) {
	b, n := d.books, int64(r.Size)
	b.lock()
	defer b.unlock()
	b.Reserved -= n
	d.madeLocked(n)
	if c.book != bookSpilled {
		b.PendingFree += n
		c.pending = true
		return false
	}
	b.Spilled -= n
	b.RestoredBytes += n
	b.InUse += n
	b.Sequence++
	d.leftHostLocked(r, c)
	c.book, c.entered = bookInUse, b.Sequence
	b.raisedLocked()
	return true
}

// uncountRestoreLocked takes countRestoreLocked back: the copy failed. False: it was dropped meanwhile, and its bytes are pending already.
func (d *Device) uncountRestoreLocked(r *Record, c *cold) (done bool) {
	b, n := d.books, int64(r.Size)
	b.lock()
	defer b.unlock()
	if c.book != bookInUse {
		return false
	}
	d.leftLocked(r, c)
	d.leaving += n
	c.book, c.entered = bookSpilled, b.Sequence
	b.unrestoredLocked(n)
	b.Spilled += n
	return true
}

// commitRestoreLocked makes the device copy the true one (model: restore.commit). False: it was dropped meanwhile.
func (d *Device) commitRestoreLocked(r *Record, c *cold, began time.Time, start int64, cause Cause) (done bool) {
	b := d.books
	b.lock()
	defer b.unlock()
	if !r.transition(Restoring, Resident) {
		return false
	}
	b.RestoreCount++
	t := d.registry.tripOf(r)
	d.cameBackLocked(t, true)
	t.broughtBack(start, d.spills.clock())
	d.noteVictimLocked(r, c)
	d.happenedLocked(EventRestore, r, c, Restoring, began, cause)
	return true
}

// spillFaultLocked makes the error of a spill the error of the request that needed it.
func (d *Device) spillFaultLocked(err error, requested int64) error {
	var host *HostMemoryError
	if errors.As(err, &host) {
		return d.memoryErrorLocked(ReasonHost, requested, err)
	}
	return err
}

// copyOut copies to the host in parts, so that it can be ended. Each part waits for what is queued on the device's stream: reachStream.
func (d *Device) copyOut(host unsafe.Pointer, address, nbytes uint64, w Wait) error {
	return d.inParts(nbytes, w, func(done, part uint64) error { return d.driver.CopyOut(unsafe.Add(host, done), address+done, part) })
}

func (d *Device) copyIn(address uint64, host unsafe.Pointer, nbytes uint64, w Wait) error {
	return d.inParts(nbytes, w, func(done, part uint64) error { return d.driver.CopyIn(address+done, unsafe.Add(host, done), part) })
}

// inParts copies some 10 ms at a time, and looks at w.Cancel in between.
func (d *Device) inParts(nbytes uint64, w Wait, copyPart func(done, part uint64) error) error {
	if err := d.reachStream(w); err != nil {
		return err
	}
	for done := uint64(0); done < nbytes; done += cancelSlice {
		if err := w.Cancel.err(); err != nil {
			return err
		}
		part := min(cancelSlice, nbytes-done)
		if err := copyPart(done, part); err != nil {
			return d.driverFault(err)
		}
		w.Progress.moved(w.moving, part)
	}
	return nil
}

// fillDevice repeats pattern over device memory, in parts, so that it can be ended where the driver fills by itself (the CPU).
func (d *Device) fillDevice(address uint64, pattern []byte, nbytes uint64, w Wait) error {
	return fillParts(nbytes, len(pattern), w.Cancel, func(done, part uint64) error {
		return d.driverFault(d.driver.Fill(address+done, pattern, part))
	})
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
	m, err := d.spillLocked(r, w)
	if err != nil {
		err = d.spillFaultLocked(err, int64(r.Size))
	}
	d.unlockMoving()
	d.verify()
	return m.freed, err
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
	var pinned []*Record
	d.registry.each(func(r *Record, _ *cold) bool {
		if r.is(Spilled) || r.is(Resident) || r.is(Spilling) { // what is resident, or marked for a waiting launch, is no victim while the others come back
			atomic.AddUint32(&r.Pins, 1)
			pinned = append(pinned, r)
		}
		return true
	})
	if w.Progress != nil {
		sum := uint64(0)
		for _, r := range pinned {
			if r.is(Spilled) {
				sum += r.Size
			}
		}
		w.Progress.expect(moveRestore, sum)
	}
	for _, r := range pinned {
		if err == nil && r.is(Spilled) {
			err = d.restoreLocked(r, w)
		}
	}
	for _, r := range pinned {
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
