package engine

import (
	"github.com/tack-memory/tack-memory/backends/cuda"
	"github.com/tack-memory/tack-memory/backends/dl"
)

// cudaKind is NVIDIA's devices.
var cudaKind = newOrderedKind("cuda", func() (*cuda.Library, error) { return cuda.Load(dl.System, cuda.Candidates()) })
