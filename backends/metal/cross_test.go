package metal_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBuildsForMacOS checks, compiles and links the package and its tests for both kinds of Mac, without cgo, as any machine can. Linking finds
// what checking does not: a function of the system that is not imported.
func TestBuildsForMacOS(t *testing.T) {
	if testing.Short() {
		t.Skip("left out of -short, run without it: the first time it compiles Go's library for macOS, which takes a minute")
	}
	for _, arch := range []string{"arm64", "amd64"} {
		t.Run(arch, func(t *testing.T) {
			tool := func(arguments ...string) {
				t.Helper()
				command := exec.Command("go", arguments...)
				command.Env = append(os.Environ(), "GOOS=darwin", "GOARCH="+arch, "CGO_ENABLED=0")
				output, err := command.CombinedOutput()
				require.NoError(t, err, "go %v\n%s", arguments, output)
			}
			tool("vet", "./...", "../dl", "../../gomem")
			tool("test", "-c", "-o", filepath.Join(t.TempDir(), "metal.test"), ".")
		})
	}
}
