package conformance

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/levelzero"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

var levelZeroVendor = vendor{
	abi:     soft.LevelZero,
	symbols: levelzero.Symbols,
	load:    loadLevelZero,
	host:    newLevelZeroHost,
	prepare: func(t testing.TB, file string) { levelZeroHost{Host: soft.NewHost(t, file), t: t}.start(file) },
	plain:   gomem.HowLevelZero,
	mask:    "ZE_AFFINITY_MASK",
	codes:   codes{other: 0x7ffffffe, full: 0x70000003, refused: 0x78000004, lost: 0x70000001},
	// Lists, fences and events are used again; what was freed is given to the driver when its users are seen to be done. How many are needed,
	// and what is seen when, depends on how far the device is.
	history: []string{"zeCommandListCreate", "zeCommandListReset", "zeCommandListClose", "zeCommandListAppendBarrier", "zeCommandQueueExecuteCommandLists",
		"zeCommandListDestroy", "zeCommandListHostSynchronize", "zeCommandQueueSynchronize", "zeFenceCreate", "zeFenceReset", "zeFenceQueryStatus", "zeFenceHostSynchronize", "zeFenceDestroy", "zeEventCreate",
		"zeEventHostReset", "zeEventQueryStatus", "zeEventDestroy", "zeMemFree", "zeMemFreeExt", "zeMemGetAllocProperties", "zesMemoryGetState",
		"zeDeviceGetProperties"},
	fewest:  2,
	noBlock: []string{"zeMemFree", "zeMemFreeExt"},
	calls: callers{
		opening: []string{"zeInit", "zeInitDrivers", "zeDriverGet", "zeDriverGetApiVersion", "zeDriverGetProperties", "zeDriverGetExtensionProperties",
			"zeDeviceGet", "zeDeviceGetMemoryProperties", "zeDeviceGetCommandQueueGroupProperties", "zeContextDestroy", "zesInit", "zesDriverGet",
			"zesDeviceGet", "zesDeviceGetProperties", "zesDriverGetDeviceByUuidExp", "zesDeviceEnumMemoryModules", "zesMemoryGetProperties"},
		elsewhere:      []string{"zeFenceHostSynchronize"}, // where more lists are queued than are made for a queue: TestWaitForTheOldestSubmissionFails of package levelzero
		notOfTheDriver: []string{"zeEventHostReset"},       // a scene is new each time, and so has no event to use again
		// Our context is there, and so are events enough; Join and a host's stream, which need the checks of a list, are the host's.
		notOfTheCore: []string{"zeContextCreate", "zeCommandListIsImmediate", "zeCommandListGetContextHandle", "zeEventCreate"},
	},
}

// levelZeroLibrary is the loader, loaded anew for each device: what it finds belongs to the settings of the moment.
type levelZeroLibrary struct {
	*levelzero.Library
	candidates []dl.Candidate
}

func loadLevelZero(candidates []dl.Candidate) (library, error) {
	found, err := levelzero.Load(dl.System, candidates)
	return levelZeroLibrary{found, candidates}, err
}

func (l levelZeroLibrary) UUID(ordinal int) (string, error) {
	facts, err := l.Facts("a device", ordinal)
	return facts.UUID, err
}

// OpenDriver opens a device in the host's context, as a host framework does that is plugged in: memory of the host's is known then.
func (l levelZeroLibrary) OpenDriver(name string, ordinal int) (gomem.Driver, error) {
	found, err := levelzero.Load(dl.System, l.candidates)
	if err != nil {
		return nil, err
	}
	driver, err := found.Open(name, ordinal)
	if err != nil {
		return nil, err
	}
	if err := driver.SetStream(theirs.context, 0); err != nil {
		return nil, errors.Join(err, driver.Close())
	}
	theirs.newest = driver
	return driver, nil
}

// theirs is the host's side of a loader: one context in this process, or a new one after the device was lost, or with another loader. newest is the
// driver that was opened last. Tests run one after the other.
var theirs struct {
	file            string
	driver, context uint64
	newest          *levelzero.Driver
}

type levelZeroHost struct {
	*soft.Host
	t      testing.TB
	device uint64
}

func newLevelZeroHost(t testing.TB, h *soft.Host, ordinal int) host {
	t.Helper()
	made := levelZeroHost{Host: h, t: t}
	made.start(theirs.file) // a test that lost the device may have ended it
	devices := made.handles("zeDeviceGet", theirs.driver)
	if ordinal >= len(devices) {
		t.Skipf("needs device %d to be the first driver's, as the host's side of these tests knows no other; that one has %d (ZE_AFFINITY_MASK hides others)", ordinal, len(devices))
	}
	made.device = devices[ordinal]
	return made
}

// start makes the host's context, if there is none.
func (h levelZeroHost) start(file string) {
	if theirs.file != file {
		theirs.file, theirs.context = file, 0
	}
	if theirs.context == 0 {
		h.Must("zeInit", 0)
		theirs.driver = h.handles("zeDriverGet")[0]
		theirs.context = h.AskLast("zeContextCreate", theirs.driver, h.desc(0xd))
	}
}

// handles calls a function whose last two arguments are a count and an array of handles.
func (h levelZeroHost) handles(function string, arguments ...uint64) []uint64 {
	const most = 16
	count, place := soft.Bytes(h.t, 4)
	array, list := soft.Bytes(h.t, most*8)
	binary.NativeEndian.PutUint32(count, most)
	h.Must(function, append(arguments, soft.Place(place), soft.Place(list))...)
	handles := make([]uint64, binary.NativeEndian.Uint32(count))
	for i := range handles {
		handles[i] = binary.NativeEndian.Uint64(array[8*i:])
	}
	return handles
}

// desc is a structure of the interface: its type, nothing chained, and numbers of 32 bits.
func (h levelZeroHost) desc(kind uint32, fields ...uint32) uint64 {
	bytes, place := soft.Bytes(h.t, 48)
	binary.NativeEndian.PutUint32(bytes, kind)
	for i, field := range fields {
		binary.NativeEndian.PutUint32(bytes[16+4*i:], field)
	}
	return soft.Place(place)
}

func (h levelZeroHost) allocate(nbytes uint64) (address uint64) {
	return h.AskLast("zeMemAllocDevice", theirs.context, h.desc(0x15), nbytes, 0, h.device)
}

func (h levelZeroHost) free(address uint64) { h.Must("zeMemFree", theirs.context, address) }

func (h levelZeroHost) pin(nbytes uint64) (address uint64) {
	return h.AskLast("zeMemAllocHost", theirs.context, h.desc(0x16), nbytes, 0)
}

func (h levelZeroHost) unpin(address uint64) { h.free(address) }

func (h levelZeroHost) context() uint64 { return theirs.context }

// stream is an immediate list that is not in order: the host orders its own work by barriers.
func (h levelZeroHost) stream() uint64 {
	const asynchronous = 2
	return h.AskLast("zeCommandListCreateImmediate", theirs.context, h.device, h.desc(0xe, 0, 0, 0, asynchronous, 0))
}

func (h levelZeroHost) endStream(stream uint64) { h.Must("zeCommandListDestroy", stream) }

func (h levelZeroHost) fill(address uint64, value byte, nbytes, stream uint64) {
	pattern, place := soft.Bytes(h.t, 1)
	pattern[0] = value
	h.Must("zeCommandListAppendBarrier", stream, 0, 0, 0)
	h.Must("zeCommandListAppendMemoryFill", stream, address, soft.Place(place), 1, nbytes, 0, 0, 0)
}

func (h levelZeroHost) wait(stream uint64) {
	h.Must("zeCommandListHostSynchronize", stream, ^uint64(0))
}

// thread is nothing: Level Zero keeps no state in threads.
func (h levelZeroHost) thread() any { return nil }

// startOver ends what belongs to the lost device, so that the context can end, and all memory with it: a process that ends does the same.
func (h levelZeroHost) startOver() {
	assert.NoError(h.t, theirs.newest.Close())
	h.Must("zeContextDestroy", theirs.context)
	theirs.context = 0
	h.start(theirs.file)
}
