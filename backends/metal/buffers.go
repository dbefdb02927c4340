package metal

import (
	"fmt"
	"sync"

	"github.com/tack-memory/tack-memory/gomem"
)

// buffers are the MTLBuffers that a Driver allocated, by the address of their contents: that is the address by which the core, views and
// copies know them.
type buffers struct {
	mu    sync.Mutex // a leaf: nothing is called under it
	owned map[uint64]Object
}

func (b *buffers) put(address uint64, buffer Object) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.owned == nil {
		b.owned = make(map[uint64]Object)
	}
	b.owned[address] = buffer
}

// take removes a buffer, whose reference is the caller's then; nil where there is none.
func (b *buffers) take(address uint64) Object {
	b.mu.Lock()
	defer b.mu.Unlock()
	buffer := b.owned[address]
	delete(b.owned, address)
	return buffer
}

func (b *buffers) get(address uint64) Object {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.owned[address]
}

func (b *buffers) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.owned)
}

// sharedStorage is MTLResourceStorageModeShared with the defaults for caching and hazard tracking: memory of the host that the device
// reads and writes in place. (A private buffer has no address, and a managed one would have two copies.)
const sharedStorage = 0

// Allocate makes an MTLBuffer and returns the address of its contents.
func (d *Driver) Allocate(nbytes uint64) (address uint64, err error) {
	// Before the call: with Metal's validation on, a longer one ends the process.
	if d.facts.MaxBuffer != gomem.Unknown && nbytes > uint64(d.facts.MaxBuffer) {
		return 0, d.nothing(methodNewBuffer, gomem.ErrTooLarge)
	}
	err = d.use(func() error {
		buffer := d.objects.sendObject(d.device, methodNewBuffer, uintptr(nbytes), sharedStorage)
		if buffer == 0 {
			return d.nothing(methodNewBuffer, gomem.ErrOutOfMemory)
		}
		if address = uint64(d.objects.send(buffer, methodContents)); address == 0 {
			d.objects.release(buffer)
			return d.nothing(methodContents, nil)
		}
		d.buffers.put(address, buffer)
		return nil
	})
	return address, err
}

// Free releases the MTLBuffer. The device's work needs no waiting for: a command buffer keeps the buffers that it uses.
func (d *Driver) Free(block gomem.Block) error {
	if block.How != gomem.HowDriver {
		return fmt.Errorf("%s: memory allocated by %v cannot be freed by Metal", d.name, block.How)
	}
	return d.use(func() error {
		buffer := d.buffers.take(block.Address)
		if buffer == 0 {
			return &NotABufferError{Device: d.name, Address: block.Address}
		}
		d.objects.release(buffer)
		return nil
	})
}

// CanFree knows what Allocate returned.
func (d *Driver) CanFree(how gomem.How) bool { return how == gomem.HowDriver }

// Buffer is the MTLBuffer whose contents begin at an address, which kernels are given in place of the address; nil where Allocate did not
// make it. It stays the Driver's.
func (d *Driver) Buffer(address uint64) Object { return d.buffers.get(address) }
