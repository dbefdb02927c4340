package engine

import (
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/cuda"
	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/simcuda"
)

func TestMain(m *testing.M) { simcuda.Main(m) }

// reset makes the engine as it is in a new process, with a software driver of its own.
func reset(t *testing.T) {
	t.Helper()
	file := simcuda.Fresh(t)
	forget := func() {
		opening.Lock()
		defer opening.Unlock()
		table.Store(nil)
		opened = nil
		sim.library, sim.capacities, sim.loaded = "", nil, false
		*cudaKind = *newCUDAKind("cuda", func() (*cuda.Library, error) { return cuda.Load(dl.System, cuda.Candidates()) })
		*simKind = *newSimKind()
		checking.Store(false)
		checkingSet.Store(false)
		hostLimitSet.Store(false)
		Pool().SetLimit(-1)
	}
	forget()
	t.Setenv(cuda.LibraryVariable, "/nowhere/libcuda.so.1") // whatever this machine has
	SetSimLibrary(file)
	t.Cleanup(func() {
		for _, device := range Devices() {
			assert.NoError(t, device.Close())
		}
		forget()
	})
}

func TestOpenIsIdempotent(t *testing.T) {
	reset(t)
	require.NoError(t, ConfigureSim([]uint64{64 << 20, 32 << 20}))
	first, err := Open("sim", 1)
	require.NoError(t, err)
	again, err := Open("sim", 1)
	require.NoError(t, err)
	assert.Equal(t, first, again)
	other, err := Open("sim", 0)
	require.NoError(t, err)
	assert.NotEqual(t, first, other)
	processor, err := Open("cpu", 0)
	require.NoError(t, err)

	assert.Equal(t, []string{"sim:1", "sim:0", "cpu"}, Names())
	assert.Same(t, Devices()[first], At(first))
	assert.Equal(t, "sim:0", At(other).Name())
	assert.Nil(t, At(99))
	assert.True(t, At(first).Movable())
	assert.False(t, At(processor).Movable(), "the CPU's memory is the host's")
	assert.Equal(t, first, At(first).Books().Device)

	for index, total := range map[uint32]int64{first: 32 << 20, other: 64 << 20} {
		info, err := At(index).Info(true)
		require.NoError(t, err)
		assert.Equal(t, total, info.Driver.Total)
		assert.Equal(t, gomem.Unknown, info.Driver.Free, "nothing was allocated, so there is no context")
	}
}

func TestOpenedByManyThreadsAtOnce(t *testing.T) {
	reset(t)
	indexes := make([]uint32, 8)
	var group sync.WaitGroup
	for i := range indexes {
		group.Go(func() {
			index, err := Open("sim", 0)
			assert.NoError(t, err)
			indexes[i] = index
			assert.NotNil(t, At(index))
		})
	}
	group.Wait()
	for _, index := range indexes {
		assert.Equal(t, indexes[0], index)
	}
	assert.Len(t, Names(), 1)
}

func TestUnknownDevices(t *testing.T) {
	reset(t)
	for _, c := range []struct {
		kind    string
		ordinal int
		text    []string
	}{
		{"teapot", 0, []string{`"teapot:0"`, "no such kind", "cpu"}},
		{"cpu", 1, []string{`"cpu:1"`, "1 of this kind", "cpu"}},
		{"cpu", -1, []string{"cpu"}},
		{"cuda", 0, []string{`"cuda:0"`, "/nowhere/libcuda.so.1", "cpu"}},
		{"sim", 1, []string{`"sim:1"`, "1 of this kind", "sim:0"}},
	} {
		_, err := Open(c.kind, c.ordinal)
		var unknown *UnknownDeviceError
		require.ErrorAs(t, err, &unknown, "%s:%d", c.kind, c.ordinal)
		for _, text := range c.text {
			assert.ErrorContains(t, err, text)
		}
	}
	assert.Empty(t, Names())
}

func TestSimExistsOnlyWhenNamed(t *testing.T) {
	reset(t)
	names := func() (list []string) {
		for _, d := range Describe() {
			list = append(list, d.Name)
		}
		return list
	}
	assert.Equal(t, []string{"cuda", "cpu"}, names())
	assert.False(t, sim.loaded, "it is not even loaded")
	require.NoError(t, ConfigureSim([]uint64{1 << 20, 2 << 20}))
	assert.Equal(t, []string{"cuda", "cpu", "sim:0", "sim:1"}, names())
}

func TestSimDefault(t *testing.T) {
	reset(t)
	index, err := Open("sim", 0)
	require.NoError(t, err)
	info, err := At(index).Info(true)
	require.NoError(t, err)
	assert.EqualValues(t, 2<<30, info.Driver.Total)
	assert.Error(t, ConfigureSim([]uint64{1 << 20}), "too late")
}

func TestSimConfigurationIsChecked(t *testing.T) {
	reset(t)
	assert.Error(t, ConfigureSim(nil))
	assert.Error(t, ConfigureSim([]uint64{0}))
	assert.Error(t, ConfigureSim([]uint64{1 << 63}))

	SetSimLibrary("")
	_, err := Open("sim", 0)
	assert.ErrorContains(t, err, "SetSimLibrary")
	SetSimLibrary("libc.so.6")
	_, err = Open("sim", 0)
	assert.ErrorContains(t, err, "cuInit")
}

func TestDescribe(t *testing.T) {
	reset(t)
	require.NoError(t, ConfigureSim([]uint64{64 << 20}))
	byName := map[string]Description{}
	for _, d := range Describe() {
		byName[d.Name] = d
		assert.NotNil(t, d.Notes)
	}
	broken := byName["cuda"]
	assert.False(t, broken.Usable)
	assert.Contains(t, broken.Why, "/nowhere/libcuda.so.1")
	assert.Nil(t, broken.Total)

	processor := byName["cpu"]
	assert.True(t, processor.Usable)
	assert.Positive(t, *processor.Total)
	assert.Contains(t, processor.Notes[0], "never spilled")

	simulated := byName["sim:0"]
	assert.True(t, simulated.Usable)
	assert.True(t, simulated.Pools)
	assert.EqualValues(t, 64<<20, *simulated.Total)
	assert.Regexp(t, `^\d+\.\d+$`, simulated.Version)
	assert.Contains(t, simulated.Library, "fresh-")
	assert.NotEmpty(t, simulated.Product)
	assert.Regexp(t, "^GPU-", simulated.UUID)
}

// TestRealLibraryByName: TACK_MEMORY_CUDA_LIBRARY names what "cuda" loads.
func TestRealLibraryByName(t *testing.T) {
	reset(t)
	require.NoError(t, os.Setenv(cuda.LibraryVariable, simcuda.Fresh(t)))
	index, err := Open("cuda", 0)
	require.NoError(t, err)
	assert.Equal(t, "cuda:0", At(index).Name())
}

// TestFailuresAreNotRemembered: a driver that could not start can be tried again.
func TestFailuresAreNotRemembered(t *testing.T) {
	reset(t)
	file := simcuda.Fresh(t)
	library, err := cuda.Load(dl.System, []dl.Candidate{{Name: file}})
	require.NoError(t, err)
	SetSimLibrary(file)
	require.NoError(t, library.Software().Fail("cuInit", 1, 999))
	_, err = Open("sim", 0)
	assert.ErrorContains(t, err, "CUDA_ERROR_UNKNOWN")
	_, err = Open("sim", 0)
	require.NoError(t, err)
}

func TestEnvironment(t *testing.T) {
	for name, c := range map[string]struct {
		variable, value string
		fails           bool
	}{
		"check on":      {checkVariable, "1", false},
		"check off":     {checkVariable, "0", false},
		"check empty":   {checkVariable, "", false},
		"check wrong":   {checkVariable, "maybe", true},
		"limit":         {hostLimitVariable, "1048576", false},
		"limit wrong":   {hostLimitVariable, "a lot", true},
		"limit too low": {hostLimitVariable, "-5", true},
	} {
		t.Run(name, func(t *testing.T) {
			reset(t)
			t.Setenv(c.variable, c.value)
			_, err := Open("cpu", 0)
			if c.fails {
				assert.ErrorContains(t, err, c.variable)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.value == "1", checking.Load())
			if c.variable == hostLimitVariable {
				_, err := Pool().Get(2 << 20)
				var refused *gomem.HostMemoryError
				assert.True(t, errors.As(err, &refused))
			}
		})
	}
	t.Run("what was set by a call wins", func(t *testing.T) {
		reset(t)
		t.Setenv(hostLimitVariable, "a lot")
		t.Setenv(checkVariable, "0")
		SetHostLimit(5 << 20)
		SetCheck(true)
		_, err := Open("cpu", 0)
		require.NoError(t, err)
		assert.True(t, checking.Load())
	})
}
