// Package simcuda is what tests of the CUDA path need: the software driver built from its sources, controls for it, host memory outside Go's
// heap, and a host framework's own use of the driver beside ours.
package simcuda

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// FileName is the software driver's library.
const FileName = "libtack_memory_simcuda.so"

// BuiltVariable is an environment variable that names a library built already, which saves each test process building one.
const BuiltVariable = "TACK_MEMORY_TEST_SIM_LIBRARY"

// folder is where this process keeps what it builds and copies.
var folder = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "tack-memory-simcuda-") })

var build = sync.OnceValues(func() (string, error) {
	if built := os.Getenv(BuiltVariable); built != "" {
		return built, nil
	}
	_, this, _, ok := runtime.Caller(0)
	if !ok {
		return "", fmt.Errorf("where the sources are is not known")
	}
	sources := filepath.Join(filepath.Dir(this), "..", "..", "..", "backends", "softdriver")
	out, err := folder()
	if err != nil {
		return "", err
	}
	command := exec.Command("make", "--no-print-directory", "-C", sources, "OUT="+out)
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the software driver: %w\n%s", err, output)
	}
	return filepath.Join(out, FileName), nil
})

// Library builds the software driver, once a test process, and returns its file.
func Library(t testing.TB) string {
	t.Helper()
	file, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// Fresh returns a copy of the library under another name: loaded, it is a driver of its own, which nobody has started.
func Fresh(t testing.TB) string {
	t.Helper()
	content, err := os.ReadFile(Library(t))
	if err != nil {
		t.Fatal(err)
	}
	to, err := folder()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.CreateTemp(to, "fresh-*.so")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(content); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}

// Main runs a package's tests and removes what was built.
func Main(m *testing.M) {
	code := m.Run()
	made, err := folder()
	if err == nil {
		err = os.RemoveAll(made)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}
