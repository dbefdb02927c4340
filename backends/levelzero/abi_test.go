package levelzero_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/tests/go/soft"
)

var currentVersion = regexp.MustCompile(`ZE_API_VERSION_CURRENT = ZE_MAKE_VERSION\( 1, (\d+) \)`)

// headerVersion is the version of the specification that a folder's headers have, 1004 for 1.4.
func headerVersion(t *testing.T, headers string) int {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(headers, "level_zero", "ze_api.h"))
	require.NoError(t, err)
	match := currentVersion.FindSubmatch(content)
	require.NotNil(t, match)
	minor, err := strconv.Atoi(string(match[1]))
	require.NoError(t, err)
	return 1000 + minor
}

// compile checks a C file against a folder of headers, and returns what the compiler says.
func compile(t *testing.T, headers, symbols, file string) (string, error) {
	t.Helper()
	both := filepath.Join(t.TempDir(), "vendor.h")
	require.NoError(t, os.WriteFile(both, []byte("#include <level_zero/ze_api.h>\n#include <level_zero/zes_api.h>\n"), 0o600))
	return soft.CheckC(headers, symbols, file, `-DTML_VENDOR_HEADER="`+both+`"`, fmt.Sprintf("-DTML_HEADER_VERSION=%d", headerVersion(t, headers)))
}

// TestABI compares every prototype, number and layout with the vendor's own headers, as far as they have it, and compiles the backend
// against them.
func TestABI(t *testing.T) {
	symbols, err := filepath.Abs("symbols.def")
	require.NoError(t, err)
	for _, headers := range soft.HeaderFolders(t, "levelzero", "TACK_MEMORY_LEVEL_ZERO_HEADERS", "ze/usr/include") {
		files, err := filepath.Glob("*.c")
		require.NoError(t, err)
		for _, file := range append(files, "testdata/abi.c") {
			output, err := compile(t, headers, symbols, file)
			assert.NoError(t, err, "%s: %s: %s", headers, file, output)
		}
		soft.RequireFindsWrong(t, "zeMemFree", "F(zeMemFree, 1000, REQUIRED, (ze_context_handle_t, void *))", "void *", "const void *", func(symbols string) (string, error) {
			return compile(t, headers, symbols, "testdata/abi.c")
		})
	}
}
