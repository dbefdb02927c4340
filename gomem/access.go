package gomem

import (
	"sync/atomic"
	"unsafe"
)

// Host access works on whichever copy is the true one. It never brings a spilled buffer back, and never hands out a host pointer. What is spilled
// when a device is lost can still be read and written.

// CopyToHost copies nbytes from offset of the buffer to host memory (not of Go's heap). At return the bytes are there. Errors: *RangeError,
// ErrFreed, ErrCancelled, *LostError, and the driver's.
func (d *Device) CopyToHost(index uint32, offset uint64, host unsafe.Pointer, nbytes uint64, w Wait) error {
	return d.access(index, offset, nbytes, w, false,
		func(address uint64) error { return d.copyOut(host, address, nbytes, w) },
		func(copied unsafe.Pointer) error { return copyMemoryUntil(host, copied, nbytes, w.Cancel) })
}

// CopyFromHost copies nbytes of host memory (not of Go's heap) to offset of the buffer. At return the host memory is no longer needed. A
// cancelled copy has written a part.
func (d *Device) CopyFromHost(index uint32, offset uint64, host unsafe.Pointer, nbytes uint64, w Wait) error {
	return d.access(index, offset, nbytes, w, true,
		func(address uint64) error { return d.copyIn(address, host, nbytes, w) },
		func(copied unsafe.Pointer) error { return copyMemoryUntil(copied, host, nbytes, w.Cancel) })
}

// Fill repeats pattern (1 to 16 bytes) over nbytes from offset of the buffer. A cancelled fill has written a part.
func (d *Device) Fill(index uint32, offset uint64, pattern []byte, nbytes uint64, w Wait) error {
	return d.access(index, offset, nbytes, w, true,
		func(address uint64) error { return d.fillDevice(address, pattern, nbytes, w) },
		func(copied unsafe.Pointer) error { return fillMemoryUntil(copied, pattern, nbytes, w.Cancel) })
}

// access runs one of two functions on the buffer's true copy, which stays where it is meanwhile. writes: they change it.
func (d *Device) access(index uint32, offset, nbytes uint64, w Wait, writes bool, onDevice func(address uint64) error, onHost func(unsafe.Pointer) error) (err error) {
	defer d.guard(&err)
	if err := d.refusal(); err != nil {
		return err
	}
	r := d.registry.record(index)
	if offset > r.Size || nbytes > r.Size-offset {
		return &RangeError{Device: d.name, Offset: offset, Bytes: nbytes, Size: r.Size}
	}
	if nbytes == 0 {
		return nil
	}
	atomic.AddUint32(&r.Pins, 1) // model: host.pin; looking at the state without a pin would be wrong
	if r.is(Resident) {          // model: host.check
		defer d.unpin(r)
		d.use(r)
		if lost := d.lost.Load(); lost != nil {
			return lost
		}
		return onDevice(r.Address + offset)
	}
	d.unpin(r)
	if err := d.lockMoving(w); err != nil { // model: host.slow
		return err
	}
	d.use(r)
	switch state, dropped := StateOf(r.word()); {
	case dropped || state == Free:
		err = ErrFreed
	case state == Spilled:
		if writes {
			err = d.ownHostLocked(r, w)
		}
		if err == nil {
			err = onHost(unsafe.Add(d.registry.cold(index).host.Pointer(), offset))
		}
	case d.lost.Load() != nil:
		err = d.lost.Load()
	default: // resident, or marked for a waiting launch: under the moving lock it stays
		err = onDevice(r.Address + offset)
	}
	d.unlockMoving()
	return err
}

func (d *Device) unpin(r *Record) {
	atomic.AddUint32(&r.Pins, ^uint32(0))
	d.wakeWaiter()
}

// Copy copies nbytes from one buffer of this device to another (or the same; overlap as memmove). It makes both resident, except
// where both are spilled: then it copies on the host, and where it is cancelled meanwhile a part is copied.
func (d *Device) Copy(destination uint32, destinationOffset uint64, source uint32, sourceOffset uint64, nbytes uint64, w Wait) (err error) {
	defer d.guard(&err)
	if err := d.refusal(); err != nil {
		return err
	}
	to, from := d.registry.record(destination), d.registry.record(source)
	if destinationOffset > to.Size || nbytes > to.Size-destinationOffset {
		return &RangeError{Device: d.name, Offset: destinationOffset, Bytes: nbytes, Size: to.Size}
	}
	if sourceOffset > from.Size || nbytes > from.Size-sourceOffset {
		return &RangeError{Device: d.name, Offset: sourceOffset, Bytes: nbytes, Size: from.Size}
	}
	if nbytes == 0 {
		return nil
	}
	if to.is(Spilled) && from.is(Spilled) {
		if err := d.lockMoving(w); err != nil {
			return err
		}
		if to.is(Spilled) && from.is(Spilled) {
			d.use(to)
			d.use(from)
			err := d.ownHostLocked(to, w)
			if err == nil {
				err = copyMemoryUntil(unsafe.Add(d.registry.cold(destination).host.Pointer(), destinationOffset),
					unsafe.Add(d.registry.cold(source).host.Pointer(), sourceOffset), nbytes, w.Cancel)
			}
			d.unlockMoving()
			return err
		}
		d.unlockMoving()
	}
	both := [2]uint32{destination, source}
	if err := d.Admit(both[:], w); err != nil {
		return err
	}
	defer d.discharge(both[:])
	return d.driverFault(d.driver.CopyWithin(to.Address+destinationOffset, from.Address+sourceOffset, nbytes))
}
