package cuda_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/cuda"
	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/softdriver"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

func TestSymbolsAreExportedNames(t *testing.T) {
	library, _ := library(t)
	soft.CheckSymbols(t, cuda.Symbols, 1)
	// The un-suffixed names of these are the ABI with 32-bit sizes.
	for _, name := range []string{"cuMemAlloc", "cuMemFree", "cuMemGetInfo", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync", "cuCtxPushCurrent",
		"cuCtxPopCurrent", "cuEventDestroy", "cuStreamDestroy", "cuDeviceTotalMem", "cuDevicePrimaryCtxRelease"} {
		assert.False(t, slices.ContainsFunc(cuda.Symbols, func(s dl.Symbol) bool { return s.Name == name }), "%s is a legacy name", name)
	}
	assert.Empty(t, library.Missing(), "the software driver has every function")
}

func TestCandidates(t *testing.T) {
	require.NoError(t, os.Unsetenv(cuda.LibraryVariable))
	assert.Equal(t, []dl.Candidate{{Name: "libcuda.so.1", OnlyLoaded: true}, {Name: "libcuda.so.1"}, {Name: "/usr/lib/wsl/lib/libcuda.so.1"}}, cuda.Candidates())
	t.Setenv(cuda.LibraryVariable, "/opt/other.so")
	assert.Equal(t, []dl.Candidate{{Name: "/opt/other.so"}}, cuda.Candidates())
}

func TestLoadFailures(t *testing.T) {
	soft.RequireLoadFailures(t, "libcuda.so.1", "cuInit", func(candidates []dl.Candidate) error {
		_, err := cuda.Load(dl.System, candidates)
		return err
	})
}

// hiding is a loader that hides functions.
func hiding(hidden func(dl.Symbol) bool) dl.Loader {
	return soft.Hiding{Loader: dl.System, Symbols: cuda.Symbols, Hidden: hidden}
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
		library, err := cuda.Load(hiding(func(s dl.Symbol) bool { return s.Since > c.newest }), []dl.Candidate{{Name: soft.Fresh(t, soft.CUDA)}})
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
		r := newRig(t, driver, library.Software(), 0)
		a := r.Allocate(1000)
		content := soft.Noise(1000, 1)
		r.Write(a, content)
		assert.Equal(t, content, r.Read(a, 1000))
		r.Free(a, 1000)
		r.RequireEmpty()
		require.NoError(t, driver.Close())
	}
}

// TestEachMissingSymbol hides each function alone: a required one is an error that names it, any other switches off what needs it, which is named,
// and all else works.
func TestEachMissingSymbol(t *testing.T) {
	for _, symbol := range cuda.Symbols {
		t.Run(symbol.Name, func(t *testing.T) {
			library, err := cuda.Load(hiding(func(s dl.Symbol) bool { return s.Name == symbol.Name }), []dl.Candidate{{Name: soft.Fresh(t, soft.CUDA)}})
			if symbol.Required {
				var missing *dl.MissingError
				require.ErrorAs(t, err, &missing)
				assert.ErrorContains(t, err, symbol.Name)
				return
			}
			require.NoError(t, err)
			require.Len(t, library.Missing(), 1)
			assert.Equal(t, symbol.Name, library.Missing()[0].Name)
			driver, err := library.Open("cuda:0", 0)
			require.NoError(t, err)
			pools := !strings.Contains(symbol.Feature, "pools")
			assert.Equal(t, pools, driver.Facts().Pools)
			assert.Equal(t, pools, driver.CanFree(gomem.HowCUDAAsync))
			assert.True(t, driver.CanFree(gomem.HowCUDA))
			assert.NotEmpty(t, driver.Facts().UUID, "one of the two calls is enough")
			r := newRig(t, driver, library.Software(), 0)
			a := r.Allocate(1000)
			r.Write(a, soft.Noise(1000, 1))
			assert.Equal(t, soft.Noise(1000, 1), r.Read(a, 1000))
			r.Free(a, 1000)
			r.RequireEmpty()
			big := r.Allocate(capacity - 1<<20)
			_, err = driver.Allocate(capacity - 1<<20)
			var failed *gomem.DriverError
			require.ErrorAs(t, err, &failed)
			assert.ErrorIs(t, err, gomem.ErrOutOfMemory)
			assert.Equal(t, symbol.Name != "cuGetErrorName", failed.Name == "CUDA_ERROR_OUT_OF_MEMORY")
			r.Free(big, capacity-1<<20)
			require.NoError(t, driver.Close())
		})
	}
}

// TestStubIsPassedOver: the toolkit's stub, which only serves to link programs, is not the end where the driver's own library is found, too.
func TestStubIsPassedOver(t *testing.T) {
	const stub = 34 // CUDA_ERROR_STUB_LIBRARY
	first, second := soft.Fresh(t, soft.CUDA), soft.Fresh(t, soft.CUDA)
	software := load(t, first).Software()
	require.NoError(t, software.Fail("cuInit", 1, stub))
	library, err := cuda.Load(dl.System, []dl.Candidate{{Name: "/nowhere/libcuda.so.1"}, {Name: first}, {Name: second}})
	require.NoError(t, err)
	assert.Equal(t, second, library.Path())
	count, err := library.Count()
	require.NoError(t, err)
	assert.Equal(t, 2, count)

	// Where it is all that there is, it is what the error is about.
	require.NoError(t, software.Fail("cuInit", 1, stub))
	library, err = cuda.Load(dl.System, []dl.Candidate{{Name: first}, {Name: "/nowhere/libcuda.so.1"}})
	require.NoError(t, err)
	assert.Equal(t, first, library.Path())
	require.NoError(t, software.Fail("cuInit", 1, stub))
	_, err = library.Count()
	assert.ErrorContains(t, err, "stub")

	// Another failure is final: a second driver beside one that is broken would only hide it.
	third := soft.Fresh(t, soft.CUDA)
	require.NoError(t, load(t, third).Software().Fail("cuInit", 1, 999))
	library, err = cuda.Load(dl.System, []dl.Candidate{{Name: third}, {Name: second}})
	require.NoError(t, err)
	assert.Equal(t, third, library.Path())
}

// TestPartition: the newer call tells a MIG instance's UUID, the older one always the whole GPU's.
func TestPartition(t *testing.T) {
	extra := soft.Compile(t, "int cuDeviceGetUuid(char *uuid, int device) { for (int i = 0; i < 16; i++) uuid[i] = 0x10 + i; return device < 0; }\n")
	for hidden, want := range map[string]string{"": "^MIG-736f6674-", "cuDeviceGetUuid_v2": "^GPU-10111213-1415-1617-1819-1a1b1c1d1e1f$"} {
		library, err := cuda.Load(soft.Patched{Loader: dl.System, Extra: extra, Hidden: hidden}, []dl.Candidate{{Name: soft.Library(t, soft.CUDA)}})
		require.NoError(t, err)
		facts, err := library.Facts("cuda:0", 0)
		require.NoError(t, err)
		assert.Regexp(t, want, facts.UUID)
	}
}

// TestUUID: a call that fails leaves the device without a UUID, or with what the other call tells, unless the device is lost.
func TestUUID(t *testing.T) {
	const lost = 719 // CUDA_ERROR_LAUNCH_FAILED
	library, software := library(t)
	for _, c := range []struct {
		newer, older int // codes
		want         string
		fails        bool
	}{{0, 0, "^GPU-736f6674-", false}, {999, 0, "^GPU-736f6674-", false}, {0, 801, "^GPU-736f6674-", false}, {801, 999, "^$", false}, {lost, 0, "", true}, {0, lost, "", true}} {
		software.Reset()
		for function, code := range map[string]int{"cuDeviceGetUuid_v2": c.newer, "cuDeviceGetUuid": c.older} {
			if code != 0 {
				require.NoError(t, software.Fail(function, 1, code))
			}
		}
		facts, err := library.Facts("cuda:0", 0)
		if c.fails {
			assert.ErrorIs(t, err, gomem.ErrLost)
			continue
		}
		require.NoError(t, err)
		assert.Regexp(t, c.want, facts.UUID)
	}
	software.Reset()
}

// TestPoolsNotAllowed: without pools a device works with the plain calls alone.
func TestPoolsNotAllowed(t *testing.T) {
	library, err := cuda.Load(dl.System, []dl.Candidate{{Name: soft.Fresh(t, soft.CUDA)}})
	require.NoError(t, err)
	library.AllowPools(false)
	driver, err := library.Open("cuda:0", 0)
	require.NoError(t, err)
	assert.False(t, driver.Facts().Pools)
	r := newRig(t, driver, library.Software(), 0)
	r.Free(r.Allocate(1000), 1000)
	require.NoError(t, driver.Close())
	assert.Positive(t, library.Software().Calls("cuMemAlloc_v2"))
	for _, function := range []string{"cuMemPoolCreate", "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemPoolTrimTo"} {
		assert.Zero(t, library.Software().Calls(function), function)
	}
	library.AllowPools(true)
	facts, err := library.Facts("cuda:0", 0)
	require.NoError(t, err)
	assert.True(t, facts.Pools)
}

// TestContextThatCannotBePutBack: who cannot leave the thread as it was reports that, and keeps no memory that the caller does not get.
func TestContextThatCannotBePutBack(t *testing.T) {
	driver, software := patched(t, "int cuCtxPopCurrent_v2(void **context) { return 999; }\nint cuCtxSetCurrent(void *context) { return 999; }\n")
	host := soft.NewHost(t, soft.Library(t, soft.CUDA))
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

// patched is a device of the software driver with some functions of a test's own, without pools.
func patched(t *testing.T, c string) (*cuda.Driver, *softdriver.Control) {
	t.Helper()
	_, software := library(t)
	software.Reset()
	t.Cleanup(software.Reset)
	require.NoError(t, software.Set("pools", 0))
	library, err := cuda.Load(soft.Patched{Loader: dl.System, Extra: soft.Compile(t, c)}, []dl.Candidate{{Name: soft.Library(t, soft.CUDA)}})
	require.NoError(t, err)
	driver, err := library.Open("sim:0", 0)
	require.NoError(t, err)
	return driver, software
}

// TestContextThatCannotBePopped is overwritten with the one before; only where that fails, too, the caller is told.
func TestContextThatCannotBePopped(t *testing.T) {
	driver, software := patched(t, "int cuCtxPopCurrent_v2(void **context) { return 999; }\n")
	host := soft.NewHost(t, soft.Library(t, soft.CUDA))
	onBareThread(host, func() {
		address, err := driver.Allocate(100)
		require.NoError(t, err)
		assert.Zero(t, host.Ask("cuCtxGetCurrent"), "what was current before is current again")
		calls := software.Calls("cuCtxSetCurrent")
		require.Positive(t, calls)

		require.NoError(t, software.Fail("cuCtxSetCurrent", 1, 201))
		var failed *gomem.DriverError
		require.ErrorAs(t, driver.Synchronize(), &failed)
		assert.Equal(t, "cuCtxPopCurrent_v2", failed.Call, "which is what was wrong first")
		assert.Equal(t, 999, failed.Code)
		assert.Equal(t, calls+1, software.Calls("cuCtxSetCurrent"))
		for host.Ask("cuCtxGetCurrent") != 0 {
			host.Ask("cuCtxPopCurrent_v2")
		}
		require.NoError(t, driver.Synchronize())
		require.NoError(t, driver.Free(gomem.Block{Address: address, Bytes: 100}))
		require.NoError(t, driver.Close())
	})
}

// TestStreamThatCannotBeWaitedFor: copies may be on their way to memory that the caller is about to give away, so the whole context is waited for. The
// caller is told of the stream, whether that works or not.
func TestStreamThatCannotBeWaitedFor(t *testing.T) {
	for _, code := range []int{0, 201} {
		// It fails twice. What it does later is not looked at: nothing is copied then.
		driver, software := patched(t, "int cuStreamSynchronize(void *stream) { static int calls; return calls++ < 2 ? 999 : 0; }\n")
		address, err := driver.Allocate(100)
		require.NoError(t, err)
		if code != 0 {
			require.NoError(t, software.Fail("cuCtxSynchronize", 1, code))
		}
		calls := software.Calls("cuCtxSynchronize")
		_, place := soft.Bytes(t, 100)
		var failed *gomem.DriverError
		require.ErrorAs(t, driver.CopyIn(address, place, 100), &failed)
		assert.Equal(t, "cuStreamSynchronize", failed.Call)
		assert.Equal(t, 999, failed.Code)
		assert.Equal(t, calls+1, software.Calls("cuCtxSynchronize"))
		require.NoError(t, driver.Free(gomem.Block{Address: address, Bytes: 100}))
		require.NoError(t, driver.Close())
	}
}

func TestStartFailures(t *testing.T) {
	for code, advice := range map[int]string{34: "stub", 802: "fabricmanager", 803: "kernel", 999: "nvidia-smi", 3: "fork", 17: ""} {
		library := load(t, soft.Fresh(t, soft.CUDA))
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
		library := load(t, soft.Fresh(t, soft.CUDA))
		require.NoError(t, library.Software().Fail(function, 1, 100))
		count, err := library.Count()
		require.NoError(t, err)
		assert.Zero(t, count)
	}
	library := load(t, soft.Fresh(t, soft.CUDA))
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
	assert.Equal(t, soft.Library(t, soft.CUDA), library.Path())
	assert.False(t, library.Shared())

	_, err = library.Facts("sim:7", 7)
	var failed *gomem.DriverError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, "sim:7", failed.Device)
	assert.Equal(t, 101, failed.Code)
}
