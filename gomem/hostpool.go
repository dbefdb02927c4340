package gomem

import (
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// HostBlock is host memory for one copy: the pool's own, or lent (lent.go).
type HostBlock struct {
	Address uintptr // never 0; 16-byte aligned where it is the pool's own
	Bytes   uint64  // capacity: at least what was asked, at most a quarter more (and at least 64). Of what is lent: its size, and lentBit
}

// Pointer is the block's address as a pointer. (The block keeps it as a number, so that tables of blocks hold nothing that the collector
// would follow.)
func (b HostBlock) Pointer() unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&b.Address)) }

// HostMemoryError says that there is no host memory for a copy. Figures are bytes; Unknown (-1) where there is none.
type HostMemoryError struct {
	Requested int64
	Limit     int64 // on the pool as a whole
	Used      int64 // what copies take now
	Available int64 // what the system had left when it was last asked
	Cause     error // the system's own error, where it refused; else nil: the limit did
}

func (e *HostMemoryError) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("no host memory for a copy of %d bytes (%d used): %v", e.Requested, e.Used, e.Cause)
	}
	if e.Available >= 0 {
		return fmt.Sprintf("no host memory for a copy of %d bytes: %d used of a limit of %d (the host has %d left)",
			e.Requested, e.Used, e.Limit, e.Available)
	}
	return fmt.Sprintf("no host memory for a copy of %d bytes: %d used of a limit of %d", e.Requested, e.Used, e.Limit)
}

// Unwrap returns the system's own error.
func (e *HostMemoryError) Unwrap() error { return e.Cause }

// HostPool hands out host memory for the copies of spilled buffers. It maps the memory itself and keeps what is given back for a while,
// because writing into memory that was touched before is about eight times as fast as into memory fresh from malloc (facts: 12
// against 1.6 GB/s). All methods may be called from any goroutine.
//
// used + pooled never passes the limit (a limit that is lowered, or a system whose memory shrinks, can leave them above it; then only Gets
// are refused).
type HostPool struct {
	available func() (bytes int64, known bool) // what the system has left; constant
	now       func() time.Time                 // constant

	lent lentBlocks // lent.go

	mu     sync.Mutex // rank: rankPool; guards all below. Released by defers only: a panic on one device must not stop the others (broken.go)
	used   int64      // bytes of the blocks handed out
	pooled int64      // bytes of idle blocks: memory lies behind them, probably
	limit  int64      // -1: the default rule
	fault  func(nbytes uint64) error

	devices atomic.Pointer[[]*Device] // whose copies are here (poolmates.go); a new slice at each change, with mu, and read without

	refused refusedSizes // by the limit, since anything was given back last, or the limit rose

	lists    [chunkClasses]chunkList // by class: chunks that have a block to give
	chunks   map[uintptr]*chunk      // by address
	bins     map[int]*idleUnit       // by class: idle blocks with a mapping of their own, the newest first
	idle     idleList                // everything that could be given back to the system as a whole, the oldest first
	released *idleUnit               // given up, to be unmapped by unlock; linked by older
	out      map[uintptr]uint64      // builds that check themselves: the blocks handed out

	measured      time.Time // when the two below were found; zero: never
	measuredLimit int64     // what the default rule allows
	measuredLeft  int64     // what the system had left, or Unknown
}

// chunkClasses is the number of classes up to chunkBlockBytes: 2^6 to 2^20 in four steps a doubling.
const chunkClasses = (20-6)*4 + 1

const (
	// measureFor is how long the system's answer is believed. Asking takes some 50 to 200 microseconds; in between, what the pool itself hands out is
	// counted.
	measureFor = 20 * time.Millisecond

	// defaultPercent is the share of the host's memory that copies may take by default. An overcommitting system says no only by killing.
	defaultPercent = 80

	// Idle memory is kept up to a quarter of the limit and up to maxPooled, but minPooled always.
	minPooled = 64 << 20
	maxPooled = 8 << 30
)

// NewHostPool returns an empty pool with the default limit.
func NewHostPool() *HostPool { return newHostPool(availableMemory(), time.Now) }

func newHostPool(available func() (int64, bool), now func() time.Time) *HostPool {
	p := &HostPool{available: available, now: now, limit: -1, chunks: make(map[uintptr]*chunk), bins: make(map[int]*idleUnit)}
	if invariants {
		p.out = make(map[uintptr]uint64)
	}
	return p
}

// Get returns host memory of at least nbytes; its contents are undefined. The error is a *HostMemoryError when the limit or the system
// refuses; then nothing changed, except that idle memory may have been given back.
func (p *HostPool) Get(nbytes uint64) (HostBlock, error) {
	if nbytes > math.MaxInt64/2 {
		return HostBlock{}, &HostMemoryError{Requested: figure(nbytes), Limit: Unknown, Used: Unknown, Available: Unknown}
	}
	limit, fault := p.rules()
	if fault != nil {
		if err := fault(nbytes); err != nil {
			return HostBlock{}, err
		}
	}
	if class, size := sizeClass(nbytes); size <= chunkBlockBytes {
		return p.getFromChunk(nbytes, class, size, limit)
	}
	return p.getBig(nbytes, limit)
}

// rules are the limit that holds now, and what SetFault has set.
func (p *HostPool) rules() (limit int64, fault func(nbytes uint64) error) {
	p.lock()
	defer p.unlock()
	return p.limitLocked(), p.fault
}

// getFromChunk is Get for the sizes that share mappings.
func (p *HostPool) getFromChunk(nbytes uint64, class int, size uint64, limit int64) (HostBlock, error) {
	p.lock()
	defer p.unlock()
	c, growth := p.chunkLocked(class, size)
	for p.used+p.pooled+growth > limit && p.shrinkLocked(limit-growth) > 0 {
		c, growth = p.chunkLocked(class, size) // it may have been given back itself
	}
	if p.used+p.pooled+growth > limit {
		p.noteRefusalLocked(nbytes, limit)
		return HostBlock{}, p.refusedLocked(nbytes, limit)
	}
	if c == nil {
		memory, err := mapAligned(chunkBytes(size), chunkBytes(size))
		if err != nil {
			return HostBlock{}, &HostMemoryError{Requested: int64(nbytes), Limit: limit, Used: p.used, Available: p.measuredLeft, Cause: err}
		}
		c = newChunk(memory, class)
		p.chunks[uintptr(memory)] = c
		p.lists[class].add(c)
	}
	p.idle.remove(&c.idleUnit) // if it is in
	block, wasIdle := c.take()
	if !c.hasRoom() {
		p.lists[class].remove(c)
	}
	p.used += int64(size)
	if wasIdle {
		p.pooled -= int64(size)
	}
	return p.handedOutLocked(block, size), nil
}

// refusal is the error of a Get of nbytes, or of as much in parts, where the limit is sure to refuse it now, whatever idle memory is given back. nil: try.
func (p *HostPool) refusal(nbytes uint64) *HostMemoryError {
	p.lock()
	defer p.unlock()
	limit := p.limitLocked()
	if nbytes <= math.MaxInt64/2 && p.used+int64(nbytes) <= limit {
		return nil
	}
	return p.refusedLocked(nbytes, limit)
}

// chunkLocked returns a chunk of this class that has a block to give, or nil, and by how much taking a block there or from a new chunk makes used +
// pooled grow: an idle block is counted already.
func (p *HostPool) chunkLocked(class int, size uint64) (c *chunk, growth int64) {
	c = p.lists[class].first
	if c != nil && c.idle > 0 {
		return c, 0
	}
	return c, int64(size)
}

// getBig is Get for blocks that have a mapping each.
func (p *HostPool) getBig(nbytes uint64, limit int64) (HostBlock, error) {
	size := roundUp(nbytes, uint64(os.Getpagesize()))
	warm, err := p.countBig(nbytes, size, limit)
	if warm.Address != 0 || err != nil {
		return warm, err
	}
	memory, err := mapBig(uintptr(size)) // the block is counted; mapping it needs no lock
	if err != nil {
		p.Trim() // idle memory of ours may be what the system lacks (a limit on address space, strict overcommit)
		memory, err = mapBig(uintptr(size))
	}
	p.lock()
	defer p.unlock()
	if err != nil {
		p.used -= int64(size)
		p.refused = refusedSizes{}
		return HostBlock{}, &HostMemoryError{Requested: int64(nbytes), Limit: limit, Used: p.used, Available: p.measuredLeft, Cause: err}
	}
	return p.handedOutLocked(memory, size), nil
}

// countBig counts a block of this size as used, if the limit has room for it. Where an idle block fits, it is the result; else it is for the caller to map
// one.
func (p *HostPool) countBig(nbytes, size uint64, limit int64) (HostBlock, error) {
	p.lock()
	defer p.unlock()
	if warm := p.takeWarmLocked(size); warm != nil {
		capacity := int64(warm.mapped)
		p.pooled -= capacity
		p.used += capacity
		if p.fitsLocked(limit) {
			return p.handedOutLocked(warm.memory, uint64(capacity)), nil
		}
		p.used -= capacity // it is larger than was asked for: given back, it may leave room for a block of just that size
		p.pooled += capacity
		p.keepLocked(warm)
	}
	p.used += int64(size)
	if !p.fitsLocked(limit) {
		p.used -= int64(size)
		p.noteRefusalLocked(nbytes, limit)
		return HostBlock{}, p.refusedLocked(nbytes, limit)
	}
	return HostBlock{}, nil
}

// fitsLocked reports whether the pool is within the limit, once idle memory was given back if need be.
func (p *HostPool) fitsLocked(limit int64) bool {
	if p.used+p.pooled > limit {
		p.shrinkLocked(limit)
	}
	return p.used+p.pooled <= limit
}

func mapBig(size uintptr) (unsafe.Pointer, error) {
	if size < hugeBytes {
		return mapSlab(size)
	}
	memory, err := mapAligned(size, hugeBytes)
	if err == nil {
		adviseHuge(memory, size)
	}
	return memory, err
}

// takeWarmLocked takes an idle block that fits and wastes little out of the pool's lists, or returns nil. Its bytes are still counted as
// pooled.
func (p *HostPool) takeWarmLocked(size uint64) *idleUnit {
	const look = 32 // blocks of one class that are looked at
	most := size + size/bigWaste
	class, _ := sizeClass(size)
	var best *idleUnit
	for next := class; next <= class+2 && best == nil; next++ {
		for u, n := p.bins[next], 0; u != nil && n < look; u, n = u.below, n+1 {
			if capacity := uint64(u.mapped); capacity >= size && capacity <= most && (best == nil || u.mapped < best.mapped) {
				best = u
				if capacity == size {
					break
				}
			}
		}
	}
	if best != nil {
		p.unbinLocked(best)
		p.idle.remove(best)
	}
	return best
}

// Put takes a block back that Get or Lend returned. Nobody may touch it afterwards.
func (p *HostPool) Put(b HostBlock) {
	if b.Address == 0 {
		return
	}
	if b.isLent() {
		p.lent.giveBack(b)
		return
	}
	block := b.Pointer()
	p.lock()
	defer p.unlock()
	limit := p.limit
	if limit < 0 {
		limit = p.measuredLimit // found by the Get before; a Put asks nothing
	}
	if invariants {
		if size, known := p.out[b.Address]; !known || size != b.Bytes {
			panic(fmt.Sprintf("gomem: %d bytes at %#x are given back to the host pool, which handed out %d there", b.Bytes, b.Address, size))
		}
		delete(p.out, b.Address)
	}
	p.used -= int64(b.Bytes)
	p.pooled += int64(b.Bytes)
	p.refused = refusedSizes{}
	if size := chunkBytes(b.Bytes); size != 0 {
		c := p.chunks[b.Address&^(size-1)]
		if c == nil || c.size != b.Bytes {
			panic(fmt.Sprintf("gomem: %d bytes at %#x are not of this host pool", b.Bytes, b.Address))
		}
		c.put(block)
		if !c.listed {
			p.lists[c.class].add(c)
		}
		if c.live == 0 {
			p.idle.add(&c.idleUnit)
		}
	} else {
		p.keepLocked(&idleUnit{memory: block, mapped: uintptr(b.Bytes)})
	}
	keep := max(minPooled, min(limit/4, maxPooled))
	for p.pooled > keep && p.idle.oldest != nil {
		p.releaseLocked(p.idle.oldest)
	}
}

// Trim gives all idle memory back to the system and returns how many bytes that were. Blocks of small sizes stay while another block of
// their chunk is in use.
func (p *HostPool) Trim() (released uint64) {
	p.lock()
	defer p.unlock()
	return uint64(p.shrinkLocked(0))
}

// Bytes returns what copies take now, what is lent included, and what is kept idle.
func (p *HostPool) Bytes() (used, pooled int64) {
	lent := p.lent.bytes.Load()
	p.lock()
	defer p.unlock()
	return p.used + lent, p.pooled
}

// SetLimit bounds the pool to this many bytes. -1 is the default rule: 80 % of what the host, and the control group that the process is in, would have
// left without the pool. Copies that exist stay.
func (p *HostPool) SetLimit(bytes int64) {
	p.lock()
	defer p.unlock()
	p.limit = max(bytes, -1)
	p.measured = time.Time{}
	p.refused = refusedSizes{}
	if p.limit >= 0 {
		p.shrinkLocked(p.limit)
	}
}

// SetFault makes each Get ask f first and fail with its error; nil ends that. It is for tests.
func (p *HostPool) SetFault(f func(nbytes uint64) error) {
	p.lock()
	defer p.unlock()
	p.fault = f
}

// limitLocked is the limit that holds now.
func (p *HostPool) limitLocked() int64 {
	if p.limit >= 0 {
		return p.limit
	}
	now, before := p.now(), p.measuredLimit
	if !p.measured.IsZero() && now.Sub(p.measured) < measureFor {
		return p.measuredLimit
	}
	defer func() {
		if p.measuredLimit > before {
			p.refused = refusedSizes{}
		}
	}()
	p.measured = now
	left, known := p.available()
	if !known {
		p.measuredLimit, p.measuredLeft = math.MaxInt64, Unknown
		return p.measuredLimit
	}
	// What the pool holds is memory that the system no longer counts as available. (A block that was handed out and not written yet is counted
	// twice for a moment; the next measurement ends that.)
	p.measuredLeft = left
	p.measuredLimit = (left + p.used + p.pooled) / 100 * defaultPercent
	return p.measuredLimit
}

func (p *HostPool) refusedLocked(nbytes uint64, limit int64) *HostMemoryError {
	left := p.measuredLeft
	if p.limit >= 0 {
		left = Unknown // nobody asked
	}
	return &HostMemoryError{Requested: figure(nbytes), Limit: limit, Used: p.used, Available: left}
}

func (p *HostPool) handedOutLocked(memory unsafe.Pointer, size uint64) HostBlock {
	if invariants {
		p.out[uintptr(memory)] = size
	}
	return HostBlock{Address: uintptr(memory), Bytes: size}
}

// shrinkLocked gives idle memory back, the oldest first, until used + pooled <= target or nothing is left to give, and returns how many
// bytes that were.
func (p *HostPool) shrinkLocked(target int64) (released int64) {
	before := p.pooled
	defer func() {
		if p.pooled < before {
			p.refused = refusedSizes{} // what shares a mapping with blocks in use was refused for want of the others' idle ones
		}
	}()
	for p.used+p.pooled > target && p.idle.oldest != nil {
		p.releaseLocked(p.idle.oldest)
	}
	if p.used+p.pooled > target {
		for _, c := range p.chunks {
			if c.idle > 0 {
				p.pooled -= c.cool()
			}
		}
	}
	return before - p.pooled
}

// releaseLocked gives up one idle unit: unlock unmaps it.
func (p *HostPool) releaseLocked(u *idleUnit) {
	p.idle.remove(u)
	if c := u.chunk; c != nil {
		p.lists[c.class].remove(c)
		delete(p.chunks, uintptr(c.memory))
		p.pooled -= int64(c.idle) * int64(c.size)
	} else {
		p.unbinLocked(u)
		p.pooled -= int64(u.mapped)
	}
	u.older, p.released = p.released, u
}

func (p *HostPool) lock() {
	p.mu.Lock()
	acquired(rankPool)
}

// unlock lets go of the lock and then unmaps what was given up: unmapping a gigabyte can take 70 ms, in which nobody else should wait.
func (p *HostPool) unlock() {
	gone := p.released
	p.released = nil
	released(rankPool)
	p.mu.Unlock()
	for u := gone; u != nil; u = u.older {
		unmapSlab(u.memory, u.mapped)
	}
}

func roundUp(n, multiple uint64) uint64 { return (n + multiple - 1) / multiple * multiple }
