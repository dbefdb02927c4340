package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/softdriver"
	"github.com/tack-memory/tack-memory/gomem"
)

// library is a vendor's library as its backend has loaded it.
type library interface {
	Path() string
	Shared() bool
	Missing() []dl.Symbol
	Software() *softdriver.Control // nil: the vendor's own
	VersionText() string
	Count() (int, error)
}

// backend is what a kind of device needs of its vendor's backend.
type backend[L library] struct {
	// load finds the library. A failure is not remembered: the next question tries again.
	load  func() (L, error)
	facts func(loaded L, name string, ordinal int) (Facts, error)
	open  func(loaded L, name string, ordinal int) (driver gomem.Driver, movable bool, err error)
}

// newLibraryKind makes a kind of device over a vendor's library.
func newLibraryKind[L library](name string, b backend[L]) *kind {
	k := &kind{name: name}
	var found L
	loaded := false
	k.count = func() (int, error) {
		if !loaded {
			library, err := b.load()
			if err != nil {
				return 0, err
			}
			found, loaded = library, true
		}
		return found.Count()
	}
	k.library = func() Library {
		if !loaded {
			return Library{}
		}
		return describedLibrary(found)
	}
	k.facts = func(ordinal int) (Facts, error) { return b.facts(found, k.deviceName(ordinal), ordinal) }
	k.open = func(name string, ordinal int) (gomem.Driver, bool, error) { return b.open(found, name, ordinal) }
	return k
}

// describedLibrary is what reports say of a library.
func describedLibrary(found library) Library {
	l := Library{File: found.Path(), Version: found.VersionText()}
	if loader, tells := found.(interface{ LoaderVersion() string }); tells { // Level Zero: Version is its drivers'
		if version := loader.LoaderVersion(); version != "" {
			l.File += ", version " + version
		}
	}
	if found.Shared() {
		l.File += " (loaded by this process before)"
	}
	missing := map[string][]string{}
	for _, symbol := range found.Missing() {
		missing[symbol.Feature] = append(missing[symbol.Feature], symbol.Name)
	}
	for feature, symbols := range missing {
		l.Missing = append(l.Missing, fmt.Sprintf("missing: %s (the library lacks %s)", feature, strings.Join(symbols, ", ")))
	}
	slices.Sort(l.Missing)
	return l
}
