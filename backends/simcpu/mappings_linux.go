package simcpu

import (
	"bytes"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
)

// mapCountFile has the kernel's limit of a process's mappings.
const mapCountFile = "/proc/sys/vm/max_map_count"

// mappingLimit is that limit, asked once.
var mappingLimit = sync.OnceValue(func() int {
	content, err := os.ReadFile(mapCountFile)
	if err != nil {
		return math.MaxInt
	}
	limit, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil || limit <= 0 {
		return math.MaxInt
	}
	return limit
})

// mostBlocks is how many blocks there may be: each takes two mappings, and a quarter of them is left to the rest of the process, which would not survive
// to be without (a thread needs one for its stack).
func mostBlocks() int { return mappingLimit() / 8 * 3 }

// mappingsUsed is how many mappings the process has; 0 where that is not told. It takes long, and little memory: it is asked when none can be had.
func mappingsUsed() (count int) {
	file, err := os.Open("/proc/self/maps")
	if err != nil {
		return 0
	}
	defer func() { _ = file.Close() }() // nothing was written
	var buffer [4096]byte
	for {
		n, err := file.Read(buffer[:])
		count += bytes.Count(buffer[:n], []byte("\n"))
		if err != nil {
			return count
		}
	}
}
