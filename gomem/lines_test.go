package gomem_test

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// lines takes what was said since the last time, and looks that it was said at level INFO.
func (b *bench) lines() []string {
	b.t.Helper()
	b.TellOverBudget()
	var texts []string
	for _, n := range b.Notices().Take() {
		require.Equal(b.t, "INFO", n.Level.String())
		texts = append(texts, n.Text)
	}
	return texts
}

// faults are the notices of what went wrong: all but lines for the log.
func faults(notices []gomem.Notice) []gomem.Notice {
	return slices.DeleteFunc(notices, func(n gomem.Notice) bool { return n.Level == gomem.LevelInfo })
}

func TestTheFirstSpillOfADeviceIsSaidOnce(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.budget(10*kib, false)
	x := b.labelled(6*kib, "x", "")
	require.Empty(t, b.lines())
	y := b.allocate(7 * kib)
	said := b.lines()
	require.Len(t, said, 1)
	for _, part := range []string{b.Name() + ": the first spill: 6 KiB (\"x\") went to host memory", "needed room under the budget", "spilled 6 KiB, budget 10 KiB", "memory_report"} {
		require.Contains(t, said[0], part)
	}
	b.resident(x, "")
	require.Empty(t, b.lines())
	b.drop(x, y)

	asked := open(t, fakedriver.Options{})
	z := asked.allocate(kib)
	_, err := asked.Spill(z, gomem.Wait{})
	require.NoError(t, err)
	said = asked.lines()
	require.Len(t, said, 1)
	require.Contains(t, said[0], "an array of 1 KiB went to host memory, because the program asked for it")
	asked.drop(z)
}

func TestABudgetThatIsPassedIsSaidOnceAMinute(t *testing.T) {
	b := open(t, fakedriver.Options{})
	clock := b.fakeClock()
	b.budget(10*kib, false)
	pass := func() {
		index := b.allocate(12 * kib) // larger than the budget
		b.drop(index)
		require.NoError(t, b.Synchronize())
	}
	pass()
	said := b.lines()
	require.Len(t, said, 1)
	require.Contains(t, said[0], "the budget was passed")
	require.Contains(t, said[0], "within the budget again. It was passed once so far")
	for range 5 {
		pass()
	}
	require.Empty(t, b.lines(), "a minute has not passed")
	clock.pass(time.Minute)
	require.Empty(t, b.lines(), "nothing happened since")
	held := b.allocate(12 * kib)
	said = b.lines()
	require.Len(t, said, 1)
	require.Contains(t, said[0], "in use 12 KiB, budget 10 KiB; 2 KiB above it now. It was passed 7 times so far")
	b.drop(held)
}

func TestArraysThatTakeTurnsAreSaidOnceAMinute(t *testing.T) {
	b := open(t, fakedriver.Options{})
	clock := b.fakeClock()
	b.budget(10*kib, false)
	x, y := b.labelled(6*kib, "x", ""), b.labelled(7*kib, "y", "")
	b.lines()
	turn := func() {
		for _, index := range []uint32{x, y} {
			clock.pass(100 * time.Millisecond)
			b.resident(index, "")
		}
	}
	turn()
	turn()
	require.Empty(t, b.lines(), "twice is no pattern")
	turn()
	said := b.lines()
	require.Len(t, said, 1)
	for _, part := range []string{`6 KiB ("x") was pushed out for the 3rd time in a row`, "spills and", "budget 10 KiB", "hold"} {
		require.Contains(t, said[0], part)
	}
	for range 10 {
		turn()
	}
	require.Empty(t, b.lines())
	clock.pass(time.Minute)
	for range 4 {
		turn()
	}
	require.Len(t, b.lines(), 1, "it goes on")
	require.Equal(t, 1, strings.Count(said[0], "\n")+1, "a line is one line")
	b.drop(x, y)
}

func TestProgressCountsWhatACallMoves(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 400 * mib})
	x, y := b.allocate(130*mib), b.allocate(70*mib)
	var p gomem.Progress
	_, err := b.SpillAll(gomem.Wait{Progress: &p})
	require.NoError(t, err)
	require.Equal(t, gomem.Progress{SpillDone: 200 * mib, SpillTotal: 200 * mib}, p)

	p = gomem.Progress{}
	require.NoError(t, b.Admit([]uint32{x, y}, gomem.Wait{Progress: &p}))
	b.Discharge([]uint32{x, y})
	require.Equal(t, gomem.Progress{RestoreDone: 200 * mib, RestoreTotal: 200 * mib}, p)

	_, err = b.Spill(x, gomem.Wait{})
	require.NoError(t, err)
	p = gomem.Progress{}
	b.budget(150*mib, false)
	require.NoError(t, b.MakeResident(x, gomem.Wait{Progress: &p})) // y goes for it
	require.Equal(t, gomem.Progress{SpillDone: 70 * mib, SpillTotal: 70 * mib, RestoreDone: 130 * mib, RestoreTotal: 130 * mib}, p)

	p = gomem.Progress{}
	b.budget(-1, false)
	require.NoError(t, b.RestoreAll(gomem.Wait{Progress: &p}))
	require.Equal(t, gomem.Progress{RestoreDone: 70 * mib, RestoreTotal: 70 * mib}, p)
	b.drop(x, y)
}

// What the program reads and writes is no spill and no restore.
func TestProgressCountsNoReadsAndWrites(t *testing.T) {
	b := open(t, fakedriver.Options{})
	x := b.allocate(kib)
	var p gomem.Progress
	require.NoError(t, b.Fill(x, 0, []byte{1}, kib, gomem.Wait{Progress: &p}))
	var out [kib]byte
	require.NoError(t, b.CopyToHost(x, 0, unsafe.Pointer(&out[0]), kib, gomem.Wait{Progress: &p}))
	require.NoError(t, b.CopyFromHost(x, 0, unsafe.Pointer(&out[0]), kib, gomem.Wait{Progress: &p}))
	require.Zero(t, p)
	b.drop(x)
}
