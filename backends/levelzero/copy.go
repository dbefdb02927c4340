package levelzero

// #include "device.h"
import "C"

import (
	"unsafe"

	"github.com/tack-memory/tack-memory/backends/common"
)

// transfers are the library's copies and fills, for common.Copies: what is left of a driver's own, a call of C each. Packages ordered and levelzero have
// one each that look alike: the C types of a package (the device here) are its own in Go, so that no function of another package can take them.
type transfers struct{ d *Driver }

func (t transfers) CopyOut(host unsafe.Pointer, address, nbytes uint64) error {
	return t.d.check(C.tml_copy_out(t.d.device, host, C.uint64_t(address), C.uint64_t(nbytes)))
}

func (t transfers) CopyIn(address uint64, host unsafe.Pointer, nbytes uint64) error {
	return t.d.check(C.tml_copy_in(t.d.device, C.uint64_t(address), host, C.uint64_t(nbytes)))
}

// CopyApart does not wait, unless a host's list has to come after it.
func (t transfers) CopyApart(destination, source, nbytes uint64) error {
	return t.d.check(C.tml_copy_apart(t.d.device, C.uint64_t(destination), C.uint64_t(source), C.uint64_t(nbytes)))
}

func (t transfers) CopyInSteps(destination, source, nbytes uint64) error {
	return t.d.check(C.tml_copy_in_steps(t.d.device, C.uint64_t(destination), C.uint64_t(source), C.uint64_t(nbytes)))
}

// Fill takes the driver's own fill, at any address, for patterns whose length is a power of two; others are written once and then doubled by copies
// on the device. It does not wait, unless a host's list has to come after it.
func (t transfers) Fill(address uint64, p common.Pattern, nbytes uint64) error {
	return t.d.check(C.tml_fill(t.d.device, C.uint64_t(address), C.uint64_t(p.Low), C.uint64_t(p.High), C.uint32_t(p.Period), C.uint64_t(nbytes)))
}
