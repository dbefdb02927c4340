package gomem

import "testing"

// The registration is checked by the kernel: the barrier without it would panic, and with it must not.
func TestProcessBarrier(t *testing.T) {
	if !registerBarrier() {
		t.Log("this kernel has no membarrier: launches count by atomic adds")
	}
	processBarrier()
}
