package engine

import (
	"fmt"

	"github.com/tack-memory/tack-memory/backends/ordered"
	"github.com/tack-memory/tack-memory/gomem"
)

// newOrderedKind makes a kind of a backend over package ordered (cuda, hip) with the library that load finds.
func newOrderedKind(name string, load func() (*ordered.Library, error)) *kind {
	return newLibraryKind(name, backend[*ordered.Library]{load: load, facts: orderedFacts, open: openOrdered})
}

func orderedFacts(loaded *ordered.Library, name string, ordinal int) (Facts, error) {
	allowed, err := poolsAllowed()
	if err != nil {
		return Facts{}, err
	}
	loaded.AllowPools(allowed)
	facts, err := loaded.Facts(name, ordinal)
	if err != nil {
		return Facts{}, err
	}
	var notes []string
	switch {
	case !allowed:
		notes = append(notes, "no memory pools, because "+poolsVariable+" is 0: frees wait until the device has passed them")
	case !facts.Pools:
		notes = append(notes, "no memory pools: frees wait until the device has passed them")
	case loaded.PoolsCaveat() != "":
		notes = append(notes, fmt.Sprintf("%s: if that happens, set %s=0", loaded.PoolsCaveat(), poolsVariable))
	}
	return Facts{Product: facts.Name, UUID: facts.UUID, Total: int64(facts.Total), Pools: facts.Pools, Spills: !facts.Integrated, Notes: notes}, nil
}

func openOrdered(loaded *ordered.Library, name string, ordinal int) (gomem.Driver, bool, error) {
	allowed, err := poolsAllowed()
	if err != nil {
		return nil, false, err
	}
	loaded.AllowPools(allowed)
	driver, err := loaded.Open(name, ordinal)
	if err != nil {
		return nil, false, err
	}
	return driver, !driver.Facts().Integrated, nil
}
