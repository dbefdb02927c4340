package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/dl"
)

// callers says which functions of a vendor's symbol table are beyond the reach of a test that makes calls fail. Every other one must be reached, so that
// an operation that does not make one of its calls any more is noticed.
type callers struct {
	opening        []string // called when a library is loaded, and a device is looked for, opened, used for the first time, or closed
	elsewhere      []string // called only where others fail, or where there is more work than here: the backend's own tests make it fail, which is looked for there
	notOfTheDriver []string // not by one operation of the driver on a device that is in use (TestEveryCallFailsOnce)
	notOfTheCore   []string // not by the operations of the core that TestMatrix has
}

// struck is the functions that a test has made to fail, on any flavour of their vendor: not each flavour calls all.
type struck struct {
	functions map[*vendor]map[string]bool
	through   map[*vendor]int // how many flavours the test is through with
}

func newStruck() *struck { return &struck{map[*vendor]map[string]bool{}, map[*vendor]int{}} }

func (s *struck) note(f flavour, function string) {
	if s.functions[f.vendor] == nil {
		s.functions[f.vendor] = map[string]bool{}
	}
	s.functions[f.vendor][function] = true
}

func (s *struck) done(f flavour) { s.through[f.vendor]++ }

// requireAll sees that each function of the symbol table was struck, but those that cannot be. A vendor of which only some flavours were run (-run)
// has no say.
func (s *struck) requireAll(t *testing.T, beyond func(c callers) []string) {
	t.Helper()
	flavoursOf := map[*vendor]int{}
	for _, f := range present {
		flavoursOf[f.vendor]++
	}
	for vendor, through := range s.through {
		if through < flavoursOf[vendor] {
			continue
		}
		excused := slices.Concat(vendor.silent, vendor.calls.opening, vendor.calls.elsewhere, beyond(vendor.calls))
		for _, function := range vendor.calls.elsewhere {
			assert.Contains(t, testsOf(t, vendor), fmt.Sprintf("Fail(%q, ", function), "no test of the backend makes %s fail", function)
		}
		for _, symbol := range vendor.symbols {
			if !slices.Contains(excused, symbol.Name) {
				assert.True(t, s.functions[vendor][symbol.Name], "no call of %s was made to fail: does no operation call it any more?", symbol.Name)
			}
		}
		for _, name := range excused {
			known := slices.ContainsFunc(vendor.symbols, func(symbol dl.Symbol) bool { return symbol.Name == name })
			assert.True(t, known, "%s is no function of the symbol table: nothing is excused by it", name)
		}
	}
}

// testsOf is the text of a backend's own tests.
func testsOf(t *testing.T, v *vendor) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "backends", v.abi, "*_test.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files, "the tests of package %s", v.abi)
	var text strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		text.Write(content)
	}
	return text.String()
}
