package cuda

// #include "device.h"
// #include <stdlib.h>
import "C"

import (
	"errors"
	"unsafe"

	"github.com/tack-memory/tack-memory/gomem"
)

// A copy between overlapping ranges is not defined by the driver. What memmove would do is done in pieces: directly where few pieces do,
// else with a detour through other memory, since pieces of a few bytes each would take for ever.
const (
	mostSteps      = 32       // direct copies of the ranges' distance
	largestDetour  = 64 << 20 // device memory that a detour asks for, at most
	smallestDetour = 64 << 10 // it is not worth asking for less
	hostDetour     = 1 << 20  // host memory that is used where the device has none to spare
)

// CopyWithin copies on the device as memmove does. It does not wait, except where overlapping ranges meet a device without any memory to
// spare. After an error in an overlapping copy the destination may be written in part.
func (d *Driver) CopyWithin(destination, source, nbytes uint64) error {
	if destination == source {
		return nil
	}
	distance := max(destination, source) - min(destination, source)
	if distance < nbytes && nbytes/distance > mostSteps {
		return d.detour(destination, source, nbytes)
	}
	if err := d.use(); err != nil {
		return err
	}
	defer d.bound.RUnlock()
	if distance >= nbytes {
		return d.check(C.tmc_copy_within(d.device, C.uint64_t(destination), C.uint64_t(source), C.uint64_t(nbytes)))
	}
	return d.check(C.tmc_move_in_steps(d.device, C.uint64_t(destination), C.uint64_t(source), C.uint64_t(nbytes)))
}

// detour moves piece by piece through scratch memory, in memmove's order: what a piece overwrites has been moved before.
func (d *Driver) detour(destination, source, nbytes uint64) (err error) {
	size := min(nbytes, largestDetour)
	scratch, err := d.Allocate(size)
	for errors.Is(err, gomem.ErrOutOfMemory) && size > smallestDetour {
		size = max(size/4, smallestDetour)
		scratch, err = d.Allocate(size)
	}
	if errors.Is(err, gomem.ErrOutOfMemory) {
		return d.detourOverHost(destination, source, nbytes)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Free(gomem.Block{Address: scratch, Bytes: size})) }()
	return inPieces(destination, source, nbytes, size, func(to, from, n uint64) error {
		if err := d.CopyWithin(scratch, from, n); err != nil {
			return err
		}
		return d.CopyWithin(to, scratch, n)
	})
}

func (d *Driver) detourOverHost(destination, source, nbytes uint64) error {
	size := min(nbytes, hostDetour)
	scratch := C.malloc(C.size_t(size))
	if scratch == nil {
		return errors.New(d.name + ": neither device nor host memory for a copy between overlapping ranges")
	}
	defer C.free(unsafe.Pointer(scratch))
	return inPieces(destination, source, nbytes, size, func(to, from, n uint64) error {
		if err := d.CopyOut(scratch, from, n); err != nil {
			return err
		}
		return d.CopyIn(to, scratch, n)
	})
}

// inPieces calls move for pieces of at most size bytes: from the end where the destination is higher, else from the beginning.
func inPieces(destination, source, nbytes, size uint64, move func(to, from, n uint64) error) error {
	for done := uint64(0); done < nbytes; {
		n := min(size, nbytes-done)
		offset := done
		if destination > source {
			offset = nbytes - done - n
		}
		if err := move(destination+offset, source+offset, n); err != nil {
			return err
		}
		done += n
	}
	return nil
}
