package gomem

import (
	"math/bits"
	"unsafe"
)

// chunk is one mapping that blocks of one class are cut from, so that small copies take neither a page nor a mapping each. It begins at a
// multiple of its size, which is how a block's chunk is found. Guarded by its pool's lock.
//
// A block is fresh (never used, so no memory lies behind it), live (handed out), or idle. Idle blocks of small chunks are linked through
// their own first bytes. Those of large chunks are marked in bits and can be made fresh again one by one.
type chunk struct {
	idleUnit // when no block is live; address and mapped are always set

	class  int
	size   uint64 // of one block
	blocks uint32 // in the whole chunk
	cut    uint32 // blocks below were used at some time; those above are fresh
	live   uint32
	idle   uint32 // idle, counted as pooled

	firstIdle uint32    // small chunks: index + 1 of the first idle block; its first bytes have the next
	warm      [2]uint64 // large chunks: bit n is set while block n is idle
	cold      [2]uint64 // large chunks: bit n is set while block n is fresh again after it was used

	previous, next *chunk // in the list of its class's chunks that have a block to give
	listed         bool
}

func newChunk(memory unsafe.Pointer, class int) *chunk {
	size := classSize(class)
	mapped := chunkBytes(size)
	c := &chunk{class: class, size: size, blocks: uint32(uint64(mapped) / size)}
	c.memory, c.mapped, c.chunk = memory, mapped, c
	return c
}

func (c *chunk) small() bool { return c.size <= smallBlockBytes }

// hasRoom reports whether a block can be taken.
func (c *chunk) hasRoom() bool { return c.live < c.blocks }

// take hands out a block, an idle one if there is one, and says whether it was idle (else it was fresh). hasRoom must be true.
func (c *chunk) take() (block unsafe.Pointer, wasIdle bool) {
	c.live++
	switch {
	case c.idle > 0 && c.small():
		c.idle--
		block = unsafe.Add(c.memory, uintptr(c.firstIdle-1)*uintptr(c.size))
		c.firstIdle = *(*uint32)(block)
		return block, true
	case c.idle > 0:
		c.idle--
		return c.at(takeBit(&c.warm)), true
	case c.cut < c.blocks:
		c.cut++
		return c.at(c.cut - 1), false
	}
	return c.at(takeBit(&c.cold)), false
}

// put takes a block back; it is idle then.
func (c *chunk) put(block unsafe.Pointer) {
	index := uint32(uint64(uintptr(block)-uintptr(c.memory)) / c.size)
	if c.live == 0 || index >= c.cut || c.at(index) != block {
		panic("gomem: a host block is given back that was not handed out")
	}
	c.live--
	c.idle++
	if c.small() {
		*(*uint32)(block) = c.firstIdle
		c.firstIdle = index + 1
		return
	}
	if c.warm[index/64]&(1<<(index%64)) != 0 {
		panic("gomem: a host block is given back twice")
	}
	c.warm[index/64] |= 1 << (index % 64)
}

// cool gives the memory of idle blocks back to the system while the chunk stays, and returns how many bytes that were. Small blocks share pages
// with live ones and stay.
func (c *chunk) cool() (released int64) {
	if c.small() {
		return 0
	}
	for word := range c.warm {
		for rest := c.warm[word]; rest != 0; rest &= rest - 1 {
			bit := bits.TrailingZeros64(rest)
			if !discardPages(c.at(uint32(word*64+bit)), uintptr(c.size)) {
				continue
			}
			c.warm[word] &^= 1 << bit
			c.cold[word] |= 1 << bit
			c.idle--
			released += int64(c.size)
		}
	}
	return released
}

func (c *chunk) at(index uint32) unsafe.Pointer {
	return unsafe.Add(c.memory, uintptr(index)*uintptr(c.size))
}

// takeBit clears the lowest bit that is set and returns its number.
func takeBit(set *[2]uint64) uint32 {
	for word := range set {
		if set[word] != 0 {
			bit := bits.TrailingZeros64(set[word])
			set[word] &^= 1 << bit
			return uint32(word*64 + bit)
		}
	}
	panic("gomem: a chunk of host memory has lost count of its blocks")
}

// chunkList links the chunks of one class that have a block to give. New blocks come from the first.
type chunkList struct{ first *chunk }

func (l *chunkList) add(c *chunk) {
	c.previous, c.next, c.listed = nil, l.first, true
	if l.first != nil {
		l.first.previous = c
	}
	l.first = c
}

func (l *chunkList) remove(c *chunk) {
	if c.previous != nil {
		c.previous.next = c.next
	} else {
		l.first = c.next
	}
	if c.next != nil {
		c.next.previous = c.previous
	}
	c.previous, c.next, c.listed = nil, nil, false
}
