package cuda

// #include "device.h"
// #include <stdlib.h>
import "C"

import (
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/gomem"
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

// Library is a loaded driver library. It stays loaded until the process ends: the driver has threads of its own.
type Library struct {
	file    *dl.Library
	api     *C.tmc_api
	pools   bool // it has the functions of memory pools
	starter sync.Mutex
	started bool // guarded by starter: cuInit succeeded
	version int  // guarded by starter
	empty   bool // guarded by starter: cuInit said that there is no device
}

// Load opens the first usable candidate. It calls nothing in it yet. The error is a *dl.LoadError.
func Load(loader dl.Loader, candidates []dl.Candidate) (*Library, error) {
	file, err := dl.Open(loader, candidates, Symbols)
	if err != nil {
		return nil, err
	}
	api := (*C.tmc_api)(C.calloc(1, C.sizeof_tmc_api))
	if api == nil {
		return nil, errors.Join(errors.New("no host memory for the table of functions"), file.Close())
	}
	functions := unsafe.Slice((*uintptr)(unsafe.Pointer(api)), len(Symbols))
	for i := range functions {
		functions[i] = file.Address(i)
	}
	return &Library{file: file, api: api, pools: hasPools(file)}, nil
}

// Path is the library's file.
func (l *Library) Path() string { return l.file.Path() }

// Shared says that the process had the library loaded before.
func (l *Library) Shared() bool { return l.file.Shared() }

// Missing lists functions that the library does not have, and so what does not work.
func (l *Library) Missing() []dl.Symbol { return l.file.Missing() }

// start initialises the driver, once. A failure is not remembered: the next call tries again.
func (l *Library) start() error {
	l.starter.Lock()
	defer l.starter.Unlock()
	if l.started {
		return nil
	}
	var version C.int
	status := C.tmc_init(l.api, &version)
	switch {
	case status.code == C.TMC_NO_DEVICE:
		l.empty = true
	case status.code != 0:
		err := l.failure("cuda", status)
		var failed *gomem.DriverError
		if advice := startAdvice[int(status.code)]; advice != "" && errors.As(err, &failed) {
			return &StartError{Library: l.Path(), Advice: advice, Cause: failed}
		}
		return fmt.Errorf("%s: %w", l.Path(), err)
	}
	l.started, l.version = true, int(version)
	return nil
}

// Version is the newest CUDA version that the driver supports, 12040 for 12.4; 0 before the driver has started.
func (l *Library) Version() int {
	l.starter.Lock()
	defer l.starter.Unlock()
	return l.version
}

// VersionText is Version for people, "12.4"; "" before the driver has started.
func (l *Library) VersionText() string {
	version := l.Version()
	if version == 0 {
		return ""
	}
	return fmt.Sprintf("%d.%d", version/1000, version%1000/10)
}

// Count is the number of devices. A driver without any is not an error. The driver itself honours CUDA_VISIBLE_DEVICES, MIG instances
// included: what it hides is not counted.
func (l *Library) Count() (int, error) {
	if err := l.start(); err != nil {
		return 0, err
	}
	if l.empty {
		return 0, nil
	}
	var count C.int
	if status := C.tmc_count(l.api, &count); status.code != 0 {
		if status.code == C.TMC_NO_DEVICE {
			return 0, nil
		}
		return 0, l.failure("cuda", status)
	}
	return int(count), nil
}

// Facts are the properties of one device.
type Facts struct {
	Name       string // the vendor's name of the product
	UUID       string // "GPU-…", or "MIG-…" for a part of one; "" where the driver cannot tell
	Total      uint64 // bytes
	Pools      bool   // memory pools and frees in stream order
	Integrated bool   // its memory is the host's: spilling would gain nothing
	device     C.CUdevice
}

// Facts asks for a device's properties. It makes no context on the device.
func (l *Library) Facts(device string, ordinal int) (Facts, error) {
	if err := l.start(); err != nil {
		return Facts{}, err
	}
	var c C.tmc_facts
	if status := C.tmc_ask(l.api, C.int(ordinal), &c); status.code != 0 {
		return Facts{}, l.failure(device, status)
	}
	facts := Facts{Name: C.GoString(&c.name[0]), Total: uint64(c.total), Pools: l.pools && c.pools != 0, Integrated: c.integrated != 0, device: c.device}
	if c.has_uuid {
		kind := "GPU-"
		if c.partition {
			kind = "MIG-"
		}
		text := hex.EncodeToString(C.GoBytes(unsafe.Pointer(&c.uuid[0]), C.int(len(c.uuid))))
		facts.UUID = kind + text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
	}
	return facts, nil
}
