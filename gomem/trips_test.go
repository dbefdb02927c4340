package gomem_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

func TestArraysThatTakeTurnsAreNamed(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.SetOrigins(gomem.OriginsLine)
	clock := b.fakeClock()
	b.budget(10*kib, false)
	x, y := b.labelled(6*kib, "x", "x.py:1"), b.labelled(7*kib, "y", "y.py:2") // y pushes x out
	other := b.labelled(kib, "other", "o.py:3")
	turn := func(pass time.Duration) *gomem.Thrashing {
		for _, index := range []uint32{x, y} {
			clock.pass(pass)
			b.use(other)
			b.resident(index, "loop.py:5")
		}
		return b.report().Thrashing
	}
	for range 2 {
		require.Nil(t, turn(100*time.Millisecond))
	}
	require.Equal(t, []gomem.Turning{{Label: "x", Origin: "x.py:1", Spills: 3, Restores: 3, Bytes: 6 * 6 * kib}}, turn(100*time.Millisecond).Holders,
		"the first spills followed no restore; x came back and went three times since, y twice")
	told := turn(100 * time.Millisecond)
	require.NotNil(t, told)
	require.Equal(t, int64(4), told.Rounds)
	require.Equal(t, []gomem.Turning{
		{Label: "y", Origin: "y.py:2", Spills: 3, Restores: 4, Bytes: 7 * 7 * kib},
		{Label: "x", Origin: "x.py:1", Spills: 4, Restores: 4, Bytes: 8 * 6 * kib},
	}, told.Holders)
	require.Equal(t, int64(7*7*kib+8*6*kib), told.Bytes)
	clock.pass(time.Minute - 200*time.Millisecond)
	require.NotNil(t, b.report().Thrashing)
	clock.pass(time.Second)
	require.Nil(t, b.report().Thrashing, "that is over")
	require.Nil(t, turn(2*time.Second), "what stays for two seconds takes no turns")
	b.SetOrigins(gomem.OriginsOff)
	for range 5 {
		turn(100 * time.Millisecond)
	}
	require.Len(t, b.report().Thrashing.Holders, 2, "origins are off, and it is counted all the same")
	b.drop(x)
	require.Len(t, b.report().Thrashing.Holders, 1)
	z := b.labelled(6*kib, "z", "") // in the record of x
	require.Len(t, b.report().Thrashing.Holders, 1)
	b.drop(y, z, other)
	require.Nil(t, b.report().Thrashing)
}

func TestWhatTheProgramSpillsByItselfIsNoThrashing(t *testing.T) {
	b := open(t, fakedriver.Options{})
	clock := b.fakeClock()
	x := b.labelled(6*kib, "x", "")
	for range 10 {
		clock.pass(time.Millisecond)
		b.spill(x, "")
		b.resident(x, "")
		_, _, err := b.SetBudget(kib, false, gomem.Wait{})
		require.NoError(t, err)
		b.budget(-1, false)
		b.resident(x, "")
	}
	require.Nil(t, b.report().Thrashing)
	require.Equal(t, int64(20), b.report().SpillsLost)
	b.drop(x)
}

// The slower the way back, the longer a stay has to be to be worth it.
func TestSoonIsMeasuredByTheRestore(t *testing.T) {
	for _, c := range []struct {
		stay     time.Duration
		thrashes bool
	}{{29 * time.Second, true}, {31 * time.Second, false}} {
		d, driver := openMidway(t)
		clock := d.fakeClock()
		driver.onCopyIn = func() error { clock.pass(3 * time.Second); return nil }
		_, _, err := d.SetBudget(10*kib, false, gomem.Wait{})
		require.NoError(t, err)
		x, err := d.Allocate(8*kib, gomem.AllocateOptions{})
		require.NoError(t, err)
		for range 4 {
			temporary, err := d.Allocate(8*kib, gomem.AllocateOptions{})
			require.NoError(t, err)
			d.Drop(temporary)
			require.NoError(t, d.MakeResident(x, gomem.Wait{}))
			clock.pass(c.stay)
		}
		report, err := d.Report()
		require.NoError(t, err)
		require.Equal(t, c.thrashes, report.Thrashing != nil)
		d.Drop(x)
	}
}
