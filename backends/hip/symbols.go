package hip

// #include "api.h"
import "C"

import "github.com/tack-memory/tack-memory/backends/dl"

// Symbols is every function of the library that this package calls, from symbols.def and api.h.
var Symbols = readSymbols()

// features says what is missing without a symbol that is not required.
var features = map[C.enum_tmh_need]string{
	C.TMH_NEED_NAMES:   "names of error codes",
	C.TMH_NEED_UUID:    "the UUID of a device",
	C.TMH_NEED_CAPTURE: "refusing to move memory while its stream is captured into a graph",
	C.TMH_NEED_RELAXED: "leaving the captures of other streams alone while memory is moved",
	C.TMH_NEED_FIND:    "refusing to adopt what is no block of the runtime's",
	C.TMH_NEED_POOLS:   "memory pools and frees in stream order",
}

func readSymbols() []dl.Symbol {
	symbols := make([]dl.Symbol, C.TMH_CALLS)
	for i := range symbols {
		s := C.tmh_symbols[i]
		symbols[i] = dl.Symbol{Name: C.GoString(s.name), Since: int(s.since), Required: s.need == C.TMH_NEED_REQUIRED, Feature: features[s.need]}
	}
	return symbols
}

// symbolsFor lists the places of the symbols that something needs.
func symbolsFor(need C.enum_tmh_need) []int {
	var places []int
	for i := range C.TMH_CALLS {
		if C.tmh_symbols[i].need == need {
			places = append(places, i)
		}
	}
	return places
}
