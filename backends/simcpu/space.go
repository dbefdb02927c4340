package simcpu

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// space is addresses of the process, each of which is handed out once. It takes them from the system in large regions that nobody may touch, makes
// pages of them usable when they are asked for, and unusable for ever afterwards: they stay taken, so that nobody else gets them.
//
// To the kernel a block in use is a mapping, and what lies between two of them another one: those of dead blocks grow together. So the limit of
// mappings (vm.max_map_count) is one of live blocks only.
type space struct {
	mu     sync.Mutex // a leaf: only the calls that reserve a region are made under it
	next   uint64     // what follows is free up to end; before it is a page that nobody may touch
	end    uint64
	region uint64 // bytes to reserve next
	blocks int    // live ones

	unmap func(begin, nbytes uint64) error // mapUnusable, where nil; a test makes it fail

	// The live blocks that begin or end in each chunk, of those chunks that have any. When there is none, the chunk's page table can go.
	ends map[uint64]int
}

// addresses is those of the process: another device must not get what one has used.
var addresses space

// refusal is what the system did not grant.
type refusal struct {
	call   string
	code   unix.Errno
	advice string
}

func (e *refusal) Error() string { return e.call + ": " + e.code.Error() + ": " + e.advice }

// largestRegion is reserved at a time: some hundred of them are in 47 bits of addresses.
const largestRegion = 1 << 40

// page is the size of the system's pages, and chunk what one table of theirs covers: entries of 8 bytes.
var (
	page  = uint64(os.Getpagesize())
	chunk = page / 8 * page
	large = 2 * chunk // of at least that size blocks get huge pages: 8 MiB are then written and unmapped in 5 ms in place of 13, 64 MiB in 21 in place of 133
)

// take makes pages usable (bytes, whole pages), zeroed, and returns where they begin. The page before and the page behind them are unusable.
func (s *space) take(pages uint64) (begin uint64, err error) {
	if begin, err = s.advance(pages); err != nil {
		return 0, err
	}
	if err := mapUsable(begin, pages); err != nil {
		s.dead(begin, pages) // nobody has seen the addresses; they are lost all the same
		return 0, whyNoMemory("mprotect", err)
	}
	return begin, nil
}

// advance takes the next addresses from the region.
func (s *space) advance(pages uint64) (begin uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blocks >= mostBlocks() {
		return 0, tooManyBlocks("mprotect")
	}
	begin = s.placeLocked(pages)
	if begin+pages+page > s.end {
		if err := s.reserveLocked(pages + chunk + page); err != nil {
			return 0, err
		}
		begin = s.placeLocked(pages)
	}
	s.next = begin + pages + page
	if s.ends == nil {
		s.ends = make(map[uint64]int)
	}
	s.ends[begin/chunk]++
	s.ends[(begin+pages-1)/chunk]++
	s.blocks++
	return begin, nil
}

// placeLocked is where a block may begin: a large one with a chunk, which is where a huge page can begin.
func (s *space) placeLocked(pages uint64) uint64 {
	if pages >= large {
		return roundUp(s.next, chunk)
	}
	return s.next
}

// retire makes a block's pages unusable for ever, and gives their memory back.
func (s *space) retire(begin, pages uint64) error {
	from, to := s.dead(begin, pages)
	unmap := s.unmap
	if unmap == nil {
		unmap = mapUnusable
	}
	if unmap(from, to-from) == nil {
		return nil
	}
	// At the limit of mappings the kernel makes no new one, even where there are fewer afterwards. It can still take the memory out of this one.
	return empty(begin, pages)
}

// dead counts a block no more, and returns what can be made unusable with it: the chunks in which it was the last one, and none will ever be.
func (s *space) dead(begin, pages uint64) (from, to uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocks--
	first, last := begin/chunk, (begin+pages-1)/chunk
	from, to = begin, begin+pages
	for _, c := range [2]uint64{first, last} {
		if s.ends[c]--; s.ends[c] > 0 {
			continue
		}
		delete(s.ends, c)
		if c != s.next/chunk {
			from, to = min(from, c*chunk), max(to, (c+1)*chunk)
		}
	}
	return from, to
}

// reserveLocked takes a region of at least that many bytes, as large as the system allows. What is left of the one before is given up.
func (s *space) reserveLocked(least uint64) error {
	if s.region == 0 {
		s.region = firstRegion()
	}
	least = roundUp(least, chunk)
	for size := max(roundUp(s.region, chunk), least); ; size = max(size/2&^(chunk-1), least) {
		// One chunk more: a region begins and ends with a chunk, so that none lies in two.
		start, err := mapRegion(size + chunk)
		if err == nil {
			begin := roundUp(start, chunk)
			s.next, s.end = begin+page, begin+size
			s.region = min(s.region, size)
			return nil
		}
		if size == least {
			return whyNoAddresses(err)
		}
	}
}

// firstRegion leaves most of the addresses to others where a limit makes them few.
func firstRegion() uint64 {
	if limit := addressLimit(); limit != unix.RLIM_INFINITY {
		return min(largestRegion, max(roundUp(limit/16, chunk), chunk))
	}
	return largestRegion
}
