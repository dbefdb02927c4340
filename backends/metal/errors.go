package metal

import (
	"errors"
	"fmt"

	"github.com/tack-memory/tack-memory/gomem"
)

// ErrNotMacOS is why there are no Metal devices elsewhere.
var ErrNotMacOS = errors.New("macOS only")

// Codes of NSError that mean more than one failed command buffer (MTLCommandBufferError).
const (
	accessRevoked = 4  // after too many hangs macOS takes the device away from the process
	deviceRemoved = 11 // an external GPU was unplugged
)

// isNil is the name of the one failure that Metal explains no further: it returns no object.
const isNil = "nil"

// nothing is the error of a call that returned nil where an object was asked for.
func (d *Driver) nothing(m method, kind error) error {
	return &gomem.DriverError{Device: d.name, Call: methods[m].name, Name: isNil, Kind: kind}
}

// commandFailure is the error of a command buffer that did not complete.
func (d *Driver) commandFailure(code int) error {
	failed := &gomem.DriverError{Device: d.name, Call: methods[methodWaitUntilCompleted].name, Code: code}
	switch code {
	case accessRevoked:
		failed.Name, failed.Kind = "MTLCommandBufferErrorAccessRevoked", gomem.ErrLost
	case deviceRemoved:
		failed.Name, failed.Kind = "MTLCommandBufferErrorDeviceRemoved", gomem.ErrLost
	default:
		failed.Name = "MTLCommandBufferError"
	}
	return failed
}

// NotABufferError says that an address is not the beginning of a buffer that this device allocated and has not freed.
type NotABufferError struct {
	Device  string
	Address uint64
}

func (e *NotABufferError) Error() string {
	return fmt.Sprintf("%s: %#x is no buffer that was allocated here, or it was freed before", e.Device, e.Address)
}
