//go:build invariants

package gomem

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// invariants says whether this build checks its own rules as it runs.
const invariants = true

// heldRanks has the ranks that each goroutine holds, in the order of taking. A goroutine that holds none is not in it. Leaves are taken some
// twenty times an operation, and asking which goroutine runs takes microseconds: one taking in leafSample is recorded.
var heldRanks struct {
	sync.Mutex
	byGoroutine map[uint64][]rank
}

const (
	firstLeaf  = rankRegistry
	leafSample = 64
)

var (
	leafTakings    atomic.Uint64 // of leaves, so far
	recordedLeaves atomic.Int64  // leaves in heldRanks now
)

// acquired notes that the calling goroutine is about to take, or just took, a lock of this rank. It panics when the goroutine holds one of
// the same or a higher rank: two goroutines doing so in different orders could wait for each other for ever.
func acquired(r rank) {
	leaf := r >= firstLeaf
	record := !leaf || leafTakings.Add(1)%leafSample == 0
	if !record && recordedLeaves.Load() == 0 {
		return
	}
	id := goroutineID()
	heldRanks.Lock()
	defer heldRanks.Unlock()
	held := heldRanks.byGoroutine[id]
	if len(held) > 0 && slices.Max(held) >= r {
		panic(fmt.Sprintf("gomem: lock order: %q is taken while %q is held (held: %v)", r, slices.Max(held), held))
	}
	if !record {
		return
	}
	if leaf {
		recordedLeaves.Add(1)
	}
	if heldRanks.byGoroutine == nil {
		heldRanks.byGoroutine = make(map[uint64][]rank)
	}
	heldRanks.byGoroutine[id] = append(held, r)
}

// released notes that the calling goroutine let go of a lock of this rank; not necessarily the last one it took.
func released(r rank) {
	leaf := r >= firstLeaf
	if leaf && recordedLeaves.Load() == 0 {
		return
	}
	id := goroutineID()
	heldRanks.Lock()
	defer heldRanks.Unlock()
	held := heldRanks.byGoroutine[id]
	i := slices.Index(held, r)
	switch {
	case i < 0 && leaf:
		return // not recorded
	case i < 0:
		panic(fmt.Sprintf("gomem: lock order: %q is released by a goroutine that does not hold it (held: %v)", r, held))
	case leaf:
		recordedLeaves.Add(-1)
	}
	if len(held) == 1 {
		delete(heldRanks.byGoroutine, id)
		return
	}
	heldRanks.byGoroutine[id] = slices.Delete(held, i, i+1)
}

// heldByCaller returns the ranks that are recorded for the calling goroutine.
func heldByCaller() []rank {
	id := goroutineID()
	heldRanks.Lock()
	defer heldRanks.Unlock()
	return slices.Clone(heldRanks.byGoroutine[id])
}

// goroutineID reads the number in the first line of the goroutine's own stack trace, "goroutine 18 [running]:". Go has no other way
// to ask; that it is slow is why this is for builds that check themselves only.
func goroutineID() uint64 {
	var buffer [64]byte
	line := string(buffer[:runtime.Stack(buffer[:], false)])
	number, _, _ := strings.Cut(strings.TrimPrefix(line, "goroutine "), " ")
	id, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("gomem: no goroutine number in %q", line))
	}
	return id
}

// forgetHeldRanks takes back what is recorded for the calling goroutine: it panicked, and does not let go of what it has (broken.go).
func forgetHeldRanks() {
	id := goroutineID()
	heldRanks.Lock()
	defer heldRanks.Unlock()
	for _, r := range heldRanks.byGoroutine[id] {
		if r >= firstLeaf {
			recordedLeaves.Add(-1)
		}
	}
	delete(heldRanks.byGoroutine, id)
}
