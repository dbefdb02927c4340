package engine

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/cuda"
	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/hip"
	"github.com/tack-memory/tack-memory/backends/levelzero"
	"github.com/tack-memory/tack-memory/backends/metal"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

func TestMain(m *testing.M) { soft.Main(m) }

// freshFolder is a folder with a software driver that nobody has started.
func freshFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, os.Rename(soft.Fresh(t, soft.CUDA), filepath.Join(folder, soft.FileName(soft.CUDA))))
	return folder
}

// reset makes the engine as it is in a new process, with a software driver of its own.
func reset(t *testing.T) {
	t.Helper()
	folder := freshFolder(t)
	forget := func() {
		opening.Lock()
		defer opening.Unlock()
		table.Store(nil)
		opened = nil
		sim.folder, sim.capacities, sim.asked, sim.loaded = "", nil, nil, nil
		*cudaKind = *newOrderedKind("cuda", func() (*cuda.Library, error) { return cuda.Load(dl.System, cuda.Candidates()) })
		*hipKind = *newOrderedKind("hip", func() (*hip.Library, error) { return hip.Load(dl.System, hip.Candidates()) })
		*levelZeroKind = *newLevelZeroKind("level_zero", func() (*levelzero.Library, error) { return levelzero.Load(dl.System, levelzero.Candidates()) })
		*metalKind = *newMetalKind(func() (*metal.Library, error) { return nil, metal.ErrNotMacOS }) // whatever this machine is
		*simKind = *newSimKind()
		*simHIPKind = *newSimHIPKind()
		*simLevelZeroKind = *newSimLevelZeroKind()
		simCPU = nil
		checking.Store(false)
		checkingSet.Store(false)
		hostLimitSet.Store(false)
		poolsSet.Store(nil)
		Pool().SetLimit(-1)
	}
	forget()
	t.Setenv(cuda.LibraryVariable, "/nowhere/libcuda.so.1") // whatever this machine has
	t.Setenv(hip.LibraryVariable, "/nowhere/libamdhip64.so.6")
	t.Setenv(levelzero.LibraryVariable, "/nowhere/libze_loader.so.1")
	SetSimFolder(folder)
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
	assert.Equal(t, []string{"cuda", "hip", "level_zero", "metal", "cpu"}, names())
	assert.Empty(t, sim.loaded, "it is not even loaded")
	require.NoError(t, ConfigureSim([]uint64{1 << 20, 2 << 20}))
	assert.Equal(t, []string{"cuda", "hip", "level_zero", "metal", "cpu", "sim:0", "sim:1"}, names())
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

	SetSimFolder("")
	_, err := Open("sim", 0)
	assert.ErrorContains(t, err, "SetSimFolder")
	folder := t.TempDir()
	SetSimFolder(folder)
	_, err = Open("sim", 0)
	assert.ErrorContains(t, err, filepath.Join(folder, soft.FileName(soft.CUDA)))
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
	assert.False(t, processor.Spills)
	assert.Contains(t, processor.Notes[0], "pages of")

	simulated := byName["sim:0"]
	assert.True(t, simulated.Usable)
	assert.True(t, simulated.Pools)
	assert.True(t, simulated.Spills)
	assert.EqualValues(t, 64<<20, *simulated.Total)
	assert.Regexp(t, `^\d+\.\d+$`, simulated.Version)
	assert.Contains(t, simulated.Library, soft.FileName(soft.CUDA))
	assert.NotEmpty(t, simulated.Product)
	assert.Regexp(t, "^GPU-", simulated.UUID)
}

// TestRealLibraryByName: a variable of the environment names what a vendor's kind loads.
func TestRealLibraryByName(t *testing.T) {
	for kind, variable := range map[string]string{soft.CUDA: cuda.LibraryVariable, soft.HIP: hip.LibraryVariable} {
		t.Run(kind, func(t *testing.T) {
			reset(t)
			file := soft.Fresh(t, kind)
			require.NoError(t, os.Setenv(variable, file))
			index, err := Open(kind, 0)
			require.NoError(t, err)
			assert.Equal(t, kind+":0", At(index).Name())
			described := describe(kind)
			require.NotEmpty(t, described)
			assert.True(t, described[0].Usable && described[0].Pools && described[0].Spills)
			assert.Equal(t, file, described[0].Library)
			assert.NotEmpty(t, described[0].Version)
			assert.NotEmpty(t, described[0].Product)
			assert.NotEmpty(t, described[0].UUID)
		})
	}
}

// TestFailuresAreNotRemembered: a driver that could not start can be tried again.
func TestFailuresAreNotRemembered(t *testing.T) {
	reset(t)
	folder := freshFolder(t)
	file := filepath.Join(folder, soft.FileName(soft.CUDA))
	library, err := cuda.Load(dl.System, []dl.Candidate{{Name: file}})
	require.NoError(t, err)
	SetSimFolder(folder)
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
		"check yes":     {checkVariable, " Yes", false},
		"check true":    {checkVariable, "true", false},
		"check ON":      {checkVariable, "ON", false},
		"check no":      {checkVariable, "no", false},
		"check false":   {checkVariable, "FALSE", false},
		"check Off":     {checkVariable, "Off ", false},
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
			on := map[string]bool{"1": true, " Yes": true, "true": true, "ON": true}
			assert.Equal(t, c.variable == checkVariable && on[c.value], checking.Load())
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
