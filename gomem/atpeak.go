package gomem

// WatchScope is OpenScope of a scope that can tell what was live at its peak (AtPeak, CloseScopeAtPeak). While it is open, that costs some
// nanoseconds for each buffer that leaves the device, and memory for those that were live at its peak and have left.
func (d *Device) WatchScope(s *Scope) { d.openScope(s, 1) }

// AtPeak groups by label and origin what was on the device when the peak of a watched scope was reached, the largest group first: Resident and Bytes
// add up to s.Peak. A buffer has the label that it has now, or had when it left the device. open is false when the scope was closed.
//
// It looks at every record of the device once, a few at a time, and keeps nobody from allocating or moving meanwhile.
func (d *Device) AtPeak(s *Scope) (holders []Holder, open bool) {
	defer d.guard(nil)
	l, b := &d.ended, d.books
	l.lock()
	defer l.unlock()
	b.lock()
	if s.Books == nil {
		b.unlock()
		return nil, false
	}
	l.beginReadingLocked(b, s.Moment)
	b.unlock()
	defer l.endReading(b)
	return d.liveAt(l.moment), true
}

// CloseScopeAtPeak is CloseScope of a watched scope, and then gives what AtPeak would have told. A call of AtPeak that finds the scope closed returns
// when give has.
func (d *Device) CloseScopeAtPeak(s *Scope, give func([]Holder)) {
	defer d.guard(nil)
	l, b := &d.ended, d.books
	l.lock()
	defer l.unlock()
	b.lock() // model: past.close
	l.beginReadingLocked(b, s.Moment)
	b.closeLocked(s)
	b.unlock()
	defer l.endReading(b)
	give(d.liveAt(l.moment))
}

// recordsPerLock bounds how long a reader of records holds up everybody who counts: 16 records and their cold halves, some 2 us when none is cached.
const recordsPerLock = 16

// liveAt groups what was on the device at a moment that is kept (beginReadingLocked).
func (d *Device) liveAt(moment uint64) []Holder {
	groups := holderGroups{device: d.name}
	d.eachLiveAt(moment, false, func(s *stay, _ bool) { groups.add(s) })
	return groups.sorted()
}

// eachLiveAt calls f for each buffer that was on the device at a moment that is kept, and whether it still is; withSpilled also for each that lay in host memory, which
// is known while a report is made, at its moment and at the device's peak. f is called without the books' lock.
//
// First come the stays that go on, then those that ended. A buffer may leave in between, or after it was looked at. So it is remembered when each part
// of the records was looked at: a stay that ended after that was counted there, one that ended before was not.
func (d *Device) eachLiveAt(moment uint64, withSpilled bool, f func(s *stay, goesOn bool)) {
	used := d.registry.used.Load() // records that are used for the first time from now on are of later buffers
	looked := make([]uint64, (used+recordsPerLock-1)/recordsPerLock)
	for part := range looked {
		var found [recordsPerLock]stay
		n := 0
		d.books.lock() // model: past.look
		looked[part] = d.books.Sequence
		for index := uint32(part) * recordsPerLock; index < min(used, uint32(part+1)*recordsPerLock); index++ {
			if s, live := d.stayLocked(index); live && s.from <= moment && (!s.spilled || withSpilled) {
				found[n] = s
				n++
			}
		}
		d.books.unlock()
		for i := range found[:n] {
			f(&found[i], true)
		}
	}
	d.books.lock() // model: past.ended
	eachEnded := d.ended.allLocked()
	d.books.unlock()
	eachEnded(func(s *stay) {
		if s.contains(moment) && (!s.spilled || withSpilled) && s.to <= looked[s.index/recordsPerLock] {
			f(s, false)
		}
	})
}

// stayLocked is the stay of a buffer that is on the device, or in host memory; it has no end yet. The books' lock is held: then a buffer that is not dropped stays
// so, and its cold half is its own.
func (d *Device) stayLocked(index uint32) (s stay, live bool) {
	r := d.registry.record(index)
	if state, dropped := StateOf(r.word()); dropped || state == Free || state == Building {
		return s, false
	}
	c := d.registry.cold(index)
	s = stay{from: c.entered, bytes: int64(r.Size), label: c.label, origin: c.origin, index: index, spilled: c.book == bookSpilled}
	return s, c.book != bookNone
}

// holderGroups adds up stays by label and origin.
type holderGroups struct {
	device string
	byLine bool // not by stack
	byKey  map[holderKey]*Holder
	key    holderKey // of the group that was added to last: buffers of one place mostly stand together
	last   *Holder
}

func (g *holderGroups) keyOf(s *stay) holderKey {
	if g.byLine {
		return holderKey{s.label, OriginLine(s.origin)}
	}
	return holderKey{s.label, s.origin}
}

func (g *holderGroups) add(s *stay) {
	if key := g.keyOf(s); g.last == nil || key != g.key {
		g.key, g.last = key, g.byKey[key]
		if g.last == nil {
			if g.byKey == nil {
				g.byKey = map[holderKey]*Holder{}
			}
			g.last = &Holder{Label: Text(key.label), Origin: OriginText(key.origin), Stack: OriginStack(key.origin), Device: g.device}
			g.byKey[key] = g.last
		}
	}
	g.last.Count++
	g.last.Bytes += s.bytes
	if s.spilled {
		g.last.Spilled += s.bytes
	} else {
		g.last.Resident += s.bytes
	}
}

func (g *holderGroups) sorted() []Holder {
	holders := make([]Holder, 0, len(g.byKey))
	for _, h := range g.byKey {
		holders = append(holders, *h)
	}
	sortHolders(holders)
	return holders
}
