package soft

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tack-memory/tack-memory/backends/dl"
)

// Patched is a software driver with some functions taken from C that a test brings along, and one hidden.
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
