package conformance

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/ordered"
	"github.com/tack-memory/tack-memory/backends/softdriver"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// flavour is one way in which a device can be.
type flavour struct {
	name string
	*vendor
	settings settings    // of the software driver, beside those that a test sets
	real     *realDevice // of the vendor's own library, with no software driver to steer; nil where there is one
}

// settings of a software driver, by key.
type settings map[string]int64

// flavours is all of them: one line each. Real devices are not among them: see TestReal.
var flavours = []flavour{
	{"cuda with pools", &cudaVendor, settings{"pools": 1}, nil},
	{"cuda without pools", &cudaVendor, settings{"pools": 0}, nil},
	{"hip with pools", &hipVendor, settings{"pools": 1}, nil},
	{"hip without pools", &hipVendor, settings{"pools": 0, "driver_version": 70253211}, nil},
	{"hip that frees late", &hipVendor, settings{"pools": 0, "late_free": 1}, nil},
	{"level zero in order", &levelZeroVendor, settings{"sysman": 1}, nil},
	{"level zero with a queue", &levelZeroVendor, settings{"api_version": 1<<16 | 6, "free_policies": 0}, nil},
	{"hip with forgetful pools", &hipVendor, settings{"pools": 1, "ignore_threshold": 1, "driver_version": 70253211}, nil},
	{"level zero without sysman", &levelZeroVendor, settings{"sysman": 0, "memory_modules": 0}, nil},
	{"cpu", &cpuVendor, nil, nil},
	{"metal", &metalVendor, nil, nil},
	{"sim-cpu with fresh addresses", &simCPUFresh, nil, nil},
	{"sim-cpu that reuses addresses", &simCPUReuse, nil, nil},
}

// present is the flavours that the tests run on: all of these, or one real device.
var present = flavours

// vendor is a backend as this suite uses it.
type vendor struct {
	abi     string // of its software driver
	symbols []dl.Symbol
	load    func(candidates []dl.Candidate) (library, error)
	counted func(t testing.TB) library // a backend without a vendor's library to stand in for, whose memory is counted and never spilled; else nil
	own     func() library             // a backend that spills and is all our own: no library is under it whose calls could fail, or be late; else nil
	host    func(t testing.TB, h *soft.Host, ordinal int) host
	prepare func(t testing.TB, file string) // before a device is opened; nil: nothing

	plain   gomem.How // what host.allocate does
	ordered gomem.How // what poolHost.allocateOrdered does, where the vendor has pools
	mask    string    // the variable of the environment that hides devices
	codes   codes
	silent  []string // functions whose failure nobody sees: they give no code, or it is not looked at
	history []string // functions that an operation calls or not depending on what those before have left for reuse
	fewest  int      // the matrix must fail at least so many functions in each state of a buffer
	noBlock []string // functions that free, and for which codes.refused means: no block of ours, so that nobody tries again
	calls   callers  // the functions that not every test of faults can reach
}

// codes of the vendor.
type codes struct{ other, full, refused, lost int }

// library is a vendor's library as its backend loaded it.
type library interface {
	Path() string
	Count() (int, error)
	OpenDriver(name string, ordinal int) (gomem.Driver, error)
	Software() *softdriver.Control
	Missing() []dl.Symbol
	UUID(ordinal int) (string, error)
}

// host is a framework that uses the vendor's library beside us, in the same process, on one device.
type host interface {
	allocate(nbytes uint64) (address uint64)
	free(address uint64)
	pin(nbytes uint64) (address uint64) // host memory that the device can reach
	unpin(address uint64)
	context() uint64 // what SetStream takes beside a stream
	stream() uint64
	endStream(stream uint64)
	fill(address uint64, value byte, nbytes, stream uint64) // queued
	wait(stream uint64)
	thread() any // what the library keeps for the calling thread and we must leave as it is; comparable
	startOver()  // the software driver forgot that the device was lost; a new process would find nothing of the old one
}

// poolHost is one that also uses its device's default pool.
type poolHost interface {
	keepAll() // the pool gives nothing back to the device by itself
	allocateOrdered(nbytes, stream uint64) (address uint64)
}

// everything is the arguments of a pool's attribute that keep all memory in it, with CUDA as with HIP.
func everything(t testing.TB) (attribute, value uint64) {
	const releaseThreshold = 4
	words, place := soft.Bytes(t, 8)
	for i := range words {
		words[i] = 0xff
	}
	return releaseThreshold, soft.Place(place)
}

// orderedLibrary is one of package ordered.
type orderedLibrary struct{ *ordered.Library }

func (l orderedLibrary) UUID(ordinal int) (string, error) {
	facts, err := l.Facts("a device", ordinal)
	return facts.UUID, err
}

func (l orderedLibrary) OpenDriver(name string, ordinal int) (gomem.Driver, error) {
	return l.Open(name, ordinal)
}

func loadOrdered(load func(dl.Loader, []dl.Candidate) (*ordered.Library, error)) func([]dl.Candidate) (library, error) {
	return func(candidates []dl.Candidate) (library, error) {
		found, err := load(dl.System, candidates)
		return orderedLibrary{found}, err
	}
}

// loaded is the libraries of this process, by ABI: each is loaded once, and used by all flavours of its vendor one after the other.
var loaded struct {
	sync.Mutex
	libraries map[string]library
}

// deviceName is what a device of the flavour is called.
func (f flavour) deviceName(ordinal int) string {
	if f.real != nil {
		return f.real.name
	}
	return fmt.Sprintf("sim:%d", ordinal)
}

// ordinal is the device of a test that can do with any, and best with not the first.
func (f flavour) ordinal(best int) int {
	if f.real != nil {
		return f.real.ordinal
	}
	return best
}

// file is the vendor's library.
func (f flavour) file(t testing.TB) string {
	t.Helper()
	if f.real != nil {
		return f.real.file
	}
	return soft.Library(t, f.abi)
}

// steered says that a software driver is under the backend, which can be put into other settings, and tells what it holds.
func (f flavour) steered() bool { return f.real == nil && f.vendor.counted == nil && f.own == nil }

// open loads the vendor's software driver, and puts it into the flavour's settings and some more. Where there is none to steer, these are left
// out: they only make it harder.
func (f flavour) open(t testing.TB, more settings) library {
	t.Helper()
	switch {
	case f.counted != nil:
		return f.counted(t)
	case f.own != nil:
		return f.own()
	case f.real != nil:
		if f.prepare != nil {
			f.prepare(t, f.real.file)
		}
		return f.real.library
	}
	file := f.file(t)
	loaded.Lock()
	defer loaded.Unlock()
	if loaded.libraries[f.abi] == nil {
		found, err := f.load([]dl.Candidate{{Name: file}})
		require.NoError(t, err)
		if loaded.libraries == nil {
			loaded.libraries = map[string]library{}
		}
		loaded.libraries[f.abi] = found
	}
	l := loaded.libraries[f.abi]
	l.Software().Reset()
	if f.prepare != nil {
		f.prepare(t, file)
	}
	for _, s := range []settings{f.settings, more} {
		for key, value := range s {
			require.NoError(t, l.Software().Set(key, value))
		}
	}
	return l
}

// functions is those of the vendor's symbol table that can fail and that its software driver has.
func (f flavour) functions(l library) []string {
	var names []string
	for _, symbol := range f.symbols {
		if !slices.Contains(l.Missing(), symbol) && !slices.Contains(f.silent, symbol.Name) {
			names = append(names, symbol.Name)
		}
	}
	return names
}

// forEach runs a test once a flavour whose memory can be spilled, and that has a vendor's library, which others use beside us.
func forEach(t *testing.T, test func(t *testing.T, f flavour)) {
	t.Helper()
	run(t, func(f flavour) bool { return f.counted == nil && f.own == nil }, test)
}

// forEachThatSpills runs a test once a flavour whose memory can be spilled, whatever is under it.
func forEachThatSpills(t *testing.T, test func(t *testing.T, f flavour)) {
	t.Helper()
	run(t, func(f flavour) bool { return f.counted == nil }, test)
}

// forEachCounted runs a test once a flavour whose memory is counted only.
func forEachCounted(t *testing.T, test func(t *testing.T, f flavour)) {
	t.Helper()
	run(t, func(f flavour) bool { return f.counted != nil }, test)
}

// forAll runs a test once a flavour, whatever it is.
func forAll(t *testing.T, test func(t *testing.T, f flavour)) {
	t.Helper()
	run(t, func(flavour) bool { return true }, test)
}

// run runs a test for some of the flavours, each time on one OS thread.
func run(t *testing.T, takes func(f flavour) bool, test func(t *testing.T, f flavour)) {
	t.Helper()
	for _, f := range present {
		if takes(f) {
			t.Run(f.name, onThread(func(t *testing.T) { test(t, f) }))
		}
	}
}

// onThread keeps a test on one OS thread: the libraries keep something for each.
func onThread(test func(t *testing.T)) func(t *testing.T) {
	return func(t *testing.T) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		test(t)
	}
}
