package ordered

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBlockThatCannotBeFreedIsKept compiles and runs testdata/evicted.c with the files of this package.
func TestBlockThatCannotBeFreedIsKept(t *testing.T) {
	sources, err := filepath.Glob("*.c")
	require.NoError(t, err)
	program := filepath.Join(t.TempDir(), "evicted")
	arguments := append([]string{"-std=gnu17", "-Wall", "-Werror", "-Wl,--wrap=calloc", "-pthread", "-o", program, "testdata/evicted.c"}, sources...)
	output, err := exec.Command(cmp.Or(os.Getenv("CC"), "cc"), arguments...).CombinedOutput()
	require.NoError(t, err, "%s", output)
	output, err = exec.Command(program).CombinedOutput()
	require.NoError(t, err, "the exit status is the line of testdata/evicted.c that failed: %s", output)
}
