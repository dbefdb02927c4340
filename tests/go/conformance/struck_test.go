package conformance

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tack-memory/tack-memory/backends/dl"
)

// callers says which functions of a vendor's symbol table are beyond the reach of a test that makes calls fail. Every other one must be reached, so that
// an operation that does not make one of its calls any more is noticed.
type callers struct {
	opening        []string // called when a library is loaded, and a device is looked for, opened, used for the first time, or closed
	never          []string // only where others fail or are missing, so that no operation on a sound device calls it: the backends' own tests do
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
		excused := slices.Concat(vendor.silent, vendor.calls.opening, vendor.calls.never, beyond(vendor.calls))
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
