package simcpu

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/tack-memory/tack-memory/backends/common"
	"github.com/tack-memory/tack-memory/gomem"
)

// Driver is the device. Its methods may be called from any goroutine.
type Driver struct {
	name  string
	total int64  // of the host's memory: more cannot be had whatever is freed
	most  uint64 // bytes of pages to keep for reuse

	mu       sync.Mutex // guards all below; nothing is called under it
	settings Settings
	live     map[uint64]*block // by address
	used     uint64            // bytes that were asked for, of live blocks and of those that are being made
	kept     kept              // only where addresses are reused
	records  *block            // blocks that are gone, for others
	closed   bool
}

var (
	_ gomem.Driver   = (*Driver)(nil)
	_ gomem.Disowner = (*Driver)(nil)
)

// Open makes the device under a name ("sim-cpu:0").
func Open(name string, settings Settings) (*Driver, error) {
	if err := settings.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	total, _ := gomem.HostMemory()
	return &Driver{name: name, total: total, most: mostKept, settings: settings, live: make(map[uint64]*block)}, nil
}

// SetUp gives the device other settings. An *InUseError says that memory is allocated on it; then nothing has changed.
func (d *Driver) SetUp(settings Settings) error {
	if err := settings.Check(); err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	d.mu.Lock()
	if d.closed || d.used > 0 {
		defer d.mu.Unlock()
		if d.closed {
			return d.closedError()
		}
		return &InUseError{Device: d.name, Bytes: d.used}
	}
	d.settings = settings
	d.mu.Unlock()
	_, err := d.Trim() // what was kept is not handed out in another mode
	return err
}

// Settings are those that the device has now.
func (d *Driver) Settings() Settings {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.settings
}

// Name is the device's name, "sim-cpu:0".
func (d *Driver) Name() string { return d.name }

func (d *Driver) closedError() error { return fmt.Errorf("%s: %w", d.name, common.ErrClosed) }

// CopyOut copies between two places of host memory.
func (d *Driver) CopyOut(host unsafe.Pointer, address, nbytes uint64) error {
	gomem.CopyMemory(host, common.Pointer(address), nbytes)
	return nil
}

// CopyIn copies between two places of host memory.
func (d *Driver) CopyIn(address uint64, host unsafe.Pointer, nbytes uint64) error {
	gomem.CopyMemory(common.Pointer(address), host, nbytes)
	return nil
}

// CopyWithin is memmove.
func (d *Driver) CopyWithin(destination, source, nbytes uint64) error {
	gomem.CopyMemory(common.Pointer(destination), common.Pointer(source), nbytes)
	return nil
}

// Fill repeats a pattern.
func (d *Driver) Fill(address uint64, pattern []byte, nbytes uint64) error {
	shortest, err := common.NewPattern(d.name, pattern)
	if err != nil {
		return err
	}
	gomem.FillMemory(common.Pointer(address), pattern[:shortest.Period], nbytes)
	return nil
}

// Synchronize has nothing to wait for.
func (d *Driver) Synchronize() error { return nil }

// PendingFree is 0: a free is done at once.
func (d *Driver) PendingFree() uint64 { return 0 }

// Memory is exact in bytes that were asked for; of a device without a capacity nothing but what is kept can be told. There are no pieces: whatever is
// free can be had in one block.
func (d *Driver) Memory() (gomem.DriverMemory, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	memory := gomem.DriverMemory{Free: gomem.Unknown, Total: d.settings.Capacity, Cached: int64(d.kept.nbytes), Allocated: gomem.Unknown, LargestFree: gomem.Unknown}
	if memory.Total != gomem.Unknown {
		memory.Free = memory.Total - int64(d.used) - memory.Cached
		memory.LargestFree = memory.Free
	}
	return memory, nil
}

// Stream is 0: there is none.
func (d *Driver) Stream() uint64 { return 0 }

// SetStream accepts that there is none, and no other.
func (d *Driver) SetStream(context, stream uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return d.closedError()
	case context != 0 || stream != 0:
		return fmt.Errorf("%s: the CPU has no streams: %w", d.name, gomem.ErrInvalidHandle)
	}
	return nil
}

// Join has nothing to order.
func (d *Driver) Join(from, to uint64) error { return nil }

// Close gives back what is kept. It fails, and changes nothing, while blocks are in use. No address is ever given back.
func (d *Driver) Close() error {
	d.mu.Lock()
	if left := len(d.live); left > 0 {
		d.mu.Unlock()
		return &common.BuffersLeftError{Device: d.name, Count: left}
	}
	d.closed = true
	d.mu.Unlock()
	_, err := d.Trim()
	return err
}
