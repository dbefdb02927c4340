package soft

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/softdriver"
	"github.com/tack-memory/tack-memory/gomem"
)

// Rig is an open driver, D, over a software driver that a test steers, without a core above it. A package's own rig embeds it.
type Rig[D gomem.Driver] struct {
	T        testing.TB
	Driver   D
	Software *softdriver.Control // nil where none is steered
	Ordinal  int
}

// NewRig is a rig of an open driver.
func NewRig[D gomem.Driver](t testing.TB, driver D, software *softdriver.Control, ordinal int) Rig[D] {
	return Rig[D]{T: t, Driver: driver, Software: software, Ordinal: ordinal}
}

// Figure reads a figure of the device.
func (r *Rig[D]) Figure(key string) int64 {
	r.T.Helper()
	value, err := r.Software.Get(fmt.Sprintf("%s.%d", key, r.Ordinal))
	require.NoError(r.T, err)
	return value
}

// Memory is the driver's figures.
func (r *Rig[D]) Memory() gomem.DriverMemory {
	r.T.Helper()
	memory, err := r.Driver.Memory()
	require.NoError(r.T, err)
	return memory
}

// RequireDrained waits for the device, and sees that nothing waits to be freed or is kept.
func (r *Rig[D]) RequireDrained() {
	r.T.Helper()
	require.NoError(r.T, r.Driver.Synchronize())
	_, err := r.Driver.Trim()
	require.NoError(r.T, err)
	assert.Zero(r.T, r.Driver.PendingFree(), "blocks that wait to be freed")
	assert.Zero(r.T, r.Memory().Cached, "cached bytes after a trim")
}

// RequireNothingLeft sees that the software driver has got all memory back.
func (r *Rig[D]) RequireNothingLeft() {
	r.T.Helper()
	assert.Zero(r.T, r.Figure("live"), "live blocks")
	assert.Zero(r.T, r.Figure("reserved"), "bytes taken from the device")
}

// RequireEmpty waits for the device, and sees that all memory is back.
func (r *Rig[D]) RequireEmpty() {
	r.T.Helper()
	r.RequireDrained()
	r.RequireNothingLeft()
}

// Allocate allocates a block.
func (r *Rig[D]) Allocate(nbytes uint64) uint64 {
	r.T.Helper()
	address, err := r.Driver.Allocate(nbytes)
	require.NoError(r.T, err)
	require.NotZero(r.T, address)
	return address
}

// Free frees a block that Allocate has returned.
func (r *Rig[D]) Free(address, nbytes uint64) {
	r.T.Helper()
	require.NoError(r.T, r.Driver.Free(gomem.Block{Address: address, Bytes: nbytes}))
}

// Write puts bytes on the device.
func (r *Rig[D]) Write(address uint64, content []byte) {
	r.T.Helper()
	Write(r.T, r.Driver, address, content)
}

// Read gets bytes from the device.
func (r *Rig[D]) Read(address uint64, nbytes int) []byte {
	r.T.Helper()
	return Read(r.T, r.Driver, address, nbytes)
}

// Once makes something for all tests of a process, by the first test that asks for it. Where making it fails, the next test tries again.
func Once[V any](make func(t testing.TB) V) func(t testing.TB) V {
	var lock sync.Mutex
	var value V
	made := false
	return func(t testing.TB) V {
		t.Helper()
		lock.Lock()
		defer lock.Unlock()
		if !made {
			value = make(t)
			made = true
		}
		return value
	}
}
