package levelzero

// #include "device.h"
import "C"

import "github.com/tack-memory/tack-memory/backends/dl"

// Symbols is every function of the loader that this package calls, from symbols.def. Since is a version of the specification, 1006 for 1.6.
var Symbols = readSymbols()

// features says what is missing without a symbol that is not required.
var features = map[C.enum_tml_need]string{
	C.TML_NEED_DRIVERS:     "starting drivers of GPUs only",
	C.TML_NEED_IN_ORDER:    "in-order command lists, and command lists of a host framework",
	C.TML_NEED_LIST_CHECK:  "refusing a handle that is no immediate command list",
	C.TML_NEED_DEFER:       "frees that the driver defers",
	C.TML_NEED_FIND:        "refusing to adopt what is no whole block of the driver's",
	C.TML_NEED_SYSMAN:      "the figure of free memory by Sysman",
	C.TML_NEED_SYSMAN_UUID: "finding a part of a device in Sysman",
}

func readSymbols() []dl.Symbol {
	symbols := make([]dl.Symbol, C.TML_CALLS)
	for i := range symbols {
		s := C.tml_symbols[i]
		symbols[i] = dl.Symbol{Name: C.GoString(s.name), Since: int(s.since), Required: s.need == C.TML_NEED_REQUIRED, Feature: features[s.need]}
	}
	return symbols
}
