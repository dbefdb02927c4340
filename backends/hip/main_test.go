package hip_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/hip"
	"github.com/tack-memory/tack-memory/backends/ordered"
	"github.com/tack-memory/tack-memory/backends/softdriver"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// What HIP shares with other vendors is tested by tests/go/conformance. Here is what is HIP's own, over two software devices of this size.
const capacity = 64 << 20

func TestMain(m *testing.M) { soft.MainOnTwo(m, capacity) }

var loading sync.Mutex
var loaded *hip.Library

// library is the software driver, loaded once.
func library(t testing.TB) (*hip.Library, *softdriver.Control) {
	t.Helper()
	loading.Lock()
	defer loading.Unlock()
	if loaded == nil {
		loaded = load(t, soft.Library(t, soft.HIP))
	}
	software := loaded.Software()
	require.NotNil(t, software)
	return loaded, software
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
	t        testing.TB
	driver   *ordered.Driver
	software *softdriver.Control
	host     *soft.Host
	ordinal  int
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
	r := &rig{t, driver, software, soft.NewHost(t, soft.Library(t, soft.HIP)), ordinal}
	t.Cleanup(func() {
		r.requireEmpty()
		assert.NoError(t, driver.Close())
		software.Reset()
	})
	return r
}

// figure reads a figure of the device.
func (r *rig) figure(key string) int64 {
	r.t.Helper()
	value, err := r.software.Get(fmt.Sprintf("%s.%d", key, r.ordinal))
	require.NoError(r.t, err)
	return value
}

// requireEmpty waits for the device, and sees that all memory is back.
func (r *rig) requireEmpty() {
	r.t.Helper()
	require.NoError(r.t, r.driver.Synchronize())
	_, err := r.driver.Trim()
	require.NoError(r.t, err)
	assert.Zero(r.t, r.driver.PendingFree(), "blocks that wait to be freed")
	assert.Zero(r.t, r.cached(), "bytes kept for reuse")
	assert.Zero(r.t, r.figure("live"), "live blocks")
	assert.Zero(r.t, r.figure("reserved"), "bytes taken from the device")
}

func (r *rig) cached() int64 {
	r.t.Helper()
	memory, err := r.driver.Memory()
	require.NoError(r.t, err)
	return memory.Cached
}

func (r *rig) allocate(nbytes uint64) uint64 {
	r.t.Helper()
	address, err := r.driver.Allocate(nbytes)
	require.NoError(r.t, err)
	require.NotZero(r.t, address)
	return address
}

func (r *rig) free(address, nbytes uint64) {
	r.t.Helper()
	require.NoError(r.t, r.driver.Free(gomem.Block{Address: address, Bytes: nbytes}))
}

// drop frees a block and waits until the device has passed it.
func (r *rig) drop(address, nbytes uint64) {
	r.t.Helper()
	r.free(address, nbytes)
	require.NoError(r.t, r.driver.Synchronize())
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
	r.t.Helper()
	return int(int32(r.host.Ask("hipGetDevice")))
}
