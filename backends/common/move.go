package common

// #include <stdlib.h>
import "C"

import (
	"errors"
	"unsafe"

	"github.com/tack-memory/tack-memory/gomem"
)

// A copy between overlapping ranges is not defined by any vendor. What memmove would do is done in pieces: directly where few pieces do,
// else with a detour through other memory, since pieces of a few bytes each would take for ever.
const (
	mostSteps      = 32       // direct copies of the ranges' distance
	largestDetour  = 64 << 20 // device memory that a detour asks for, at most
	smallestDetour = 64 << 10 // it is not worth asking for less
	hostDetour     = 1 << 20  // host memory that is used where the device has none to spare
)

// Mover is a device that can copy between ranges that do not overlap.
type Mover interface {
	Name() string
	Allocate(nbytes uint64) (address uint64, err error)
	Free(block gomem.Block) error
	CopyOut(host unsafe.Pointer, address, nbytes uint64) error
	CopyIn(address uint64, host unsafe.Pointer, nbytes uint64) error
	// CopyApart copies between ranges that do not overlap.
	CopyApart(destination, source, nbytes uint64) error
	// CopyInSteps copies between overlapping ranges, in steps of their distance.
	CopyInSteps(destination, source, nbytes uint64) error
}

// Move copies on the device as memmove does. It does not wait, except where overlapping ranges meet a device without any memory to spare.
// After an error in an overlapping copy the destination may be written in part.
func Move(d Mover, destination, source, nbytes uint64) error {
	if destination == source {
		return nil
	}
	distance := max(destination, source) - min(destination, source)
	switch {
	case distance >= nbytes:
		return d.CopyApart(destination, source, nbytes)
	case nbytes/distance <= mostSteps:
		return d.CopyInSteps(destination, source, nbytes)
	}
	return detour(d, destination, source, nbytes)
}

// detour moves piece by piece through scratch memory, in memmove's order: what a piece overwrites has been moved before.
func detour(d Mover, destination, source, nbytes uint64) (err error) {
	size := min(nbytes, largestDetour)
	scratch, err := d.Allocate(size)
	for errors.Is(err, gomem.ErrOutOfMemory) && size > smallestDetour {
		size = max(size/4, smallestDetour)
		scratch, err = d.Allocate(size)
	}
	if errors.Is(err, gomem.ErrOutOfMemory) {
		return detourOverHost(d, destination, source, nbytes)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Free(gomem.Block{Address: scratch, Bytes: size})) }()
	return inPieces(destination, source, nbytes, size, func(to, from, n uint64) error {
		if err := d.CopyApart(scratch, from, n); err != nil {
			return err
		}
		return d.CopyApart(to, scratch, n)
	})
}

func detourOverHost(d Mover, destination, source, nbytes uint64) error {
	size := min(nbytes, hostDetour)
	scratch := C.malloc(C.size_t(size))
	if scratch == nil {
		return errors.New(d.Name() + ": neither device nor host memory for a copy between overlapping ranges")
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
