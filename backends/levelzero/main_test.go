package levelzero_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/levelzero"
	"github.com/tack-memory/tack-memory/backends/softdriver"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// The tests run over the software driver: two devices of this size.
const capacity = 64 << 20

// The vendor's codes.
const (
	notReady                = 1
	deviceLost              = 0x70000001
	outOfHostMemory         = 0x70000002
	outOfDeviceMemory       = 0x70000003
	insufficientPermissions = 0x70010000
	dependencyUnavailable   = 0x70020000
	uninitialized           = 0x78000001
	unsupportedFeature      = 0x78000003
	invalidArgument         = 0x78000004
	unsupportedSize         = 0x78000009
	invalidEnumeration      = 0x7800000c
	unknown                 = 0x7ffffffe
)

// version is a version of the interface as drivers tell it.
func version(minor int64) int64 { return 1<<16 | minor }

func TestMain(m *testing.M) { soft.MainOnTwo(m, capacity) }

// library is the software driver, which is the same for all tests; what we know of it is asked anew.
func library(t testing.TB) (*levelzero.Library, *softdriver.Control) {
	t.Helper()
	library := load(t, soft.Library(t, soft.LevelZero))
	software := library.Software()
	require.NotNil(t, software)
	return library, software
}

func load(t testing.TB, file string) *levelzero.Library {
	t.Helper()
	library, err := levelzero.Load(dl.System, []dl.Candidate{{Name: file}})
	require.NoError(t, err)
	return library
}

// fresh is a driver of its own, which nobody has started.
func fresh(t testing.TB) *levelzero.Library { return load(t, soft.Fresh(t, soft.LevelZero)) }

// settings of the software driver, by key.
type settings map[string]int64

// modes are the ways a device can be: in-order lists or a queue with fences, frees deferred by the driver or by us, freed addresses dead
// for ever or used again at once, slow or not.
var modes = []settings{
	{"quarantine": 1},
	{"quarantine": 1, "free_policies": 0},
	{"quarantine": 0, "free_policies": 0, "delay_us": 200, "jitter_us": 300},
	{"quarantine": 1, "api_version": version(6)},
	{"quarantine": 1, "api_version": version(4), "free_policies": 0, "delay_us": 200, "jitter_us": 300},
	{"quarantine": 0, "api_version": version(4), "delay_us": 200, "jitter_us": 300},
}

func (s settings) String() string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(s)) {
		parts = append(parts, fmt.Sprintf("%s=%d", key, s[key]))
	}
	return strings.Join(parts, ",")
}

// inOrder reports whether the driver has in-order lists under these settings.
func (s settings) inOrder() bool { return s["api_version"] == 0 || s["api_version"] >= version(7) }

// defers reports whether the driver defers frees.
func (s settings) defers() bool {
	policies, set := s["free_policies"]
	return !set || policies != 0
}

// inAllModes runs a test once a mode.
func inAllModes(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) { test(t, open(t, mode, 0)) })
	}
}

// rig is an open device over the software driver.
type rig struct {
	soft.Rig[*levelzero.Driver]
	host *framework
}

func newRig(t testing.TB, driver *levelzero.Driver, software *softdriver.Control, ordinal int) *rig {
	return &rig{soft.NewRig(t, driver, software, ordinal), newFramework(t, ordinal)}
}

// open opens a device under some settings. At the end of the test nothing may be left on it.
func open(t testing.TB, s settings, ordinal int) *rig {
	t.Helper()
	library, software := library(t)
	if ordinal == 0 {
		software.Reset()
	}
	for key, value := range s {
		require.NoError(t, software.Set(key, value))
	}
	driver, err := library.Open(fmt.Sprintf("sim:%d", ordinal), ordinal)
	require.NoError(t, err)
	assert.Equal(t, s.inOrder(), driver.Facts().InOrder)
	assert.Equal(t, s.defers(), driver.Facts().DefersFrees)
	r := newRig(t, driver, software, ordinal)
	t.Cleanup(func() {
		r.requireEmpty()
		assert.NoError(t, driver.Close())
		assert.NoError(t, driver.Close(), "closing twice")
		software.Reset()
	})
	return r
}

// requireEmpty waits for the device, and sees that all memory is back. A driver that defers frees does them in a while.
func (r *rig) requireEmpty() {
	r.T.Helper()
	r.RequireDrained()
	r.requireLive(0)
	r.RequireNothingLeft()
}

// requireLive sees that so many blocks are left on the device, now or soon.
func (r *rig) requireLive(blocks int64) {
	r.T.Helper()
	require.Eventually(r.T, func() bool { return r.Figure("live") == blocks }, time.Minute, time.Millisecond, "live blocks")
}
