package gomem_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// reaper is a driver that says when it is asked to reap.
type reaper struct {
	*fakedriver.Device
	asked   int
	pending uint64
	err     error
	panics  bool
}

func (r *reaper) PendingFree() uint64 { return r.pending }

func (r *reaper) Reap() (waits bool, err error) {
	r.asked++
	if r.panics {
		panic("reap")
	}
	return true, r.err
}

func openReaper(t *testing.T) (*reaper, *gomem.Device) {
	t.Helper()
	r := &reaper{Device: fakedriver.New(fakedriver.Options{}), pending: 1}
	d, err := gomem.NewDevice(r, gomem.Options{Movable: true})
	require.NoError(t, err)
	return r, d
}

func TestReapAsksOnlyWhereSomethingWaits(t *testing.T) {
	require.False(t, open(t, fakedriver.Options{}).Reap(), "a driver that frees at once")

	r, d := openReaper(t)
	require.True(t, d.Reap())
	r.pending = 0
	require.False(t, d.Reap())
	require.Equal(t, 1, r.asked)
	r.pending = 1
	require.NoError(t, d.Close())
	require.False(t, d.Reap())
	require.Equal(t, 1, r.asked)
}

// Who moves memory has the driver to himself: Synchronize must not find a block that is neither waiting nor back.
func TestReapLeavesTheDriverToWhoMovesMemory(t *testing.T) {
	r, d := openReaper(t)
	release := d.HoldMoving()
	require.True(t, d.Reap(), "later")
	require.Zero(t, r.asked)
	release()
	require.True(t, d.Reap())
	require.Equal(t, 1, r.asked)
	index, err := d.Allocate(kib, gomem.AllocateOptions{})
	require.NoError(t, err)
	release = d.HoldMoving()
	d.Drop(index)
	release()
	require.NoError(t, d.Close(), "the lock is free")
}

func TestReapEndsWithAnError(t *testing.T) {
	r, d := openReaper(t)
	r.err = errors.New("no")
	require.False(t, d.Reap())
	texts := d.Notices().Take()
	require.Len(t, texts, 1)
	require.Contains(t, texts[0].Text, "fake:0: freed device memory could not be given back")

	r.err = r.Error("reap", gomem.ErrLost)
	require.False(t, d.Reap())
	texts = d.Notices().Take()
	require.Empty(t, texts, "whoever uses the device next is told")
	require.Equal(t, 2, r.asked)
	require.False(t, d.Reap(), "nothing can be done on a lost device")
	require.Equal(t, 2, r.asked)

	r, d = openReaper(t)
	r.panics = true
	require.False(t, d.Reap())
	require.False(t, d.Reap())
	require.Equal(t, 1, r.asked, "the device is broken")
}
