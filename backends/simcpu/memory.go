package simcpu

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tack-memory/tack-memory/backends/common"
	"github.com/tack-memory/tack-memory/gomem"
)

// mostKept bounds the pages that are kept for reuse; what has been kept longest goes first. The block that was freed last is kept whatever its size.
const mostKept = 256 << 20

// stale is written over memory that may be handed out again. As a number of any type it is large, and so it shows in a result that it gets into:
// 123, 2.07e9 and 8.9e18 as integers, 1.3e36 and 1.2e286 as floating-point numbers. (0xa5 in each byte, as allocators like it, is 3e-16 then, which passes for a zero.)
const stale = 0x7b

// Allocate returns memory that is aligned to 64 bytes, or to a page where addresses are reused. In new pages it is zero, in reused ones it is stale; a
// program must rely on neither.
func (d *Driver) Allocate(nbytes uint64) (address uint64, err error) {
	d.mu.Lock()
	b, mode, err := d.admitLocked(nbytes)
	d.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if b.begin == 0 {
		if err := d.build(b, mode); err != nil {
			d.mu.Lock()
			d.used -= nbytes
			d.forgetLocked(b)
			d.mu.Unlock()
			return 0, err
		}
	}
	b.nbytes = nbytes
	if b.address = b.atEnd(nbytes); mode == Reuse {
		b.address = b.atBegin()
	}
	address = b.address
	d.mu.Lock()
	d.live[address] = b
	d.mu.Unlock()
	return address, nil
}

// admitLocked counts nbytes as used, and returns a block for them: one that was kept, or one that has no pages yet.
func (d *Driver) admitLocked(nbytes uint64) (b *block, mode Mode, err error) {
	total := d.settings.Capacity
	if total == gomem.Unknown {
		total = d.total
	}
	switch {
	case d.closed:
		return nil, 0, d.closedError()
	case total != gomem.Unknown && nbytes > uint64(total):
		return nil, 0, d.called("mmap", unix.ENOMEM, gomem.ErrTooLarge)
	}
	pages := roundUp(nbytes, page)
	if d.settings.Mode == Reuse { // else some may be left for a moment, of the mode before
		b = d.kept.take(pages)
	}
	if capacity := d.settings.Capacity; capacity != gomem.Unknown && d.used+d.kept.nbytes+nbytes > uint64(capacity) {
		if b != nil {
			d.kept.put(b)
		}
		return nil, 0, d.called("mmap", unix.ENOMEM, gomem.ErrOutOfMemory)
	}
	if b == nil {
		if b = d.records; b == nil {
			b = &block{}
		} else {
			d.records = b.below
			*b = block{}
		}
		b.pages = pages
	}
	d.used += nbytes
	return b, d.settings.Mode, nil
}

// forgetLocked keeps the record of a block that is gone for another one: each allocation would leave garbage.
func (d *Driver) forgetLocked(b *block) {
	*b = block{below: d.records}
	d.records = b
}

// build gives a block its pages.
func (d *Driver) build(b *block, mode Mode) error {
	begin, err := addresses.take(b.pages)
	if err != nil {
		return d.refused(err)
	}
	if b.begin = begin; mode == Reuse {
		b.overwrite() // what nobody has written reads the same in new pages and in old ones
	}
	return nil
}

func (b *block) overwrite() {
	gomem.FillMemory(common.Pointer(b.begin), []byte{stale}, b.pages)
}

// Free gives a block back at once: it is unmapped, or overwritten and kept for the next one of its size.
func (d *Driver) Free(block gomem.Block) error {
	if !d.CanFree(block.How) {
		return fmt.Errorf("%s: memory allocated by %v is not this device's to free", d.name, block.How)
	}
	d.mu.Lock()
	b := d.live[block.Address]
	if b == nil || d.closed {
		defer d.mu.Unlock()
		if d.closed {
			return d.closedError()
		}
		return d.called("munmap", unix.EINVAL, nil)
	}
	delete(d.live, b.address)
	reuse := d.settings.Mode == Reuse // as when it was made: the mode changes only while nothing is allocated
	if !reuse {
		d.used -= b.nbytes
	}
	d.mu.Unlock()
	if !reuse {
		return d.retire(b)
	}
	b.overwrite()
	d.mu.Lock()
	d.used -= b.nbytes
	d.kept.put(b)
	d.mu.Unlock()
	return d.retireKept(d.most)
}

// retire makes the pages of a block that is nobody's any more unusable.
func (d *Driver) retire(b *block) error {
	err := addresses.retire(b.begin, b.pages)
	d.mu.Lock()
	d.forgetLocked(b)
	d.mu.Unlock()
	if err != nil {
		return d.called("munmap", err, nil)
	}
	return nil
}

// retireKept retires the blocks that have been kept longest, until there are at most so many bytes of pages, or one block.
func (d *Driver) retireKept(most uint64) (err error) {
	for {
		d.mu.Lock()
		var b *block
		if d.kept.pages > most && (most == 0 || d.kept.first != d.kept.last) {
			b = d.kept.takeOldest()
		}
		d.mu.Unlock()
		if b == nil {
			return err
		}
		err = errors.Join(err, d.retire(b))
	}
}

// Trim unmaps what is kept for reuse.
func (d *Driver) Trim() (released uint64, err error) {
	d.mu.Lock()
	released = d.kept.nbytes
	d.mu.Unlock()
	return released, d.retireKept(0)
}

// CanFree knows what Allocate returned.
func (d *Driver) CanFree(how gomem.How) bool { return how == gomem.HowDriver }

// Disown counts a block no more: it is somebody else's, and stays mapped for ever, since nobody but this device could unmap it.
func (d *Driver) Disown(gone gomem.Block) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b := d.live[gone.Address]; b != nil {
		delete(d.live, gone.Address)
		d.used -= b.nbytes
	}
}
