package levelzero

// #include "device.h"
import "C"

import (
	"errors"
	"fmt"

	"github.com/tack-memory/tack-memory/backends/common"
	"github.com/tack-memory/tack-memory/gomem"
)

// ErrClosed is the error of an operation on a closed Driver.
var ErrClosed = common.ErrClosed

// ErrOutOfHostMemory says that the library, or this package, got no host memory. Freeing device memory does not help.
var ErrOutOfHostMemory = errors.New("out of host memory")

// StartError says that the loader is there but cannot be used, and what to do about it.
type StartError = common.StartError

// CapacityError says that an allocation was refused because the device's memory is promised already. The driver itself would have said
// yes, and the work that uses the memory would have failed. It wraps the error that the driver should have given, and so gomem.ErrOutOfMemory.
// Figures are bytes.
type CapacityError struct {
	Device    string
	Requested uint64
	Total     uint64
	Held      uint64 // by live blocks of ours
	Pending   uint64 // by blocks that were freed and are not known to be back
	Others    int64  // by others; gomem.Unknown where no figure tells
}

func (e *CapacityError) Error() string {
	others := "what others use is not known"
	if e.Others != gomem.Unknown {
		others = gomem.SizeText(uint64(e.Others)) + " used by others"
	}
	return fmt.Sprintf("%s: no room for %s: of %s, %s allocated, %s being freed, %s",
		e.Device, gomem.SizeText(e.Requested), gomem.SizeText(e.Total), gomem.SizeText(e.Held), gomem.SizeText(e.Pending), others)
}

// Unwrap gives the error that the driver should have given.
func (e *CapacityError) Unwrap() error {
	return failure(e.Device, C.tml_status{code: C.TML_OUT_OF_DEVICE_MEMORY, call: C.TML_CALL_zeMemAllocDevice})
}

// ContextError says that a host framework's context was refused because memory lies in another one of a host's. Memory is found, moved and freed in
// its context, and the device knows two: its own, and one of a host's.
type ContextError struct {
	Device string
	Blocks uint64 // that lie in the other context
}

func (e *ContextError) Error() string {
	return fmt.Sprintf("%s: another Level Zero context of a host framework is in use: %d blocks of memory lie in it; free them, or unplug that framework, before this one is used",
		e.Device, e.Blocks)
}

// names of the vendor's codes; the library tells none.
var names = map[C.uint32_t]string{
	C.TML_NOT_READY:                 "ZE_RESULT_NOT_READY",
	C.TML_DEVICE_LOST:               "ZE_RESULT_ERROR_DEVICE_LOST",
	C.TML_OUT_OF_HOST_MEMORY:        "ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY",
	C.TML_OUT_OF_DEVICE_MEMORY:      "ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
	C.TML_DEVICE_REQUIRES_RESET:     "ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET",
	0x70000007:                      "ZE_RESULT_ERROR_DEVICE_IN_LOW_POWER_STATE",
	C.TML_INSUFFICIENT_PERMISSIONS:  "ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS",
	C.TML_NOT_AVAILABLE:             "ZE_RESULT_ERROR_NOT_AVAILABLE",
	C.TML_DEPENDENCY_UNAVAILABLE:    "ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE",
	C.TML_UNINITIALIZED:             "ZE_RESULT_ERROR_UNINITIALIZED",
	C.TML_UNSUPPORTED_VERSION:       "ZE_RESULT_ERROR_UNSUPPORTED_VERSION",
	C.TML_UNSUPPORTED_FEATURE:       "ZE_RESULT_ERROR_UNSUPPORTED_FEATURE",
	C.TML_INVALID_ARGUMENT:          "ZE_RESULT_ERROR_INVALID_ARGUMENT",
	C.TML_INVALID_NULL_HANDLE:       "ZE_RESULT_ERROR_INVALID_NULL_HANDLE",
	0x78000006:                      "ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE",
	C.TML_INVALID_NULL_POINTER:      "ZE_RESULT_ERROR_INVALID_NULL_POINTER",
	0x78000008:                      "ZE_RESULT_ERROR_INVALID_SIZE",
	C.TML_UNSUPPORTED_SIZE:          "ZE_RESULT_ERROR_UNSUPPORTED_SIZE",
	0x7800000a:                      "ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT",
	0x7800000b:                      "ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT",
	C.TML_INVALID_ENUMERATION:       "ZE_RESULT_ERROR_INVALID_ENUMERATION",
	C.TML_UNSUPPORTED_ENUMERATION:   "ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION",
	C.TML_INVALID_COMMAND_LIST_TYPE: "ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE",
	0x7800001a:                      "ZE_RESULT_ERROR_OVERLAPPING_REGIONS",
	C.TML_SURVIVABILITY_MODE:        "ZE_RESULT_ERROR_SURVIVABILITY_MODE_DETECTED",
	0x7ffffffe:                      "ZE_RESULT_ERROR_UNKNOWN",
}

// startAdvice explains codes of a start that are about the machine's set-up.
var startAdvice = map[C.uint32_t]string{
	C.TML_DEPENDENCY_UNAVAILABLE: "the driver misses a library that it needs; install the whole of Intel's compute runtime (libze-intel-gpu1 or intel-level-zero-gpu, " +
		"libigdgmm, intel-igc), and unset ZET_ENABLE_METRICS where the metrics library is not installed",
	C.TML_INSUFFICIENT_PERMISSIONS: "this user may not open the device; add the user to the group that owns /dev/dri/renderD* (render or video)",
	C.TML_OUT_OF_HOST_MEMORY:       "the driver got no host memory to start with; raise the limit of memory of this process or container",
	C.TML_DEVICE_REQUIRES_RESET:    "the device hangs; reset it, or reboot",
	C.TML_SURVIVABILITY_MODE:       "the device's firmware is broken; update it",
}

// kind is what a vendor's code means to the core.
func kind(status C.tml_status) error {
	switch {
	case status.code == C.TML_OUT_OF_DEVICE_MEMORY:
		return gomem.ErrOutOfMemory
	case status.code == C.TML_OUT_OF_HOST_MEMORY:
		return ErrOutOfHostMemory
	case status.code == C.TML_UNSUPPORTED_SIZE && status.call == C.TML_CALL_zeMemAllocDevice:
		return gomem.ErrTooLarge // a limit for one allocation, whatever is free
	case bool(C.tml_lost(status.code)):
		return gomem.ErrLost
	case invalid[status.code] && aboutLists[status.call]:
		return gomem.ErrInvalidHandle
	}
	return nil
}

// What says that a handle of a host's is none. A driver need not notice that, and then follows whatever it is.
var (
	invalid    = map[C.uint32_t]bool{C.TML_INVALID_ARGUMENT: true, C.TML_INVALID_NULL_HANDLE: true, C.TML_INVALID_COMMAND_LIST_TYPE: true}
	aboutLists = map[C.int32_t]bool{C.TML_CALL_zeCommandListHostSynchronize: true, C.TML_CALL_zeCommandListIsImmediate: true,
		C.TML_CALL_zeCommandListGetContextHandle: true}
)

// listFailure is failure for an operation that was given a host's command list.
func listFailure(device string, status C.tml_status) error {
	failed := failure(device, status)
	if status.code == C.TML_UNSUPPORTED_FEATURE && aboutLists[status.call] {
		return fmt.Errorf("%w; a host framework's command list can be used from version 1.6 of Level Zero on (version 1.11 of the loader, and a driver of that age)", failed)
	}
	return failed
}

// failure turns a status with a code into an error.
func failure(device string, status C.tml_status) *gomem.DriverError {
	return &gomem.DriverError{Device: device, Call: Symbols[status.call].Name, Code: int(status.code), Name: names[status.code], Kind: kind(status)}
}
