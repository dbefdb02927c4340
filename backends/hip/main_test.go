package hip_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/hip"
	"github.com/tack-memory/tack-memory/backends/ordered"
	"github.com/tack-memory/tack-memory/backends/softdriver"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// What HIP shares with other vendors is tested by tests/go/conformance. Here is what is HIP's own, over two software devices of this size.
const capacity = 64 << 20

func TestMain(m *testing.M) { soft.MainOnTwo(m, capacity) }

var loaded = soft.Once(func(t testing.TB) *hip.Library { return load(t, soft.Library(t, soft.HIP)) })

// library is the software driver, loaded once.
func library(t testing.TB) (*hip.Library, *softdriver.Control) {
	t.Helper()
	library := loaded(t)
	software := library.Software()
	require.NotNil(t, software)
	return library, software
}

func load(t testing.TB, file string) *hip.Library {
	t.Helper()
	library, err := hip.Load(dl.System, []dl.Candidate{{Name: file}})
	require.NoError(t, err)
	return library
}

// settings of the software driver, by key.
type settings map[string]int64

// rig is an open device over the software driver.
type rig struct {
	soft.Rig[*ordered.Driver]
	host *soft.Host
}

func newRig(t testing.TB, driver *ordered.Driver, software *softdriver.Control, ordinal int) *rig {
	return &rig{soft.NewRig(t, driver, software, ordinal), soft.NewHost(t, soft.Library(t, soft.HIP))}
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
	driver, err := library.Open(fmt.Sprintf("hip:%d", ordinal), ordinal)
	require.NoError(t, err)
	r := newRig(t, driver, software, ordinal)
	t.Cleanup(func() {
		r.RequireEmpty()
		assert.NoError(t, driver.Close())
		software.Reset()
	})
	return r
}

// drop frees a block and waits until the device has passed it.
func (r *rig) drop(address, nbytes uint64) {
	r.T.Helper()
	r.Free(address, nbytes)
	require.NoError(r.T, r.Driver.Synchronize())
}

// onThread keeps a test on one OS thread, with the device 0 current at its beginning.
func onThread(r *rig, test func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r.host.Must("hipSetDevice", 0)
	test()
	r.host.Must("hipSetDevice", 0)
}

// currentDevice is the thread's.
func (r *rig) currentDevice() int {
	r.T.Helper()
	return int(int32(r.host.Ask("hipGetDevice")))
}
