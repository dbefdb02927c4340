package gomem

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"
)

// Receive makes a buffer of contents that came from another process, and returns its index. It begins in host memory, with these contents as its host copy,
// and comes to the device by a restore like any other: when the device first uses it. So it needs no room on the device now, and takes no lock that is held
// while memory moves. memory has to stay as it is until giveBack is called: see HostPool.Lend. There are nbytes > 0 of it. On a device that cannot spill (Movable)
// it is an allocation, and a copy.
//
// Errors: *MemoryError of reason "too large", *LostError, and there also those of Allocate; giveBack is not called then, and nothing changed.
func (d *Device) Receive(memory unsafe.Pointer, nbytes uint64, giveBack func(), o AllocateOptions) (index uint32, err error) {
	defer d.guard(&err)
	if err := d.unusable(); err != nil {
		return 0, err
	}
	if nbytes > maxSize {
		return 0, d.memoryError(ReasonTooLarge, figure(nbytes), nil)
	}
	if total := d.total.Load(); total != Unknown && int64(nbytes) > total {
		return 0, d.memoryError(ReasonTooLarge, int64(nbytes), nil) // no use of it could ever succeed
	}
	if !d.movable {
		return d.receiveHere(memory, nbytes, giveBack, o)
	}
	d.drain()
	r, c, err := d.registry.take(cold{how: HowDriver, label: o.Label, origin: o.Origin})
	if err != nil {
		return 0, err
	}
	atomic.StoreUint64(&r.Address, noAddress)
	atomic.StoreUint64(&r.Size, nbytes)
	d.use(r)
	host := d.pool.Lend(memory, nbytes, giveBack)
	if !d.commitReceived(r, c, host, o.Cause) {
		d.pool.lent.end(host)
		r.transition(Building, Free)
		d.registry.put(r.Index)
		return 0, d.memoryError(ReasonTooLarge, int64(nbytes), nil) // the books cannot count so much
	}
	index = r.Index
	d.verify()
	return index, nil
}

// receiveHere is Receive where device memory is host memory.
func (d *Device) receiveHere(memory unsafe.Pointer, nbytes uint64, giveBack func(), o AllocateOptions) (index uint32, err error) {
	if index, err = d.Allocate(nbytes, o); err != nil {
		return 0, err
	}
	if err = d.CopyFromHost(index, 0, memory, nbytes, o.Wait); err != nil {
		d.Drop(index)
		return 0, err
	}
	giveBack()
	return index, nil
}

// commitReceived makes a building buffer spilled, together with the books. False: they cannot count it.
func (d *Device) commitReceived(r *Record, c *cold, host HostBlock, cause Cause) (done bool) {
	b, n := d.books, int64(r.Size)
	b.lock()
	defer b.unlock()
	if !b.countableLocked(n) {
		return false
	}
	c.host = host
	r.Sequence = b.receivedLocked(n)
	c.book, c.entered = bookSpilled, r.Sequence
	if !r.transition(Building, Spilled) {
		panic(fmt.Sprintf("gomem: %s: a building record changed under its builder", d.name))
	}
	d.happenedLocked(EventReceive, r, c, Building, time.Time{}, cause)
	return true
}
