package hip

/*
#cgo CFLAGS: -std=gnu17 -Wall -Wextra
#include "api.h"
*/
import "C"

import (
	"fmt"
	"path/filepath"
	"unsafe"

	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/ordered"
	"github.com/tack-memory/tack-memory/gomem"
)

// Library is a loaded runtime library.
type Library = ordered.Library

// LibraryVariable is the environment variable that names another library to load.
const LibraryVariable = "TACK_MEMORY_HIP_LIBRARY"

// fileNames are the library's, newest first: it is named by the major version of ROCm, and there is none without a number on a machine that
// does not compile for HIP.
var fileNames = []string{"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"}

// Candidates is where the runtime's library is looked for. A library named in the environment is the only one: who names one does not want
// another in its place. Otherwise a copy that the process has loaded already (PyTorch's) is shared, whatever its version: a second runtime in
// one process would not know the first one's streams and memory. Then come the dynamic linker's own places, and ROCm's folder.
func Candidates() []dl.Candidate {
	if named, set := dl.Environment(LibraryVariable); set && named != "" {
		return []dl.Candidate{{Name: named}}
	}
	var candidates []dl.Candidate
	for _, loaded := range []bool{true, false} {
		for _, name := range fileNames {
			candidates = append(candidates, dl.Candidate{Name: name, OnlyLoaded: loaded})
		}
	}
	if folder, set := dl.Environment("ROCM_PATH"); set && folder != "" {
		candidates = append(candidates, dl.Candidate{Name: filepath.Join(folder, "lib", "libamdhip64.so")})
	}
	return append(candidates, dl.Candidate{Name: "/opt/rocm/lib/libamdhip64.so"})
}

// Load opens the first usable candidate. It calls nothing in it yet. The error is a *dl.LoadError.
func Load(loader dl.Loader, candidates []dl.Candidate) (*Library, error) {
	return ordered.Load(&vendor, loader, candidates)
}

var vendor = ordered.Vendor{
	Name:                "HIP",
	Kind:                "hip",
	Functions:           unsafe.Pointer(&C.tmh_vendor),
	Symbols:             Symbols,
	PoolSymbols:         symbolsFor(C.TMH_NEED_POOLS),
	PoolsCaveat:         "AMD calls memory pools beta, and frees that never return were reported",
	VersionText:         versionText,
	Advice:              startAdvice,
	Plain:               gomem.HowHIP,
	Ordered:             gomem.HowHIPAsync,
	AllocateCall:        "hipMalloc",
	AllocateOrderedCall: "hipMallocFromPoolAsync",
	FullCode:            C.TMH_OUT_OF_MEMORY,
	FullName:            "hipErrorOutOfMemory",
}

// versionText writes 50221153 as 5.2.21153.
func versionText(version int) string {
	return fmt.Sprintf("%d.%d.%d", version/10_000_000, version/100_000%100, version%100_000)
}

// startAdvice explains codes of hipInit that are about the machine's set-up.
var startAdvice = map[int]string{
	C.TMH_INSUFFICIENT_DRIVER: "the kernel's amdgpu driver is older than this library; update it, or install the ROCm that fits it",
	C.TMH_NOT_INITIALIZED:     "this process was forked after HIP was used; start workers with spawn or forkserver",
	C.TMH_OPERATING_SYSTEM:    "the operating system refused; see whether /dev/kfd and /dev/dri/render* may be opened by this user (groups render and video)",
	C.TMH_UNKNOWN:             "the runtime could not start; see whether rocminfo works, and whether /dev/kfd and /dev/dri/render* may be opened by this user (groups render and video)",
}
