// Package wire is what crosses from Go to Python as data, for both ways there are: the control plane (package bindings) and the fast lane (package
// bindings/fast). Which exception an error becomes, and which fields it has, is decided here and nowhere else; the two ways differ only in
// how they carry it.
package wire

import (
	"errors"
	"fmt"

	"github.com/tack-memory/tack-memory/backends/ordered"
	"github.com/tack-memory/tack-memory/bindings/internal/engine"
	"github.com/tack-memory/tack-memory/gomem"
)

// Kind says what an error is to Python. The control plane sends it as it is (tack_memory's _errors.py knows all of them), the fast lane as
// enum tm_code.
type Kind string

// The kinds, and the exceptions that they become.
const (
	Collect   Kind = "collect"   // none: C collects garbage and asks again
	Relieve   Kind = "relieve"   // none: C also empties the host's caches and asks again
	Cancelled Kind = "cancelled" // KeyboardInterrupt
	Memory    Kind = "memory"    // DeviceMemoryError, with Fields
	Lost      Kind = "lost"      // DeviceLostError: the driver reports it lost, or a panic broke it
	Busy      Kind = "busy"      // BufferError
	Overlap   Kind = "overlap"   // ValueError
	Freed     Kind = "freed"     // ValueError
	Value     Kind = "value"     // ValueError
	Capture   Kind = "capture"   // StreamCaptureError
	Failed    Kind = "failed"    // RuntimeError: a call of the driver, or an error of ours
)

// ValueError is a wrong argument that only the bindings can see.
type ValueError struct{ Text string }

func (e ValueError) Error() string { return e.Text }

// KindOf is the one table from Go's errors to Python's.
func KindOf(err error) Kind {
	switch {
	case errors.Is(err, gomem.ErrCollect):
		return Collect
	case errors.Is(err, gomem.ErrRelieve):
		return Relieve
	case errors.Is(err, gomem.ErrCancelled):
		return Cancelled
	case is[*gomem.LostError](err), is[*gomem.BrokenError](err), errors.Is(err, gomem.ErrLost):
		return Lost
	case is[*gomem.MemoryError](err), is[*gomem.HostMemoryError](err):
		return Memory
	case is[*gomem.BusyError](err):
		return Busy
	case is[*gomem.OverlapError](err):
		return Overlap
	case errors.Is(err, gomem.ErrFreed):
		return Freed
	case is[*gomem.RangeError](err), is[*gomem.HowError](err), is[*gomem.BlockError](err), is[*gomem.StreamError](err), is[*engine.UnknownDeviceError](err), is[ValueError](err):
		return Value
	case is[*ordered.CaptureError](err):
		return Capture
	}
	return Failed
}

func is[T error](err error) bool {
	var target T
	return errors.As(err, &target)
}

// Panic makes an error of what recover returned, where the panic was not in a call on a device (those break the device: gomem.BrokenError).
func Panic(reason any) error { return fmt.Errorf("panic in the Go core: %v", reason) }
