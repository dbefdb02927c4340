package hip_test

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/common"
	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/hip"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

func TestSymbols(t *testing.T) {
	library, _ := library(t)
	soft.CheckSymbols(t, hip.Symbols, 40_000_000)
	assert.True(t, slices.ContainsFunc(hip.Symbols, func(s dl.Symbol) bool { return s.Name == "hipGetErrorName" }))
	assert.Empty(t, library.Missing(), "the software driver has every function")
}

// TestCandidates: what the process has loaded comes first, in any version, then the linker's own places, then ROCm's folder. There is no .so.1.
func TestCandidates(t *testing.T) {
	require.NoError(t, os.Unsetenv(hip.LibraryVariable))
	require.NoError(t, os.Unsetenv("ROCM_PATH"))
	assert.Equal(t, []dl.Candidate{
		{Name: "libamdhip64.so.7", OnlyLoaded: true}, {Name: "libamdhip64.so.6", OnlyLoaded: true},
		{Name: "libamdhip64.so.5", OnlyLoaded: true}, {Name: "libamdhip64.so", OnlyLoaded: true},
		{Name: "libamdhip64.so.7"}, {Name: "libamdhip64.so.6"}, {Name: "libamdhip64.so.5"}, {Name: "libamdhip64.so"},
		{Name: "/opt/rocm/lib/libamdhip64.so"},
	}, hip.Candidates())
	t.Setenv("ROCM_PATH", "/opt/rocm-6.3.0")
	candidates := hip.Candidates()
	assert.Equal(t, []dl.Candidate{{Name: "/opt/rocm-6.3.0/lib/libamdhip64.so"}, {Name: "/opt/rocm/lib/libamdhip64.so"}}, candidates[len(candidates)-2:])
	t.Setenv(hip.LibraryVariable, "/opt/other.so")
	assert.Equal(t, []dl.Candidate{{Name: "/opt/other.so"}}, hip.Candidates())
}

func TestLoadFailures(t *testing.T) {
	soft.RequireLoadFailures(t, "libamdhip64.so.6", "hipInit", func(candidates []dl.Candidate) error {
		_, err := hip.Load(dl.System, candidates)
		return err
	})
}

// TestMissingSymbols hides each function once, and all that are newer than a version: a required one is an error that names it, any other
// switches off what needs it, which is named, and all else works.
func TestMissingSymbols(t *testing.T) {
	const pools = "memory pools and frees in stream order"
	cases := map[string]func(dl.Symbol) bool{
		"HIP 4.2": func(s dl.Symbol) bool { return s.Since > 40_200_000 },
		"HIP 5.0": func(s dl.Symbol) bool { return s.Since > 50_000_000 },
	}
	for _, symbol := range hip.Symbols {
		cases[symbol.Name] = func(s dl.Symbol) bool { return s.Name == symbol.Name }
	}
	for name, hidden := range cases {
		t.Run(name, func(t *testing.T) {
			library, err := hip.Load(soft.Hiding{Loader: dl.System, Symbols: hip.Symbols, Hidden: hidden}, []dl.Candidate{{Name: soft.Fresh(t, soft.HIP)}})
			if slices.ContainsFunc(hip.Symbols, func(s dl.Symbol) bool { return s.Required && hidden(s) }) {
				var missing *dl.MissingError
				require.ErrorAs(t, err, &missing)
				assert.ErrorContains(t, err, name)
				return
			}
			require.NoError(t, err)
			hasPools := true
			for _, symbol := range library.Missing() {
				assert.True(t, hidden(symbol))
				assert.NotEmpty(t, symbol.Feature)
				hasPools = hasPools && symbol.Feature != pools
			}
			driver, err := library.Open("hip:0", 0)
			require.NoError(t, err)
			assert.Equal(t, hasPools, driver.Facts().Pools)
			assert.Equal(t, hasPools, driver.CanFree(gomem.HowHIPAsync))
			assert.True(t, driver.CanFree(gomem.HowHIP))
			assert.Equal(t, name == "hipDeviceGetUuid" || name == "HIP 4.2" || name == "HIP 5.0", driver.Facts().UUID == "")
			r := newRig(t, driver, library.Software(), 0)
			r.drop(r.Allocate(1000), 1000)
			_, err = driver.Allocate(capacity - 1<<20)
			require.NoError(t, err)
			_, err = driver.Allocate(capacity - 1<<20)
			require.ErrorIs(t, err, gomem.ErrOutOfMemory)
			var failed *gomem.DriverError
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, name != "hipGetErrorName", failed.Name == "hipErrorOutOfMemory")
		})
	}
}

// TestUUID: a device whose UUID cannot be had is as good as any, unless it is lost.
func TestUUID(t *testing.T) {
	library := load(t, soft.Fresh(t, soft.HIP))
	require.NoError(t, library.Software().Fail("hipDeviceGetUuid", 1, 999))
	facts, err := library.Facts("hip:0", 0)
	require.NoError(t, err)
	assert.Empty(t, facts.UUID)
	assert.NotZero(t, facts.Total)
	require.NoError(t, library.Software().Fail("hipDeviceGetUuid", 1, 719)) // hipErrorLaunchFailure
	_, err = library.Facts("hip:0", 0)
	assert.ErrorIs(t, err, gomem.ErrLost)
}

// TestPoolsNotAllowed: without pools a device works with the plain calls alone, so that a free that hangs in a pool can be avoided.
func TestPoolsNotAllowed(t *testing.T) {
	library := load(t, soft.Fresh(t, soft.HIP))
	library.AllowPools(false)
	driver, err := library.Open("hip:0", 0)
	require.NoError(t, err)
	assert.False(t, driver.Facts().Pools)
	r := newRig(t, driver, library.Software(), 0)
	r.drop(r.Allocate(1000), 1000)
	require.NoError(t, driver.Close())
	assert.Positive(t, library.Software().Calls("hipMalloc"))
	for _, function := range []string{"hipMemPoolCreate", "hipMallocFromPoolAsync", "hipFreeAsync", "hipMemPoolTrimTo"} {
		assert.Zero(t, library.Software().Calls(function), function)
	}
}

func TestStartFailures(t *testing.T) {
	for code, advice := range map[int]string{35: "amdgpu", 3: "fork", 304: "/dev/kfd", 999: "rocminfo", 17: ""} {
		library := load(t, soft.Fresh(t, soft.HIP))
		require.NoError(t, library.Software().Fail("hipInit", 1, code))
		_, err := library.Count()
		require.Error(t, err)
		assert.ErrorContains(t, err, advice)
		assert.ErrorContains(t, err, "hipInit")
		assert.ErrorContains(t, err, library.Path(), "which library it was")
		var start *common.StartError
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

// TestNoDevice: a library that loads but reports no device is no error, by whichever call and code it says so. AMD's hipInit says 101 on a machine
// whose hipGetDeviceCount says 100.
func TestNoDevice(t *testing.T) {
	for _, function := range []string{"hipInit", "hipGetDeviceCount", "hipRuntimeGetVersion"} {
		for _, code := range []int{100, 101} {
			library := load(t, soft.Fresh(t, soft.HIP))
			require.NoError(t, library.Software().Fail(function, 1, code))
			count, err := library.Count()
			require.NoError(t, err, "%s: %d", function, code)
			assert.Zero(t, count)
		}
	}
	library := load(t, soft.Fresh(t, soft.HIP))
	require.NoError(t, library.Software().Set("devices", 0))
	count, err := library.Count()
	require.NoError(t, err)
	assert.Zero(t, count)
	_, err = library.Open("hip:0", 0)
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
		facts, err := library.Facts("hip:0", ordinal)
		require.NoError(t, err)
		assert.NotEmpty(t, facts.Name)
		assert.EqualValues(t, capacity, facts.Total)
		assert.True(t, facts.Pools)
		assert.False(t, facts.Integrated)
		assert.Regexp(t, `^GPU-[0-9a-f-]{16,36}$`, facts.UUID)
		uuids[facts.UUID] = true
	}
	assert.Len(t, uuids, count, "each device has its own UUID")
	assert.Regexp(t, `^\d\.\d+\.\d+$`, library.VersionText())
	assert.Equal(t, soft.Library(t, soft.HIP), library.Path())

	_, err = library.Facts("hip:7", 7)
	var failed *gomem.DriverError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, "hip:7", failed.Device)
	assert.Equal(t, 101, failed.Code)
	assert.Equal(t, "hipErrorInvalidDevice", failed.Name)
}

// TestVersionText: the runtime's number is major * 10^7 + minor * 10^5 + patch.
func TestVersionText(t *testing.T) {
	library := load(t, soft.Fresh(t, soft.HIP))
	require.NoError(t, library.Software().Set("driver_version", 50221153))
	_, err := library.Count()
	require.NoError(t, err)
	assert.Equal(t, "5.2.21153", library.VersionText())
}
