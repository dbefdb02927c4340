// Package softdriver_test builds the software drivers, and runs their tests, which are in C: see README.md.
package softdriver_test

import (
	"debug/elf"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// makeIn runs this folder's Makefile with all its output below dir.
func makeIn(t *testing.T, dir string, arguments ...string) (string, error) {
	t.Helper()
	readSources(t)
	command := exec.Command("make", append([]string{"--no-print-directory", "BUILD=" + dir, "OUT=" + dir}, arguments...)...)
	output, err := command.CombinedOutput()
	return string(output), err
}

// readSources opens every file here, so that go test does not take an old result for the result of sources that changed since.
func readSources(t *testing.T) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		_, err = os.ReadFile(path)
		return err
	}))
}

var resultLine = regexp.MustCompile(`(?m)^(ok  |FAIL) (\w+)`)

// The driver's own tests; each of them is a subtest here.
func TestDriver(t *testing.T) {
	output, err := makeIn(t, t.TempDir(), "test")
	results := resultLine.FindAllStringSubmatch(output, -1)
	for _, result := range results {
		t.Run(result[2], func(t *testing.T) { assert.Equal(t, "ok  ", result[1]) })
	}
	require.NoError(t, err, output)
	require.NotEmpty(t, results, output)
}

// The two builds, as files.
func TestLibraries(t *testing.T) {
	dir := t.TempDir()
	output, err := makeIn(t, dir, "all", "vendor")
	require.NoError(t, err, output)
	table, err := os.ReadFile("cuda/functions.def")
	require.NoError(t, err)
	functions := []string{"tmsoft_set", "tmsoft_get", "tmsoft_fail", "tmsoft_calls", "tmsoft_reset"}
	for _, row := range regexp.MustCompile(`(?m)^F\((\w+),`).FindAllStringSubmatch(string(table), -1) {
		functions = append(functions, row[1])
	}
	for _, name := range []string{"libtack_memory_simcuda.so", "libcuda.so.1"} {
		t.Run(name, func(t *testing.T) {
			file, err := elf.Open(filepath.Join(dir, name))
			require.NoError(t, err)
			defer func() { assert.NoError(t, file.Close()) }()

			// Once a library with the vendor's SONAME is loaded, whoever asks for that name in the same process gets it: the one that ships
			// must have a name of its own.
			soname, err := file.DynString(elf.DT_SONAME)
			require.NoError(t, err)
			assert.Equal(t, []string{name}, soname)

			needed, err := file.ImportedLibraries()
			require.NoError(t, err)
			for _, library := range needed {
				assert.Regexp(t, `^(libc|libpthread|ld-linux.*)\.so`, library, "nothing but the C library is needed")
			}

			// What is exported is the table and the control functions: no internals, and no old un-suffixed name that a program could
			// take by mistake.
			symbols, err := file.DynamicSymbols()
			require.NoError(t, err)
			var exported []string
			for _, symbol := range symbols {
				if symbol.Section != elf.SHN_UNDEF && !strings.HasPrefix(symbol.Name, "_") {
					exported = append(exported, symbol.Name)
				}
			}
			assert.ElementsMatch(t, functions, exported)
		})
	}
}
