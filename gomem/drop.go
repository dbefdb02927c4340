package gomem

import (
	"fmt"
	"sync/atomic"
	"time"
)

// LetGo lets go of a buffer: the program has no reference to it any more (Python: tp_dealloc). The books fall now (logical free), so that
// peaks do not depend on the device's delays; the memory goes back to the driver with the next Drain, or by whoever holds the moving lock
// next. It makes no driver call and takes no lock but the books', so it may be called with the GIL. The index is dead afterwards.
func (d *Device) LetGo(index uint32) { d.LetGoFor(index, 0) }

// LetGoFor is LetGo by a cause that is known.
func (d *Device) LetGoFor(index uint32, cause Cause) {
	defer d.guard(nil)
	d.letGoOf(index, cause)
}

func (d *Device) letGoOf(index uint32, cause Cause) {
	r := d.registry.record(index)
	d.letGo(r, cause)
	d.pushDrop(r)
}

// Drop is LetGo, and gives the memory back now if nobody is moving memory. It never waits for the moving lock, but a driver's free may take
// a while: without the GIL, please.
func (d *Device) Drop(index uint32) {
	defer d.guard(nil)
	d.letGoOf(index, 0)
	d.drain()
}

// Free lets go of a buffer early, while references to it may exist. While it is held, exported or launched on, it returns a *BusyError
// and changes nothing.
func (d *Device) Free(index uint32, w Wait) (err error) {
	defer d.guard(&err)
	r := d.registry.record(index)
	if err := d.lockMoving(w); err != nil {
		return err
	}
	if _, dropped := StateOf(r.word()); dropped || r.is(Free) {
		d.unlockMoving()
		return ErrFreed
	}
	// As for a spill: no launch can begin on it now, and the counts of those that began before are visible after the barrier.
	ours := r.transition(Resident, Spilling)
	processBarrier()
	if r.held() {
		if ours {
			r.transition(Spilling, Resident)
		}
		d.unlockMoving()
		return &BusyError{Device: d.name, Bytes: r.Size, Holds: d.Holds(index)}
	}
	d.letGo(r, w.Cause)
	d.retireLocked(r)
	d.unlockMoving()
	d.verify()
	return nil
}

// letGo sets Dropped and lowers the books in one step (model: drop.mark).
func (d *Device) letGo(r *Record, cause Cause) {
	b, c, n := d.books, d.registry.cold(r.Index), int64(r.Size)
	b.lock()
	defer b.unlock()
	old := atomic.OrUint32(&r.Word, Dropped)
	if old&Dropped != 0 || State(old&stateMask) == Free || State(old&stateMask) == Building {
		panic(fmt.Sprintf("gomem: %s: a buffer is dropped that is not there (word %#x)", d.name, old))
	}
	switch c.book {
	case bookInUse:
		d.leftLocked(r, c)
		b.PendingFree += n
		c.pending = true
	case bookSpilled:
		b.Spilled -= n
		b.FreedSpilled += n
		if d.wantsHostLocked() {
			b.Sequence++
			d.leftHostLocked(r, c)
		}
	}
	if state := State(old & stateMask); state == Spilled || state == Restoring {
		d.cameBackLocked(d.registry.tripOf(r), false)
	}
	c.book = bookNone
	b.goneLocked(n, r.Sequence)
	d.happenedLocked(EventFree, r, c, State(old&stateMask), time.Time{}, cause)
	if c.hosts { // its host frees it when it likes, and may get the address again at once
		atomic.StoreUint64(&r.Address, noAddress)
	}
}

// pushDrop puts a dropped record on the drop list (model: drop.push). Any number may push at a time; the list is only ever taken as a
// whole, so there is no ABA problem.
func (d *Device) pushDrop(r *Record) {
	for {
		head := atomic.LoadUint32(&d.books.Drops)
		r.Next = head
		if atomic.CompareAndSwapUint32(&d.books.Drops, head, r.Index+1) {
			return
		}
	}
}

// Drain frees what was dropped, if the moving lock can be had at once. Otherwise its holder does it: see unlockMoving. On a broken device it does
// nothing. It also thins the stays that ended, since it is called all the time, without the GIL and with no lock held.
func (d *Device) Drain() {
	defer d.guard(nil)
	d.drain()
}

// drain is Drain for calls that have a guard already.
func (d *Device) drain() {
	if d.ended.crowded.Load() {
		d.thinStays()
	}
	for atomic.LoadUint32(&d.books.Drops) != 0 && d.broken.Load() == nil && d.moving.tryLock() {
		d.drainLocked()
		d.moving.unlock()
	}
}

// drainLocked frees what is on the drop list (model: drop.drain).
func (d *Device) drainLocked() {
	if atomic.LoadUint32(&d.books.Drops) == 0 {
		return
	}
	d.lockDraining() // before the list is empty: who sees it empty sees this, too
	defer d.unlockDraining()
	for next := atomic.SwapUint32(&d.books.Drops, 0); next != 0; {
		r := d.registry.record(next - 1)
		next = r.Next
		if r == d.restoring { // its restore goes on with the record; whoever lets go of the moving lock finds it here again
			d.pushDrop(r)
			continue
		}
		d.retireLocked(r)
	}
}

// retireLocked frees whatever copies a dropped buffer has and makes its record free for another buffer. A higher generation tells those
// who remember the record (the batch of victims, the address index) that the buffer is gone.
func (d *Device) retireLocked(r *Record) {
	c := d.registry.cold(r.Index)
	d.giveBackLocked(r, c)
	if c.host.Address != 0 {
		d.pool.Put(c.host)
		c.host = HostBlock{}
	}
	atomic.AddUint32(&r.Generation, 1)
	atomic.StoreUint32(&r.Word, uint32(Free))
	d.registry.put(r.Index)
	d.wakeWaiter()
}

// giveBackLocked frees the device memory of a dropped buffer, if it has any (it may be spilled, or disowned), and returns how many bytes the driver has
// got back.
func (d *Device) giveBackLocked(r *Record, c *cold) (freed uint64) {
	if c.device {
		// First: from the driver's free on a host may be given the address by the vendor's own call, and have it adopted.
		address := atomic.SwapUint64(&r.Address, noAddress)
		freed = d.freeDeviceLocked(r, c, address)
	}
	if c.pending {
		c.pending = false
		d.books.lock()
		d.books.PendingFree -= int64(r.Size)
		d.drained += int64(freed)
		d.books.unlock()
	}
	return freed
}

// lockMoving takes the moving lock and drains. It fails only when cancelled, and on a broken device.
func (d *Device) lockMoving(w Wait) error {
	if broken := d.refusal(); broken != nil {
		return broken
	}
	if !d.moving.lock(w.Cancel) {
		d.drain() // the lock may have been handed to us for a moment, in which somebody dropped a buffer and relied on its holder
		return d.notHad()
	}
	if broken := d.refusal(); broken != nil { // by a call that did not have this lock
		d.moving.unlock()
		return broken
	}
	d.drainLocked()
	return nil
}

// unlockMoving lets go of the moving lock and looks at the drop list once more (model: unlock.recheck): who dropped a buffer while the
// lock was taken could not drain, and relies on this look. It is called at the end of what has the lock, by no defer: see broken.go.
func (d *Device) unlockMoving() {
	d.moving.unlock()
	d.drain()
}
