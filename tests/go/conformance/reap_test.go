package conformance

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
)

// TestNothingStaysWithAnIdleProgram: what was freed comes back without another allocation, free or wait, while the device was busy with it at the
// time; so does what an allocation of the host's own has replaced, again and again.
func TestNothingStaysWithAnIdleProgram(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		r := newRig(t, f, settings{"delay_us": 2000})
		device, err := gomem.NewDevice(r.Driver, gomem.Options{Movable: true, Pool: gomem.NewHostPool(), Check: true})
		require.NoError(t, err)
		const n = rigCapacity / 4
		untilIdle := func() {
			require.Eventually(t, func() bool { return !device.Reap() }, time.Minute, time.Millisecond, "freed memory waits for ever")
			require.Zero(t, r.Driver.PendingFree())
		}
		adopt := func() uint32 {
			index, err := device.Adopt(r.host.allocate(n), n, gomem.AdoptOptions{How: f.plain})
			require.NoError(t, err)
			require.NoError(t, device.Fill(index, 0, []byte{1}, n, gomem.Wait{}))
			return index
		}
		for range 12 { // three times the device, by a host that asks the core for no room
			device.Drop(adopt())
			untilIdle()
			if r.steered() {
				require.Eventually(t, func() bool { return r.Figure("deferred") == 0 }, time.Minute, time.Millisecond)
				assert.Zero(t, r.Figure("live"))
			}
		}
		own, err := device.Allocate(n, gomem.AllocateOptions{Zero: true})
		require.NoError(t, err)
		_, err = device.Spill(own, gomem.Wait{})
		require.NoError(t, err)
		untilIdle()
		device.Drop(own)
		assert.Zero(t, device.Unfreed())
		require.NoError(t, device.Close())
		assert.False(t, device.Reap(), "on a closed device")
	})
}
