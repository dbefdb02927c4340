package gomem_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// A free that fails has no call to be reported by: it waits as a notice.
func TestFailedFreeIsNoticed(t *testing.T) {
	b := open(t, fakedriver.Options{})
	x, y := b.allocate(kib), b.allocate(kib)
	require.False(t, b.Notices().Waiting())
	b.driver.Fail(fakedriver.Free, 1, b.driver.Error(fakedriver.Free, nil))
	b.drop(x, y)
	require.True(t, b.Notices().Waiting())
	notices := b.Notices().Take()
	require.Len(t, notices, 1)
	require.Equal(t, gomem.LevelError, notices[0].Level)
	require.Equal(t, "fake:0: the driver failed to free 1024 bytes of device memory: fake:0: fakeFree failed: FAKE_ERROR_UNKNOWN (999)", notices[0].Text)
	require.False(t, b.Notices().Waiting())
	require.Empty(t, b.Notices().Take())
}

// Where nobody takes them, the first are kept and the others counted: none is lost silently.
func TestNoticesAreBoundedAndCounted(t *testing.T) {
	var n gomem.Notices
	for i := range 100 {
		n.Add(gomem.LevelWarning, fmt.Sprint("message ", i))
	}
	taken := n.Take()
	require.Len(t, taken, 65)
	require.Equal(t, "message 0", taken[0].Text)
	require.Equal(t, "message 63", taken[63].Text)
	require.Equal(t, "36 more messages were dropped: nobody took the 64 before them", taken[64].Text)
	n.Add(gomem.LevelError, "the next one")
	require.Equal(t, "the next one", n.Take()[0].Text)
	require.Equal(t, []string{"WARNING", "ERROR"}, []string{gomem.LevelWarning.String(), gomem.LevelError.String()})
}
