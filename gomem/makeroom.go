package gomem

// roomStart is how much was free, and had been drained, when a call of MakeRoom began.
type roomStart struct {
	known   bool
	free    int64 // what the driver said; Unknown: no answer
	drained int64 // Device.drained
}

// MakeRoom is for a host framework whose own allocation of nbytes failed: it gives at least as much back to the driver, or all that can be, and
// returns how much that was; 0 means that nothing is left. What was dropped goes first, then what the host's caches (ErrRelieve) and the driver's
// release, and only what is missing then is spilled, in order of last use (model: launch.ticket, drop.drain, restore.room, launch.wait).
// Errors as for Allocate.
//
// What others do meanwhile cannot be told from that for sure: the driver's figure of free memory rises by what other processes free, and what is
// drained from the beginning of the call on counts, whoever drains it. Nothing is counted twice, though, nor what the driver failed to free.
func (d *Device) MakeRoom(nbytes uint64, o AllocateOptions) (freed uint64, err error) {
	defer d.guard(&err)
	if err := d.unusable(); err != nil {
		return 0, err
	}
	m := roomMade{device: d, drained: d.drainedNow()}
	err = d.slowly(o.Wait, figure(nbytes), func() error {
		if o.HasHelper && !o.Relieved && d.reliefDueLocked() {
			d.relief = roomStart{true, d.driverFree(), m.drained}
			return ErrRelieve
		}
		if err := m.settleLocked(o.Relieved); err != nil {
			return err
		}
		freed, err = m.spillLocked(nbytes, o.Wait)
		if err != nil {
			return err
		}
		return d.settleLocked() // the host's allocator may be another pool: what was freed has to be back at the driver
	})
	d.verify()
	return freed, err
}

// roomMade adds up what a call of MakeRoom has made free.
type roomMade struct {
	device   *Device
	settled  bool
	drained  int64  // Device.drained up to which nothing counts
	released uint64 // made free up to the end of settleLocked
	spilled  uint64 // freed by spilling
}

// settleLocked empties the driver's cache, once a call, and finds how much is free that was not when the call began: when it asked for relief, if it
// has just been relieved.
func (m *roomMade) settleLocked(relieved bool) error {
	d := m.device
	if m.settled {
		return nil
	}
	m.settled = true
	start := d.relief
	if d.relief = (roomStart{}); !relieved || !start.known {
		start = roomStart{true, d.driverFree(), m.drained}
	}
	if err := d.settleLocked(); err != nil {
		return err
	}
	m.drained = d.drainedNow()
	m.released = uint64(m.drained - start.drained)
	if now := d.driverFree(); start.free != Unknown && now > start.free {
		m.released = max(m.released, uint64(now-start.free)) // what was drained is in both
	}
	return nil
}

// freed is what the call has made free so far.
func (m *roomMade) freed() uint64 {
	return m.released + uint64(m.device.drainedNow()-m.drained) + m.spilled
}

// spillLocked spills until nbytes were made free in all, or nothing is left that can move.
func (m *roomMade) spillLocked(nbytes uint64, w Wait) (freed uint64, err error) {
	d := m.device
	w = w.needs(0, figure(nbytes)).because(SpillForDevice)
	for freed = m.freed(); freed < nbytes; {
		room, err := d.spillBytesLocked(nbytes-freed, w, !w.Nested)
		m.spilled += room.freed - room.dropped // what was dropped meanwhile was drained
		freed = m.freed()
		switch {
		case err != nil:
			return freed, err
		case room.left > 0:
			continue
		case freed == 0 && room.awaited > 0:
			return 0, errAwait
		case freed == 0 && room.refused != nil:
			return 0, d.memoryErrorLocked(ReasonHost, figure(nbytes), room.refused)
		}
		break
	}
	return freed, nil
}

func (d *Device) drainedNow() int64 {
	d.books.lock()
	defer d.books.unlock()
	return d.drained
}
