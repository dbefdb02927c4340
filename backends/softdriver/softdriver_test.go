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

// abis are the folders of the vendors' ABIs, with the vendors' file names.
var abis = map[string]string{"cuda": "libcuda.so.1", "hip": "libamdhip64.so.6", "levelzero": "libze_loader.so.1"}

// Every folder with a table of functions is here.
func TestEveryABIIsTested(t *testing.T) {
	tables, err := filepath.Glob("*/functions.def")
	require.NoError(t, err)
	for _, table := range tables {
		assert.Contains(t, abis, filepath.Dir(table))
	}
	assert.Len(t, tables, len(abis))
}

// control are the functions that steer a software driver, in each of them.
var control = []string{"tmsoft_set", "tmsoft_get", "tmsoft_fail", "tmsoft_calls", "tmsoft_reset"}

var tableRow = regexp.MustCompile(`(?m)^F\((\w+),`)

// functionsOf reads the names in an ABI's table.
func functionsOf(t *testing.T, abi string) []string {
	t.Helper()
	table, err := os.ReadFile(filepath.Join(abi, "functions.def"))
	require.NoError(t, err)
	var names []string
	for _, row := range tableRow.FindAllStringSubmatch(string(table), -1) {
		names = append(names, row[1])
	}
	return names
}

// The two builds of each ABI, as files.
func TestLibraries(t *testing.T) {
	dir := t.TempDir()
	output, err := makeIn(t, dir, "all", "vendor")
	require.NoError(t, err, output)
	for abi, vendor := range abis {
		functions := append(functionsOf(t, abi), control...)
		for _, name := range []string{"libtack_memory_sim" + abi + ".so", vendor} {
			t.Run(name, func(t *testing.T) { inspect(t, filepath.Join(dir, name), functions) })
		}
	}
}

// A library without some symbols, as an older version of a vendor's is.
func TestHiddenSymbols(t *testing.T) {
	for abi := range abis {
		t.Run(abi, func(t *testing.T) {
			table := functionsOf(t, abi)
			hidden := []string{table[1], table[len(table)-1]}
			dir := t.TempDir()
			output, err := makeIn(t, dir, "ABIS="+abi, "HIDE="+strings.Join(hidden, " "), "OUT="+filepath.Join(dir, "old"), "OPTIMISE=-O0", "all")
			require.NoError(t, err, output)
			exported := exports(t, filepath.Join(dir, "old", "libtack_memory_sim"+abi+".so"))
			assert.ElementsMatch(t, append(table, control...), append(exported, hidden...))

			output, err = makeIn(t, dir, "ABIS="+abi, "HIDE=noSuchFunction", "OUT="+filepath.Join(dir, "none"), "all")
			assert.Error(t, err)
			assert.Contains(t, output, "noSuchFunction")
			output, err = makeIn(t, dir, "ABIS="+abi, "HIDE="+hidden[0], "all")
			assert.Error(t, err, "where whole libraries are built")
			assert.Contains(t, output, "folder of its own")
		})
	}
}

// Every prototype, number and layout that a table declares, against the vendor's own headers; and that this check can fail.
func TestCheck(t *testing.T) {
	fetched, err := filepath.Abs("../../build/softdriver/headers")
	require.NoError(t, err)
	for abi := range abis {
		t.Run(abi, func(t *testing.T) {
			here := []string{"ABIS=" + abi, "FETCHED=" + fetched, "OPTIMISE=-O0"}
			dir := t.TempDir()
			if _, err := makeIn(t, dir, append(here, "--question", "headers")...); err != nil && os.Getenv("TACK_MEMORY_FETCH_HEADERS") != "1" {
				t.Skip("the vendor's headers are not here: set TACK_MEMORY_FETCH_HEADERS=1, or run: make -C backends/softdriver check ABIS=" + abi)
			}
			output, err := makeIn(t, dir, append(here, "check")...)
			require.NoError(t, err, output)
			assert.Contains(t, output, "agrees with", "it compared something")
		})
	}
}

// inspect looks at a library's name, needs and exports.
func inspect(t *testing.T, path string, functions []string) {
	name := filepath.Base(path)
	file, err := elf.Open(path)
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
	assert.ElementsMatch(t, functions, exports(t, path))
}

// exports are the names that a library gives to whoever loads it.
func exports(t *testing.T, path string) []string {
	t.Helper()
	file, err := elf.Open(path)
	require.NoError(t, err)
	defer func() { assert.NoError(t, file.Close()) }()
	symbols, err := file.DynamicSymbols()
	require.NoError(t, err)
	var exported []string
	for _, symbol := range symbols {
		if symbol.Section != elf.SHN_UNDEF && !strings.HasPrefix(symbol.Name, "_") {
			exported = append(exported, symbol.Name)
		}
	}
	return exported
}
