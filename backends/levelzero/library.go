package levelzero

// #include "device.h"
// #include <stdlib.h>
import "C"

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/tack-memory/tack-memory/backends/common"
	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/softdriver"
)

// LibraryVariable is the environment variable that names another loader to load.
const LibraryVariable = "TACK_MEMORY_LEVEL_ZERO_LIBRARY"

// sysmanVariable makes Sysman's handles those of the core interface, in a way that does not go together with zesInit: where it is set,
// Sysman is left alone.
const sysmanVariable = "ZES_ENABLE_SYSMAN"

// Candidates is where the loader is looked for. A library named in the environment is the only one: who names one does not want another
// in its place. Otherwise a copy that the process has loaded already (PyTorch's) is shared.
func Candidates() []dl.Candidate {
	if named, set := dl.Environment(LibraryVariable); set && named != "" {
		return []dl.Candidate{{Name: named}}
	}
	const name = "libze_loader.so.1"
	return []dl.Candidate{{Name: name, OnlyLoaded: true}, {Name: name}}
}

// Library is a loaded loader. It stays loaded until the process ends: drivers have threads of their own.
type Library struct {
	file    *dl.Library
	api     *C.tml_api
	starter sync.Mutex
	started bool          // guarded by starter: the drivers were asked
	devices []C.tml_found // guarded by starter
	skipped error         // guarded by starter: why a driver's devices are not among them
}

// Load opens the first usable candidate. It calls nothing in it yet. The error is a *dl.LoadError.
func Load(loader dl.Loader, candidates []dl.Candidate) (*Library, error) {
	file, err := dl.Open(loader, candidates, dl.API{Name: "Level Zero", Symbols: Symbols, VersionText: specificationText})
	if err != nil {
		return nil, err
	}
	api := (*C.tml_api)(C.calloc(1, C.sizeof_tml_api))
	if api == nil {
		return nil, errors.Join(errors.New("no host memory for the table of functions"), file.Close())
	}
	functions := unsafe.Slice((*uintptr)(unsafe.Pointer(api)), len(Symbols))
	for i := range functions {
		functions[i] = file.Address(i)
	}
	return &Library{file: file, api: api}, nil
}

// Path is the loader's file.
func (l *Library) Path() string { return l.file.Path() }

// Shared says that the process had the loader loaded before.
func (l *Library) Shared() bool { return l.file.Shared() }

// Missing lists functions that the loader does not have, and so what does not work.
func (l *Library) Missing() []dl.Symbol { return l.file.Missing() }

// Software returns the control of the software driver, or nil where the library is a real loader.
func (l *Library) Software() *softdriver.Control { return softdriver.Of(l.file) }

// start finds the devices of all drivers, once. A failure is not remembered: the next call tries again.
func (l *Library) start() error {
	l.starter.Lock()
	defer l.starter.Unlock()
	if l.started {
		return nil
	}
	var list C.tml_list
	status := C.tml_find(l.api, &list)
	defer C.free(unsafe.Pointer(list.devices))
	if status.code == 0 && list.count == 0 {
		status = list.skipped // no driver has a device that could be used, and one says why
	}
	if status.code != 0 {
		return l.startError(status)
	}
	l.devices = append([]C.tml_found(nil), unsafe.Slice(list.devices, int(list.count))...)
	if list.skipped.code != 0 {
		l.skipped = l.startError(list.skipped)
	}
	l.started = true
	return nil
}

func (l *Library) startError(status C.tml_status) error {
	failed := failure("level_zero", status)
	if advice := startAdvice[status.code]; advice != "" {
		return &common.StartError{Library: l.Path(), Advice: advice, Cause: failed}
	}
	return fmt.Errorf("%s: %w", l.Path(), failed)
}

// Skipped says why the devices of one of several drivers are not counted; nil where all are.
func (l *Library) Skipped() error {
	l.starter.Lock()
	defer l.starter.Unlock()
	return l.skipped
}

// VersionText is the version of the interface that the first device's driver has, "1.13"; "" before the start and without devices.
func (l *Library) VersionText() string {
	l.starter.Lock()
	defer l.starter.Unlock()
	if len(l.devices) == 0 {
		return ""
	}
	return versionText(uint32(l.devices[0].version))
}

// LoaderVersion is the loader's own version, "1.8.12"; "" before the start, and where it does not tell.
func (l *Library) LoaderVersion() string {
	l.starter.Lock()
	defer l.starter.Unlock()
	function := l.file.Lookup("zelLoaderGetVersions")
	var version C.tml_version
	if !l.started || function == 0 || !bool(C.tml_loader_version(C.uintptr_t(function), &version)) {
		return ""
	}
	return fmt.Sprintf("%d.%d.%d", version.major, version.minor, version.patch)
}

// specificationText writes a version of the specification as Symbols has it: 1006 is 1.6.
func specificationText(version int) string { return fmt.Sprintf("%d.%d", version/1000, version%1000) }

func versionText(version uint32) string { return fmt.Sprintf("%d.%d", version>>16, version&0xffff) }

// Count is the number of GPUs, of all drivers. A loader without any is not an error: it finds no driver, or none finds a device. The
// drivers themselves honour ZE_AFFINITY_MASK: what it hides is not counted.
func (l *Library) Count() (int, error) {
	if err := l.start(); err != nil {
		return 0, err
	}
	l.starter.Lock()
	defer l.starter.Unlock()
	return len(l.devices), nil
}

// Source is where the figure of a device's free memory comes from.
type Source string

// The sources, best first.
const (
	SourceSysman     Source = "Sysman"
	SourceUsableSize Source = "the driver's figure of usable memory"
	SourceNone       Source = ""
)

// Facts are the properties of one device.
type Facts struct {
	Name           string // the vendor's name of the product
	UUID           string
	Version        string // of the interface that its driver has, "1.13"
	Total          uint64 // bytes; 0: the device does not tell
	Largest        uint64 // bytes of one allocation; a kernel that uses a larger one has to be built for that
	LargerPossible bool   // the driver makes larger ones all the same
	Integrated     bool   // its memory is the host's: spilling would gain nothing
	InOrder        bool   // the driver has in-order command lists; else a queue with barriers is used
	DefersFrees    bool   // the driver frees memory after the commands that use it; else a list of ours does
	Free           Source // of the figure of free memory
	FreeWhy        string // why it is not Sysman; "" where it is
	found          C.tml_found
	c              C.tml_facts
}

// Facts asks for a device's properties. It makes no context on the device.
func (l *Library) Facts(device string, ordinal int) (Facts, error) {
	facts, err := l.facts(device, ordinal)
	if err != nil {
		return Facts{}, err
	}
	c := C.tml_new(l.api, facts.found, &facts.c, C.bool(sysmanAllowed()))
	if c == nil {
		return Facts{}, fmt.Errorf("%s: no host memory for the device", device)
	}
	defer C.tml_delete(c)
	if err := l.askFree(device, c, &facts); err != nil {
		return Facts{}, err
	}
	return facts, nil
}

func (l *Library) facts(device string, ordinal int) (Facts, error) {
	count, err := l.Count()
	if err != nil {
		return Facts{}, err
	}
	if ordinal < 0 || ordinal >= count {
		return Facts{}, fmt.Errorf("%s: there is no such device; there are %d", device, count)
	}
	l.starter.Lock()
	found := l.devices[ordinal]
	l.starter.Unlock()
	var c C.tml_facts
	if status := C.tml_ask(l.api, found, &c); status.code != 0 {
		return Facts{}, failure(device, status)
	}
	return Facts{Name: C.GoString(&c.name[0]), UUID: uuidText(c.uuid), Version: versionText(uint32(found.version)), Total: uint64(c.total),
		Largest: uint64(c.largest), LargerPossible: c.relaxed != 0, Integrated: bool(c.integrated), InOrder: bool(c.in_order),
		DefersFrees: bool(c.defers_frees), found: found, c: c}, nil
}

// other is which device a handle is, where it is another one than ours. One that is not listed may be a part of ours (a tile), and none is what a driver
// gives that does not tell: then it is not known to be another.
func (l *Library) other(device, ours C.ze_device_handle_t) (ordinal int, other bool) {
	l.starter.Lock()
	defer l.starter.Unlock()
	ordinal = slices.IndexFunc(l.devices, func(found C.tml_found) bool { return found.device == device })
	return ordinal, ordinal >= 0 && device != ours
}

// askFree completes the facts with where the figure of free memory comes from.
func (l *Library) askFree(device string, c *C.tml_device, facts *Facts) error {
	figure := C.tml_memory(c)
	if bool(C.tml_lost(figure.status.code)) {
		return failure(device, figure.status)
	}
	facts.Free = sources[figure.source]
	if facts.Free != SourceSysman {
		facts.FreeWhy = whyNotSysman(device, figure)
	}
	return nil
}

var sources = map[uint32]Source{C.TML_SOURCE_SYSMAN: SourceSysman, C.TML_SOURCE_USABLE_SIZE: SourceUsableSize}

// sysmanAdvice is what to do where Sysman refuses.
var sysmanAdvice = map[C.uint32_t]string{
	C.TML_INSUFFICIENT_PERMISSIONS: "; run as a user that may read it: root, or a member of the group that owns /dev/dri/renderD* (render or video)",
	C.TML_DEPENDENCY_UNAVAILABLE:   "; install the libraries that Sysman needs: the whole of Intel's compute runtime, with what its packages recommend",
}

// whyNotSysman explains why Sysman gave no figure.
func whyNotSysman(device string, figure C.tml_figure) string {
	switch {
	case figure.status.code != 0:
		return failure(device, figure.status).Error()
	case figure.answer == C.TML_ANSWER_FORBIDDEN:
		return sysmanVariable + " is set, which does not go together with the way Sysman is used here; unset it"
	case figure.answer == C.TML_ANSWER_OLD:
		return "the loader is too old to have all of Sysman; version 1.9 or newer of the loader is needed"
	case figure.answer == C.TML_ANSWER_REFUSED:
		return failure(device, figure.why).Error() + sysmanAdvice[figure.why.code]
	}
	return "Sysman knows no memory of this device"
}

// sysmanAllowed reports whether Sysman may be started with zesInit in this process.
func sysmanAllowed() bool {
	value, set := dl.Environment(sysmanVariable)
	return !set || value == "" || value == "0"
}

func uuidText(uuid [16]C.uint8_t) string {
	text := hex.EncodeToString(C.GoBytes(unsafe.Pointer(&uuid[0]), C.int(len(uuid))))
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}
