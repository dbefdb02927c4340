package levelzero_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/levelzero"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// sysmanCalls is how often Sysman was called.
func sysmanCalls(software interface{ Calls(string) int }) int {
	calls := 0
	for _, function := range []string{"zesInit", "zesDriverGet", "zesDeviceGet", "zesDeviceGetProperties", "zesDriverGetDeviceByUuidExp",
		"zesDeviceEnumMemoryModules", "zesMemoryGetProperties", "zesMemoryGetState"} {
		calls += software.Calls(function)
	}
	return calls
}

// TestFreeMemory is the table of sources: Sysman, the driver's own figure, none; and what a user is told.
func TestFreeMemory(t *testing.T) {
	for name, c := range map[string]struct {
		settings settings
		free     levelzero.Source
		why      string
	}{
		"Sysman":                       {settings{}, levelzero.SourceSysman, ""},
		"Sysman, several modules":      {settings{"memory_modules": 3}, levelzero.SourceSysman, ""},
		"no Sysman":                    {settings{"sysman": 0}, levelzero.SourceUsableSize, "ZE_RESULT_ERROR_UNINITIALIZED"},
		"not for this user":            {settings{"sysman": 2}, levelzero.SourceUsableSize, "run as a user that may read it"},
		"no module (integrated GPU)":   {settings{"memory_modules": 0}, levelzero.SourceUsableSize, "knows no memory"},
		"neither":                      {settings{"sysman": 0, "usablemem": 0}, levelzero.SourceNone, "ZE_RESULT_ERROR_UNINITIALIZED"},
		"no module, no other figure":   {settings{"memory_modules": 0, "usablemem": 0}, levelzero.SourceNone, "knows no memory"},
		"a driver without that figure": {settings{"sysman": 2, "api_version": version(13)}, levelzero.SourceNone, "run as a user"},
	} {
		t.Run(name, func(t *testing.T) {
			library := fresh(t)
			software := library.Software()
			for key, value := range c.settings {
				require.NoError(t, software.Set(key, value))
			}
			driver, err := library.Open("sim:1", 1)
			require.NoError(t, err)
			assert.Equal(t, c.free, driver.Facts().Free)
			if c.why == "" {
				assert.Empty(t, driver.Facts().FreeWhy)
			}
			assert.Contains(t, driver.Facts().FreeWhy, c.why)
			r := newRig(t, driver, software, 1)
			a := r.Allocate(5 << 20)
			require.NoError(t, software.Set("taken.1", 7<<20))
			require.NoError(t, software.Set("taken.0", 30<<20)) // of the other device
			before := sysmanCalls(software)
			memory, err := driver.Memory()
			require.NoError(t, err)
			assert.EqualValues(t, capacity, memory.Total)
			if c.free == levelzero.SourceNone {
				assert.Equal(t, gomem.Unknown, memory.Free, "unknown, and not what we think")
			} else {
				assert.EqualValues(t, capacity-12<<20, memory.Free)
			}
			assert.LessOrEqual(t, sysmanCalls(software)-before, int(max(c.settings["memory_modules"], 1)), "what does not change is not asked again")
			r.Free(a, 5<<20)
			require.NoError(t, driver.Close())
		})
	}
}

// TestSysmanFindsTheDeviceWithoutItsNewerFunction: by asking each device for its UUID.
func TestSysmanFindsTheDeviceWithoutItsNewerFunction(t *testing.T) {
	library, err := levelzero.Load(hiding(func(s dl.Symbol) bool { return s.Name == "zesDriverGetDeviceByUuidExp" }),
		[]dl.Candidate{{Name: soft.Fresh(t, soft.LevelZero)}})
	require.NoError(t, err)
	require.NoError(t, library.Software().Set("taken.0", 1<<20))
	require.NoError(t, library.Software().Set("taken.1", 2<<20))
	for ordinal := range 2 {
		driver, err := library.Open("sim", ordinal)
		require.NoError(t, err)
		memory, err := driver.Memory()
		require.NoError(t, err)
		assert.EqualValues(t, capacity-(1+ordinal)<<20, memory.Free)
		require.NoError(t, driver.Close())
	}
	assert.Positive(t, library.Software().Calls("zesDeviceGetProperties"))
}

// TestSysmanOfAPart: of a card with several parts, only the memory of the part that the device is counts.
func TestSysmanOfAPart(t *testing.T) {
	loader := patched(t, `
struct mem { int stype; void *next; int type; unsigned char on_part; unsigned part, location; unsigned long size; int width, channels; };
struct state { int stype; void *next; int health; unsigned long free, size; };
int zesDriverGetDeviceByUuidExp(void *driver, struct { long a, b; } uuid, void **device, unsigned char *on_part, unsigned *part) {
	*device = (void *)1; *on_part = 1; *part = 1; return 0;
}
int zesDeviceEnumMemoryModules(void *device, unsigned *count, long *modules) {
	for (unsigned i = 0; modules && i < *count; i++) modules[i] = 1 + i;
	*count = 4; return 0;
}
int zesMemoryGetProperties(long module, struct mem *m) { m->on_part = module != 4; m->part = module % 2; m->location = module != 3; return 0; }
int zesMemoryGetState(long module, struct state *s) { s->free = 1000 * module; return 0; }
`)
	library, err := levelzero.Load(loader, []dl.Candidate{{Name: soft.Fresh(t, soft.LevelZero)}})
	require.NoError(t, err)
	driver, err := library.Open("sim:0", 0)
	require.NoError(t, err)
	memory, err := driver.Memory()
	require.NoError(t, err)
	assert.EqualValues(t, 1000, memory.Free, "module 1: part 1, on the device; 2 is part 0, 3 is host memory, 4 is no part's")
	require.NoError(t, driver.Close())
}

// TestSysmanIsLeftAloneWhereItsVariableIsSet: its two ways to start must not be mixed.
func TestSysmanIsLeftAloneWhereItsVariableIsSet(t *testing.T) {
	for value, asked := range map[string]bool{"1": false, "0": true, "": true} {
		t.Setenv("ZES_ENABLE_SYSMAN", value)
		library := fresh(t)
		facts, err := library.Facts("sim:0", 0)
		require.NoError(t, err)
		driver, err := library.Open("sim:0", 0)
		require.NoError(t, err)
		r := newRig(t, driver, library.Software(), 0)
		r.Free(r.Allocate(100), 100)
		require.NoError(t, driver.Close())
		assert.Equal(t, asked, sysmanCalls(library.Software()) > 0, "ZES_ENABLE_SYSMAN=%s", value)
		if !asked {
			assert.Contains(t, facts.FreeWhy, "ZES_ENABLE_SYSMAN is set")
			assert.Equal(t, levelzero.SourceUsableSize, facts.Free)
		}
	}
}

// TestSysmanFailsOnce: a failure that may not come again is not remembered; one that will is.
func TestSysmanFailsOnce(t *testing.T) {
	for _, function := range []string{"zesInit", "zesDriverGet", "zesDriverGetDeviceByUuidExp", "zesDeviceEnumMemoryModules", "zesMemoryGetProperties", "zesMemoryGetState"} {
		for code, again := range map[int]bool{unknown: true, unsupportedFeature: false} {
			if function == "zesDriverGetDeviceByUuidExp" && !again {
				continue // the driver is older than this one function: see above
			}
			library := fresh(t)
			software := library.Software()
			require.NoError(t, software.Fail(function, 1, code))
			driver, err := library.Open("sim:0", 0)
			require.NoError(t, err, "the driver's own figure helps out")
			assert.Equal(t, levelzero.SourceUsableSize, driver.Facts().Free)
			assert.Contains(t, driver.Facts().FreeWhy, function)
			before := sysmanCalls(software)
			memory, err := driver.Memory()
			require.NoError(t, err)
			assert.EqualValues(t, capacity, memory.Free)
			assert.Equal(t, again, sysmanCalls(software) > before, "%s: %#x", function, code)
			require.NoError(t, driver.Close())
		}
	}
}
