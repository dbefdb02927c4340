package cuda

// #include "device.h"
import "C"

import (
	"errors"
	"fmt"

	"github.com/tack-memory/tack-memory/gomem"
)

// ErrClosed is the error of an operation on a closed Driver.
var ErrClosed = errors.New("the device is closed")

// ErrCapturing says that a graph is being recorded from the device's stream. See CaptureError.
var ErrCapturing = errors.New("the stream is being captured into a graph")

// CaptureError says that an operation was refused because a graph is being recorded from its stream: what is queued then becomes part of
// the graph and does not run now, so memory can neither be made, nor moved, nor waited for. Nothing changed.
type CaptureError struct{ Cause *gomem.DriverError }

func (e *CaptureError) Error() string {
	return fmt.Sprintf("%s: the stream is being captured into a graph, and no memory can be allocated, spilled or restored on it until the "+
		"capture ends; make what the graph needs resident before the capture begins, and hold it (%s: %s)", e.Cause.Device, e.Cause.Call, e.Cause.Name)
}

// Unwrap gives errors.Is the sentinel and errors.As the vendor's error.
func (e *CaptureError) Unwrap() []error { return []error{ErrCapturing, e.Cause} }

// StartError says that the library is there but cannot be used, and what to do about it.
type StartError struct {
	Library string // the file
	Advice  string
	Cause   *gomem.DriverError
}

func (e *StartError) Error() string { return fmt.Sprintf("%s: %v: %s", e.Library, e.Cause, e.Advice) }

// Unwrap gives the vendor's error.
func (e *StartError) Unwrap() error { return e.Cause }

// startAdvice explains codes of cuInit that are about the machine's set-up.
var startAdvice = map[int]string{
	C.TMC_STUB_LIBRARY:                     "this is the toolkit's stub library, which only serves to link programs; let the dynamic linker find the driver's own libcuda.so.1, or name it in " + LibraryVariable,
	C.TMC_SYSTEM_NOT_READY:                 "the system is not ready for CUDA yet; on machines with NVSwitch, start nvidia-fabricmanager",
	C.TMC_SYSTEM_DRIVER_MISMATCH:           "the library and the kernel's driver are of different versions; reboot, or load the matching kernel module",
	C.TMC_COMPAT_NOT_SUPPORTED_ON_DEVICE:   "the forward compatibility library does not support this device; take it off LD_LIBRARY_PATH",
	3 /* CUDA_ERROR_NOT_INITIALIZED */ :    "this process was forked after CUDA was used; start workers with spawn or forkserver",
	999 /* CUDA_ERROR_UNKNOWN */ :          "the driver could not start; see whether nvidia-smi works, and whether /dev/nvidia* may be opened by this user",
	304 /* CUDA_ERROR_OPERATING_SYSTEM */ : "the operating system refused; see whether /dev/nvidia* may be opened by this user",
}

// kind is what a vendor's code means to the core.
func kind(code int) error {
	switch {
	case code == C.TMC_OUT_OF_MEMORY:
		return gomem.ErrOutOfMemory
	case bool(C.tmc_lost(C.int(code))):
		return gomem.ErrLost
	}
	return nil
}

// failure turns a status with a code into an error.
func (l *Library) failure(device string, status C.tmc_status) error {
	e := &gomem.DriverError{Device: device, Call: Symbols[status.call].Name, Code: int(status.code), Name: l.errorName(int(status.code)), Kind: kind(int(status.code))}
	if e.Code >= C.TMC_STREAM_CAPTURE_UNSUPPORTED && e.Code <= C.TMC_CAPTURED_EVENT {
		return &CaptureError{Cause: e}
	}
	return e
}

// errorName asks the library; "" where it has no name for the code.
func (l *Library) errorName(code int) string {
	name := C.tmc_error_name(l.api, C.int(code))
	if name == nil {
		return ""
	}
	return C.GoString(name)
}
