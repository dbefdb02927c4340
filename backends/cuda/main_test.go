package cuda_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/cuda"
	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// The tests run over the software driver: two devices of this size.
const capacity = 64 << 20

func TestMain(m *testing.M) { soft.MainOnTwo(m, capacity) }

var loaded = soft.Once(func(t testing.TB) *cuda.Library { return load(t, soft.Library(t, soft.CUDA)) })

// library is the software driver, loaded once.
func library(t testing.TB) (*cuda.Library, *cuda.Software) {
	t.Helper()
	library := loaded(t)
	software := library.Software()
	require.NotNil(t, software)
	return library, software
}

func load(t testing.TB, file string) *cuda.Library {
	t.Helper()
	library, err := cuda.Load(dl.System, []dl.Candidate{{Name: file}})
	require.NoError(t, err)
	return library
}

// settings of the software driver, by key.
type settings map[string]int64

// wantsContext is a mode of the tests, and no setting of the software driver: the driver does not take a pool's calls from a thread without
// a current context.
const wantsContext = "wants a context"

// modes are the ways a device can be: with pools and without, freed addresses dead for ever or reused at once, pageable copies late or
// early.
var modes = []settings{
	{"pools": 1, "quarantine": 1, "pageable": 1, wantsContext: 1},
	{"pools": 1, "quarantine": 1, "pageable": 0},
	{"pools": 1, "quarantine": 0, "pageable": 1, "delay_us": 200, "jitter_us": 300},
	{"pools": 0, "quarantine": 1, "pageable": 1, "delay_us": 200, "jitter_us": 300},
	{"pools": 0, "quarantine": 0, "pageable": 0},
}

func (s settings) String() string {
	return fmt.Sprintf("pools=%d,quarantine=%d,pageable=%d,delay=%d,context=%d", s["pools"], s["quarantine"], s["pageable"], s["delay_us"], s[wantsContext])
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
	soft.Rig[*cuda.Driver]
	host *soft.Host
}

func newRig(t testing.TB, driver *cuda.Driver, software *cuda.Software, ordinal int) *rig {
	return &rig{soft.NewRig(t, driver, software, ordinal), soft.NewHost(t, soft.Library(t, soft.CUDA))}
}

// open opens a device under some settings. At the end of the test nothing may be left on it.
func open(t testing.TB, s settings, ordinal int) *rig {
	t.Helper()
	library, software := library(t)
	if ordinal == 0 {
		software.Reset()
	}
	for key, value := range s {
		if key != wantsContext {
			require.NoError(t, software.Set(key, value))
		}
	}
	driver, err := library.Open(fmt.Sprintf("sim:%d", ordinal), ordinal)
	require.NoError(t, err)
	r := newRig(t, driver, software, ordinal)
	t.Cleanup(func() {
		r.RequireEmpty()
		assert.NoError(t, driver.Close())
		assert.NoError(t, driver.Close(), "closing twice")
		software.Reset()
	})
	if s[wantsContext] == 1 {
		const invalidContext = 201
		require.NoError(t, software.Fail("cuMemAllocFromPoolAsync", 1, invalidContext))
		r.Free(r.Allocate(1), 1)
	}
	return r
}
