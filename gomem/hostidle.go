package gomem

import "unsafe"

// idleUnit is a mapping of the host pool that nobody uses: a block with a mapping of its own, or a chunk without a live block. Guarded by the
// pool's lock.
type idleUnit struct {
	memory unsafe.Pointer
	mapped uintptr
	chunk  *chunk // of which this is a part; nil: a block of its own

	older, newer *idleUnit // in the pool's idle list
	inList       bool

	above, below *idleUnit // in its bin (blocks of their own)
	bin          int
}

// idleList has the idle units by age.
type idleList struct{ oldest, newest *idleUnit }

// add makes u the newest.
func (l *idleList) add(u *idleUnit) {
	u.older, u.newer, u.inList = l.newest, nil, true
	if l.newest != nil {
		l.newest.newer = u
	} else {
		l.oldest = u
	}
	l.newest = u
}

// remove takes u out, if it is in.
func (l *idleList) remove(u *idleUnit) {
	if !u.inList {
		return
	}
	if u.older != nil {
		u.older.newer = u.newer
	} else {
		l.oldest = u.newer
	}
	if u.newer != nil {
		u.newer.older = u.older
	} else {
		l.newest = u.older
	}
	u.older, u.newer, u.inList = nil, nil, false
}

// keepLocked puts an idle block with a mapping of its own into its bin and the idle list.
func (p *HostPool) keepLocked(u *idleUnit) {
	u.bin, _ = sizeClass(uint64(u.mapped))
	u.above, u.below = nil, p.bins[u.bin]
	if u.below != nil {
		u.below.above = u
	}
	p.bins[u.bin] = u
	p.idle.add(u)
}

// unbinLocked takes an idle block out of its bin.
func (p *HostPool) unbinLocked(u *idleUnit) {
	switch {
	case u.above != nil:
		u.above.below = u.below
	case u.below != nil:
		p.bins[u.bin] = u.below
	default:
		delete(p.bins, u.bin)
	}
	if u.below != nil {
		u.below.above = u.above
	}
	u.above, u.below = nil, nil
}
