package dl_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/dl"
)

// table is a loader without a dynamic linker: libraries are lists of names.
type table struct {
	libraries map[string][]string // file name -> the functions it has
	loaded    map[string]bool     // what the process has loaded already
	opened    []string            // handles by number
	closed    []string
	closeErr  error
}

func (t *table) Open(c dl.Candidate) (dl.Handle, error) {
	if _, there := t.libraries[c.Name]; !there || c.OnlyLoaded && !t.loaded[c.Name] {
		return 0, fmt.Errorf("cannot open %s", c.Name)
	}
	t.opened = append(t.opened, c.Name)
	return dl.Handle(len(t.opened)), nil
}

func (t *table) Lookup(h dl.Handle, symbol string) uintptr {
	for i, name := range t.libraries[t.opened[h-1]] {
		if name == symbol {
			return uintptr(h)<<16 + uintptr(i) + 1
		}
	}
	return 0
}

func (t *table) File(address uintptr) string { return "/resolved/" + t.opened[address>>16-1] }

func (t *table) Close(h dl.Handle) error {
	t.closed = append(t.closed, t.opened[h-1])
	return t.closeErr
}

var symbols = []dl.Symbol{
	{Name: "start", Since: 10, Required: true},
	{Name: "pools", Since: 30, Feature: "memory pools"},
	{Name: "stop", Since: 20, Required: true},
}

var api = dl.API{Name: "Test", Symbols: symbols, VersionText: func(version int) string { return fmt.Sprintf("%d.%d", version/10, version%10) }}

func TestOpenTakesTheFirstUsableCandidate(t *testing.T) {
	for name, c := range map[string]struct {
		libraries  map[string][]string
		loaded     map[string]bool
		candidates []dl.Candidate
		path       string // "" means that opening fails
		shared     bool
		closed     []string
	}{
		"one":             {libraries: map[string][]string{"a": {"start", "stop"}}, candidates: []dl.Candidate{{Name: "a"}}, path: "/resolved/a"},
		"second":          {libraries: map[string][]string{"b": {"start", "stop"}}, candidates: []dl.Candidate{{Name: "a"}, {Name: "b"}}, path: "/resolved/b"},
		"order":           {libraries: map[string][]string{"a": {"start", "stop"}, "b": {"start", "stop"}}, candidates: []dl.Candidate{{Name: "b"}, {Name: "a"}}, path: "/resolved/b"},
		"shared":          {libraries: map[string][]string{"a": {"start", "stop"}}, loaded: map[string]bool{"a": true}, candidates: []dl.Candidate{{Name: "a", OnlyLoaded: true}}, path: "/resolved/a", shared: true},
		"not loaded":      {libraries: map[string][]string{"a": {"start", "stop"}}, candidates: []dl.Candidate{{Name: "a", OnlyLoaded: true}, {Name: "a"}}, path: "/resolved/a"},
		"lacks a symbol":  {libraries: map[string][]string{"a": {"start"}, "b": {"start", "stop"}}, candidates: []dl.Candidate{{Name: "a"}, {Name: "b"}}, path: "/resolved/b", closed: []string{"a"}},
		"none":            {candidates: []dl.Candidate{{Name: "a"}, {Name: "b"}}},
		"only a bad one":  {libraries: map[string][]string{"a": {"pools"}}, candidates: []dl.Candidate{{Name: "a"}}, closed: []string{"a"}},
		"nowhere to look": {},
	} {
		t.Run(name, func(t *testing.T) {
			loader := &table{libraries: c.libraries, loaded: c.loaded}
			library, err := dl.Open(loader, c.candidates, api)
			assert.Equal(t, c.closed, loader.closed, "a library that cannot be used is closed again")
			if c.path == "" {
				var failed *dl.LoadError
				require.ErrorAs(t, err, &failed)
				assert.Len(t, failed.Attempts, len(c.candidates))
				for _, candidate := range c.candidates {
					assert.ErrorContains(t, err, candidate.Name)
				}
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.path, library.Path())
			assert.Equal(t, c.shared, library.Shared())
		})
	}
}

func TestMissingSymbols(t *testing.T) {
	loader := &table{libraries: map[string][]string{"old": {"start", "stop"}, "broken": {}, "partial": {"start"}, "new": {"stop", "pools", "start", "extra"}}}

	library, err := dl.Open(loader, []dl.Candidate{{Name: "old"}}, api)
	require.NoError(t, err)
	assert.Equal(t, []dl.Symbol{symbols[1]}, library.Missing())
	assert.Zero(t, library.Address(1))
	assert.NotZero(t, library.Address(0))

	_, err = dl.Open(loader, []dl.Candidate{{Name: "broken"}}, api)
	var missing *dl.MissingError
	require.ErrorAs(t, err, &missing)
	assert.Equal(t, []dl.Symbol{symbols[0], symbols[2]}, missing.Symbols)
	assert.EqualError(t, missing, "it is no Test library: it has neither start nor any other function that is needed")

	_, err = dl.Open(loader, []dl.Candidate{{Name: "partial"}}, api)
	require.ErrorAs(t, err, &missing)
	assert.EqualError(t, missing, "it lacks stop; Test 2.0 or newer is needed")

	library, err = dl.Open(loader, []dl.Candidate{{Name: "new"}}, api)
	require.NoError(t, err)
	assert.Empty(t, library.Missing())
	assert.NotZero(t, library.Lookup("extra"))
	assert.Zero(t, library.Lookup("nothing"))

	loader.closeErr = errors.New("busy")
	assert.ErrorIs(t, library.Close(), loader.closeErr)
	_, err = dl.Open(loader, []dl.Candidate{{Name: "broken"}}, api)
	assert.ErrorIs(t, err, loader.closeErr, "an error of closing is not lost")
}

// TestManyMissingSymbols: a long list of names would hide what is said.
func TestManyMissingSymbols(t *testing.T) {
	wanted := dl.API{Name: "Test", Symbols: []dl.Symbol{{Name: "a", Required: true}}}
	for i := range 8 {
		wanted.Symbols = append(wanted.Symbols, dl.Symbol{Name: fmt.Sprint("f", i), Since: i, Required: true})
	}
	_, err := dl.Open(&table{libraries: map[string][]string{"old": {"a"}}}, []dl.Candidate{{Name: "old"}}, wanted)
	var missing *dl.MissingError
	require.ErrorAs(t, err, &missing)
	assert.EqualError(t, missing, "it lacks f0, f1, f2, f3, f4, and 3 more functions; Test 7 or newer is needed")
}

// TestSystem runs the real dynamic linker on a library that is built here.
func TestSystem(t *testing.T) {
	folder := t.TempDir()
	source, file := filepath.Join(folder, "a.c"), filepath.Join(folder, "libtm_dl_test.so")
	require.NoError(t, os.WriteFile(source, []byte("int start(void) { return 1; }\nint stop(void) { return 2; }\n"), 0o600))
	output, err := exec.Command(cmp.Or(os.Getenv("CC"), "cc"), "-shared", "-fPIC", "-Wl,-soname,libtm_dl_test.so.7", "-o", file, source).CombinedOutput()
	require.NoError(t, err, "%s", output)

	_, err = dl.Open(dl.System, []dl.Candidate{{Name: "libtm_dl_test.so.7", OnlyLoaded: true}, {Name: "libtm_dl_test.so.7"}}, api)
	assert.EqualError(t, err, "no usable library; tried libtm_dl_test.so.7: it is not there")

	_, err = dl.Open(dl.System, []dl.Candidate{{Name: "libtm_dl_test.so.7"}, {Name: "libtm_dl_test.so.6"}}, api)
	assert.EqualError(t, err, "no usable library; tried libtm_dl_test.so.7, libtm_dl_test.so.6: none of them is there")

	library, err := dl.Open(dl.System, []dl.Candidate{{Name: file}}, api)
	require.NoError(t, err)
	assert.Equal(t, file, library.Path())
	assert.False(t, library.Shared())
	assert.Equal(t, []dl.Symbol{symbols[1]}, library.Missing())

	again, err := dl.Open(dl.System, []dl.Candidate{{Name: "libtm_dl_test.so.7", OnlyLoaded: true}}, api)
	require.NoError(t, err, "a loaded library is found by its SONAME")
	assert.True(t, again.Shared())
	assert.Equal(t, library.Address(0), again.Address(0))
	assert.Equal(t, file, again.Path())

	require.NoError(t, again.Close())
	require.NoError(t, library.Close())
	_, err = dl.Open(dl.System, []dl.Candidate{{Name: "libtm_dl_test.so.7", OnlyLoaded: true}}, api)
	assert.Error(t, err, "after the last close it is gone")
}

// TestErrorsBelongToTheirCall opens missing libraries from many threads: the linker keeps its message per thread, so a message read
// in a second call into C could be another thread's, or none.
func TestErrorsBelongToTheirCall(t *testing.T) {
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for i := range 50 {
				name := fmt.Sprintf("libtm_missing_%d_%d.so", worker, i)
				_, err := dl.System.Open(dl.Candidate{Name: name})
				assert.ErrorContains(t, err, name)
			}
		})
	}
	group.Wait()
}

func TestEnvironmentSeesWhatWasSetLater(t *testing.T) {
	t.Setenv("TM_DL_TEST", "here") // with cgo, Go's Setenv sets C's environment, too
	value, set := dl.Environment("TM_DL_TEST")
	assert.True(t, set)
	assert.Equal(t, "here", value)
	require.NoError(t, os.Unsetenv("TM_DL_TEST"))
	_, set = dl.Environment("TM_DL_TEST")
	assert.False(t, set)
}
