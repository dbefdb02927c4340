package hip_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/hip"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// TestMemoryOfNoOneDevice: managed memory moves between devices, and may be used and freed on each of them; so may what the runtime knows no device of.
func TestMemoryOfNoOneDevice(t *testing.T) {
	for name, c := range map[string]struct {
		managed, device int
		refused         bool
	}{"of another device": {0, 1, true}, "managed": {1, 1, false}, "of no device that is told": {0, -2, false}} {
		t.Run(name, func(t *testing.T) {
			extra := soft.Compile(t, fmt.Sprintf(`
				struct attributes { int type, device; void *on_device, *on_host; int managed; unsigned flags; };
				int hipPointerGetAttributes(struct attributes *attributes, const void *address) {
					*attributes = (struct attributes){ .type = 2, .device = %d, .managed = %d };
					return 0;
				}`, c.device, c.managed))
			library, err := hip.Load(soft.Patched{Loader: dl.System, Extra: extra}, []dl.Candidate{{Name: soft.Library(t, soft.HIP)}})
			require.NoError(t, err)
			driver, err := library.Open("hip:0", 0)
			require.NoError(t, err)
			address, err := driver.Allocate(100)
			require.NoError(t, err)
			err = driver.Examine(gomem.Block{Address: address, Bytes: 100, How: gomem.HowHIPAsync})
			if c.refused {
				require.ErrorContains(t, err, "it lies on hip:1; adopt it there")
			} else {
				require.NoError(t, err)
			}
			require.NoError(t, driver.Free(gomem.Block{Address: address, Bytes: 100}))
			assert.NoError(t, driver.Close())
		})
	}
}

// TestFreedMemoryIsNobodysToAdopt: while a freed block waits for the device, and while it is kept for another allocation, the runtime knows it as before.
func TestFreedMemoryIsNobodysToAdopt(t *testing.T) {
	r := keeping(t, settings{"delay_us": 100_000})
	const nbytes = 64 << 10
	a := r.Allocate(nbytes)
	examine := func(from uint64) error {
		return r.Driver.Examine(gomem.Block{Address: from, Bytes: nbytes / 2, How: gomem.HowHIP})
	}
	require.NoError(t, examine(a))
	require.NoError(t, r.Driver.Fill(a, []byte{1}, nbytes))
	r.Free(a, nbytes)
	require.EqualValues(t, nbytes, r.Driver.PendingFree())
	var refused *gomem.BlockError
	for _, from := range []uint64{a, a + nbytes - 1} {
		require.ErrorAs(t, examine(from), &refused)
		require.True(t, refused.Found.Freed)
	}
	require.NoError(t, r.Driver.Synchronize())
	require.EqualValues(t, nbytes, r.Memory().Cached)
	for _, from := range []uint64{a, a + nbytes - 1} {
		require.ErrorAs(t, examine(from), &refused)
		require.True(t, refused.Found.Freed)
		require.ErrorContains(t, refused, "on its way back to the driver")
	}
	require.Equal(t, a, r.Allocate(nbytes))
	require.NoError(t, examine(a))
	r.drop(a, nbytes)
	_, err := r.Driver.Trim()
	require.NoError(t, err)
	require.ErrorAs(t, examine(a), &refused)
	require.False(t, refused.Found.Freed, "now it is back")
}
