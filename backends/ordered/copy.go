package ordered

// #include "device.h"
import "C"

import (
	"unsafe"

	"github.com/tack-memory/tack-memory/backends/common"
)

// CopyOut copies to host memory, which is complete at return.
func (d *Driver) CopyOut(host unsafe.Pointer, address, nbytes uint64) error {
	if err := d.life.Use(); err != nil {
		return err
	}
	defer d.life.Done()
	return d.check(C.tmo_copy_out(d.device, host, C.uint64_t(address), C.uint64_t(nbytes)))
}

// CopyIn copies from host memory, which is no longer needed at return.
func (d *Driver) CopyIn(address uint64, host unsafe.Pointer, nbytes uint64) error {
	if err := d.life.Use(); err != nil {
		return err
	}
	defer d.life.Done()
	return d.check(C.tmo_copy_in(d.device, C.uint64_t(address), host, C.uint64_t(nbytes)))
}

// CopyWithin copies on the device as memmove does. It does not wait, except where overlapping ranges meet a device without any memory to
// spare. After an error in an overlapping copy the destination may be written in part.
func (d *Driver) CopyWithin(destination, source, nbytes uint64) error {
	return common.Move(d, destination, source, nbytes)
}

// CopyApart copies between ranges that do not overlap.
func (d *Driver) CopyApart(destination, source, nbytes uint64) error {
	if err := d.life.Use(); err != nil {
		return err
	}
	defer d.life.Done()
	return d.check(C.tmo_copy_within(d.device, C.uint64_t(destination), C.uint64_t(source), C.uint64_t(nbytes)))
}

// CopyInSteps copies between overlapping ranges, in steps of their distance.
func (d *Driver) CopyInSteps(destination, source, nbytes uint64) error {
	if err := d.life.Use(); err != nil {
		return err
	}
	defer d.life.Done()
	return d.check(C.tmo_move_in_steps(d.device, C.uint64_t(destination), C.uint64_t(source), C.uint64_t(nbytes)))
}

// Fill repeats a pattern of 1 to 16 bytes. Patterns of 1, 2 and 4 bytes are the library's own memset; others are written once by small
// memsets and then doubled by copies on the device. It does not wait.
func (d *Driver) Fill(address uint64, pattern []byte, nbytes uint64) error {
	p, err := common.NewPattern(d.name, pattern)
	if err != nil {
		return err
	}
	if err := d.life.Use(); err != nil {
		return err
	}
	defer d.life.Done()
	return d.check(C.tmo_fill(d.device, C.uint64_t(address), C.uint64_t(p.Low), C.uint64_t(p.High), C.uint32_t(p.Period), C.uint64_t(nbytes)))
}
