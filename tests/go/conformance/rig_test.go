package conformance

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/common"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// rigCapacity is the size of each device in tests that do not say otherwise.
const rigCapacity = 16 << 20

// rig is an open driver over a flavour's software driver, without a core above it.
type rig struct {
	flavour
	soft.Rig[gomem.Driver]      // Software: nil where none is steered
	host                   host // nil where memory is counted only
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
	r := &rig{flavour: f, Rig: soft.NewRig(t, driver, nil, ordinal)}
	if f.steered() {
		r.Software = l.Software()
	}
	if f.host != nil {
		r.host = f.host(t, soft.NewHost(t, f.file(t)), ordinal)
	}
	t.Cleanup(func() {
		r.requireEmpty()
		assert.NoError(t, driver.Close())
		assert.NoError(t, driver.Close(), "closing twice")
		if r.Software != nil {
			r.Software.Reset()
		}
	})
	return r
}

// requireEmpty waits for the device, and sees that all memory is back.
func (r *rig) requireEmpty() {
	r.T.Helper()
	if !r.steered() && errors.Is(r.Driver.Synchronize(), common.ErrClosed) {
		return // by the core; then nobody is left to ask
	}
	r.RequireDrained()
	if r.Software != nil {
		// A driver that defers frees (Level Zero) ends them on a thread of its own: no call waits for that.
		require.Eventually(r.T, func() bool { return r.Figure("deferred") == 0 }, time.Minute, time.Millisecond, "the driver still keeps memory that was freed")
		r.RequireNothingLeft()
	}
}
