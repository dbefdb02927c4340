package engine

import (
	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/hip"
)

// hipKind is AMD's devices.
var hipKind = newOrderedKind("hip", func() (*hip.Library, error) { return hip.Load(dl.System, hip.Candidates()) })
