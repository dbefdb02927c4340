package gomem

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// plainAddresses is the oracle: a map of what lives where.
type plainAddresses map[uint32]addressEntry

func (p plainAddresses) where(index uint32) (address, size uint64, generation uint32, alive bool) {
	e, ok := p[index]
	return e.address, e.size, e.generation, ok
}

func (p plainAddresses) find(address, nbytes uint64) (index uint32, start uint64, ok bool) {
	for _, e := range p {
		if e.address <= address && address < e.address+e.size && address+nbytes <= e.address+e.size {
			return e.index, e.address, true
		}
	}
	return 0, 0, false
}

func (p plainAddresses) overlaps(address, nbytes uint64) bool {
	for _, e := range p {
		if e.address < address+nbytes && address < e.address+e.size {
			return true
		}
	}
	return false
}

// Births, deaths, moves and lookups in any order give what a plain table of the living gives.
func TestAddressIndexAgreesWithPlainTable(t *testing.T) {
	for seed := range uint64(fewerChecked(20, 4)) {
		random := rand.New(rand.NewPCG(seed, 1))
		living := plainAddresses{}
		index := addressIndex{where: living.where}
		const space = 1 << 16 // small, so that addresses are used again and ranges touch
		var free []uint32
		next, generation := uint32(0), uint32(0)
		place := func(i uint32) {
			address, size := random.Uint64N(space), 1+random.Uint64N(64)
			if random.IntN(20) == 0 {
				size = 1 + random.Uint64N(space/8)
			}
			if !living.overlaps(address, size) {
				e := addressEntry{address, size, i, generation}
				living[i] = e
				index.note(e.index)
				return
			}
			free = append(free, i)
		}
		lookups := 0
		for range fewerChecked(6000, 3000) {
			switch random.IntN(5) {
			case 0, 1: // birth
				i := next
				if len(free) > 0 && random.IntN(2) == 0 {
					i, free = free[len(free)-1], free[:len(free)-1]
				} else {
					next++
				}
				generation++
				place(i)
			case 2: // death
				for i := range living { // any
					delete(living, i)
					free = append(free, i)
					break
				}
			case 3: // spilled and restored elsewhere: the same buffer at a new address
				for i, e := range living {
					delete(living, i)
					e.address = random.Uint64N(space)
					if !living.overlaps(e.address, e.size) {
						living[i] = e
						index.note(e.index)
					} else {
						free = append(free, i)
					}
					break
				}
			case 4:
				lookups++
				address, nbytes := random.Uint64N(space), random.Uint64N(40)
				wantIndex, wantStart, want := living.find(address, nbytes)
				gotIndex, gotStart, got := index.find(address, nbytes)
				require.Equal(t, want, got, "seed %d: find(%d, %d)", seed, address, nbytes)
				require.Equal(t, wantIndex, gotIndex)
				require.Equal(t, wantStart, gotStart)
				i, start, size, got := index.overlap(address, nbytes)
				require.Equal(t, nbytes > 0 && living.overlaps(address, nbytes), got, "seed %d: overlap(%d, %d)", seed, address, nbytes)
				if got {
					require.Equal(t, living[i], addressEntry{start, size, i, living[i].generation})
					require.True(t, start < address+nbytes && address < start+size)
				}
			}
		}
		require.NotZero(t, lookups)
	}
}

// However many buffers come and go, the index holds no more than a small number of entries for each record.
func TestAddressIndexIsBounded(t *testing.T) {
	living := plainAddresses{}
	index := addressIndex{where: living.where}
	const records = 3000
	for n := range uint64(fewerChecked(300_000, 60_000)) {
		i := uint32(n % records)
		e := addressEntry{n << 12, 1 << 12, i, uint32(n / records)}
		living[i] = e
		index.note(e.index)
		if n%5 == 0 {
			_, _, found := index.find(e.address+100, 8)
			require.True(t, found)
		}
	}
	entries := 0
	for _, level := range index.levels {
		entries += len(level.entries)
	}
	require.LessOrEqual(t, entries, 2*records+levelBase)
	require.Equal(t, records, index.records)
	require.LessOrEqual(t, len(index.fresh), records)
}

// Looking up after each birth, as adopt does, does not copy the whole table each time, and neither does a region of dead buffers cost
// its length at each look.
func TestAddressIndexLookupsStayShort(t *testing.T) {
	living := plainAddresses{}
	asked := 0
	index := addressIndex{where: func(i uint32) (uint64, uint64, uint32, bool) {
		asked++
		return living.where(i)
	}}
	n := fewerChecked(100_000, 10_000)
	for i := range uint32(n) {
		e := addressEntry{uint64(i) << 12, 1 << 12, i, 0}
		_, _, _, overlap := index.overlap(e.address, e.size)
		require.False(t, overlap)
		living[i] = e
		index.note(e.index)
	}
	require.Less(t, asked, 100*n)

	clear(living)
	living[0] = addressEntry{0, 1 << 12, 0, 0}
	asked = 0
	for range n {
		_, _, found := index.find(uint64(n)<<12, 1)
		require.False(t, found)
	}
	require.Less(t, asked, 10*n)
}

func TestAddressIndexAtTheEdges(t *testing.T) {
	living := plainAddresses{7: {1000, 24, 7, 3}, 8: {^uint64(0) - 15, 15, 8, 0}}
	index := addressIndex{where: living.where}
	for _, e := range living {
		index.note(e.index)
	}
	for _, c := range []struct {
		address, nbytes uint64
		found, overlap  bool
	}{
		{1000, 24, true, true}, {1000, 25, false, true}, {999, 1, false, false}, {999, 2, false, true}, {1023, 1, true, true},
		{1024, 1, false, false}, {1024, 0, false, false}, {1000, 0, true, false}, {0, 1000, false, false}, {0, 1001, false, true},
		{^uint64(0) - 15, 15, true, true}, {^uint64(0) - 1, ^uint64(0), false, true}, {1024, ^uint64(0), false, true},
	} {
		_, _, found := index.find(c.address, c.nbytes)
		require.Equal(t, c.found, found, "%+v", c)
		_, _, _, overlap := index.overlap(c.address, c.nbytes)
		require.Equal(t, c.overlap, overlap, "%+v", c)
	}
}
