package gomem

import (
	"cmp"
	"errors"
	"sync"
	"sync/atomic"
)

// Memory that a host framework allocated by itself becomes ours: from Adopt on we count, move and free it.

// tokenTable has the open reservations of hosts. adopting serialises Adopt's check for overlaps with its entry into the address index.
type tokenTable struct {
	mu       sync.Mutex
	last     uint64
	open     map[uint64]reservation
	adopting sync.Mutex
}

// reservation is room that is not used yet.
type reservation struct {
	bytes int64
	block Block // which the driver has examined, by ReserveToAdopt; else none
}

// Reserve makes room for nbytes within the budget, before a host allocates as much by itself; on the device, too, where the host's allocation would not
// fail without it (Overcommitter). They count as reserved until the token is given to Adopt or Unreserve (model: launch.ticket, restore.room). Errors as for
// Allocate.
func (d *Device) Reserve(nbytes uint64, o AllocateOptions) (token uint64, err error) {
	defer d.guard(&err)
	return d.promise(nbytes, o, Block{}, d.roomForHost)
}

// ReserveToAdopt makes room within the budget for memory that is on the device already and is about to be adopted, or says why it will not be. It is the
// part of an adoption that may take long and can be cancelled: Adopt with its token waits for no lock. Who can be cancelled needs the two steps, since an
// adoption cannot be undone: another call may spill the memory at once, and then it would come back to the caller at another address. Errors as for Adopt.
func (d *Device) ReserveToAdopt(address, nbytes uint64, how How, o AllocateOptions) (token uint64, err error) {
	defer d.guard(&err)
	if err := d.adoptable(Block{Address: address, Bytes: nbytes, How: how}, o.Unmovable, Block{}); err != nil {
		return 0, err
	}
	o.there = true
	// No driver is asked for room on the device: its figures count memory that is there, which must not count twice.
	return d.promise(nbytes, o, Block{Address: address, Bytes: nbytes, How: how}, func(uint64, AllocateOptions) error { return nil })
}

// promise reserves nbytes within the budget, and what else there must be room in.
func (d *Device) promise(nbytes uint64, o AllocateOptions, examined Block, roomElsewhere func(uint64, AllocateOptions) error) (token uint64, err error) {
	if err := d.refusal(); err != nil {
		return 0, err
	}
	if nbytes > maxSize {
		return 0, d.memoryError(ReasonTooLarge, figure(nbytes), nil)
	}
	if err := d.reserveRoom(int64(nbytes), o); err != nil {
		return 0, err
	}
	if err := roomElsewhere(nbytes, o); err != nil {
		d.unreserve(int64(nbytes))
		return 0, err
	}
	t := &d.tokens
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = map[uint64]reservation{}
	}
	t.last++
	t.open[t.last] = reservation{int64(nbytes), examined}
	return t.last, nil
}

func (d *Device) reserveRoom(nbytes int64, o AllocateOptions) error {
	if o.Collected {
		d.garbageCollected()
	}
	d.drain()
	if total := d.total.Load(); !o.there && total != Unknown && nbytes > total { // what is there already need not be looked up in a figure
		return d.memoryError(ReasonTooLarge, nbytes, nil)
	}
	if d.quickReserve(nbytes) {
		return nil
	}
	err := d.slowly(o.Wait, nbytes, func() error {
		if err := d.neverFitsLocked(nbytes); err != nil {
			return err
		}
		if !o.there {
			if err := d.neverAtOnceLocked(uint64(nbytes)); err != nil {
				return err
			}
		}
		if o.HasHelper && !o.Collected && d.collectDueLocked(nbytes) {
			return ErrCollect
		}
		return d.reserveRoomLocked(nbytes, o.asks(nbytes))
	})
	d.verify()
	return err
}

// takeToken ends a reservation and returns it: its bytes are still counted as reserved.
func (d *Device) takeToken(token uint64) reservation {
	if token == 0 {
		return reservation{}
	}
	t := &d.tokens
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := t.open[token]
	delete(t.open, token)
	return taken
}

// Unreserve gives a reservation back. One that was used up, or never was, changes nothing.
func (d *Device) Unreserve(token uint64) { d.unreserve(d.takeToken(token).bytes) }

// AdoptOptions say what adopted memory is.
type AdoptOptions struct {
	Wait
	How       How    // the call that allocated it, and so the one that frees it
	Stream    uint64 // what is queued there now comes before what we do; 0: the device's. It is not used after Adopt: its owner may end it
	Token     uint64 // from Reserve or ReserveToAdopt; 0: none. It is used up, also at an error
	Unmovable bool
	Reason    uint32 // Intern
	Label     uint32 // Intern
	Origin    uint32 // Intern
}

// Adopt takes over device memory (model: new.build, new.commit). With a token of as many bytes it waits for no lock. Errors: *OverlapError when it is ours
// already or overlaps ours, *HowError when this device cannot free what that call allocated, *BlockError when the driver knows no such block, *MemoryError
// under a strict budget, the driver's; the caller keeps the memory then.
func (d *Device) Adopt(address, nbytes uint64, o AdoptOptions) (index uint32, err error) {
	defer d.guard(&err)
	reserved := d.takeToken(o.Token)
	block := Block{Address: address, Bytes: nbytes, How: o.How}
	if err := d.adoptable(block, o.Unmovable, reserved.block); err != nil {
		d.unreserve(reserved.bytes)
		return 0, err
	}
	if !d.keepRoom(reserved.bytes, int64(nbytes)) {
		if err := d.reserveRoom(int64(nbytes), AllocateOptions{Wait: o.Wait, Label: o.Label, Origin: o.Origin, there: true}); err != nil {
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
	if err := d.tellAdopted(block); err != nil {
		d.unreserve(int64(nbytes))
		return 0, err
	}
	index, err = d.build(address, nbytes, AllocateOptions{Wait: o.Wait, Unmovable: o.Unmovable, Reason: o.Reason, Label: o.Label, Origin: o.Origin}, o.How)
	if err != nil {
		d.tellDisowned(block)
	}
	return index, err
}

// tellAdopted tells a driver that wants to know of memory that becomes ours. What the host frees never reaches a driver.
func (d *Device) tellAdopted(block Block) error {
	driver, told := d.driver.(Adopter)
	if !told || block.Bytes == 0 || block.How == HowHost {
		return nil
	}
	return d.refusedBlock(block, driver.Adopt(block))
}

// examine asks a driver that can tell whether this is a block that it can free. It is asked once an adoption. What the host frees never reaches a driver.
func (d *Device) examine(block, examined Block) error {
	driver, asked := d.driver.(Examiner)
	if !asked || block.Bytes == 0 || block.How == HowHost || block == examined {
		return nil
	}
	return d.refusedBlock(block, driver.Examine(block))
}

// refusedBlock is the error of a driver that does not want a block.
func (d *Device) refusedBlock(block Block, err error) error {
	if errors.Is(err, ErrInvalidHandle) {
		return &HowError{Device: d.name, How: block.How, Cause: err}
	}
	return d.driverFault(err)
}

// tellDisowned tells a driver that wants to know of memory that is no longer ours, and was not freed.
func (d *Device) tellDisowned(block Block) {
	if driver, told := d.driver.(Disowner); told && block.Bytes > 0 && block.How != HowHost {
		driver.Disown(block)
	}
}

// adoptable is why this memory can never be adopted; nil: it can. It is asked before room is made for it: that may spill the very buffer that it overlaps,
// and then nothing would show the mistake.
func (d *Device) adoptable(block Block, unmovable bool, examined Block) error {
	address, nbytes, how := block.Address, block.Bytes, block.How
	if err := d.refusal(); err != nil {
		return err
	}
	switch {
	case how == HowHost && (unmovable || !d.movable): // nothing is ever freed here
	case how == HowDriver, how == HowHost, !d.driver.CanFree(how):
		return &HowError{Device: d.name, How: how}
	}
	if err := d.Overlapping(address, nbytes); err != nil {
		return err
	}
	if nbytes > maxSize || address+nbytes < address {
		return d.memoryError(ReasonTooLarge, figure(nbytes), nil)
	}
	return d.examine(block, examined)
}

// keepRoom makes a reservation one of nbytes, and says whether the budget lets it. One that is large enough is not asked for again: a soft budget may have
// given way to it, or may have been lowered since.
func (d *Device) keepRoom(reserved, nbytes int64) bool {
	d.books.lock()
	defer d.books.unlock()
	if nbytes <= reserved {
		d.books.Reserved -= reserved - nbytes
		return true
	}
	d.books.Reserved -= reserved
	return d.books.reserveLocked(nbytes)
}

// Overlapping is an *OverlapError when memory of ours on the device shares bytes with the range: a buffer's, or what was dropped and the driver has not got
// back yet, which it would still know as a block.
func (d *Device) Overlapping(address, nbytes uint64) (err error) {
	defer d.guard(&err)
	if err := d.refusal(); err != nil {
		return err
	}
	if nbytes == 0 {
		return nil
	}
	if index, start, size, overlaps := d.addresses.overlap(address, nbytes); overlaps {
		_, dropped := StateOf(d.registry.record(index).word())
		return &OverlapError{Device: d.name, Address: address, Bytes: nbytes, OtherAddress: start, OtherBytes: size, Freed: dropped}
	}
	return nil
}

// lies tells the address index where the device memory of a record lies, for as long as it is ours: a dropped buffer's until just before the driver gets it
// (giveBackLocked). Nothing that it reads is locked: the generation, read before and after,
// tells whether the record was used again in between. A buffer that moves at this moment may still be told at its old place; its new place is noted
// after the move.
func (d *Device) lies(index uint32) (address, size uint64, generation uint32, ours bool) {
	r := d.registry.record(index)
	generation = atomic.LoadUint32(&r.Generation)
	address, size = atomic.LoadUint64(&r.Address), atomic.LoadUint64(&r.Size)
	state := r.state()
	ours = address != noAddress && (state == Resident || state == Spilling) && atomic.LoadUint32(&r.Generation) == generation
	return address, size, generation, ours
}

// Find returns the live buffer on the device that contains the whole range.
func (d *Device) Find(address, nbytes uint64) (index uint32, offset uint64, found bool) {
	defer d.guard(nil)
	index, start, found := d.addresses.find(address, nbytes)
	if found {
		_, dropped := StateOf(d.registry.record(index).word())
		found = !dropped
	}
	return index, address - start, found
}

// Disown is the opposite of Adopt: it makes the buffer resident, forgets it, and returns its address; the caller owns the memory. A held
// buffer gives a *BusyError.
func (d *Device) Disown(index uint32, w Wait) (address uint64, err error) {
	return d.DisownIf(index, w, func() bool { return true })
}

// DisownIf is Disown for a caller that can be cancelled until the last step, and must have the address after it. It may wait for as long as any other
// call; when nothing is left that could fail or wait, and before anything has changed but that the buffer is resident, it asks `now`, with locks held:
// false ends it with ErrNotNow.
func (d *Device) DisownIf(index uint32, w Wait, now func() bool) (address uint64, err error) {
	defer d.guard(&err)
	if err := d.unusable(); err != nil {
		return 0, err
	}
	r, c, one := d.registry.record(index), d.registry.cold(index), [1]uint32{index}
	// Restored and taken in one hold of the lock: in two, another call could spill the buffer in between (model: mutation TWOHOLDS), and several
	// Disowns under a full device could do so to each other for ever.
	err = d.slowly(w, int64(r.Size), func() error {
		if err := d.neverFitTogetherLocked(one[:]); err != nil {
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
		if w.Cancel.cancelled() || !now() {
			r.transition(Spilling, Resident)
			return cmp.Or(w.Cancel.err(), ErrNotNow)
		}
		address = r.Address // model: disown.take
		d.tellDisowned(Block{Address: address, Bytes: r.Size, How: c.how})
		d.letGo(r, w.Cause)
		c.device = false // nothing to free
		d.retireLocked(r)
		return nil
	})
	d.verify()
	return address, err
}
