package gomem_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// frame is memory that is lent to a device, with contents that are known.
type frame struct {
	memory, was []byte
	back        int // how often it was given back
}

func newFrame(nbytes, seed uint64) *frame {
	memory := contents(nbytes, seed)
	return &frame{memory: memory, was: slices.Clone(memory)}
}

// receive makes a buffer of the frame.
func (b *bench) receive(f *frame) uint32 {
	b.t.Helper()
	index, err := b.Receive(unsafe.Pointer(&f.memory[0]), uint64(len(f.memory)), func() { f.back++ }, gomem.AllocateOptions{})
	require.NoError(b.t, err)
	return index
}

func (f *frame) requireUntouched(t *testing.T) {
	t.Helper()
	require.True(t, bytes.Equal(f.was, f.memory), "somebody wrote to memory that was lent")
}

func TestWhatIsReceivedBeginsInHostMemory(t *testing.T) {
	b := open(t, fakedriver.Options{})
	scope := new(gomem.Scope)
	b.OpenScope(scope)
	f := newFrame(mib, 1)
	index := b.receive(f)
	require.Equal(t, gomem.Spilled, b.state(index))
	info := b.info()
	require.EqualValues(t, []int64{0, 0, mib, mib, 0, 0}, []int64{info.InUse, info.Peak, info.Spilled, info.ReceivedBytes, info.SpillCount, info.SpilledBytes})
	require.EqualValues(t, mib, info.HostCopies, "no copy was made")
	require.EqualValues(t, []int64{mib, mib, 0}, []int64{scope.Own, scope.Footprint, scope.Peak})
	require.Zero(t, b.driver.Calls(fakedriver.CopyIn)+b.driver.Calls(fakedriver.Allocate))
	b.has(index, 1)
	require.Equal(t, gomem.Spilled, b.state(index), "reading moves nothing")
	require.NoError(t, b.Check())

	b.use(index)
	require.Equal(t, gomem.Resident, b.state(index))
	require.Equal(t, 1, f.back, "the device has it now")
	clear(f.memory)
	b.has(index, 1)
	info = b.info()
	require.EqualValues(t, []int64{mib, 0, mib, 1, 0}, []int64{info.InUse, info.Spilled, info.RestoredBytes, info.RestoreCount, info.HostCopies})

	freed, err := b.Spill(index, gomem.Wait{})
	require.NoError(t, err)
	require.EqualValues(t, mib, freed)
	b.has(index, 1)
	b.drop(index)
	b.CloseScope(scope)
	info = b.info()
	require.EqualValues(t, []int64{0, 0, 0}, []int64{info.InUse, info.Spilled, info.Live})
	require.Equal(t, 1, f.back)
}

// TestNobodyWritesToWhatIsLent: two buffers of one frame, as where a message is read twice, have nothing to do with each other.
func TestNobodyWritesToWhatIsLent(t *testing.T) {
	writes := map[string]func(b *bench, index uint32) error{
		"CopyFromHost": func(b *bench, index uint32) error {
			data := contents(2000, 7)
			return b.CopyFromHost(index, 0, unsafe.Pointer(&data[0]), 2000, gomem.Wait{})
		},
		"Fill": func(b *bench, index uint32) error { return b.Fill(index, 100, []byte{1, 2, 3}, 500, gomem.Wait{}) },
		"Copy": func(b *bench, index uint32) error {
			other := b.allocate(3000)
			defer b.drop(other)
			if _, err := b.Spill(other, gomem.Wait{}); err != nil {
				return err
			}
			return b.Copy(index, 0, other, 0, 3000, gomem.Wait{})
		},
	}
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			b := open(t, fakedriver.Options{})
			f := newFrame(4000, 12)
			one, two := b.receive(f), b.receive(f)
			require.NoError(t, write(b, one))
			require.Equal(t, gomem.Spilled, b.state(one), "it was written to where it was")
			f.requireUntouched(t)
			b.has(two, 12)
			require.False(t, bytes.Equal(f.was, b.read(one)), "nothing was written")
			require.Equal(t, 1, f.back, "one of them has memory of its own now")
			now := b.read(one)
			b.use(one)
			b.use(two)
			b.has(two, 12)
			require.True(t, bytes.Equal(now, b.read(one)))
			require.Equal(t, 2, f.back)
			b.drop(one, two)
		})
	}
}

func TestWritingToWhatIsLentNeedsHostMemory(t *testing.T) {
	b := open(t, fakedriver.Options{})
	f := newFrame(4000, 3)
	index := b.receive(f)
	b.pool.SetFault(func(nbytes uint64) error { return &gomem.HostMemoryError{Requested: int64(nbytes)} })
	err := b.Fill(index, 0, []byte{9}, 4000, gomem.Wait{})
	var full *gomem.MemoryError
	require.ErrorAs(t, err, &full)
	require.Equal(t, gomem.ReasonHost, full.Reason)
	f.requireUntouched(t)
	b.has(index, 3)
	require.NoError(t, b.Check())

	cancelled := new(gomem.Cancel)
	cancelled.Cancel()
	b.pool.SetFault(nil)
	require.ErrorIs(t, b.Fill(index, 0, []byte{9}, 4000, gomem.Wait{Cancel: cancelled}), gomem.ErrCancelled)
	b.has(index, 3)
	b.use(index)
	b.has(index, 3)
	b.drop(index)
	require.Equal(t, 1, f.back)
}

func TestAFrameIsGivenBackWhateverTheEnd(t *testing.T) {
	ends := map[string]func(b *bench, index uint32){
		"Drop":       func(b *bench, index uint32) { b.Drop(index) },
		"LetGo":      func(b *bench, index uint32) { b.LetGo(index); b.Drain() },
		"Free":       func(b *bench, index uint32) { require.NoError(b.t, b.Free(index, gomem.Wait{})) },
		"RestoreAll": func(b *bench, index uint32) { require.NoError(b.t, b.RestoreAll(gomem.Wait{})); b.Drop(index) },
		"Admit": func(b *bench, index uint32) {
			require.NoError(b.t, b.Admit([]uint32{index}, gomem.Wait{}))
			b.Discharge([]uint32{index})
			b.Drop(index)
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			b := open(t, fakedriver.Options{})
			f := newFrame(100, 4)
			end(b, b.receive(f))
			require.Equal(t, 1, f.back)
			f.requireUntouched(t)
			info := b.info()
			require.EqualValues(t, []int64{0, 0, 0, 0}, []int64{info.InUse, info.Spilled, info.Live, info.HostCopies})
		})
	}
}

func TestARestoreThatFailsKeepsTheFrame(t *testing.T) {
	for _, method := range []string{fakedriver.Allocate, fakedriver.CopyIn} {
		t.Run(method, func(t *testing.T) {
			b := open(t, fakedriver.Options{})
			f := newFrame(5000, 5)
			index := b.receive(f)
			b.driver.Fail(method, 1, b.driver.Error(method, nil))
			require.Error(t, b.MakeResident(index, gomem.Wait{}))
			require.Zero(t, f.back)
			b.has(index, 5)
			require.NoError(t, b.Check())
			b.use(index)
			b.has(index, 5)
			require.Equal(t, 1, f.back)
			b.drop(index)
		})
	}
}

func TestWhatCanNeverFitIsNotReceived(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 4096})
	f := newFrame(5000, 6)
	_, err := b.Receive(unsafe.Pointer(&f.memory[0]), 5000, func() { f.back++ }, gomem.AllocateOptions{})
	var large *gomem.MemoryError
	require.ErrorAs(t, err, &large)
	require.Equal(t, gomem.ReasonTooLarge, large.Reason)
	require.Zero(t, f.back, "it is the caller's")
	require.Zero(t, b.info().Live)
}

func TestWhereNothingSpillsContentsAreCopiedAtOnce(t *testing.T) {
	b := open(t, fakedriver.Options{}, func(o *gomem.Options) { o.Movable = false })
	f := newFrame(3000, 8)
	index := b.receive(f)
	require.Equal(t, gomem.Resident, b.state(index))
	require.Equal(t, 1, f.back)
	clear(f.memory)
	b.has(index, 8)
	b.drop(index)

	b.driver.Fail(fakedriver.CopyIn, 1, errors.New("no"))
	f = newFrame(3000, 8)
	_, err := b.Receive(unsafe.Pointer(&f.memory[0]), 3000, func() { f.back++ }, gomem.AllocateOptions{})
	require.Error(t, err)
	require.Zero(t, f.back)
	require.Zero(t, b.info().Live)
}

// TestWhatWasReceivedUnderABudget: a way to the device counts as for what was spilled.
func TestWhatWasReceivedUnderABudget(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.budget(3000, false)
	frames := make([]*frame, 10)
	indexes := make([]uint32, len(frames))
	for i := range frames {
		frames[i] = newFrame(1000, uint64(i))
		indexes[i] = b.receive(frames[i])
	}
	for round := range 3 {
		for i, index := range indexes {
			b.use(index)
			b.has(index, uint64(i))
			require.LessOrEqual(t, b.info().InUse, int64(3000), "round %d", round)
		}
	}
	for _, f := range frames {
		require.Equal(t, 1, f.back)
	}
	info := b.info()
	require.Equal(t, info.Spilled, info.SpilledBytes+info.ReceivedBytes-info.RestoredBytes-info.FreedSpilled)
	require.EqualValues(t, 0, info.OverBudgetCount)
	b.drop(indexes...)
}
