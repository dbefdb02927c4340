package gomem

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Contents that arrive from another process lie in memory of whoever received them (a frame of a message). That memory becomes the buffer's host copy
// as it is, without a copy: it is lent to the pool, and given back when the buffer has come to the device or is gone. Others may have the same memory: one
// message that is read twice makes two buffers of one frame. So nobody writes to what is lent: the first write to such a buffer in host memory moves its
// contents into memory of the pool's own (ownHostLocked).

// lentBit in HostBlock.Bytes tells what is lent. No size has it: maxSize.
const lentBit = 1 << 63

func (b HostBlock) isLent() bool { return b.Bytes&lentBit != 0 }

// lentBlocks are the blocks that are lent now. It is not the pool's limit that bounds them: they are there already. A lock of its own, under which nothing
// else is taken.
type lentBlocks struct {
	bytes atomic.Int64

	mu    sync.Mutex             // guards all below
	loans map[HostBlock][]func() // by block, what gives it back: one for each time that it is lent now
}

// Lend makes memory with contents a block. giveBack is called once, when the pool is done with it, with the device's lock held: it may not wait, nor call the
// core. The memory may not change until then.
func (p *HostPool) Lend(memory unsafe.Pointer, nbytes uint64, giveBack func()) HostBlock {
	b := HostBlock{Address: uintptr(memory), Bytes: nbytes | lentBit}
	l := &p.lent
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loans == nil {
		l.loans = map[HostBlock][]func(){}
	}
	l.loans[b] = append(l.loans[b], giveBack)
	l.bytes.Add(int64(nbytes))
	return b
}

// giveBack ends one loan of the block. Where it is lent more than once it does not matter which: each one keeps the memory in its place.
func (l *lentBlocks) giveBack(b HostBlock) { l.end(b)() }

func (l *lentBlocks) end(b HostBlock) (giveBack func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	loans := l.loans[b]
	if len(loans) == 0 {
		panic(fmt.Sprintf("gomem: %d bytes at %#x are given back that were not lent", b.Bytes&^lentBit, b.Address))
	}
	last := len(loans) - 1
	giveBack = loans[last]
	if last == 0 {
		delete(l.loans, b)
	} else {
		loans[last] = nil
		l.loans[b] = loans[:last]
	}
	l.bytes.Add(-int64(b.Bytes &^ lentBit))
	return giveBack
}

// ownHostLocked has a spilled buffer's contents in memory of the pool's own: they are about to be written to. Errors: *MemoryError of reason "host",
// ErrCancelled; the buffer is as it was then.
func (d *Device) ownHostLocked(r *Record, w Wait) error {
	c := d.registry.cold(r.Index)
	lent := c.host
	if !lent.isLent() {
		return nil
	}
	own, err := d.getHost(r.Size)
	if err != nil {
		return d.memoryErrorLocked(ReasonHost, int64(r.Size), err)
	}
	if err := copyMemoryUntil(own.Pointer(), lent.Pointer(), r.Size, w.Cancel); err != nil {
		d.pool.Put(own)
		return err
	}
	d.books.lock()             // who tells of a free looks at it under this lock
	if c.book == bookSpilled { // else it was dropped meanwhile, and was told of as freed
		d.tellMovedLocked(r, c, lent, own, w.Cause)
	}
	c.host = own
	d.books.unlock()
	d.pool.Put(lent)
	return nil
}
