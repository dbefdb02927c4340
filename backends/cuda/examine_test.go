package cuda_test

import (
	"fmt"
	"testing"

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

func TestMemoryOfNoOneDevice(t *testing.T) {
	soft.RequireMemoryOfNoOneDevice(t, "cuda", gomem.HowCUDAAsync, func(managed, device int) string {
		return fmt.Sprintf(`
			int cuPointerGetAttributes(unsigned count, const int *asked, void **answers, unsigned long long address) {
				for (unsigned i = 0; i < count; i++) *(int *)answers[i] = asked[i] == 2 ? 2 : asked[i] == 8 ? %d : %d;
				return 0;
			}`, managed, device)
	}, func(t *testing.T, loader dl.Loader) soft.Examiner {
		library, err := cuda.Load(loader, []dl.Candidate{{Name: soft.Library(t, soft.CUDA)}})
		require.NoError(t, err)
		driver, err := library.Open("cuda:0", 0)
		require.NoError(t, err)
		return driver
	})
}
