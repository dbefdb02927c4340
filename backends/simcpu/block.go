package simcpu

// block is memory that was handed out: whole pages of the process's addresses, with pages that nobody may touch on both sides.
type block struct {
	begin, pages uint64 // bytes both: where the pages begin, and how much they are
	address      uint64 // what Allocate returned; in [begin, begin+pages)
	nbytes       uint64 // what was asked for

	// Of a block that is kept for reuse, or of a record that is kept for another block.
	below, above *block // those of the same size that were kept before and after it
	older, newer *block // those of any size
}

// align is a cache line, and what vector instructions like best.
const align = 64

func roundUp(n, to uint64) uint64 { return (n + to - 1) &^ (to - 1) }

// atBegin is the address of a block that is going to be handed out again: the same, whatever part of the pages is asked for.
func (b *block) atBegin() uint64 { return b.begin }

// atEnd is the address with which a block ends where its pages end, so that an access behind the end crashes from the first byte on if the size is a
// multiple of the alignment, else after less than one.
func (b *block) atEnd(nbytes uint64) uint64 { return b.begin + b.pages - roundUp(nbytes, align) }
