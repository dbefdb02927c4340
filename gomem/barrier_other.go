//go:build !linux

package gomem

// registerBarrier reports false: there is no membarrier here, and launches count by atomic adds (see barrier_linux.go).
func registerBarrier() bool { return false }

// processBarrier does nothing where launches count by atomic adds: the state is changed by a sequentially consistent
// compare-and-swap, and the counts are read after it.
func processBarrier() {}
