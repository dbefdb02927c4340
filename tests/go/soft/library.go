// Package soft is what tests over software drivers need: the libraries built from their sources, host memory outside Go's heap, and a host
// framework's own use of a driver beside ours.
package soft

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// The vendors' interfaces that there is a software driver for.
const (
	CUDA      = "cuda"
	HIP       = "hip"
	LevelZero = "levelzero"
)

// FileName is the software driver of an interface.
func FileName(abi string) string { return "libtack_memory_sim" + abi + ".so" }

// BuiltVariable is an environment variable that names a folder with libraries built already, which saves each test process building one.
const BuiltVariable = "TACK_MEMORY_TEST_SIM_FOLDER"

// folder is where this process keeps what it builds and copies.
var folder = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "tack-memory-soft-") })

// built is the libraries that this process has, by interface.
var built struct {
	sync.Mutex
	files map[string]string
}

// softdriverFolder is where the sources of the software drivers are.
func softdriverFolder() (string, error) {
	_, this, _, ok := runtime.Caller(0)
	if !ok {
		return "", fmt.Errorf("where the sources are is not known")
	}
	return filepath.Join(filepath.Dir(this), "..", "..", "..", "backends", "softdriver"), nil
}

func build(abi string) (string, error) {
	if named := os.Getenv(BuiltVariable); named != "" {
		return filepath.Join(named, FileName(abi)), nil
	}
	built.Lock()
	defer built.Unlock()
	if file, done := built.files[abi]; done {
		return file, nil
	}
	sources, err := softdriverFolder()
	if err != nil {
		return "", err
	}
	out, err := folder()
	if err != nil {
		return "", err
	}
	command := exec.Command("make", "--no-print-directory", "-C", sources, "OUT="+out, "ABIS="+abi)
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the software driver: %w\n%s", err, output)
	}
	if built.files == nil {
		built.files = map[string]string{}
	}
	built.files[abi] = filepath.Join(out, FileName(abi))
	return built.files[abi], nil
}

// Library builds the software driver of an interface, once a test process, and returns its file.
func Library(t testing.TB, abi string) string {
	t.Helper()
	file, err := build(abi)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// Fresh returns a copy of the library under another name: loaded, it is a driver of its own, which nobody has started.
func Fresh(t testing.TB, abi string) string {
	t.Helper()
	content, err := os.ReadFile(Library(t, abi))
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

// MainOnTwo is Main over software drivers with two devices of this many bytes each.
func MainOnTwo(m *testing.M, capacity int64) {
	for name, value := range map[string]string{"TMSOFT_DEVICES": "2", "TMSOFT_CAPACITY": fmt.Sprint(capacity)} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	Main(m)
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
