//go:build race

package gomem_test

import (
	"sync/atomic"

	"github.com/tack-memory/tack-memory/gomem"
)

// addLaunches is atomic here, as in free-threaded builds of Python: the race detector does not know membarrier.
func addLaunches(r *gomem.Record, n int32) { atomic.AddUint32(&r.Launches, uint32(n)) }
