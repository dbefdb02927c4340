package hip_test

import (
	"os"
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
	for _, headers := range soft.HeaderFolders(t, "hip", "TACK_MEMORY_HIP_HEADERS", "hip5/usr/include", "hip6/triton/backends/amd/include", "hip7/triton/backends/amd/include") {
		output, err := soft.CheckC(headers, symbols, "testdata/abi.c")
		assert.NoError(t, err, "%s: %s", headers, output)
		for _, file := range []string{"library.c", "adapter.c"} {
			output, err := soft.CheckC(headers, symbols, file, "-D__HIP_PLATFORM_AMD__=1", "-DTMH_VENDOR_HEADER=<hip/hip_runtime_api.h>")
			assert.NoError(t, err, "%s: %s: %s", headers, file, output)
		}
		soft.RequireFindsWrong(t, "hipMalloc", "F(hipMalloc, 40200000, REQUIRED, (void **, size_t))", "size_t", "unsigned int", func(symbols string) (string, error) {
			return soft.CheckC(headers, symbols, "testdata/abi.c")
		})
	}
}

// TestNoDeviceProperties: the structure of hipGetDeviceProperties changed its layout and the function its name between versions.
func TestNoDeviceProperties(t *testing.T) {
	for _, file := range []string{"adapter.c", "library.c", "api.h", "abi.h"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.NotContains(t, string(text), "hipGetDeviceProperties", file)
		assert.NotContains(t, string(text), "hipDeviceProp_t", file)
	}
}
