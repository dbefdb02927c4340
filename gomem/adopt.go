package gomem

import (
	"sync"
	"sync/atomic"
)

// Memory that a host framework allocated by itself becomes ours: from Adopt on we count, move and free it.

// tokenTable has the open reservations of hosts. adopting serialises Adopt's check for overlaps with its entry into the address index.
type tokenTable struct {
	mu       sync.Mutex
	last     uint64
	bytes    map[uint64]int64
	adopting sync.Mutex
}

// Reserve makes room for nbytes within the budget, before a host allocates as much by itself; on the device, too, where the host's allocation would not
// fail without it (Overcommitter). They count as reserved until the token is given to Adopt or Unreserve. Errors as for Allocate.
func (d *Device) Reserve(nbytes uint64, o AllocateOptions) (token uint64, err error) {
	defer d.guard(&err)
	if err := d.refusal(); err != nil {
		return 0, err
	}
	if nbytes > maxSize {
		return 0, d.memoryError(ReasonTooLarge, figure(nbytes), nil)
	}
	if err := d.reserveRoom(int64(nbytes), o); err != nil {
		return 0, err
	}
	if err := d.roomForHost(nbytes, o); err != nil {
		d.unreserve(int64(nbytes))
		return 0, err
	}
	t := &d.tokens
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bytes == nil {
		t.bytes = map[uint64]int64{}
	}
	t.last++
	t.bytes[t.last] = int64(nbytes)
	return t.last, nil
}

func (d *Device) reserveRoom(nbytes int64, o AllocateOptions) error {
	d.drain()
	if d.quickReserve(nbytes) {
		return nil
	}
	err := d.slowly(o.Wait, nbytes, func() error {
		if err := d.neverFitsLocked(nbytes); err != nil {
			return err
		}
		if o.HasHelper && !o.Collected && d.collectDueLocked(nbytes) {
			return ErrCollect
		}
		return d.reserveRoomLocked(nbytes, o.Wait)
	})
	d.verify()
	return err
}

// takeToken ends a reservation and returns its bytes, which are still counted as reserved.
func (d *Device) takeToken(token uint64) int64 {
	if token == 0 {
		return 0
	}
	t := &d.tokens
	t.mu.Lock()
	defer t.mu.Unlock()
	nbytes := t.bytes[token]
	delete(t.bytes, token)
	return nbytes
}

// Unreserve gives a reservation back. One that was used up, or never was, changes nothing.
func (d *Device) Unreserve(token uint64) { d.unreserve(d.takeToken(token)) }

// AdoptOptions say what adopted memory is.
type AdoptOptions struct {
	Wait
	How       How    // the call that allocated it, and so the one that frees it
	Stream    uint64 // orders its free; 0: the device's stream
	Token     uint64 // from Reserve; 0: none. It is used up, also at an error
	Unmovable bool
	Reason    uint32 // Intern
	Label     uint32 // Intern
	Origin    uint32 // Intern
}

// Adopt takes over device memory. Errors: *OverlapError when it is ours already or overlaps ours, *HowError when this device cannot free
// what that call allocated, *MemoryError under a strict budget, the driver's; the caller keeps the memory then.
func (d *Device) Adopt(address, nbytes uint64, o AdoptOptions) (index uint32, err error) {
	defer d.guard(&err)
	reserved := d.takeToken(o.Token)
	if err := d.refusal(); err != nil {
		d.unreserve(reserved)
		return 0, err
	}
	if o.How == HowDriver || !d.driver.CanFree(o.How) {
		d.unreserve(reserved)
		return 0, &HowError{Device: d.name, How: o.How}
	}
	// Before room is made: that may spill the very buffer that the memory overlaps, and then nothing would show the mistake.
	if err := d.Overlapping(address, nbytes); err != nil {
		d.unreserve(reserved)
		return 0, err
	}
	if nbytes > maxSize || address+nbytes < address {
		d.unreserve(reserved)
		return 0, d.memoryError(ReasonTooLarge, figure(nbytes), nil)
	}
	d.books.lock()
	d.books.Reserved -= reserved
	ok := d.books.reserveLocked(int64(nbytes))
	d.books.unlock()
	if !ok {
		if err := d.reserveRoom(int64(nbytes), AllocateOptions{Wait: o.Wait}); err != nil {
			return 0, err
		}
	}
	if o.Stream != 0 && nbytes > 0 { // what is queued there, the allocation for one, comes before what we do on the device's stream
		if err := d.driver.Join(o.Stream, 0); err != nil {
			d.unreserve(int64(nbytes))
			return 0, d.joinFault(err, o.Stream)
		}
	}
	d.tokens.adopting.Lock()
	defer d.tokens.adopting.Unlock()
	if err := d.Overlapping(address, nbytes); err != nil { // again: two may adopt the same at the same time
		d.unreserve(int64(nbytes))
		return 0, err
	}
	return d.build(address, nbytes, AllocateOptions{Unmovable: o.Unmovable, Reason: o.Reason, Label: o.Label, Origin: o.Origin}, o.How, o.Stream)
}

// Overlapping is an *OverlapError when a buffer on the device shares bytes with the range.
func (d *Device) Overlapping(address, nbytes uint64) (err error) {
	defer d.guard(&err)
	if err := d.refusal(); err != nil {
		return err
	}
	if nbytes == 0 {
		return nil
	}
	if _, start, size, overlaps := d.addresses.overlap(address, nbytes); overlaps {
		return &OverlapError{Device: d.name, Address: address, Bytes: nbytes, OtherAddress: start, OtherBytes: size}
	}
	return nil
}

// lies tells the address index where a buffer lies on the device. Nothing that it reads is locked: the generation, read before and after,
// tells whether the record was used again in between. A buffer that moves at this moment may still be told at its old place; its new place is noted
// after the move.
func (d *Device) lies(index uint32) (address, size uint64, generation uint32, alive bool) {
	r := d.registry.record(index)
	generation = atomic.LoadUint32(&r.Generation)
	address, size = atomic.LoadUint64(&r.Address), atomic.LoadUint64(&r.Size)
	state, dropped := StateOf(r.word())
	alive = !dropped && (state == Resident || state == Spilling) && atomic.LoadUint32(&r.Generation) == generation
	return address, size, generation, alive
}

// Find returns the live buffer on the device that contains the whole range.
func (d *Device) Find(address, nbytes uint64) (index uint32, offset uint64, found bool) {
	defer d.guard(nil)
	index, start, found := d.addresses.find(address, nbytes)
	return index, address - start, found
}

// Disown is the opposite of Adopt: it makes the buffer resident, forgets it, and returns its address; the caller owns the memory. A held
// buffer gives a *BusyError.
func (d *Device) Disown(index uint32, w Wait) (address uint64, err error) {
	defer d.guard(&err)
	if err := d.unusable(); err != nil {
		return 0, err
	}
	r, c, one := d.registry.record(index), d.registry.cold(index), [1]uint32{index}
	// Restored and taken in one hold of the lock: in two, another call could spill the buffer in between, and several Disowns under a full device
	// could do so to each other for ever.
	err = d.slowly(w, int64(r.Size), func() error {
		if err := d.neverFitsLocked(int64(r.Size)); err != nil {
			return err
		}
		atomic.AddUint32(&r.Admitted, 1)
		d.admitting = one[:]
		err := d.restoreAllLocked(one[:], w)
		d.admitting = nil
		d.discharge(one[:])
		if err != nil {
			return err
		}
		if !r.transition(Resident, Spilling) {
			return ErrFreed // dropped meanwhile
		}
		processBarrier()
		if r.held() {
			r.transition(Spilling, Resident)
			return &BusyError{Device: d.name, Bytes: r.Size, Holds: d.Holds(index)}
		}
		address = r.Address
		if driver, told := d.driver.(Disowner); told && r.Size > 0 && c.how == HowDriver {
			driver.Disown(address, r.Size)
		}
		d.letGo(r)
		c.device = false // nothing to free
		d.retireLocked(r)
		return nil
	})
	d.verify()
	return address, err
}
