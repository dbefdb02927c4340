package ordered

/*
#include "device.h"
#include <stdlib.h>

static tmo_status tmo_init(const tmo_vendor *v, const void *api, int *version) { return v->init(api, version); }
static tmo_status tmo_count(const tmo_vendor *v, const void *api, int *count) { return v->count(api, count); }
static tmo_status tmo_ask(const tmo_vendor *v, const void *api, int ordinal, tmo_facts *facts) {
	*facts = (tmo_facts){ 0 };
	return v->ask(api, ordinal, facts);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tack-memory/tack-memory/backends/common"
	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/softdriver"
	"github.com/tack-memory/tack-memory/gomem"
)

// Library is a loaded driver library. It stays loaded until the process ends: the driver has threads of its own.
type Library struct {
	vendor    *Vendor
	functions *C.tmo_vendor
	file      *dl.Library
	api       *uintptr    // the library's functions, in C's memory, parallel to vendor.Symbols; 0 where it has none
	pools     bool        // it has the functions of memory pools
	noPools   atomic.Bool // AllowPools(false)
	starter   sync.Mutex
	started   bool // guarded by starter: the library is initialised
	version   int  // guarded by starter
	empty     bool // guarded by starter: the library said that there is no device
}

// Load opens the first usable candidate. It calls nothing in it yet. The error is a *dl.LoadError.
func Load(vendor *Vendor, loader dl.Loader, candidates []dl.Candidate) (*Library, error) {
	file, err := dl.Open(loader, candidates, dl.API{Name: vendor.Name, Symbols: vendor.Symbols, VersionText: vendor.VersionText})
	if err != nil {
		return nil, err
	}
	api := (*uintptr)(C.calloc(C.size_t(len(vendor.Symbols)), C.sizeof_uintptr_t))
	if api == nil {
		return nil, errors.Join(errors.New("no host memory for the table of functions"), file.Close())
	}
	for i, functions := 0, unsafe.Slice(api, len(vendor.Symbols)); i < len(functions); i++ {
		functions[i] = file.Address(i)
	}
	pools := true
	for _, i := range vendor.PoolSymbols {
		pools = pools && file.Address(i) != 0
	}
	return &Library{vendor: vendor, functions: (*C.tmo_vendor)(vendor.Functions), file: file, api: api, pools: pools}, nil
}

// Path is the library's file.
func (l *Library) Path() string { return l.file.Path() }

// Shared says that the process had the library loaded before.
func (l *Library) Shared() bool { return l.file.Shared() }

// Missing lists functions that the library does not have, and so what does not work.
func (l *Library) Missing() []dl.Symbol { return l.file.Missing() }

// AllowPools says whether devices that are opened from now on may use memory pools. Without them allocations and frees are the vendor's plain
// ones: slower, and a way out where a driver's pools do not work.
func (l *Library) AllowPools(allowed bool) { l.noPools.Store(!allowed) }

// PoolsCaveat is what is known to go wrong with the vendor's memory pools, for people; "" where nothing is.
func (l *Library) PoolsCaveat() string { return l.vendor.PoolsCaveat }

// Software returns the control of the software driver, or nil where the library is a real one.
func (l *Library) Software() *softdriver.Control { return softdriver.Of(l.file) }

// start initialises the library, once. A failure is not remembered: the next call tries again.
func (l *Library) start() error {
	l.starter.Lock()
	defer l.starter.Unlock()
	if l.started {
		return nil
	}
	var version C.int
	status := C.tmo_init(l.functions, unsafe.Pointer(l.api), &version)
	switch {
	case status.code == 0:
	case l.meaning(status) == C.TMO_NO_DEVICE:
		l.empty = true
	default:
		err := l.failure(l.vendor.Kind, status)
		var failed *gomem.DriverError
		if advice := l.vendor.Advice[int(status.code)]; advice != "" && errors.As(err, &failed) {
			return &common.StartError{Library: l.Path(), Advice: advice, Cause: failed}
		}
		return fmt.Errorf("%s: %w", l.Path(), err)
	}
	l.started, l.version = true, int(version)
	return nil
}

// Version is the version that the library says it is of, in the vendor's own numbering; 0 before it has started.
func (l *Library) Version() int {
	l.starter.Lock()
	defer l.starter.Unlock()
	return l.version
}

// VersionText is Version for people, "12.4"; "" before the library has started.
func (l *Library) VersionText() string {
	version := l.Version()
	if version == 0 {
		return ""
	}
	return l.vendor.VersionText(version)
}

// Count is the number of devices. A library without any is not an error. The library itself honours the vendor's variables of the
// environment (CUDA_VISIBLE_DEVICES): what it hides is not counted.
func (l *Library) Count() (int, error) {
	if err := l.start(); err != nil {
		return 0, err
	}
	l.starter.Lock()
	empty := l.empty
	l.starter.Unlock()
	if empty {
		return 0, nil
	}
	var count C.int
	if status := C.tmo_count(l.functions, unsafe.Pointer(l.api), &count); status.code != 0 {
		if l.meaning(status) == C.TMO_NO_DEVICE {
			return 0, nil
		}
		return 0, l.failure(l.vendor.Kind, status)
	}
	return int(count), nil
}

// Facts are the properties of one device.
type Facts struct {
	Name       string // the vendor's name of the product
	UUID       string // with the vendor's prefix, "GPU-…"; "" where the library cannot tell
	Total      uint64 // bytes
	Pools      bool   // memory pools and frees in stream order
	Integrated bool   // its memory is the host's: spilling would gain nothing
	device     int    // what the library calls it
}

// Facts asks for a device's properties. It makes no context on the device.
func (l *Library) Facts(device string, ordinal int) (Facts, error) {
	if err := l.start(); err != nil {
		return Facts{}, err
	}
	var c C.tmo_facts
	if status := C.tmo_ask(l.functions, unsafe.Pointer(l.api), C.int(ordinal), &c); status.code != 0 {
		return Facts{}, l.failure(device, status)
	}
	return Facts{Name: C.GoString(&c.name[0]), UUID: C.GoString(&c.uuid[0]), Total: uint64(c.total), Pools: l.pools && bool(c.pools) && !l.noPools.Load(),
		Integrated: bool(c.integrated), device: int(c.device)}, nil
}
