package hip_test

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// compile checks a C file against a folder of headers, and returns what the compiler says.
func compile(headers, symbols, file string, more ...string) (string, error) {
	arguments := append([]string{"-std=gnu17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-enum-conversion", "-isystem", headers, `-DSYMBOLS="` + symbols + `"`}, more...)
	output, err := exec.Command(cmp.Or(os.Getenv("CC"), "cc"), append(arguments, file)...).CombinedOutput()
	return string(output), err
}

// TestABI compares every prototype and number with the vendor's own headers, and compiles the backend against them.
func TestABI(t *testing.T) {
	symbols, err := filepath.Abs("symbols.def")
	require.NoError(t, err)
	table, err := os.ReadFile("symbols.def")
	require.NoError(t, err)
	for _, headers := range soft.HeaderFolders(t, "hip", "TACK_MEMORY_HIP_HEADERS", "hip5/usr/include", "hip6/triton/backends/amd/include", "hip7/triton/backends/amd/include") {
		output, err := compile(headers, symbols, "testdata/abi.c")
		assert.NoError(t, err, "%s: %s", headers, output)
		for _, file := range []string{"library.c", "adapter.c"} {
			output, err := compile(headers, symbols, file, "-D__HIP_PLATFORM_AMD__=1", "-DTMH_VENDOR_HEADER=<hip/hip_runtime_api.h>")
			assert.NoError(t, err, "%s: %s: %s", headers, file, output)
		}

		// And the check can fail.
		right := "F(hipMalloc, 40200000, REQUIRED, (void **, size_t))"
		require.Contains(t, string(table), right)
		wrong := filepath.Join(t.TempDir(), "wrong.def")
		require.NoError(t, os.WriteFile(wrong, []byte(strings.Replace(string(table), right, strings.Replace(right, "size_t", "unsigned int", 1), 1)), 0o600))
		output, err = compile(headers, wrong, "testdata/abi.c")
		assert.Error(t, err)
		assert.Contains(t, output, "prototype of hipMalloc")
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
