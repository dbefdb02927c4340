package engine

import (
	"fmt"

	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/levelzero"
	"github.com/tack-memory/tack-memory/gomem"
)

// levelZeroKind is Intel's devices, and those of others with a Level Zero driver.
var levelZeroKind = newLevelZeroKind("level_zero", func() (*levelzero.Library, error) { return levelzero.Load(dl.System, levelzero.Candidates()) })

// newLevelZeroKind makes a kind of Level Zero's backend over the loader that load finds.
func newLevelZeroKind(name string, load func() (*levelzero.Library, error)) *kind {
	return newLibraryKind(name, backend[*levelzero.Library]{load: load, facts: levelZeroFacts, open: openLevelZero})
}

func levelZeroFacts(loaded *levelzero.Library, name string, ordinal int) (Facts, error) {
	facts, err := loaded.Facts(name, ordinal)
	if err != nil {
		return Facts{}, err
	}
	total := gomem.Unknown
	if facts.Total > 0 {
		total = int64(facts.Total)
	}
	var notes []string
	switch {
	case !facts.DefersFrees:
		notes = append(notes, "the driver defers no frees: they wait until the device has passed them")
	case facts.Free == levelzero.SourceNone:
		notes = append(notes, "frees wait until the device has passed them: without a figure of free memory none is left to the driver")
	default:
		notes = append(notes, "the vendor has no frees in stream order: the driver gives memory back after the commands that use it")
	}
	if !facts.InOrder {
		notes = append(notes, "no in-order command lists: a queue with barriers is used")
	}
	switch facts.Free {
	case levelzero.SourceSysman:
		notes = append(notes, "free memory is told by Sysman")
	case levelzero.SourceNone:
		notes = append(notes, fmt.Sprintf("free memory is unknown: a sixteenth of the total is left to others; not Sysman: %s", facts.FreeWhy))
	default:
		notes = append(notes, fmt.Sprintf("free memory is told by %s; not Sysman: %s", facts.Free, facts.FreeWhy))
	}
	if skipped := loaded.Skipped(); skipped != nil {
		notes = append(notes, fmt.Sprintf("another driver of the loader has no devices here: %v", skipped))
	}
	return Facts{Product: facts.Name, UUID: facts.UUID, Total: total, Spills: !facts.Integrated, Notes: notes}, nil
}

func openLevelZero(loaded *levelzero.Library, name string, ordinal int) (gomem.Driver, bool, error) {
	driver, err := loaded.Open(name, ordinal)
	if err != nil {
		return nil, false, err
	}
	return driver, !driver.Facts().Integrated, nil
}
