package cuda

/*
#cgo CFLAGS: -std=gnu17 -Wall -Wextra
#include "api.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/tack-memory/tack-memory/backends/common"
	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/ordered"
	"github.com/tack-memory/tack-memory/backends/softdriver"
	"github.com/tack-memory/tack-memory/gomem"
)

// What this package works with is that of packages all vendors share.
type (
	Library      = ordered.Library      // a loaded driver library
	Driver       = ordered.Driver       // one device
	Facts        = ordered.Facts        // the properties of one device
	StartError   = common.StartError    // the library is there but cannot be used
	CaptureError = ordered.CaptureError // refused while a graph is recorded
	Software     = softdriver.Control   // the controls of a software driver
)

// Sentinels, see packages common and ordered.
var (
	ErrClosed    = common.ErrClosed
	ErrCapturing = ordered.ErrCapturing
)

// LibraryVariable is the environment variable that names another library to load.
const LibraryVariable = "TACK_MEMORY_CUDA_LIBRARY"

// Candidates is where the driver's library is looked for. A library named in the environment is the only one: who names one does not
// want another in its place. Otherwise a copy that the process has loaded already (PyTorch's) is shared.
func Candidates() []dl.Candidate {
	if named, set := dl.Environment(LibraryVariable); set && named != "" {
		return []dl.Candidate{{Name: named}}
	}
	const name = "libcuda.so.1"
	return []dl.Candidate{
		{Name: name, OnlyLoaded: true},
		{Name: name},
		{Name: "/usr/lib/wsl/lib/libcuda.so.1"}, // Windows' driver as Linux under WSL sees it; not always on the linker's path
	}
}

// Load opens the first usable candidate. It calls nothing in the last one yet; one before it is passed over when it starts as the toolkit's stub does,
// which has all functions and no driver. The error is a *dl.LoadError.
func Load(loader dl.Loader, candidates []dl.Candidate) (*Library, error) {
	failed := &dl.LoadError{}
	var stub *Library
	for i := range candidates {
		found, err := ordered.Load(&vendor, loader, candidates[i:i+1])
		var attempt *dl.LoadError
		switch {
		case errors.As(err, &attempt):
			failed.Attempts = append(failed.Attempts, attempt.Attempts...)
		case err != nil:
			return nil, err
		case i == len(candidates)-1 || !isStub(found):
			if stub != nil && isStub(found) {
				return stub, nil
			}
			return found, nil
		case stub == nil:
			stub = found
		}
	}
	if stub != nil {
		return stub, nil // its start says what it is
	}
	return nil, failed
}

func isStub(found *Library) bool {
	_, err := found.Count()
	var start *StartError
	return errors.As(err, &start) && start.Cause.Code == C.TMC_STUB_LIBRARY
}

var vendor = ordered.Vendor{
	Name:                "CUDA",
	Kind:                "cuda",
	Functions:           unsafe.Pointer(&C.tmc_vendor),
	Symbols:             Symbols,
	PoolSymbols:         symbolsFor(C.TMC_NEED_POOLS),
	VersionText:         func(version int) string { return fmt.Sprintf("%d.%d", version/1000, version%1000/10) },
	Advice:              startAdvice,
	Plain:               gomem.HowCUDA,
	Ordered:             gomem.HowCUDAAsync,
	AllocateCall:        "cuMemAlloc_v2",
	AllocateOrderedCall: "cuMemAllocFromPoolAsync",
	FullCode:            C.TMC_OUT_OF_MEMORY,
	FullName:            "CUDA_ERROR_OUT_OF_MEMORY",
}

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
