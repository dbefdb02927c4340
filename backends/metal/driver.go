package metal

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tack-memory/tack-memory/backends/common"
	"github.com/tack-memory/tack-memory/gomem"
)

// Driver is one Metal device. Its methods may be called from any thread.
type Driver struct {
	name    string
	objects *objects
	facts   Facts
	device  Object // a reference of ours until closed

	// bound guards queue and closed: shared by operations, exclusive while these change.
	bound  sync.RWMutex
	queue  Object // the host framework's, a reference of ours; 0: none
	closed bool

	buffers   buffers
	hostCache atomic.Int64 // bytes that the host framework's pool keeps, as it told; gomem.Unknown: it does not tell
}

var _ gomem.Driver = (*Driver)(nil)

// Open opens a device under a name ("metal:0").
func (l *Library) Open(name string, ordinal int) (*Driver, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	object, err := l.deviceLocked(name, ordinal)
	if err != nil {
		return nil, err
	}
	l.objects.retain(object)
	return &Driver{name: name, objects: l.objects, facts: l.objects.facts(object), device: object}, nil
}

// Name is the device's name, "metal:0".
func (d *Driver) Name() string { return d.name }

// Facts are the device's properties, as they were when it was opened.
func (d *Driver) Facts() Facts { return d.facts }

// use runs an operation: the device stays open, and there is an autorelease pool.
func (d *Driver) use(operation func() error) (err error) {
	d.bound.RLock()
	defer d.bound.RUnlock()
	if d.closed {
		return d.closedError()
	}
	d.objects.pooled(func() { err = operation() })
	return err
}

func (d *Driver) closedError() error { return fmt.Errorf("%s: %w", d.name, common.ErrClosed) }

// settled runs work of the host's on the device's memory, after what the host framework has committed.
func (d *Driver) settled(work func()) error {
	return d.use(func() error {
		if err := d.settle(d.queue); err != nil {
			return err
		}
		work()
		return nil
	})
}

// CopyOut copies to host memory, which is complete at return.
func (d *Driver) CopyOut(host unsafe.Pointer, address, nbytes uint64) error {
	return d.settled(func() { gomem.CopyMemory(host, common.Pointer(address), nbytes) })
}

// CopyIn copies from host memory, which is no longer needed at return.
func (d *Driver) CopyIn(address uint64, host unsafe.Pointer, nbytes uint64) error {
	return d.settled(func() { gomem.CopyMemory(common.Pointer(address), host, nbytes) })
}

// CopyWithin is memmove.
func (d *Driver) CopyWithin(destination, source, nbytes uint64) error {
	return d.settled(func() { gomem.CopyMemory(common.Pointer(destination), common.Pointer(source), nbytes) })
}

// Fill repeats a pattern of any length.
func (d *Driver) Fill(address uint64, pattern []byte, nbytes uint64) error {
	if len(pattern) == 0 {
		return fmt.Errorf("%s: a pattern has at least one byte", d.name)
	}
	return d.settled(func() { gomem.FillMemory(common.Pointer(address), pattern, nbytes) })
}

// Synchronize waits for what the host framework has committed. A free has nothing to wait for.
func (d *Driver) Synchronize() error {
	return d.use(func() error { return d.settle(d.queue) })
}

// Trim has nothing to give back: what is kept is the host framework's pool, which only the framework can empty.
func (d *Driver) Trim() (released uint64, err error) { return 0, nil }

// PendingFree is 0: a free is done at once.
func (d *Driver) PendingFree() uint64 { return 0 }

// SetHostCache tells how many bytes the host framework's own pool keeps for later use, for Memory to report as cached: Metal itself sees
// them as allocated. gomem.Unknown: a framework with a pool that cannot tell. Without a framework it is 0.
func (d *Driver) SetHostCache(nbytes int64) error {
	if nbytes < 0 && nbytes != gomem.Unknown {
		return fmt.Errorf("%s: a pool cannot keep %d bytes", d.name, nbytes)
	}
	d.hostCache.Store(nbytes)
	return nil
}

// Memory asks Metal. What is free it does not tell, and total minus allocated would not be it: other processes and the system live in the
// same memory.
func (d *Driver) Memory() (gomem.DriverMemory, error) {
	memory := gomem.DriverMemory{Free: gomem.Unknown, Total: d.facts.Total, Cached: d.hostCache.Load(), Allocated: gomem.Unknown, LargestFree: gomem.Unknown}
	d.bound.RLock()
	defer d.bound.RUnlock()
	if d.closed {
		return memory, nil
	}
	d.objects.pooled(func() {
		if d.objects.has(d.device, methodCurrentAllocatedSize) {
			memory.Allocated = int64(min(uint64(d.objects.send(d.device, methodCurrentAllocatedSize)), math.MaxInt64))
		}
	})
	return memory, nil
}

// Close gives the device and the host framework's queue back. It fails, and changes nothing, while buffers are in use.
func (d *Driver) Close() error {
	d.bound.Lock()
	defer d.bound.Unlock()
	if d.closed {
		return nil
	}
	if left := d.buffers.count(); left > 0 {
		return &common.BuffersLeftError{Device: d.name, Count: left}
	}
	d.objects.pooled(func() {
		d.objects.release(d.queue)
		d.objects.release(d.device)
	})
	d.queue, d.closed = 0, true
	return nil
}
