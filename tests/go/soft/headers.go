package soft

import (
	"os"
	"path/filepath"
	"testing"
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
		t.Skipf("no header of the vendor here: name folders in %s, or run: make -C backends/softdriver headers ABIS=%s", variable, abi)
	}
	return folders
}
