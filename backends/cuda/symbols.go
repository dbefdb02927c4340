package cuda

// #include "api.h"
import "C"

import "github.com/tack-memory/tack-memory/backends/dl"

// Symbols is every function of the library that this package calls, from symbols.def. Each vendor's package reads a table of its own: cgo's types are a
// package's own, so a common reader would have to be given every field by another function.
var Symbols = readSymbols()

// features says what is missing without a symbol that is not required.
var features = map[C.enum_tmc_need]string{
	C.TMC_NEED_NAMES:   "names of error codes",
	C.TMC_NEED_MIG:     "telling a MIG instance from a whole GPU",
	C.TMC_NEED_CAPTURE: "refusing to move memory while its stream is captured into a graph",
	C.TMC_NEED_RELAXED: "leaving the captures of other streams alone while memory is moved",
	C.TMC_NEED_FIND:    "refusing to adopt what is no block of the driver's",
	C.TMC_NEED_POOLS:   "memory pools and frees in stream order",
}

func readSymbols() []dl.Symbol {
	symbols := make([]dl.Symbol, C.TMC_CALLS)
	for i := range symbols {
		s := C.tmc_symbols[i]
		symbols[i] = dl.Symbol{Name: C.GoString(s.name), Since: int(s.since), Required: s.need == C.TMC_NEED_REQUIRED, Feature: features[s.need]}
	}
	return symbols
}

// symbolsFor lists the places of the symbols that something needs.
func symbolsFor(need C.enum_tmc_need) []int {
	var places []int
	for i := range C.TMC_CALLS {
		if C.tmc_symbols[i].need == need {
			places = append(places, i)
		}
	}
	return places
}
