package gomem_test

import (
	"cmp"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// bareDriver gives out addresses and keeps nothing, so that very many buffers cost nothing but what the core needs for them.
type bareDriver struct {
	*fakedriver.Device
	last atomic.Uint64
}

func (d *bareDriver) Allocate(nbytes uint64) (uint64, error) { return d.last.Add(1) << 20, nil }
func (d *bareDriver) Free(gomem.Block) error                 { return nil }
func (d *bareDriver) CopyOut(unsafe.Pointer, uint64, uint64) error {
	return nil
}
func (d *bareDriver) CopyIn(uint64, unsafe.Pointer, uint64) error { return nil }

func openBare(t *testing.T) *gomem.Device {
	t.Helper()
	d, err := gomem.NewDevice(&bareDriver{Device: fakedriver.New(fakedriver.Options{})}, gomem.Options{Movable: true})
	require.NoError(t, err)
	return d
}

// lruModel is the obvious list of buffers by last use.
type lruModel struct {
	*gomem.Device
	t    *testing.T
	live []uint32
	held map[uint32]uint64 // hold by index
}

func (m *lruModel) resident(index uint32) bool {
	state, _ := gomem.StateOf(m.Record(index).Word)
	return state == gomem.Resident
}

// expect is the oldest n that can be spilled.
func (m *lruModel) expect(n int) []uint32 {
	var candidates []uint32
	for _, index := range m.live {
		if _, held := m.held[index]; !held && m.resident(index) {
			candidates = append(candidates, index)
		}
	}
	slices.SortFunc(candidates, func(x, y uint32) int { return cmp.Compare(m.Record(x).LastUse, m.Record(y).LastUse) })
	return candidates[:min(n, len(candidates))]
}

// The order is exactly that of last use, among 100,000 buffers that are used, made, dropped, held, released, spilled and brought back in between.
func TestVictimsAreTakenInOrderOfLastUse(t *testing.T) {
	const size = 64
	n := gomem.Fewer(100_000, 20_000)
	m := &lruModel{Device: openBare(t), t: t, held: map[uint32]uint64{}}
	random := rand.New(rand.NewPCG(4, 2))
	add := func() {
		index, err := m.Allocate(size, gomem.AllocateOptions{})
		require.NoError(t, err)
		m.live = append(m.live, index)
	}
	for range n {
		add()
	}
	lastUsed := uint64(0)
	for round := range 40 {
		for range random.IntN(n / 100) {
			i := random.IntN(len(m.live))
			index := m.live[i]
			switch random.IntN(6) {
			case 0, 1, 2: // a use, of a resident or a spilled one
				before := m.Record(index).LastUse
				require.NoError(t, m.MakeResident(index, gomem.Wait{}))
				require.Greater(t, m.Record(index).LastUse, before)
				require.Greater(t, m.Record(index).LastUse, lastUsed)
				lastUsed = m.Record(index).LastUse
			case 3:
				if _, held := m.held[index]; !held {
					m.Drop(index)
					m.live[i] = m.live[len(m.live)-1]
					m.live = m.live[:len(m.live)-1]
					add()
				}
			case 4:
				if _, held := m.held[index]; !held && m.resident(index) {
					use := m.Record(index).LastUse
					id, err := m.Hold(index, gomem.HoldKind(round%2)+gomem.HoldExport, 0, gomem.Wait{})
					require.NoError(t, err)
					m.held[index] = id
					m.Record(index).LastUse = use // an old buffer that is held: the hold is a use otherwise
				}
			case 5:
				for index, id := range m.held {
					m.Release(index, id)
					delete(m.held, index)
					break
				}
			}
		}
		k := 1 + random.IntN(n/200)
		want := m.expect(k)
		freed, err := m.MakeRoom(uint64(k*size), gomem.AllocateOptions{Wait: gomem.Wait{Nested: true}})
		require.NoError(t, err)
		require.EqualValues(t, len(want)*size, freed)
		for _, index := range want {
			require.False(t, m.resident(index), "round %d: buffer %d (last use %d) is not among the %d spilled", round, index, m.Record(index).LastUse, k)
		}
	}
	require.NoError(t, m.Check())
}

// A choice does not look at all buffers: spilling 10,000 of 30,000, one at a time, takes a few passes.
func TestChoosingVictimsDoesNotScanForEach(t *testing.T) {
	n := gomem.Fewer(30_000, 30_000)
	d := openBare(t)
	for range n {
		_, err := d.Allocate(64, gomem.AllocateOptions{})
		require.NoError(t, err)
	}
	choices := n / 3
	for range choices {
		freed, err := d.MakeRoom(1, gomem.AllocateOptions{Wait: gomem.Wait{Nested: true}})
		require.NoError(t, err)
		require.EqualValues(t, 64, freed)
	}
	require.Less(t, d.VictimPasses(), int64(choices/200))
}

// Buffers that are held for long do not make each choice look at them again.
func TestOldExportsCostNothingAChoice(t *testing.T) {
	d := openBare(t)
	const n = 20_000
	for i := range n {
		index, err := d.Allocate(64, gomem.AllocateOptions{})
		require.NoError(t, err)
		if i < 1000 { // the oldest
			_, err = d.Hold(index, gomem.HoldExport, 0, gomem.Wait{})
			require.NoError(t, err)
		}
	}
	for range 1000 {
		_, err := d.MakeRoom(1, gomem.AllocateOptions{Wait: gomem.Wait{Nested: true}})
		require.NoError(t, err)
	}
	require.Less(t, d.VictimPasses(), int64(50))
}

// lookedAt is what one choice looks at, each buffer where it came first: what was left of the last pass is looked at again by the next one.
func lookedAt(b *bench, between func(index uint32)) (indexes []uint32) {
	for _, index := range b.ChooseVictims(between) {
		if !slices.Contains(indexes, index) {
			indexes = append(indexes, index)
		}
	}
	return indexes
}

// What holds or exports keep is looked at once, and then again when the last of them has ended: in the order of its last use, and by a choice that is
// under way as well.
func TestWhatIsHeldForLongIsLookedAtOnce(t *testing.T) {
	for _, kind := range []gomem.HoldKind{gomem.HoldScope, gomem.HoldExport} {
		b := open(t, fakedriver.Options{})
		var indexes []uint32
		for range 6 {
			indexes = append(indexes, b.allocate(kib))
		}
		hold := func(index uint32) (release func()) {
			use := b.Record(index).LastUse
			id, err := b.Hold(index, kind, 0, gomem.Wait{})
			require.NoError(t, err)
			b.Record(index).LastUse = use
			return sync.OnceFunc(func() { b.Release(index, id) })
		}
		nothing := func(uint32) {}
		first, again := hold(indexes[1]), hold(indexes[1])
		second, third := hold(indexes[3]), hold(indexes[4])
		require.Equal(t, indexes, lookedAt(b, nothing))
		free := []uint32{indexes[0], indexes[2], indexes[5]}
		require.Equal(t, free, lookedAt(b, nothing))
		first()
		require.Equal(t, free, lookedAt(b, nothing), "it is held still")
		again()
		require.Equal(t, []uint32{indexes[0], indexes[1], indexes[2], indexes[5]}, lookedAt(b, nothing))
		b.use(indexes[3]) // it is the youngest now
		require.Equal(t, []uint32{indexes[0], indexes[1], indexes[2], indexes[5], indexes[3], indexes[4]}, lookedAt(b, func(index uint32) {
			switch index {
			case indexes[2]:
				second()
			case indexes[3]:
				third()
			}
		}))

		last := hold(indexes[0])
		for _, index := range indexes { // so that nothing is left of the batch
			b.use(index)
		}
		chosen := b.ChooseVictims(func(index uint32) {
			if index == indexes[0] {
				b.use(index)
				last()
			}
		})
		require.Equal(t, append(slices.Clone(indexes), indexes[0]), chosen, "it was used and let go of while the choice went on: it is the last one now")
		b.drop(indexes...)
	}
}

// A buffer that was used while it was parked is as young as that use when its hold ends, however old the batch is.
func TestUseOfWhatIsParkedCounts(t *testing.T) {
	d := openBare(t)
	indexes := make([]uint32, 4000)
	for i := range indexes {
		var err error
		indexes[i], err = d.Allocate(64, gomem.AllocateOptions{})
		require.NoError(t, err)
	}
	makeRoom := func(buffers uint64) {
		freed, err := d.MakeRoom(64*buffers, gomem.AllocateOptions{Wait: gomem.Wait{Nested: true}})
		require.NoError(t, err)
		require.EqualValues(t, 64*buffers, freed)
	}
	use := d.Record(indexes[0]).LastUse
	id, err := d.Hold(indexes[0], gomem.HoldScope, 0, gomem.Wait{})
	require.NoError(t, err)
	d.Record(indexes[0]).LastUse = use
	makeRoom(1)
	require.NoError(t, d.MakeResident(indexes[0], gomem.Wait{}))
	d.Release(indexes[0], id)
	for range len(indexes) - 2 { // all others that are left
		makeRoom(1)
		require.EqualValues(t, gomem.Resident, d.Record(indexes[0]).Word)
	}
	makeRoom(1)
	require.EqualValues(t, gomem.Spilled, d.Record(indexes[0]).Word)
}

// The record of a buffer that was freed while it was parked is a new buffer's, which is a victim like any other.
func TestRecordOfWhatWasParkedIsUsedAgain(t *testing.T) {
	b := open(t, fakedriver.Options{})
	index := b.allocate(kib)
	id, err := b.Hold(index, gomem.HoldScope, 0, gomem.Wait{})
	require.NoError(t, err)
	nothing := func(uint32) {}
	require.Equal(t, []uint32{index}, lookedAt(b, nothing))
	b.Release(index, id)
	b.drop(index)
	require.Equal(t, index, b.allocate(kib))
	require.Equal(t, []uint32{index}, lookedAt(b, nothing))
	id, err = b.Hold(index, gomem.HoldScope, 0, gomem.Wait{})
	require.NoError(t, err)
	b.use(index)
	require.Equal(t, []uint32{index}, lookedAt(b, nothing))
	require.Empty(t, lookedAt(b, nothing))
	b.Release(index, id)
	require.Equal(t, []uint32{index}, lookedAt(b, nothing))
	b.drop(index)
}

// Where a few buffers change places beside many that are held, each of their choices needs one pass at most: what is held is in no pass.
func TestFewBuffersChangePlacesBesideManyThatAreHeld(t *testing.T) {
	d := openBare(t)
	for range 5000 {
		index, err := d.Allocate(64, gomem.AllocateOptions{})
		require.NoError(t, err)
		_, err = d.Hold(index, gomem.HoldScope, 0, gomem.Wait{})
		require.NoError(t, err)
	}
	var few [2]uint32
	for i := range few {
		var err error
		few[i], err = d.Allocate(64, gomem.AllocateOptions{})
		require.NoError(t, err)
	}
	makeRoom := func() {
		freed, err := d.MakeRoom(1, gomem.AllocateOptions{Wait: gomem.Wait{Nested: true}})
		require.NoError(t, err)
		require.EqualValues(t, 64, freed)
	}
	makeRoom() // the one that finds what is held
	passes := d.VictimPasses()
	const choices = 100
	for i := range choices {
		require.NoError(t, d.MakeResident(few[i%2], gomem.Wait{}))
		require.NoError(t, d.MakeResident(few[(i+1)%2], gomem.Wait{}))
		makeRoom()
	}
	require.LessOrEqual(t, d.VictimPasses()-passes, int64(choices))
}

// A record that was freed and used again is not spilled in place of the buffer that was chosen before.
func TestReusedRecordIsNotTakenForTheOldBuffer(t *testing.T) {
	b := open(t, fakedriver.Options{})
	var indexes []uint32
	for range 10 {
		indexes = append(indexes, b.allocate(kib))
	}
	makeRoom := func() {
		_, err := b.MakeRoom(1, gomem.AllocateOptions{})
		require.NoError(t, err)
	}
	makeRoom() // the batch now has all ten
	require.Equal(t, gomem.Spilled, b.state(indexes[0]))
	generation := b.Record(indexes[1]).Generation
	lastUse := b.Record(indexes[1]).LastUse
	b.drop(indexes[1])
	again := b.allocate(kib)
	require.Equal(t, indexes[1], again, "the record is used again")
	require.NotEqual(t, generation, b.Record(again).Generation)
	b.Record(again).LastUse = lastUse // as a lost tick can make it: only the generation tells them apart then
	makeRoom()
	require.Equal(t, gomem.Resident, b.state(again))
	require.Equal(t, gomem.Spilled, b.state(indexes[2]))
	b.drop(again)
	b.drop(indexes[0])
	b.drop(indexes[2:]...)
}

// A hold that ends makes its old buffer the next victim again.
func TestReleasedBufferIsTheNextVictim(t *testing.T) {
	for _, kind := range []gomem.HoldKind{gomem.HoldScope, gomem.HoldExport} {
		b := open(t, fakedriver.Options{})
		old := b.allocate(kib)
		var younger []uint32
		id, err := b.Hold(old, kind, 0, gomem.Wait{})
		require.NoError(t, err)
		for range 5 {
			younger = append(younger, b.allocate(kib))
		}
		for n := range 2 {
			_, err = b.MakeRoom(1, gomem.AllocateOptions{Wait: nested})
			require.NoError(t, err)
			require.Equal(t, gomem.Spilled, b.state(younger[n]))
			require.Equal(t, gomem.Resident, b.state(old))
		}
		b.Release(old, id)
		_, err = b.MakeRoom(1, gomem.AllocateOptions{})
		require.NoError(t, err)
		require.Equal(t, gomem.Spilled, b.state(old))
		b.drop(old)
		b.drop(younger...)
	}
}

// A million live buffers take at most 256 bytes each, records included.
func TestMemoryPerBuffer(t *testing.T) {
	n := gomem.Fewer(1_000_000, 100_000)
	d := openBare(t)
	heap := func() int64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	before := heap()
	for range n {
		_, err := d.Allocate(64, gomem.AllocateOptions{Label: 3, Origin: 4})
		require.NoError(t, err)
	}
	_, _, found := d.Find(uint64(n/2)<<20, 64) // the address index, too
	require.True(t, found)
	bytes := heap() - before
	if !gomem.RaceBuild {
		bytes += int64(n+4096) * int64(unsafe.Sizeof(gomem.Record{})) // mapped outside of the heap
	}
	runtime.KeepAlive(d)
	t.Logf("%d bytes a buffer", bytes/int64(n))
	require.LessOrEqual(t, bytes/int64(n), int64(256))
}

// C ticks the clock by a plain load and store, so it can be set back. A buffer that is used then, in the middle of a choice, counts as older than what the
// choice has looked at already; the choice finds it all the same, or it would end with "nothing is left to spill".
func TestClockThatIsSetBackHidesNothing(t *testing.T) {
	b := open(t, fakedriver.Options{})
	var indexes []uint32
	for range 5 {
		indexes = append(indexes, b.allocate(kib))
	}
	for round := range 3 { // the first choice makes a pass, the others begin with what it left
		set := false
		chosen := b.ChooseVictims(func(index uint32) {
			if !set {
				set = true
				b.Books().Clock = 0
				for _, other := range indexes {
					if other != index {
						b.use(other)
					}
				}
			}
		})
		require.Subset(t, chosen, indexes, "round %d", round)
	}
	b.drop(indexes...)
}

// Choices are numbered by 32 bits. The number after the last is not one that a record still has.
func TestNumbersOfChoicesBeginAnew(t *testing.T) {
	b := open(t, fakedriver.Options{})
	indexes := []uint32{b.allocate(kib), b.allocate(kib)}
	nothing := func(uint32) {}
	require.Equal(t, indexes, b.ChooseVictims(nothing)) // by number 1, and the one after the last is 1, too
	b.SkipToLastChoice()
	b.use(indexes[0]) // so that nothing is left of the batch
	b.use(indexes[1])
	require.Equal(t, indexes, b.ChooseVictims(nothing))
	b.drop(indexes...)
}
