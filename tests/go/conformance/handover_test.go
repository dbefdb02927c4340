package conformance

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// TestMemoryGoesBackToTheHost: what the core gives back is the host's to free, by its own call and in its own context, wherever it was in between, and
// counts here no more: again and again, more than the device has in all.
func TestMemoryGoesBackToTheHost(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		r := newRig(t, f, nil)
		device, err := gomem.NewDevice(r.Driver, gomem.Options{Movable: true, Pool: gomem.NewHostPool(), Check: true})
		require.NoError(t, err)
		const n = rigCapacity / 4
		host, pointer := soft.Bytes(t, n)
		for round := range 8 {
			a := r.host.allocate(n)
			index, err := device.Adopt(a, n, gomem.AdoptOptions{How: f.plain})
			require.NoError(t, err)
			require.NoError(t, device.Fill(index, 0, []byte{byte(round)}, n, gomem.Wait{}))
			if round > 0 { // then the memory that comes back is the driver's own, and not what was adopted
				_, err = device.Spill(index, gomem.Wait{})
				require.NoError(t, err)
			}
			back, err := device.Disown(index, gomem.Wait{})
			require.NoError(t, err)
			require.NoError(t, device.Synchronize())
			require.NoError(t, r.Driver.CopyOut(pointer, back, n))
			assert.Equal(t, [2]byte{byte(round), byte(round)}, [2]byte{host[0], host[n-1]})
			r.host.free(back)
		}
		assert.Zero(t, device.Unfreed())
		require.NoError(t, device.Close())
	})
}
