//go:build !invariants

package gomem

// invariants says whether this build checks its own rules as it runs.
const invariants = false

// acquired notes that the calling goroutine is about to take, or just took, a lock of this rank.
func acquired(rank) {}

// released notes that the calling goroutine let go of a lock of this rank.
func released(rank) {}

// forgetHeldRanks takes back what is recorded for the calling goroutine.
func forgetHeldRanks() {}
