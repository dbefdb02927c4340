package simcpu

// kept is the freed blocks that wait to be handed out again, the newest of a size first.
type kept struct {
	newest map[uint64]*block // by size in pages (bytes): the last one that was kept; the others hang below it
	first  *block            // of all sizes, by age
	last   *block
	nbytes uint64 // what was asked for of each when it was in use
	pages  uint64 // bytes of their pages
}

func (k *kept) put(b *block) {
	if k.newest == nil {
		k.newest = make(map[uint64]*block)
	}
	if b.below = k.newest[b.pages]; b.below != nil {
		b.below.above = b
	}
	k.newest[b.pages] = b
	b.above = nil
	if b.older = k.last; b.older != nil {
		b.older.newer = b
	} else {
		k.first = b
	}
	b.newer, k.last = nil, b
	k.nbytes += b.nbytes
	k.pages += b.pages
}

// take removes the last block of a size that was put; nil where there is none.
func (k *kept) take(pages uint64) *block {
	b := k.newest[pages]
	if b != nil {
		k.remove(b)
	}
	return b
}

// takeOldest removes the block that has been kept longest; nil where there is none.
func (k *kept) takeOldest() *block {
	b := k.first
	if b != nil {
		k.remove(b)
	}
	return b
}

func (k *kept) remove(b *block) {
	if b.below != nil {
		b.below.above = b.above
	}
	if b.above != nil {
		b.above.below = b.below
	} else if b.below != nil {
		k.newest[b.pages] = b.below
	} else {
		delete(k.newest, b.pages)
	}
	if b.older != nil {
		b.older.newer = b.newer
	} else {
		k.first = b.newer
	}
	if b.newer != nil {
		b.newer.older = b.older
	} else {
		k.last = b.older
	}
	b.below, b.above, b.older, b.newer = nil, nil, nil, nil
	k.nbytes -= b.nbytes
	k.pages -= b.pages
}
