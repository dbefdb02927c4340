// Package cpu counts the arrays that a host framework keeps in ordinary host memory: a gomem.Driver over the C library's allocator. Its
// memory is never spilled, since it lies already where spilling would put it (open its device with Options.Movable false).
package cpu

/*
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// Addresses cross as numbers: none of this is Go's memory.

// 64 bytes: a cache line, and what vector instructions like best. The C library takes small blocks from its heap, so that not each of
// them costs a mapping; large ones get one.
static uint64_t tmcpu_allocate(uint64_t bytes) {
	void *memory;
	return posix_memalign(&memory, 64, bytes) ? 0 : (uint64_t)(uintptr_t)memory;
}

static void tmcpu_free(uint64_t address) { free((void *)(uintptr_t)address); }

static void tmcpu_copy(uint64_t destination, uint64_t source, uint64_t bytes) {
	memmove((void *)(uintptr_t)destination, (void *)(uintptr_t)source, bytes);
}

static void tmcpu_fill(uint64_t address, const unsigned char *pattern, uint64_t period, uint64_t bytes) {
	unsigned char *to = (unsigned char *)(uintptr_t)address;
	if (period == 1) {
		memset(to, pattern[0], bytes);
		return;
	}
	uint64_t done = bytes < period ? bytes : period;
	memcpy(to, pattern, done);
	while (done < bytes) {  // what is there, again
		uint64_t n = bytes - done < done ? bytes - done : done;
		memcpy(to + done, to, n);
		done += n;
	}
}

#cgo noescape tmcpu_fill
#cgo nocallback tmcpu_fill
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/tack-memory/tack-memory/gomem"
)

// Driver is the host's memory as a device. It has no stream: each call is done when it returns. It holds nothing by itself.
type Driver struct {
	name  string
	total int64 // asked once: the answer takes longer than an allocation
}

var _ gomem.Driver = (*Driver)(nil)

// Open returns the driver; there is one CPU device.
func Open(name string) *Driver {
	total, _ := gomem.HostMemory()
	return &Driver{name: name, total: total}
}

// Name is the device's name, "cpu".
func (d *Driver) Name() string { return d.name }

// Allocate returns memory aligned to 64 bytes.
func (d *Driver) Allocate(nbytes uint64) (address uint64, err error) {
	if d.total != gomem.Unknown && nbytes > uint64(d.total) {
		return 0, d.refusal(gomem.ErrTooLarge)
	}
	if address = uint64(C.tmcpu_allocate(C.uint64_t(nbytes))); address == 0 {
		return 0, d.refusal(gomem.ErrOutOfMemory)
	}
	return address, nil
}

func (d *Driver) refusal(kind error) error {
	const outOfMemory = 12 // ENOMEM on every system
	return &gomem.DriverError{Device: d.name, Call: "posix_memalign", Code: outOfMemory, Name: "ENOMEM", Kind: kind}
}

// Free gives memory of Allocate back at once.
func (d *Driver) Free(block gomem.Block) error {
	if block.How != gomem.HowDriver {
		return fmt.Errorf("%s: memory of a device (kind %d) is not the host's to free", d.name, block.How)
	}
	C.tmcpu_free(C.uint64_t(block.Address))
	return nil
}

// CopyOut copies between two places of host memory.
func (d *Driver) CopyOut(host unsafe.Pointer, address, nbytes uint64) error {
	C.tmcpu_copy(C.uint64_t(uintptr(host)), C.uint64_t(address), C.uint64_t(nbytes))
	return nil
}

// CopyIn copies between two places of host memory.
func (d *Driver) CopyIn(address uint64, host unsafe.Pointer, nbytes uint64) error {
	C.tmcpu_copy(C.uint64_t(address), C.uint64_t(uintptr(host)), C.uint64_t(nbytes))
	return nil
}

// CopyWithin is memmove.
func (d *Driver) CopyWithin(destination, source, nbytes uint64) error {
	C.tmcpu_copy(C.uint64_t(destination), C.uint64_t(source), C.uint64_t(nbytes))
	return nil
}

// Fill repeats a pattern of any length.
func (d *Driver) Fill(address uint64, pattern []byte, nbytes uint64) error {
	if len(pattern) == 0 {
		return fmt.Errorf("%s: a pattern has at least one byte", d.name)
	}
	C.tmcpu_fill(C.uint64_t(address), (*C.uchar)(unsafe.Pointer(&pattern[0])), C.uint64_t(len(pattern)), C.uint64_t(nbytes))
	return nil
}

// Synchronize has nothing to wait for.
func (d *Driver) Synchronize() error { return nil }

// Trim has nothing to give back: the C library decides what it keeps.
func (d *Driver) Trim() (released uint64, err error) { return 0, nil }

// Memory is what the process may use of the host's memory in all, and what it could still take.
func (d *Driver) Memory() (gomem.DriverMemory, error) {
	total, available := gomem.HostMemory()
	return gomem.DriverMemory{Free: available, Total: total, Allocated: gomem.Unknown, LargestFree: gomem.Unknown}, nil
}

// CanFree knows what Allocate returned.
func (d *Driver) CanFree(how gomem.How) bool { return how == gomem.HowDriver }

// PendingFree is 0: a free is done at once.
func (d *Driver) PendingFree() uint64 { return 0 }

// Stream is 0: there is none.
func (d *Driver) Stream() uint64 { return 0 }

// SetStream refuses: there are no streams.
func (d *Driver) SetStream(context, stream uint64) error {
	return fmt.Errorf("%s: the CPU has no streams", d.name)
}

// Join has nothing to order.
func (d *Driver) Join(from, to uint64) error { return nil }

// Close has nothing to give back.
func (d *Driver) Close() error { return nil }
