package cuda_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// TestABI compares every prototype and number with the vendor's own headers, and compiles the backend against them.
func TestABI(t *testing.T) {
	symbols, err := filepath.Abs("symbols.def")
	require.NoError(t, err)
	for _, headers := range soft.HeaderFolders(t, "cuda", "TACK_MEMORY_CUDA_HEADERS", "12/nvidia/*/include", "13/nvidia/*/include") {
		output, err := soft.CheckC(headers, symbols, "testdata/abi.c")
		assert.NoError(t, err, "%s: %s", headers, output)
		for _, file := range []string{"library.c", "adapter.c"} {
			output, err := soft.CheckC(headers, symbols, file, "-D__CUDA_API_VERSION_INTERNAL=1", "-DTMC_VENDOR_HEADER=<cuda.h>")
			assert.NoError(t, err, "%s: %s: %s", headers, file, output)
		}
		soft.RequireFindsWrong(t, "cuMemAlloc_v2", "F(cuMemAlloc_v2, 3020, REQUIRED, (CUdeviceptr *, size_t))", "size_t", "unsigned int", func(symbols string) (string, error) {
			return soft.CheckC(headers, symbols, "testdata/abi.c")
		})
	}
}
