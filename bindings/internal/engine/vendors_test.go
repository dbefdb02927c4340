package engine

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/cuda"
	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/hip"
	"github.com/tack-memory/tack-memory/backends/levelzero"
	"github.com/tack-memory/tack-memory/backends/ordered"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// TestPoolsSwitch: a kind that has memory pools does without where it is told to, and says so.
func TestPoolsSwitch(t *testing.T) {
	for _, c := range []struct {
		variable string
		set      *bool
		pools    bool
		fails    bool
	}{
		{"", nil, true, false}, {"1", nil, true, false}, {"0", nil, false, false}, {"some", nil, false, true},
		{"some", new(true), true, false}, {"1", new(false), false, false},
	} {
		for name, kind := range map[string]string{"cuda": cuda.LibraryVariable, "hip": hip.LibraryVariable} {
			reset(t)
			t.Setenv(kind, soft.Fresh(t, name))
			t.Setenv(poolsVariable, c.variable)
			if c.set != nil {
				SetPools(*c.set)
			}
			told := describe(name)[0]
			index, err := Open(name, 0)
			if c.fails {
				assert.ErrorContains(t, err, poolsVariable+"=some")
				assert.Contains(t, told.Why, poolsVariable+"=some")
				continue
			}
			require.NoError(t, err)
			driver := At(index).Driver().(*ordered.Driver)
			assert.Equal(t, c.pools, driver.Facts().Pools)
			assert.Equal(t, c.pools, told.Pools)
			assert.Equal(t, !c.pools || name == "hip", slices.ContainsFunc(told.Notes, func(note string) bool { return strings.Contains(note, poolsVariable) }))
		}
	}
}

// versioned is a library that tells a version of its own, beside that of the drivers behind it.
type versioned struct{ library }

func (versioned) LoaderVersion() string { return "1.8.12" }

func TestALoadersOwnVersionStandsBehindItsFile(t *testing.T) {
	found, err := levelzero.Load(dl.System, []dl.Candidate{{Name: soft.Fresh(t, soft.LevelZero)}})
	require.NoError(t, err)
	plain, told := describedLibrary(found), describedLibrary(versioned{found})
	assert.Equal(t, plain.File+", version 1.8.12", told.File)
	assert.Equal(t, plain.Version, told.Version)
}

// without hides one function of a library, as an older one does.
type without struct {
	dl.Loader
	hidden string
}

func (l without) Lookup(library dl.Handle, name string) uintptr {
	if name == l.hidden {
		return 0
	}
	return l.Loader.Lookup(library, name)
}

// TestOlderLibraries: what an older library lacks is told, also of the software drivers.
func TestOlderLibraries(t *testing.T) {
	for hidden, missing := range map[string]string{
		"cuMemPoolCreate":  "memory pools and frees in stream order",
		"cuDeviceGetUuid":  "telling a MIG instance from a whole GPU",
		"hipMemPoolCreate": "memory pools and frees in stream order",
		"zesInit":          "the figure of free memory by Sysman",
	} {
		reset(t)
		older := without{dl.System, hidden}
		*cudaKind = *newOrderedKind("cuda", func() (*cuda.Library, error) {
			return cuda.Load(older, []dl.Candidate{{Name: soft.Fresh(t, soft.CUDA)}})
		})
		*hipKind = *newOrderedKind("hip", func() (*hip.Library, error) { return hip.Load(older, []dl.Candidate{{Name: soft.Fresh(t, soft.HIP)}}) })
		*levelZeroKind = *newLevelZeroKind("level_zero", func() (*levelzero.Library, error) {
			return levelzero.Load(older, []dl.Candidate{{Name: soft.Fresh(t, soft.LevelZero)}})
		})
		var told []string
		for _, kind := range []string{"cuda", "hip", "level_zero"} {
			first := describe(kind)[0]
			assert.True(t, first.Usable, first.Why)
			for _, note := range first.Notes {
				if strings.HasPrefix(note, "missing: ") {
					told = append(told, note)
				}
			}
		}
		assert.Equal(t, []string{"missing: " + missing + " (the library lacks " + hidden + ")"}, told)
	}
}

// TestLevelZeroFigures: where free memory's figure comes from, and what to do where it is not Sysman's.
func TestLevelZeroFigures(t *testing.T) {
	for _, c := range []struct {
		variables map[string]string
		notes     []string
	}{
		{nil, []string{"free memory is told by Sysman", "the driver gives memory back after the commands"}},
		{map[string]string{"TMSOFT_SYSMAN": "2"}, []string{"told by the driver's figure of usable memory; not Sysman: ", "ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS (0x70010000); run as a user that may"}},
		{map[string]string{"TMSOFT_SYSMAN": "0", "TMSOFT_USABLEMEM": "0"}, []string{"a sixteenth of the total is left to others; not Sysman: ", "frees wait until"}},
		{map[string]string{"ZES_ENABLE_SYSMAN": "1", "TMSOFT_USABLEMEM": "0"}, []string{"free memory is unknown", "ZES_ENABLE_SYSMAN is set"}},
		{map[string]string{"TMSOFT_FREE_POLICIES": "1"}, []string{"the driver defers no frees"}},
	} {
		reset(t)
		for name, value := range c.variables {
			t.Setenv(name, value)
		}
		t.Setenv(levelzero.LibraryVariable, soft.Fresh(t, soft.LevelZero))
		told := describe("level_zero")[0]
		require.True(t, told.Usable, told.Why)
		for _, note := range c.notes {
			assert.Contains(t, strings.Join(told.Notes, "\n"), note)
		}
		for name := range c.variables {
			require.NoError(t, os.Unsetenv(name))
		}
	}
}

// describe is what reports say of one kind.
func describe(kind string) (described []Description) {
	for _, d := range Describe() {
		if d.Kind == kind {
			described = append(described, d)
		}
	}
	return described
}
