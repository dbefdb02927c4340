package cuda

// #include "device.h"
import "C"

import "github.com/tack-memory/tack-memory/backends/dl"

// Symbols is every function of the library that this package calls, from symbols.def.
var Symbols = readSymbols()

// features says what is missing without a symbol that is not required.
var features = map[C.enum_tmc_need]string{
	C.TMC_NEED_NAMES:   "names of error codes",
	C.TMC_NEED_MIG:     "telling a MIG instance from a whole GPU",
	C.TMC_NEED_CAPTURE: "refusing to move memory while a stream is captured into a graph",
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

// hasPools reports whether every function of memory pools is there.
func hasPools(library *dl.Library) bool {
	for i := range Symbols {
		if C.tmc_symbols[i].need == C.TMC_NEED_POOLS && library.Address(i) == 0 {
			return false
		}
	}
	return true
}
