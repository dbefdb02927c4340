package gomem

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// The spiller's half of the launch protocol ("launch holds without atomics"). A launch raises plain counts and then reads states,
// with no fence in between. The spiller first changes the state, then calls processBarrier, then reads the counts: the kernel has
// by then run a full fence on every CPU that runs a thread of this process, so each launch either saw the changed state or has its count
// visible to the spiller. A fence of the spiller's own would not do: it orders the spiller, not the launching thread, whose store can
// still lie in its CPU's store buffer.

// From linux/membarrier.h (the kernel's ABI; golang.org/x/sys has the call's number only).
const (
	membarrierPrivateExpedited         = 1 << 3 // since Linux 4.14
	membarrierRegisterPrivateExpedited = 1 << 4
)

// registerBarrier tells the kernel that this process will call processBarrier. It reports false where the kernel has no membarrier or a
// sandbox forbids it: then launches must count by atomic adds. The answer is the same for the whole life of the process.
var registerBarrier = sync.OnceValue(func() bool {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierRegisterPrivateExpedited, 0, 0)
	return errno == 0
})

// processBarrier makes the plain stores that other threads of this process made before it visible to what the caller reads after it,
// and the caller's earlier stores visible to them. It takes some microseconds at most, which the copy of a victim hides.
// Where registerBarrier said false it does nothing: both sides then use atomic operations.
func processBarrier() {
	if !registerBarrier() {
		return
	}
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierPrivateExpedited, 0, 0); errno != 0 {
		// Going on would let a launch run on memory that is being freed.
		panic(fmt.Sprintf("gomem: membarrier, registered before, failed: %v", errno))
	}
}
