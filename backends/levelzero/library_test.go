package levelzero_test

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/levelzero"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

func TestSymbols(t *testing.T) {
	library, _ := library(t)
	soft.CheckSymbols(t, levelzero.Symbols, 1000)
	for _, symbol := range levelzero.Symbols {
		assert.True(t, symbol.Since <= 1004 || !symbol.Required, "%s: the loader 1.8 has all that is required", symbol.Name)
	}
	assert.Empty(t, library.Missing(), "the software driver has every function")
}

func TestCandidates(t *testing.T) {
	require.NoError(t, os.Unsetenv(levelzero.LibraryVariable))
	assert.Equal(t, []dl.Candidate{{Name: "libze_loader.so.1", OnlyLoaded: true}, {Name: "libze_loader.so.1"}}, levelzero.Candidates())
	t.Setenv(levelzero.LibraryVariable, "/opt/other.so")
	assert.Equal(t, []dl.Candidate{{Name: "/opt/other.so"}}, levelzero.Candidates())
}

func TestLoadFailures(t *testing.T) {
	soft.RequireLoadFailures(t, "libze_loader.so.1", "zeInit", func(candidates []dl.Candidate) error {
		_, err := levelzero.Load(dl.System, candidates)
		return err
	})
}

// hiding is a loader that hides functions.
func hiding(hidden func(dl.Symbol) bool) dl.Loader {
	return soft.Hiding{Loader: dl.System, Symbols: levelzero.Symbols, Hidden: hidden}
}

// patched is a loader that finds functions of C that a test brings along before the software driver's.
func patched(t testing.TB, code string) dl.Loader {
	t.Helper()
	return soft.Patched{Loader: dl.System, Extra: soft.Compile(t, code), Hidden: ""}
}

// requireWorks runs the operations of a program over a library.
func requireWorks(t *testing.T, library *levelzero.Library) levelzero.Facts {
	t.Helper()
	driver, err := library.Open("sim:0", 0)
	require.NoError(t, err)
	r := newRig(t, driver, library.Software(), 0)
	a, b := r.Allocate(1000), r.Allocate(1000)
	content := soft.Noise(1000, 1)
	r.Write(a, content)
	require.NoError(t, driver.CopyWithin(b, a, 1000))
	require.NoError(t, driver.Fill(a, []byte{1, 2, 3}, 1000))
	assert.Equal(t, content, r.Read(b, 1000))
	r.Free(a, 1000)
	r.Free(b, 1000)
	r.requireEmpty()
	require.NoError(t, driver.Close())
	return driver.Facts()
}

// TestOlderLoaders runs every version gate: what is missing is named, and the rest works.
func TestOlderLoaders(t *testing.T) {
	for _, c := range []struct {
		newest  int
		loads   bool
		inOrder bool
		free    levelzero.Source
		missing []string // features
	}{
		{1017, true, true, levelzero.SourceSysman, nil},
		{1009, true, true, levelzero.SourceSysman, []string{"starting drivers of GPUs only"}},
		{1007, true, true, levelzero.SourceSysman, []string{"in Sysman", "no immediate command list"}},
		{1005, true, false, levelzero.SourceSysman, []string{"in-order command lists"}},
		{1004, true, false, levelzero.SourceUsableSize, []string{"by Sysman"}},
		{1002, true, false, levelzero.SourceUsableSize, []string{"driver defers"}},
		{0, false, false, "", nil},
	} {
		library, err := levelzero.Load(hiding(func(s dl.Symbol) bool { return s.Since > c.newest }), []dl.Candidate{{Name: soft.Fresh(t, soft.LevelZero)}})
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
		facts := requireWorks(t, library)
		assert.Equal(t, c.inOrder, facts.InOrder, "version %d", c.newest)
		assert.Equal(t, c.newest >= 1003, facts.DefersFrees, "version %d", c.newest)
		assert.Equal(t, c.free, facts.Free, "version %d", c.newest)
		if c.free != levelzero.SourceSysman {
			assert.Contains(t, facts.FreeWhy, "too old")
		}
	}
}

// TestEachOptionalSymbol: none is needed, whichever others there are.
func TestEachOptionalSymbol(t *testing.T) {
	for _, symbol := range levelzero.Symbols {
		library, err := levelzero.Load(hiding(func(s dl.Symbol) bool { return s == symbol }), []dl.Candidate{{Name: soft.Fresh(t, soft.LevelZero)}})
		if symbol.Required {
			assert.ErrorContains(t, err, symbol.Name)
			continue
		}
		require.NoError(t, err, symbol.Name)
		assert.Equal(t, []dl.Symbol{symbol}, library.Missing())
		requireWorks(t, library)
	}
}

// TestOlderDrivers: a new loader has all functions, and the driver behind it does not know what they are for.
func TestOlderDrivers(t *testing.T) {
	for _, minor := range []int64{17, 13, 9, 7, 6, 5, 4, 2} {
		library := fresh(t)
		require.NoError(t, library.Software().Set("api_version", version(minor)))
		facts := requireWorks(t, library)
		assert.Equal(t, minor >= 7, facts.InOrder, "1.%d", minor)
		assert.Equal(t, library.VersionText(), facts.Version)
		assert.Regexp(t, `^1\.\d+$`, facts.Version)
	}
}

// TestLoaderVersion: the loader has a version of its own beside that of the interface, and tells it among those of its layers; an old one tells nothing.
func TestLoaderVersion(t *testing.T) {
	load := func(code string) *levelzero.Library {
		library, err := levelzero.Load(patched(t, code), []dl.Candidate{{Name: soft.Fresh(t, soft.LevelZero)}})
		require.NoError(t, err)
		return library
	}
	const component = "#include <string.h>\nstruct c { char name[64]; unsigned spec; int major, minor, patch; };\n" +
		"int zelLoaderGetVersions(unsigned long *n, struct c *c) { "
	const loader = "strcpy(c[1].name, \"loader\"); c[1].major = 1; c[1].minor = 8; c[1].patch = 12; return 0; }\n"
	for code, want := range map[string]string{
		component + "*n = 2; if (!c) return 0; strcpy(c[0].name, \"loader layer\"); c[0].major = 7; " + loader: "1.8.12",
		component + "*n = 1; if (!c) return 0; strcpy(c[0].name, \"tracing layer\"); return 0; }\n":            "",
		component + "*n = 0; return 0; }\n":  "",
		component + "return 0x78000001; }\n": "",
		"int nothing;\n":                     "",
	} {
		library := load(code)
		assert.Empty(t, library.LoaderVersion(), "before the start")
		_, err := library.Count()
		require.NoError(t, err)
		assert.Equal(t, want, library.LoaderVersion(), code)
	}
}

// TestDriverThatLiesAboutItsVersion: it says a version that has in-order lists, and refuses the flag.
func TestDriverThatLiesAboutItsVersion(t *testing.T) {
	loader := patched(t, "int zeCommandListCreateImmediate(void *c, void *d, void *e, void **f) { return 0x7800000c; }\n")
	library, err := levelzero.Load(loader, []dl.Candidate{{Name: soft.Fresh(t, soft.LevelZero)}})
	require.NoError(t, err)
	requireWorks(t, library)
	assert.Positive(t, library.Software().Calls("zeCommandQueueExecuteCommandLists"), "the queue was used")
}

// TestNoDevice: a loader that loads but reports no device is no error, by whichever call it says so.
func TestNoDevice(t *testing.T) {
	hidden := map[string]bool{}
	load := func() *levelzero.Library {
		library, err := levelzero.Load(hiding(func(s dl.Symbol) bool { return hidden[s.Name] }), []dl.Candidate{{Name: soft.Fresh(t, soft.LevelZero)}})
		require.NoError(t, err)
		return library
	}
	none := func(library *levelzero.Library) {
		t.Helper()
		count, err := library.Count()
		require.NoError(t, err)
		assert.Zero(t, count)
		assert.NoError(t, library.Skipped())
		assert.Empty(t, library.VersionText())
		_, err = library.Open("level_zero:0", 0)
		assert.ErrorContains(t, err, "there are 0")
	}
	library := load()
	require.NoError(t, library.Software().Set("devices", 0))
	none(library)
	hidden["zeInitDrivers"] = true
	for _, function := range []string{"zeInit", "zeDriverGet", "zeDeviceGet", "zeDriverGetApiVersion"} {
		library := load()
		require.NoError(t, library.Software().Fail(function, 1, uninitialized))
		none(library)
	}
}

func TestStartFailures(t *testing.T) {
	for code, advice := range map[int]string{dependencyUnavailable: "install the whole", insufficientPermissions: "/dev/dri/renderD", unknown: ""} {
		for _, function := range []string{"zeInitDrivers", "zeDeviceGet"} {
			library := fresh(t)
			require.NoError(t, library.Software().Fail(function, 1, code))
			_, err := library.Count()
			require.Error(t, err)
			assert.ErrorContains(t, err, advice)
			assert.ErrorContains(t, err, function)
			assert.ErrorContains(t, err, library.Path(), "which library it was")
			var start *levelzero.StartError
			assert.Equal(t, advice != "", errors.As(err, &start))
			var failed *gomem.DriverError
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, code, failed.Code)

			count, err := library.Count()
			require.NoError(t, err, "a failure is not remembered")
			assert.Equal(t, 2, count)
		}
	}
}

// TestSeveralDrivers: the devices of all drivers are one list; a driver that fails does not hide the others, and is named.
func TestSeveralDrivers(t *testing.T) {
	library := fresh(t)
	require.NoError(t, library.Software().Set("devices", 4))
	require.NoError(t, library.Software().Set("drivers", 2))
	count, err := library.Count()
	require.NoError(t, err)
	assert.Equal(t, 4, count)
	uuids := map[string]bool{}
	var drivers []*levelzero.Driver
	for ordinal := range count {
		driver, err := library.Open("sim", ordinal)
		require.NoError(t, err)
		uuids[driver.Facts().UUID] = true
		r := newRig(t, driver, library.Software(), 0)
		a := r.Allocate(100)
		r.Write(a, soft.Noise(100, uint32(ordinal)))
		assert.Equal(t, soft.Noise(100, uint32(ordinal)), r.Read(a, 100))
		r.Free(a, 100)
		drivers = append(drivers, driver)
	}
	assert.Len(t, uuids, 4)
	for _, driver := range drivers {
		require.NoError(t, driver.Close())
	}

	library = fresh(t)
	require.NoError(t, library.Software().Set("devices", 4))
	require.NoError(t, library.Software().Set("drivers", 2))
	require.NoError(t, library.Software().Fail("zeDeviceGet", 1, insufficientPermissions))
	count, err = library.Count()
	require.NoError(t, err)
	assert.Equal(t, 2, count)
	assert.ErrorContains(t, library.Skipped(), "/dev/dri/renderD")
}

func TestFacts(t *testing.T) {
	library, software := library(t)
	software.Reset()
	defer software.Reset()
	count, err := library.Count()
	require.NoError(t, err)
	assert.Equal(t, 2, count)
	uuids := map[string]bool{}
	for ordinal := range count {
		facts, err := library.Facts("sim:0", ordinal)
		require.NoError(t, err)
		assert.NotEmpty(t, facts.Name)
		assert.EqualValues(t, capacity, facts.Total)
		assert.EqualValues(t, capacity, facts.Largest)
		assert.True(t, facts.InOrder)
		assert.True(t, facts.DefersFrees)
		assert.True(t, facts.LargerPossible)
		assert.False(t, facts.Integrated)
		assert.Equal(t, levelzero.SourceSysman, facts.Free)
		assert.Empty(t, facts.FreeWhy)
		assert.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`, facts.UUID)
		uuids[facts.UUID] = true
	}
	assert.Len(t, uuids, count, "each device has its own UUID")
	assert.Equal(t, soft.Library(t, soft.LevelZero), library.Path())
	assert.False(t, library.Shared())
	require.NoError(t, software.Set("integrated", 1))
	require.NoError(t, software.Set("free_policies", 1))
	require.NoError(t, software.Set("relaxed", 0))
	facts, err := library.Facts("sim:0", 0)
	require.NoError(t, err)
	assert.True(t, facts.Integrated)
	assert.False(t, facts.DefersFrees, "it blocks only")
	assert.False(t, facts.LargerPossible)
	for _, ordinal := range []int{-1, 7} {
		_, err = library.Facts("sim:7", ordinal)
		assert.ErrorContains(t, err, "sim:7: there is no such device; there are 2")
	}
	require.NoError(t, software.Fail("zeDeviceGetMemoryProperties", 1, unknown))
	_, err = library.Facts("sim:0", 0)
	var failed *gomem.DriverError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, "sim:0: zeDeviceGetMemoryProperties failed: ZE_RESULT_ERROR_UNKNOWN (0x7ffffffe)", err.Error())
}

// TestDeviceWithoutMemory: a device that has no memory of its own uses the host's.
func TestDeviceWithoutMemory(t *testing.T) {
	loader := patched(t, "int zeDeviceGetMemoryProperties(void *d, unsigned *count, void *p) { *count = 0; return 0; }\n")
	library, err := levelzero.Load(loader, []dl.Candidate{{Name: soft.Fresh(t, soft.LevelZero)}})
	require.NoError(t, err)
	facts := requireWorks(t, library)
	assert.True(t, facts.Integrated)
	assert.Zero(t, facts.Total)
}
