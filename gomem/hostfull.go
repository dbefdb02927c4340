package gomem

// Host memory that is used up, remembered between choices of victims. Where a soft budget is passed because no copy has a place in host memory, each
// further allocation would look at all victims again and take none. So a choice that came to its end writes down which sizes of victims there are, and
// the next one asks the pool about these sizes only: if it is sure to refuse them all, there is nothing to look at.
//
// Neither half may err to the side of refusing what could be done. The sizes: what becomes a victim by being made or brought back adds its size, and
// what a hold or an export keeps is told by Device.releases when it ends. The pool: its memory of refusals ends when anything is given back
// to it, and when its limit rises.

// victimSizes is the sizes of host copies that could be wanted: too many at most.
type victimSizes struct {
	classes uint64 // bit n: blocks of class n
	big     uint64 // the smallest one with a mapping of its own; 0: none
}

func (s *victimSizes) add(nbytes uint64) {
	if class, size := sizeClass(nbytes); size <= chunkBlockBytes {
		s.classes |= 1 << class
	} else if s.big == 0 || nbytes < s.big {
		s.big = nbytes
	}
}

func (s *victimSizes) join(other victimSizes) {
	s.classes |= other.classes
	if other.big != 0 {
		s.add(other.big)
	}
}

func (s *victimSizes) none() bool { return s.classes == 0 && s.big == 0 }

// refusesAll reports whether a Get of any of these sizes is sure to be refused now. False: try.
func (p *HostPool) refusesAll(sizes victimSizes) bool {
	p.lock()
	defer p.unlock()
	limit := p.limitLocked()
	if p.fault != nil {
		return false // it may have an answer of its own to each Get
	}
	if sizes.big != 0 && !p.refused.has(sizes.big) && p.used+int64(sizes.big) <= limit {
		return false
	}
	for class := range chunkClasses {
		if sizes.classes&(1<<class) == 0 {
			continue
		}
		if size := classSize(class); !p.refused.has(size) && p.used+int64(size) <= limit {
			return false
		}
	}
	return true
}

// noteRefusalLocked remembers that the limit refused a Get. The limit is what that Get began with; one that was changed meanwhile refused nothing.
func (p *HostPool) noteRefusalLocked(nbytes uint64, limit int64) {
	if now := p.limit; limit == now || now < 0 && limit == p.measuredLimit {
		p.refused.add(nbytes)
	}
}

// fullHost is what a device remembers of its last choice of victims that was made to the end.
type fullHost struct {
	sizes    victimSizes // of all that may be a victim but for what holds and exports kept then; guarded by books
	releases uint64      // Device.releases when that choice began; guarded by moving
}

// noteVictimLocked says that a buffer may be a victim from now on. The books are locked.
func (d *Device) noteVictimLocked(r *Record, c *cold) {
	if !c.unmovable && r.Size > 0 {
		d.fullHost.sizes.add(r.Size)
	}
}

// hostIsFullLocked reports whether a choice of victims is sure to spill nothing, because host memory has no place for any of them.
func (d *Device) hostIsFullLocked() bool {
	if !d.movable || d.releases.Load() != d.fullHost.releases {
		return false
	}
	d.books.lock()
	sizes := d.fullHost.sizes
	d.books.unlock()
	if sizes.none() || !d.pool.refusesAll(sizes) {
		return false
	}
	return !d.drainPoolMates() || d.pool.refusesAll(sizes)
}

// sizesOfChoice collects the sizes for the next time while a choice is made.
type sizesOfChoice struct {
	device   *Device
	releases uint64      // Device.releases before anything was looked at: what ends later makes another number
	before   victimSizes // what holds if the choice ends early
	left     victimSizes // what was looked at and stays on the device
}

// beginSizesLocked begins to write down the sizes anew: what is noted from here on is not lost, and what was noted before is there for the choice to see.
func (d *Device) beginSizesLocked() sizesOfChoice {
	s := sizesOfChoice{device: d, releases: d.releases.Load()}
	d.books.lock()
	defer d.books.unlock()
	s.before = d.fullHost.sizes
	d.fullHost.sizes = victimSizes{}
	return s
}

// passLocked passes over a victim that was looked at and not spilled.
func (s *sizesOfChoice) passLocked(r *Record) {
	if !s.device.passLocked(r) { // else the end of its holds is counted
		s.left.add(r.Size)
	}
}

// end ends it. complete: every victim was looked at, but for those that are parked. A choice that ends early has not looked at all whose holds have ended
// since the last complete one, and these are in no list of sizes: so it leaves the number of that one.
func (s *sizesOfChoice) end(complete bool) {
	d := s.device
	d.books.lock()
	defer d.books.unlock()
	d.fullHost.sizes.join(s.left)
	if complete {
		d.fullHost.releases = s.releases
	} else {
		d.fullHost.sizes.join(s.before)
	}
}
