// Package engine is the table of the devices that this process has opened: which kinds there are, how each is opened, and the index by
// which C and Python name an open device. A device stays open until the process ends.
//
// A kind of device is one registration (kinds.go, and one file a kind).
package engine

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tack-memory/tack-memory/gomem"
)

// table is the devices opened so far. Readers load it without a lock; it is copied when a device is added.
var table atomic.Pointer[[]*gomem.Device]

var (
	opening sync.Mutex        // guards opened, and each change of table; held while a driver is loaded
	opened  map[string]uint32 // name -> index
)

// pool is the host memory for copies, of all devices of the process.
var pool = sync.OnceValue(gomem.NewHostPool)

// Pool is the host memory for copies, shared by all devices.
func Pool() *gomem.HostPool { return pool() }

// UnknownDeviceError says that there is no such device, and which there are.
type UnknownDeviceError struct {
	Name  string // what was asked for
	Why   string // why it cannot be had; may be empty
	Known []string
}

func (e *UnknownDeviceError) Error() string {
	why := ""
	if e.Why != "" {
		why = " (" + e.Why + ")"
	}
	return fmt.Sprintf("there is no device %q%s; there are: %s", e.Name, why, strings.Join(e.Known, ", "))
}

// Open opens a device, or finds it open. It loads the vendor's library, and makes no context on the device. The error is an
// *UnknownDeviceError where there is no such device, and the driver's own where it is there but cannot be opened.
func Open(kind string, ordinal int) (index uint32, err error) {
	found := kindNamed(kind)
	if found == nil {
		return 0, unknown(fmt.Sprintf("%s:%d", kind, ordinal), "no such kind of device")
	}
	name := found.deviceName(ordinal)
	opening.Lock()
	defer opening.Unlock()
	if index, open := opened[name]; open {
		return index, nil
	}
	count, err := found.count()
	if err != nil {
		return 0, unknown(name, err.Error())
	}
	if ordinal < 0 || ordinal >= count {
		return 0, unknown(name, fmt.Sprintf("%d of this kind", count))
	}
	if err := applyEnvironment(); err != nil {
		return 0, err
	}
	driver, movable, err := found.open(name, ordinal)
	if err != nil {
		return 0, err
	}
	devices := Devices()
	index = uint32(len(devices))
	device, err := gomem.NewDevice(driver, gomem.Options{Index: index, Pool: Pool(), Movable: movable, Check: checking.Load()})
	if err != nil {
		return 0, errors.Join(err, driver.Close())
	}
	grown := append(devices[:len(devices):len(devices)], device)
	table.Store(&grown)
	applyOrigins(device)
	if opened == nil {
		opened = make(map[string]uint32)
	}
	opened[name] = index
	return index, nil
}

func unknown(name, why string) error {
	return &UnknownDeviceError{Name: name, Why: why, Known: usableNames()}
}

// At is the open device of an index; nil where there is none.
func At(index uint32) *gomem.Device {
	if devices := Devices(); index < uint32(len(devices)) {
		return devices[index]
	}
	return nil
}

// Devices is the open devices, by index. The slice must not be changed.
func Devices() []*gomem.Device {
	if devices := table.Load(); devices != nil {
		return *devices
	}
	return nil
}

// origins is what is recorded of where buffers are allocated, on all devices. Its lock is a leaf but for the devices' books.
var origins struct {
	sync.Mutex
	mode gomem.Origins
}

// SetOrigins says what is recorded from now on, on all devices, also on those that will be opened.
func SetOrigins(mode gomem.Origins) {
	origins.Lock()
	defer origins.Unlock()
	origins.mode = mode
	for _, device := range Devices() {
		device.SetOrigins(mode)
	}
}

// applyOrigins is for a device that is in the table: whoever changes the mode after this finds it there.
func applyOrigins(device *gomem.Device) {
	origins.Lock()
	defer origins.Unlock()
	device.SetOrigins(origins.mode)
}

// Names is the names of the open devices, by index.
func Names() []string {
	devices := Devices()
	names := make([]string, len(devices))
	for i, device := range devices {
		names[i] = device.Name()
	}
	return names
}
