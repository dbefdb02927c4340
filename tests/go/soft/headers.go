package soft

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// FetchVariable is set to 1 where the vendors' headers are expected: what is missing of them is a failure then, and not a reason to skip a test.
const FetchVariable = "TACK_MEMORY_FETCH_HEADERS"

// HeaderFolders finds folders with a vendor's own headers, one a generation of them: those that the variable names, separated like the folders of
// PATH, or those that `make -C backends/softdriver headers` has fetched (they are not in the repository). generations are patterns below that folder.
func HeaderFolders(t testing.TB, abi, variable string, generations ...string) []string {
	t.Helper()
	if named := os.Getenv(variable); named != "" {
		return filepath.SplitList(named)
	}
	sources, err := softdriverFolder()
	if err != nil {
		t.Fatal(err)
	}
	var folders []string
	for _, generation := range generations {
		found, err := filepath.Glob(filepath.Join(sources, "..", "..", "build", "softdriver", "headers", filepath.FromSlash(generation)))
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 0 && os.Getenv(FetchVariable) == "1" {
			t.Fatalf("no %s: run make -C backends/softdriver headers ABIS=%s", generation, abi)
		}
		folders = append(folders, found...)
	}
	if len(folders) == 0 {
		t.Skipf("no header of the vendor here: name folders in %s, set TACK_MEMORY_FETCH_HEADERS=1, or run: make -C backends/softdriver headers ABIS=%s", variable, abi)
	}
	return folders
}

// CheckC checks a C file of a backend against a folder of headers and a table of symbols, and returns what the compiler says.
func CheckC(headers, symbols, file string, more ...string) (string, error) {
	arguments := append([]string{"-std=gnu17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-enum-conversion", "-isystem", headers, `-DSYMBOLS="` + symbols + `"`}, more...)
	output, err := exec.Command(cmp.Or(os.Getenv("CC"), "cc"), append(arguments, file)...).CombinedOutput()
	return string(output), err
}

// RequireFindsWrong shows that the check of a table can fail: it changes a line of the package's symbols.def, and the compiler must say that this
// function's prototype is another one.
func RequireFindsWrong(t testing.TB, function, line, part, by string, check func(symbols string) (string, error)) {
	t.Helper()
	table, err := os.ReadFile("symbols.def")
	require.NoError(t, err)
	require.Contains(t, string(table), line)
	wrong := filepath.Join(t.TempDir(), "wrong.def")
	require.NoError(t, os.WriteFile(wrong, []byte(strings.Replace(string(table), line, strings.Replace(line, part, by, 1), 1)), 0o600))
	output, err := check(wrong)
	assert.Error(t, err)
	assert.Contains(t, output, "prototype of "+function)
}
