package gomem_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// What a budget is for: nothing is spilled below it, and no more than needed above.

func TestUnderTheBudgetNothingIsSpilled(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.budget(100*kib, false)
	var live []uint32
	for i := range 200 {
		live = append(live, b.allocate(10*kib))
		b.use(live[i%len(live)])
		if len(live) == 10 { // exactly the budget
			b.drop(live[3])
			live = append(live[:3], live[4:]...)
		}
	}
	info := b.info()
	require.Zero(t, info.SpillCount)
	require.EqualValues(t, 100*kib, info.Peak)
	require.Zero(t, info.OverBudgetCount)
	b.drop(live...)
}

func TestSpilledIsLessThanNeededAndOneArray(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.budget(200*kib, false)
	random := rand.New(rand.NewPCG(1, 1))
	const largest = 30 * kib
	var live []uint32
	for range 300 {
		before := b.info()
		n := 1 + random.Uint64N(largest)
		live = append(live, b.allocate(n))
		after := b.info()
		needed := max(0, before.InUse+int64(n)-200*kib)
		spilled := after.SpilledBytes - before.SpilledBytes
		require.True(t, spilled == 0 && needed == 0 || spilled >= needed && spilled < needed+largest, "needed %d, spilled %d", needed, spilled)
		require.LessOrEqual(t, after.InUse, int64(200*kib))
	}
	for _, index := range live {
		b.has(index, uint64(index))
	}
	b.drop(live...)
}

// Temporaries that live for one operation count against the budget like everything else.
func TestBudgetCoversTemporaries(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.budget(40*kib, false)
	inputs := []uint32{b.allocate(10 * kib), b.allocate(10 * kib)}
	idle := []uint32{b.allocate(10 * kib), b.allocate(10 * kib)}
	_, err := b.lane.enter(inputs, gomem.Wait{})
	require.NoError(t, err)
	temporary, err := b.Allocate(15*kib, gomem.AllocateOptions{Wait: nested})
	require.NoError(t, err)
	require.LessOrEqual(t, b.info().InUse, int64(40*kib))
	b.drop(temporary)
	b.lane.leave(inputs)
	require.LessOrEqual(t, b.info().Peak, int64(40*kib))
	require.Equal(t, gomem.Resident, b.state(inputs[0]), "arrays of a launch are never victims")
	require.Equal(t, gomem.Resident, b.state(inputs[1]))
	b.drop(inputs...)
	b.drop(idle...)
}

// A budget that is strict refuses; a soft one gives way and counts it.
func TestSoftAndStrictBudget(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.budget(20*kib, false)
	x := b.allocate(15 * kib)
	release := b.export(x)
	y := b.allocate(10 * kib)
	require.EqualValues(t, 1, b.info().OverBudgetCount)
	require.EqualValues(t, 25*kib, b.info().InUse)
	larger := b.allocate(30 * kib) // larger than the whole budget
	require.EqualValues(t, 45*kib, b.info().InUse)
	require.EqualValues(t, 2, b.info().OverBudgetCount)
	b.drop(larger)

	b.budget(20*kib, true)
	require.EqualValues(t, 15*kib, b.info().InUse, "y went")
	spilled := b.info().SpillCount
	_, err := b.Allocate(21*kib, gomem.AllocateOptions{})
	var full *gomem.MemoryError
	require.ErrorAs(t, err, &full)
	require.Equal(t, gomem.ReasonTooLarge, full.Reason)
	require.Equal(t, spilled, b.info().SpillCount)
	_, err = b.Allocate(10*kib, gomem.AllocateOptions{})
	require.ErrorAs(t, err, &full)
	require.Equal(t, gomem.ReasonBudget, full.Reason)
	require.ErrorAs(t, b.MakeResident(y, gomem.Wait{}), &full)
	require.Equal(t, gomem.Spilled, b.state(y))
	b.has(y, uint64(y))
	_, err = b.lane.enter([]uint32{y}, gomem.Wait{})
	require.ErrorAs(t, err, &full)
	_, err = b.Reserve(10*kib, gomem.AllocateOptions{})
	require.ErrorAs(t, err, &full)
	release()
	b.use(y)
	require.EqualValues(t, 2, b.info().OverBudgetCount)
	b.drop(x, y)
}

// A budget of 0 bytes is one, not none: whatever is not held goes as soon as anything else needs device memory, and nothing is refused.
func TestBudgetOfNothingSpillsAllThatIsNotInUse(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.budget(0, false)
	require.Zero(t, b.info().Budget)
	var buffers []uint32
	for i := range 4 {
		buffers = append(buffers, b.allocate(uint64(10+i)*kib))
		for j, index := range buffers {
			require.Equal(t, j == i, b.state(index) == gomem.Resident, "after allocation %d", i)
		}
	}
	b.use(buffers[1])
	require.Equal(t, gomem.Spilled, b.state(buffers[3]), "a restore is a need, too")
	require.EqualValues(t, 11*kib, b.info().InUse)
	empty := b.allocate(0)
	require.Equal(t, gomem.Resident, b.state(buffers[1]), "no bytes need no room")

	over := b.info().OverBudgetCount
	launch := []uint32{buffers[0], buffers[1], buffers[2], empty}
	_, err := b.lane.enter(launch, gomem.Wait{})
	require.NoError(t, err)
	for _, index := range launch {
		require.Equal(t, gomem.Resident, b.state(index))
	}
	require.EqualValues(t, 33*kib, b.info().InUse)
	require.EqualValues(t, over+2, b.info().OverBudgetCount, "two rises, both above the budget")
	inside, err := b.Allocate(5*kib, gomem.AllocateOptions{Wait: nested})
	require.NoError(t, err)
	require.EqualValues(t, 38*kib, b.info().InUse, "what the launch has stays")
	b.drop(inside)
	b.lane.leave(launch)
	require.EqualValues(t, 33*kib, b.info().InUse, "it may stay until the next need")

	token, err := b.Reserve(kib, gomem.AllocateOptions{HasHelper: true}) // no collection of garbage could make it fit, so none is asked for
	require.NoError(t, err)
	require.Zero(t, b.info().InUse)
	b.Unreserve(token)
	last, err := b.Allocate(kib, gomem.AllocateOptions{HasHelper: true})
	require.NoError(t, err)
	release := b.export(buffers[0])
	b.use(buffers[2])
	require.Equal(t, gomem.Resident, b.state(buffers[0]))
	require.Equal(t, gomem.Spilled, b.state(last))
	release()
	previous, strict, err := b.SetBudget(-1, false, gomem.Wait{})
	require.NoError(t, err)
	require.Zero(t, previous)
	require.False(t, strict)
	_, _, err = b.SetBudget(0, false, gomem.Wait{})
	require.NoError(t, err)
	require.Zero(t, b.info().InUse, "setting it spills at once")
	for _, index := range buffers {
		b.has(index, uint64(index))
	}
	b.drop(buffers...)
	b.drop(empty, last)
}

// What was held when a soft budget was passed goes when somebody says so; nothing that is held is waited for, and the driver's cache stays.
func TestSpillToBudgetSpillsWhatIsHeldNoLonger(t *testing.T) {
	b := open(t, fakedriver.Options{})
	held, other := b.allocate(40*kib), b.allocate(30*kib)
	pass := []uint32{held}
	require.NoError(t, b.Admit(pass, gomem.Wait{}))
	freed, err := b.SpillToBudget(gomem.Wait{})
	require.NoError(t, err)
	require.Zero(t, freed, "there is no budget")
	b.budget(10*kib, false)
	require.EqualValues(t, 40*kib, b.info().InUse)

	freed, err = b.SpillToBudget(gomem.Wait{})
	require.NoError(t, err)
	require.Zero(t, freed, "it is held")
	b.Discharge(pass)
	freed, err = b.SpillToBudget(gomem.Wait{})
	require.NoError(t, err)
	require.EqualValues(t, 40*kib, freed)
	require.Zero(t, b.info().InUse)
	require.Zero(t, b.driver.Calls(fakedriver.Trim)+b.driver.Calls(fakedriver.Synchronize))
	freed, err = b.SpillToBudget(gomem.Wait{})
	require.NoError(t, err)
	require.Zero(t, freed)
	b.drop(held, other)
}
