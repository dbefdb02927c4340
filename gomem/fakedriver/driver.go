package fakedriver

import (
	"unsafe"

	"github.com/tack-memory/tack-memory/gomem"
)

var _ gomem.Driver = (*Device)(nil)

// Name is the device's name.
func (d *Device) Name() string { return d.options.Name }

// Allocate returns new memory, full of poison, or the error of a full device.
func (d *Device) Allocate(nbytes uint64) (address uint64, err error) {
	if err := d.called(Allocate); err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if nbytes == 0 {
		d.misuse("allocation of 0 bytes")
	}
	if nbytes > 1<<blockShift || d.options.Capacity > 0 && nbytes > d.options.Capacity {
		return 0, d.Error(Allocate, gomem.ErrTooLarge)
	}
	switch {
	case d.pool[nbytes] > 0:
		d.pool[nbytes]--
		d.cached -= nbytes
	case d.options.Capacity > 0 && d.used+d.cached+nbytes > d.options.Capacity:
		return 0, d.Error(Allocate, gomem.ErrOutOfMemory)
	}
	d.used += nbytes
	b := &block{size: nbytes}
	if n := len(d.free); n > 0 && !d.options.Quarantine {
		b.number, d.free = d.free[n-1], d.free[:n-1]
	} else {
		d.last++
		b.number = d.last
	}
	if !d.options.NoContents {
		b.data = make([]byte, nbytes)
		repeat(b.data, []byte{poison})
	}
	d.blocks[b.number] = b
	return b.number << blockShift, nil
}

// Free takes memory back, after the work queued before. When it is made to fail, the memory is gone: it counts as used for ever, and nobody may use
// it.
func (d *Device) Free(blk gomem.Block) error {
	failure := d.called(Free)
	b, offset := d.at("free", blk.Address, blk.Bytes)
	if offset != 0 || blk.Bytes != b.size {
		d.misuse("free of %d bytes at %#x, in a block of %d bytes", blk.Bytes, blk.Address, b.size)
	}
	d.mu.Lock()
	b.freed = true
	if failure != nil {
		d.mu.Unlock()
		return failure
	}
	d.pending += b.size
	d.byHow[blk.How]++
	d.mu.Unlock()
	d.enqueue(func() {
		repeat(b.data, []byte{poison})
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.options.DeferFrees {
			d.deferred = append(d.deferred, b)
			return
		}
		d.giveBackLocked(b)
	})
	return nil
}

// giveBackLocked makes the memory of a freed block available.
func (d *Device) giveBackLocked(b *block) {
	d.pending -= b.size
	d.used -= b.size
	if d.options.Pool {
		d.pool[b.size]++
		d.cached += b.size
	}
	if d.blocks[b.number] == b {
		delete(d.blocks, b.number)
	}
	if !d.options.Quarantine {
		d.free = append(d.free, b.number)
	}
}

// CopyOut copies to the host.
func (d *Device) CopyOut(host unsafe.Pointer, address, nbytes uint64) error {
	if err := d.called(CopyOut); err != nil {
		return err
	}
	b, offset := d.at("copy out", address, nbytes)
	corrupt := d.options.CorruptEvery > 0 && d.Calls(CopyOut)%d.options.CorruptEvery == 0
	d.wait(func() {
		if b.data != nil {
			copy(hostBytes(host, nbytes), b.data[offset:offset+nbytes])
			if corrupt {
				hostBytes(host, nbytes)[nbytes/2] ^= 1
			}
		}
	})
	return nil
}

// CopyIn copies from the host.
func (d *Device) CopyIn(address uint64, host unsafe.Pointer, nbytes uint64) error {
	if err := d.called(CopyIn); err != nil {
		return err
	}
	b, offset := d.at("copy in", address, nbytes)
	d.wait(func() {
		if b.data != nil {
			copy(b.data[offset:offset+nbytes], hostBytes(host, nbytes))
		}
	})
	return nil
}

// CopyWithin copies on the device.
func (d *Device) CopyWithin(destination, source, nbytes uint64) error {
	if err := d.called(CopyWithin); err != nil {
		return err
	}
	to, toOffset := d.at("copy to", destination, nbytes)
	from, fromOffset := d.at("copy from", source, nbytes)
	d.enqueue(func() {
		if to.data != nil {
			copy(to.data[toOffset:toOffset+nbytes], from.data[fromOffset:fromOffset+nbytes])
		}
	})
	return nil
}

// Fill repeats a pattern.
func (d *Device) Fill(address uint64, pattern []byte, nbytes uint64) error {
	if err := d.called(Fill); err != nil {
		return err
	}
	if len(pattern) < 1 || len(pattern) > 16 {
		d.misuse("fill with a pattern of %d bytes", len(pattern))
	}
	b, offset := d.at("fill", address, nbytes)
	repeated := append([]byte(nil), pattern...)
	d.enqueue(func() {
		if b.data == nil {
			return
		}
		repeat(b.data[offset:offset+nbytes], repeated)
	})
	return nil
}

// Synchronize waits for the stream and gives back what was freed.
func (d *Device) Synchronize() error {
	if err := d.called(Synchronize); err != nil {
		return err
	}
	d.wait(func() {})
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.deferred {
		d.giveBackLocked(b)
	}
	d.deferred = nil
	return nil
}

// Trim empties the cache.
func (d *Device) Trim() (released uint64, err error) {
	if err := d.called(Trim); err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	released, d.cached = d.cached, 0
	clear(d.pool)
	return released, nil
}

// Memory returns the figures.
func (d *Device) Memory() (gomem.DriverMemory, error) {
	if err := d.called(Memory); err != nil {
		return gomem.DriverMemory{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	m := gomem.DriverMemory{Free: gomem.Unknown, Total: gomem.Unknown, Cached: int64(d.cached), Allocated: gomem.Unknown, LargestFree: gomem.Unknown}
	if d.options.Capacity > 0 {
		m.Total = int64(d.options.Capacity)
		m.Free = max(0, m.Total-int64(d.used+d.cached))
	}
	return m, nil
}

// CanFree is true: the fake keeps no list of vendors.
func (d *Device) CanFree(gomem.How) bool { return true }

// PendingFree is the bytes freed and not back yet.
func (d *Device) PendingFree() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pending
}

// Stream is the handle given to SetStream, 0 before.
func (d *Device) Stream() uint64 { return d.stream.Load() }

// SetStream changes the handle and waits for the work queued before.
func (d *Device) SetStream(_, stream uint64) error {
	if err := d.called(SetStream); err != nil {
		return err
	}
	d.wait(func() {})
	d.stream.Store(stream)
	return nil
}

// Join does nothing: there is one stream.
func (d *Device) Join(_, _ uint64) error { return d.called(Join) }

// Close ends the device. Blocks that are still allocated are an error of the test.
func (d *Device) Close() error {
	if err := d.called(Close); err != nil {
		return err
	}
	if d.queue != nil {
		close(d.queue)
		d.worker.Wait()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		d.misuse("closed twice")
	}
	d.closed = true
	for number, b := range d.blocks {
		if !b.freed {
			d.misuse("closed while block %#x of %d bytes is allocated", number<<blockShift, b.size)
		}
	}
	return nil
}
