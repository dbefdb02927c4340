package cuda_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/cuda"
	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// TestDriverThatDoesNotTellTheDevice: drivers older than CUDA 9.2 refuse to be asked for it. Then the caller is believed, and all else is still looked at.
func TestDriverThatDoesNotTellTheDevice(t *testing.T) {
	r, other := open(t, nil, 0), open(t, nil, 1)
	old := func() { require.NoError(t, r.Software.Fail("cuPointerGetAttributes", 1, 1)) }
	onContext(t, r, func() {
		block := gomem.Block{Address: r.host.Ask("cuMemAlloc_v2", 100), Bytes: 100, How: gomem.HowCUDA}
		pinned := gomem.Block{Address: r.host.Ask("cuMemAllocHost_v2", 100), Bytes: 100, How: gomem.HowCUDA}
		require.ErrorContains(t, other.Driver.Examine(block), "it lies on sim:0; adopt it there")
		old()
		require.NoError(t, other.Driver.Examine(block))
		old()
		require.ErrorContains(t, other.Driver.Examine(pinned), "is host memory")
		r.host.Must("cuMemFree_v2", block.Address)
		r.host.Must("cuMemFreeHost", pinned.Address)
	})
}

// TestMemoryOfNoOneDevice: managed memory moves between devices, and may be used and freed on each of them; so may what the driver knows no device of.
func TestMemoryOfNoOneDevice(t *testing.T) {
	for name, c := range map[string]struct {
		managed, device int
		refused         bool
	}{"of another device": {0, 1, true}, "managed": {1, 1, false}, "of no device that is told": {0, -2, false}} {
		t.Run(name, func(t *testing.T) {
			extra := soft.Compile(t, fmt.Sprintf(`
				int cuPointerGetAttributes(unsigned count, const int *asked, void **answers, unsigned long long address) {
					for (unsigned i = 0; i < count; i++) *(int *)answers[i] = asked[i] == 2 ? 2 : asked[i] == 8 ? %d : %d;
					return 0;
				}`, c.managed, c.device))
			library, err := cuda.Load(soft.Patched{Loader: dl.System, Extra: extra}, []dl.Candidate{{Name: soft.Library(t, soft.CUDA)}})
			require.NoError(t, err)
			driver, err := library.Open("cuda:0", 0)
			require.NoError(t, err)
			address, err := driver.Allocate(100)
			require.NoError(t, err)
			err = driver.Examine(gomem.Block{Address: address, Bytes: 100, How: gomem.HowCUDAAsync})
			if c.refused {
				require.ErrorContains(t, err, "it lies on cuda:1; adopt it there")
			} else {
				require.NoError(t, err)
			}
			require.NoError(t, driver.Free(gomem.Block{Address: address, Bytes: 100}))
			assert.NoError(t, driver.Close())
		})
	}
}
