package gomem

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Where the kernel has membarrier it is used: launches would count by atomic adds for ever, and nobody would see it, where the registration failed.
func TestProcessBarrierIsUsedWhereTheKernelHasOne(t *testing.T) {
	const query = 0 // MEMBARRIER_CMD_QUERY: the commands that the kernel has, or ENOSYS, or what a sandbox says
	commands, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, query, 0, 0)
	const needed = membarrierPrivateExpedited | membarrierRegisterPrivateExpedited
	has := errno == 0 && commands&needed == needed
	t.Logf("the kernel has membarrier: %v (%#x, %d)", has, commands, errno)
	require.Equal(t, has, registerBarrier())
	require.Equal(t, has, PlainCounts())
	require.NotPanics(t, processBarrier) // the kernel checks the registration: without it, the barrier fails
}
