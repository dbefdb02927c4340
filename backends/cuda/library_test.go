package cuda_test

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/cuda"
	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/simcuda"
)

func TestSymbolsAreExportedNames(t *testing.T) {
	library, _ := library(t)
	seen := map[string]bool{}
	for _, symbol := range cuda.Symbols {
		assert.False(t, seen[symbol.Name], "%s is listed twice", symbol.Name)
		seen[symbol.Name] = true
		assert.Positive(t, symbol.Since)
		assert.Equal(t, symbol.Required, symbol.Feature == "", "%s: required, or needed for something that is named", symbol.Name)
	}
	// The un-suffixed names of these are the ABI with 32-bit sizes.
	for _, name := range []string{"cuMemAlloc", "cuMemFree", "cuMemGetInfo", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync", "cuCtxPushCurrent",
		"cuCtxPopCurrent", "cuEventDestroy", "cuStreamDestroy", "cuDeviceTotalMem", "cuDevicePrimaryCtxRelease"} {
		assert.False(t, seen[name], "%s is a legacy name", name)
	}
	for _, missing := range library.Missing() {
		assert.Equal(t, "cuDeviceGetUuid", missing.Name, "the software driver has every other function")
	}
}

func TestCandidates(t *testing.T) {
	require.NoError(t, os.Unsetenv(cuda.LibraryVariable))
	assert.Equal(t, []dl.Candidate{{Name: "libcuda.so.1", OnlyLoaded: true}, {Name: "libcuda.so.1"}, {Name: "/usr/lib/wsl/lib/libcuda.so.1"}}, cuda.Candidates())
	t.Setenv(cuda.LibraryVariable, "/opt/other.so")
	assert.Equal(t, []dl.Candidate{{Name: "/opt/other.so"}}, cuda.Candidates())
}

func TestLoadFailures(t *testing.T) {
	_, err := cuda.Load(dl.System, []dl.Candidate{{Name: "/nowhere/libcuda.so.1"}})
	var failed *dl.LoadError
	require.ErrorAs(t, err, &failed)
	assert.ErrorContains(t, err, "/nowhere/libcuda.so.1")

	_, err = cuda.Load(dl.System, []dl.Candidate{{Name: "libc.so.6"}})
	var missing *dl.MissingError
	require.ErrorAs(t, err, &missing, "a library without the driver's functions")
	assert.ErrorContains(t, err, "cuInit")
}

// olderLoader hides functions, as an older driver does.
type olderLoader struct {
	dl.Loader
	newest int // of CUDA
}

func (l olderLoader) Lookup(library dl.Handle, name string) uintptr {
	for _, symbol := range cuda.Symbols {
		if symbol.Name == name && symbol.Since > l.newest {
			return 0
		}
	}
	return l.Loader.Lookup(library, name)
}

// TestOlderDrivers runs every version gate: what is missing is named, and the rest works.
func TestOlderDrivers(t *testing.T) {
	for _, c := range []struct {
		newest  int
		loads   bool
		missing []string // features
	}{
		{13000, true, nil},
		{11030, true, []string{"MIG"}},
		{11010, true, []string{"MIG", "pools"}},
		{10020, false, nil},
	} {
		library, err := cuda.Load(olderLoader{dl.System, c.newest}, []dl.Candidate{{Name: simcuda.Fresh(t)}})
		if !c.loads {
			var missing *dl.MissingError
			require.ErrorAs(t, err, &missing, "version %d", c.newest)
			continue
		}
		require.NoError(t, err, "version %d", c.newest)
		text := ""
		for _, symbol := range library.Missing() {
			text += symbol.Feature + "; "
		}
		for _, feature := range c.missing {
			assert.Contains(t, text, feature)
		}
		driver, err := library.Open("sim:0", 0)
		require.NoError(t, err)
		assert.Equal(t, !strings.Contains(text, "pools"), driver.Facts().Pools)
		assert.Equal(t, !strings.Contains(text, "pools"), driver.CanFree(gomem.HowCUDAAsync))
		r := &rig{t: t, driver: driver, software: library.Software()}
		a := r.allocate(1000)
		content := noise(1000, 1)
		r.write(a, content)
		assert.Equal(t, content, r.read(a, 1000))
		r.free(a, 1000)
		r.requireEmpty()
		require.NoError(t, driver.Close())
	}
}

// patched is the software driver with some functions taken from C that a test brings along, and others hidden.
type patched struct {
	dl.Loader
	extra  *dl.Library
	hidden string
}

func (l patched) Lookup(library dl.Handle, name string) uintptr {
	if name == l.hidden {
		return 0
	}
	if address := l.extra.Lookup(name); address != 0 {
		return address
	}
	return l.Loader.Lookup(library, name)
}

// compileC builds a library from a few lines of C.
func compileC(t *testing.T, code string) *dl.Library {
	t.Helper()
	folder := t.TempDir()
	source, file := filepath.Join(folder, "extra.c"), filepath.Join(folder, "libextra.so")
	require.NoError(t, os.WriteFile(source, []byte(code), 0o600))
	output, err := exec.Command(cmp.Or(os.Getenv("CC"), "cc"), "-shared", "-fPIC", "-o", file, source).CombinedOutput()
	require.NoError(t, err, "%s", output)
	extra, err := dl.Open(dl.System, []dl.Candidate{{Name: file}}, nil)
	require.NoError(t, err)
	return extra
}

// TestPartition: the newer call tells a MIG instance's UUID, the older one always the whole GPU's.
func TestPartition(t *testing.T) {
	extra := compileC(t, "int cuDeviceGetUuid(char *uuid, int device) { for (int i = 0; i < 16; i++) uuid[i] = 0x10 + i; return device < 0; }\n")
	for hidden, want := range map[string]string{"": "^MIG-736f6674-", "cuDeviceGetUuid_v2": "^GPU-10111213-1415-1617-1819-1a1b1c1d1e1f$"} {
		library, err := cuda.Load(patched{dl.System, extra, hidden}, []dl.Candidate{{Name: simcuda.Library(t)}})
		require.NoError(t, err)
		facts, err := library.Facts("cuda:0", 0)
		require.NoError(t, err)
		assert.Regexp(t, want, facts.UUID)
	}
}

// TestContextThatCannotBePutBack: who cannot leave the thread as it was reports that, and keeps no memory that the caller does not get.
func TestContextThatCannotBePutBack(t *testing.T) {
	extra := compileC(t, "int cuCtxPopCurrent_v2(void **context) { return 999; }\nint cuCtxSetCurrent(void *context) { return 999; }\n")
	_, software := library(t)
	software.Reset()
	require.NoError(t, software.Set("pools", 0))
	defer software.Reset()
	library, err := cuda.Load(patched{dl.System, extra, ""}, []dl.Candidate{{Name: simcuda.Library(t)}})
	require.NoError(t, err)
	driver, err := library.Open("sim:0", 0)
	require.NoError(t, err)
	host := simcuda.NewHost(t, simcuda.Library(t))
	onBareThread(host, func() {
		clean := func() {
			for host.Ask("cuCtxGetCurrent") != 0 {
				host.Ask("cuCtxPopCurrent_v2")
			}
		}
		fails := func(_ any, err error) {
			t.Helper()
			var failed *gomem.DriverError
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, "cuCtxPopCurrent_v2", failed.Call)
			clean()
		}
		fails(driver.Allocate(100)) // the start
		context := host.Ask("cuDevicePrimaryCtxRetain", 0)
		host.Must("cuCtxPushCurrent_v2", context)
		address, err := driver.Allocate(100) // nothing to put back
		require.NoError(t, err)
		clean()
		fails(driver.Allocate(200))
		fails(nil, driver.Synchronize())
		assert.Zero(t, driver.PendingFree())
		live, err := software.Get("live.0")
		require.NoError(t, err)
		assert.EqualValues(t, 1, live, "the block that nobody got was freed")

		host.Must("cuCtxPushCurrent_v2", context)
		require.NoError(t, driver.Free(gomem.Block{Address: address, Bytes: 100}))
		require.NoError(t, driver.Close())
		clean()
		host.Must("cuDevicePrimaryCtxRelease_v2", 0)
	})
}

func TestStartFailures(t *testing.T) {
	for code, advice := range map[int]string{34: "stub", 802: "fabricmanager", 803: "kernel", 999: "nvidia-smi", 3: "fork", 17: ""} {
		library := load(t, simcuda.Fresh(t))
		software := library.Software()
		require.NoError(t, software.Fail("cuInit", 1, code))
		_, err := library.Count()
		require.Error(t, err)
		assert.ErrorContains(t, err, advice)
		assert.ErrorContains(t, err, "cuInit")
		assert.ErrorContains(t, err, library.Path(), "which library it was")
		var start *cuda.StartError
		assert.Equal(t, advice != "", errors.As(err, &start))
		var failed *gomem.DriverError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, code, failed.Code)
		assert.Empty(t, library.VersionText())

		count, err := library.Count()
		require.NoError(t, err, "a failure is not remembered")
		assert.Equal(t, 2, count)
		assert.NotEmpty(t, library.VersionText())
	}
}

// TestNoDevice: a library that loads but reports no device is no error, by whichever call it says so.
func TestNoDevice(t *testing.T) {
	for _, function := range []string{"cuInit", "cuDeviceGetCount"} {
		library := load(t, simcuda.Fresh(t))
		require.NoError(t, library.Software().Fail(function, 1, 100))
		count, err := library.Count()
		require.NoError(t, err)
		assert.Zero(t, count)
	}
	library := load(t, simcuda.Fresh(t))
	require.NoError(t, library.Software().Set("devices", 0))
	count, err := library.Count()
	require.NoError(t, err)
	assert.Zero(t, count)
	_, err = library.Open("sim:0", 0)
	assert.Error(t, err)
}

func TestFacts(t *testing.T) {
	library, software := library(t)
	software.Reset()
	count, err := library.Count()
	require.NoError(t, err)
	assert.Equal(t, 2, count)
	uuids := map[string]bool{}
	for ordinal := range count {
		facts, err := library.Facts("sim:0", ordinal)
		require.NoError(t, err)
		assert.NotEmpty(t, facts.Name)
		assert.EqualValues(t, capacity, facts.Total)
		assert.True(t, facts.Pools)
		assert.False(t, facts.Integrated)
		assert.Regexp(t, `^GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`, facts.UUID)
		uuids[facts.UUID] = true
	}
	assert.Len(t, uuids, count, "each device has its own UUID")
	assert.Regexp(t, `^\d+\.\d+$`, library.VersionText())
	assert.Equal(t, simcuda.Library(t), library.Path())
	assert.False(t, library.Shared())

	_, err = library.Facts("sim:7", 7)
	var failed *gomem.DriverError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, "sim:7", failed.Device)
	assert.Equal(t, 101, failed.Code)
}
