package soft

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/gomem"
)

// Examiner is a driver that can be asked for memory and for what lies at an address.
type Examiner interface {
	gomem.Driver
	gomem.Examiner
}

// RequireMemoryOfNoOneDevice sees what a backend takes for its own. Managed memory moves between devices, and may be used and freed on each of them; so may
// what the vendor's library knows no device of. Memory of another device is refused.
//
// answer is C that has the library say whether memory is managed, and of which device it is; open is vendor:0 over a library with that.
func RequireMemoryOfNoOneDevice(t *testing.T, vendor string, how gomem.How, answer func(managed, device int) string, open func(*testing.T, dl.Loader) Examiner) {
	for name, c := range map[string]struct {
		managed, device int
		refused         bool
	}{"of another device": {0, 1, true}, "managed": {1, 1, false}, "of no device that is told": {0, -2, false}} {
		t.Run(name, func(t *testing.T) {
			driver := open(t, Patched{Loader: dl.System, Extra: Compile(t, answer(c.managed, c.device))})
			address, err := driver.Allocate(100)
			require.NoError(t, err)
			err = driver.Examine(gomem.Block{Address: address, Bytes: 100, How: how})
			if c.refused {
				require.ErrorContains(t, err, "it lies on "+vendor+":1; adopt it there")
			} else {
				require.NoError(t, err)
			}
			require.NoError(t, driver.Free(gomem.Block{Address: address, Bytes: 100}))
			assert.NoError(t, driver.Close())
		})
	}
}

// RequireFreed sees that a driver refuses, as freed, a block at each of these addresses.
func RequireFreed(t testing.TB, driver gomem.Examiner, block gomem.Block, from ...uint64) {
	t.Helper()
	for _, address := range from {
		block.Address = address
		var refused *gomem.BlockError
		require.ErrorAs(t, driver.Examine(block), &refused)
		require.True(t, refused.Found.Freed)
		require.ErrorContains(t, refused, "on its way back to the driver")
	}
}
