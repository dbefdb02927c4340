//go:build !race

package gomem_test

import (
	"sync/atomic"

	"github.com/tack-memory/tack-memory/gomem"
)

// addLaunches is the plain increment under the GIL that C does where the kernel has membarrier.
func addLaunches(r *gomem.Record, n int32) {
	if gomem.PlainCounts() {
		r.Launches += uint32(n)
		return
	}
	atomic.AddUint32(&r.Launches, uint32(n))
}
