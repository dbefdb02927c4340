package gomem

import (
	"math"

	"golang.org/x/sys/unix"
)

// HostMemory is the machine's memory. What the process could still take macOS does not tell: it compresses and pages instead of refusing.
func HostMemory() (total, available int64) {
	bytes, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return Unknown, Unknown
	}
	return int64(min(bytes, math.MaxInt64)), Unknown
}
