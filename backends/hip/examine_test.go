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
