package soft

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/dl"
)

// Patched is a software driver with some functions taken from C that a test brings along, and one hidden ("": none).
type Patched struct {
	dl.Loader
	Extra  *dl.Library
	Hidden string
}

// Lookup finds the test's function before the driver's.
func (l Patched) Lookup(library dl.Handle, name string) uintptr {
	if name == l.Hidden {
		return 0
	}
	if address := l.Extra.Lookup(name); address != 0 {
		return address
	}
	return l.Loader.Lookup(library, name)
}

// Hiding hides functions of a table, as an older library does.
type Hiding struct {
	dl.Loader
	Symbols []dl.Symbol
	Hidden  func(dl.Symbol) bool
}

// Lookup finds what is not hidden.
func (l Hiding) Lookup(library dl.Handle, name string) uintptr {
	if slices.ContainsFunc(l.Symbols, func(s dl.Symbol) bool { return s.Name == name && l.Hidden(s) }) {
		return 0
	}
	return l.Loader.Lookup(library, name)
}

// CheckSymbols sees that a table of functions is whole: no name twice, none of a version before oldest, and each is required or needed for something.
func CheckSymbols(t testing.TB, symbols []dl.Symbol, oldest int) {
	t.Helper()
	seen := map[string]bool{}
	for _, symbol := range symbols {
		assert.False(t, seen[symbol.Name], "%s is listed twice", symbol.Name)
		seen[symbol.Name] = true
		assert.GreaterOrEqual(t, symbol.Since, oldest)
		assert.Equal(t, symbol.Required, symbol.Feature == "", "%s: required, or needed for something that is named", symbol.Name)
	}
}

// RequireLoadFailures sees that a backend says of a library that is not there which one it was, and of one without the vendor's functions which is
// missing.
func RequireLoadFailures(t testing.TB, name, function string, load func([]dl.Candidate) error) {
	t.Helper()
	nowhere := "/nowhere/" + name
	err := load([]dl.Candidate{{Name: nowhere}})
	var failed *dl.LoadError
	require.ErrorAs(t, err, &failed)
	assert.ErrorContains(t, err, nowhere)

	err = load([]dl.Candidate{{Name: "libc.so.6"}})
	var missing *dl.MissingError
	require.ErrorAs(t, err, &missing, "a library without the vendor's functions")
	assert.ErrorContains(t, err, function)
}

// Compile makes a library of a few lines of C.
func Compile(t testing.TB, code string) *dl.Library {
	t.Helper()
	folder := t.TempDir()
	source, file := filepath.Join(folder, "extra.c"), filepath.Join(folder, "libextra.so")
	if err := os.WriteFile(source, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.Command(cmp.Or(os.Getenv("CC"), "cc"), "-shared", "-fPIC", "-o", file, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	extra, err := dl.Open(dl.System, []dl.Candidate{{Name: file}}, dl.API{})
	if err != nil {
		t.Fatal(err)
	}
	return extra
}
