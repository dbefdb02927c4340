package conformance

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/common"
	"github.com/tack-memory/tack-memory/backends/softdriver"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// rigCapacity is the size of each device in tests that do not say otherwise.
const rigCapacity = 16 << 20

// rig is an open driver over a flavour's software driver, without a core above it.
type rig struct {
	flavour
	t        testing.TB
	driver   gomem.Driver
	software *softdriver.Control // nil where none is steered
	host     host                // nil where memory is counted only
	ordinal  int
}

// newRig opens a device. At the end of the test nothing may be left on it.
func newRig(t testing.TB, f flavour, more settings) *rig {
	t.Helper()
	return f.rigOn(t, f.open(t, more), f.ordinal(0))
}

func (f flavour) rigOn(t testing.TB, l library, ordinal int) *rig {
	t.Helper()
	driver, err := l.OpenDriver(f.deviceName(ordinal), ordinal)
	require.NoError(t, err)
	r := &rig{flavour: f, t: t, driver: driver, ordinal: ordinal}
	if f.steered() {
		r.software = l.Software()
	}
	if f.host != nil {
		r.host = f.host(t, soft.NewHost(t, f.file(t)), ordinal)
	}
	t.Cleanup(func() {
		r.requireEmpty()
		assert.NoError(t, driver.Close())
		assert.NoError(t, driver.Close(), "closing twice")
		if r.software != nil {
			r.software.Reset()
		}
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
	err := r.driver.Synchronize()
	if !r.steered() && errors.Is(err, common.ErrClosed) {
		return // by the core; then nobody is left to ask
	}
	require.NoError(r.t, err)
	_, err = r.driver.Trim()
	require.NoError(r.t, err)
	assert.Zero(r.t, r.driver.PendingFree(), "blocks that wait to be freed")
	assert.Zero(r.t, r.memory().Cached, "cached bytes after a trim")
	if r.software != nil {
		// A driver that defers frees (Level Zero) ends them on a thread of its own: no call waits for that.
		require.Eventually(r.t, func() bool { return r.figure("deferred") == 0 }, time.Minute, time.Millisecond, "the driver still keeps memory that was freed")
		assert.Zero(r.t, r.figure("live"), "live blocks")
		assert.Zero(r.t, r.figure("reserved"), "bytes taken from the device")
	}
}

func (r *rig) memory() gomem.DriverMemory {
	r.t.Helper()
	memory, err := r.driver.Memory()
	require.NoError(r.t, err)
	return memory
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

// write puts bytes on the device.
func (r *rig) write(address uint64, content []byte) {
	r.t.Helper()
	soft.Write(r.t, r.driver, address, content)
}

// read gets bytes from the device.
func (r *rig) read(address uint64, nbytes int) []byte {
	r.t.Helper()
	return soft.Read(r.t, r.driver, address, nbytes)
}
