package gomem

import (
	"cmp"
	"slices"
	"sync"
)

// addressIndex finds the buffer that a device address lies in, for Find and for Adopt's look at overlaps. Buffers come and go millions of times while
// nobody asks, so a birth only writes down which record it was, and a death does nothing at all. Everything in here is a hint: a lookup asks the
// record itself where its buffer lies (where), for those noted since the last lookup, and again for each entry that it meets.
//
// Each lookup first moves what was noted into sorted levels, each eight times as large as the one before and merged into the next when it is
// full: asking after each birth, as Adopt does, then moves some thirty entries a birth instead of all of them.
//
// Ranges of living buffers never overlap, so only the nearest living entry below an address can contain it. Dead entries in between are walked
// over and counted; when that took as many steps as a quarter of the level has entries, the level's dead entries are removed. And there are never more
// than twice as many entries as records.
type addressIndex struct {
	where whereFunc // set before the first use

	mu      sync.Mutex // rank: rankAddresses; guards all below
	noted   []uint64   // bit n: record n is in fresh
	fresh   []uint32   // records noted since the last lookup, each once
	records int        // one more than the highest record that was ever noted
	levels  []addressLevel
}

// whereFunc tells where the buffer of a record lies on the device, and its generation; false when there is none on the device, whole and still
// ours.
type whereFunc func(index uint32) (address, size uint64, generation uint32, alive bool)

type addressEntry struct {
	address, size     uint64
	index, generation uint32
}

type addressLevel struct {
	entries []addressEntry // by address
	wasted  int            // dead entries walked over since they were last removed
}

const (
	levelBase  = 256 // entries of the first level; 6 KiB, which is quick to insert into
	levelRatio = 8
)

// note writes down that a buffer has got device memory, at another place than before. Call it after the buffer is resident: a lookup forgets what is
// not. If the buffer has moved on by then, the next move's note makes up for it.
func (a *addressIndex) note(index uint32) {
	a.lock()
	defer a.unlock()
	for int(index/64) >= len(a.noted) {
		a.noted = append(a.noted, 0)
	}
	a.records = max(a.records, int(index)+1)
	if bit := uint64(1) << (index % 64); a.noted[index/64]&bit == 0 {
		a.noted[index/64] |= bit
		a.fresh = append(a.fresh, index)
	}
}

// alive reports whether an entry still is true.
func (a *addressIndex) alive(e addressEntry) bool {
	address, _, generation, alive := a.where(e.index)
	return alive && generation == e.generation && address == e.address
}

// find returns the living buffer whose device memory contains the range, and where that begins.
func (a *addressIndex) find(address, nbytes uint64) (index uint32, start uint64, ok bool) {
	a.lock()
	defer a.unlock()
	a.sortFreshLocked()
	e, ok := a.below(address)
	if !ok || !e.contains(address) || nbytes > e.size-(address-e.address) {
		return 0, 0, false
	}
	return e.index, e.address, true
}

// overlap returns a living buffer whose device memory shares a byte with the range.
func (a *addressIndex) overlap(address, nbytes uint64) (index uint32, start, size uint64, ok bool) {
	if nbytes == 0 {
		return 0, 0, 0, false
	}
	a.lock()
	defer a.unlock()
	a.sortFreshLocked()
	e, ok := a.below(address)
	if !ok || !e.contains(address) {
		if e, ok = a.within(address, nbytes); !ok {
			return 0, 0, 0, false
		}
	}
	return e.index, e.address, e.size, true
}

// contains reports whether the entry's range has the byte at address, which is not below it.
func (e addressEntry) contains(address uint64) bool { return address-e.address < e.size }

// below returns the nearest living entry at or below address.
func (a *addressIndex) below(address uint64) (nearest addressEntry, ok bool) {
	for l := range a.levels {
		level := &a.levels[l]
		i, exact := level.search(address)
		if !exact {
			i--
		}
		for ; i >= 0; i-- {
			e := level.entries[i]
			if ok && e.address < nearest.address {
				break
			}
			if a.alive(e) {
				nearest, ok = e, true
				break
			}
			level.wasted++
		}
		a.tidyLocked(level)
	}
	return nearest, ok
}

// within returns the first living entry that begins in the range.
func (a *addressIndex) within(address, nbytes uint64) (first addressEntry, ok bool) {
	for l := range a.levels {
		level := &a.levels[l]
		for i, _ := level.search(address); i < len(level.entries); i++ {
			e := level.entries[i]
			if e.address-address >= nbytes || ok && e.address > first.address {
				break
			}
			if a.alive(e) {
				first, ok = e, true
				break
			}
			level.wasted++
		}
		a.tidyLocked(level)
	}
	return first, ok
}

// search returns the place of the last entry at address (exact), or where one would be inserted.
func (l *addressLevel) search(address uint64) (place int, exact bool) {
	after, _ := slices.BinarySearchFunc(l.entries, address, func(e addressEntry, address uint64) int {
		if e.address <= address {
			return -1
		}
		return 1
	})
	if after > 0 && l.entries[after-1].address == address {
		return after - 1, true
	}
	return after, false
}

// tidyLocked removes the dead entries of a level when they have cost enough.
func (a *addressIndex) tidyLocked(l *addressLevel) {
	if l.wasted > len(l.entries)/4 {
		a.keepAliveLocked(l)
	}
}

func (a *addressIndex) keepAliveLocked(l *addressLevel) {
	l.wasted = 0
	l.entries = slices.DeleteFunc(l.entries, func(e addressEntry) bool { return !a.alive(e) })
	// A buffer that was spilled and came back to the same address was noted twice.
	l.entries = slices.CompactFunc(l.entries, func(x, y addressEntry) bool { return x.address == y.address })
	if cap(l.entries) > levelBase && len(l.entries) < cap(l.entries)/2 {
		l.entries = slices.Clone(l.entries)
	}
}

// sortFreshLocked moves what was noted since the last lookup into the levels.
func (a *addressIndex) sortFreshLocked() {
	if len(a.fresh) == 0 {
		return
	}
	fresh := make([]addressEntry, 0, len(a.fresh))
	for _, index := range a.fresh {
		a.noted[index/64] &^= 1 << (index % 64)
		if address, size, generation, alive := a.where(index); alive {
			fresh = append(fresh, addressEntry{address, size, index, generation})
		}
	}
	if a.fresh = a.fresh[:0]; cap(a.fresh) > levelBase {
		a.fresh = nil // a burst; do not keep its memory
	}
	slices.SortFunc(fresh, byAddress)
	a.addLocked(fresh)
	entries := 0
	for _, level := range a.levels {
		entries += len(level.entries)
	}
	if entries > 2*a.records+levelBase {
		a.compactLocked(entries)
	}
}

// addLocked merges sorted entries into the first level, and each level that gets too full into the next.
func (a *addressIndex) addLocked(sorted []addressEntry) {
	for l, most := 0, levelBase; len(sorted) > 0; l, most = l+1, most*levelRatio {
		if l == len(a.levels) {
			a.levels = append(a.levels, addressLevel{})
		}
		level := &a.levels[l]
		if len(level.entries)+len(sorted) > most {
			a.keepAliveLocked(level)
		}
		level.entries = mergeEntries(level.entries, sorted)
		if len(level.entries) <= most {
			return
		}
		sorted, *level = level.entries, addressLevel{}
	}
}

// compactLocked makes one list of all levels, without what is dead or there twice.
func (a *addressIndex) compactLocked(entries int) {
	all := addressLevel{entries: make([]addressEntry, 0, entries)}
	for _, level := range a.levels {
		all.entries = append(all.entries, level.entries...)
	}
	slices.SortFunc(all.entries, byAddress)
	a.keepAliveLocked(&all)
	clear(a.levels)
	a.addLocked(all.entries)
}

// mergeEntries merges the sorted b into the sorted a, in a's memory if there is room.
func mergeEntries(a, b []addressEntry) []addressEntry {
	i, j := len(a)-1, len(b)-1
	a = slices.Grow(a, len(b))[:len(a)+len(b)]
	for k := len(a) - 1; j >= 0; k-- { // from the back; when b is used up, the rest of a is in place
		if i >= 0 && a[i].address > b[j].address {
			a[k] = a[i]
			i--
		} else {
			a[k] = b[j]
			j--
		}
	}
	return a
}

func byAddress(x, y addressEntry) int { return cmp.Compare(x.address, y.address) }

func (a *addressIndex) lock() {
	a.mu.Lock()
	acquired(rankAddresses)
}

func (a *addressIndex) unlock() {
	released(rankAddresses)
	a.mu.Unlock()
}
