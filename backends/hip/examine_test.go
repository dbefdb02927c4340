package hip_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/hip"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

func TestMemoryOfNoOneDevice(t *testing.T) {
	soft.RequireMemoryOfNoOneDevice(t, "hip", gomem.HowHIPAsync, func(managed, device int) string {
		return fmt.Sprintf(`
			struct attributes { int type, device; void *on_device, *on_host; int managed; unsigned flags; };
			int hipPointerGetAttributes(struct attributes *attributes, const void *address) {
				*attributes = (struct attributes){ .type = 2, .device = %d, .managed = %d };
				return 0;
			}`, device, managed)
	}, func(t *testing.T, loader dl.Loader) soft.Examiner {
		library, err := hip.Load(loader, []dl.Candidate{{Name: soft.Library(t, soft.HIP)}})
		require.NoError(t, err)
		driver, err := library.Open("hip:0", 0)
		require.NoError(t, err)
		return driver
	})
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
	freed := gomem.Block{Bytes: nbytes / 2, How: gomem.HowHIP}
	soft.RequireFreed(t, r.Driver, freed, a, a+nbytes-1)
	require.NoError(t, r.Driver.Synchronize())
	require.EqualValues(t, nbytes, r.Memory().Cached)
	soft.RequireFreed(t, r.Driver, freed, a, a+nbytes-1)
	require.Equal(t, a, r.Allocate(nbytes))
	require.NoError(t, examine(a))
	r.drop(a, nbytes)
	_, err := r.Driver.Trim()
	require.NoError(t, err)
	var refused *gomem.BlockError
	require.ErrorAs(t, examine(a), &refused)
	require.False(t, refused.Found.Freed, "now it is back")
}
