package gomem

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Options of a device. The zero value is a device that never spills, with a pool of its own.
type Options struct {
	Index   uint32        // the device's index in this process
	Pool    *HostPool     // host memory for copies, shared by the devices of a process; nil: one of its own
	Movable bool          // whether buffers can be spilled; false where device memory is the host's (CPU, Metal)
	MaxWait time.Duration // how long a launch waits for other launches without progress; 0: DefaultMaxWait
	Check   bool          // verify the books after every operation, and panic when they are wrong
}

// DefaultMaxWait is long for a wait between launches and short for a person: only a host's own lock, held by the waiter and wanted inside
// the other's launch, makes a wait last that long.
const DefaultMaxWait = 30 * time.Second

// maxSize bounds one request, so that sums of a few sizes cannot pass the range of int64.
const maxSize = 1 << 60

// Device is one accelerator, or the CPU: its books, its buffers, and the driver that they live on. All methods may be called from any
// goroutine. A Device belongs to whoever made it; Close ends it.
type Device struct {
	driver   Driver
	name     string
	pool     *HostPool
	movable  bool
	check    bool
	books    *Books // in memory outside Go's heap
	whole    *Scope // beside them: the device's own scope, open while origins are on (origins.go). Guarded by the books' lock
	registry registry

	overcommits Overcommitter // the driver, if it is one; else nil (room.go)
	reaper      Reaper        // the driver, if it is one; else nil (reap.go)
	made        int64         // of Books.Reserved: what the driver makes or has made; only with overcommits. Guarded by the books' lock
	leaving     int64         // bytes that have left the books and that the driver has not got back yet. Guarded by the books' lock

	turnstile fifoLock // first come, first served: who may wait for others' launches (admit.go)
	moving    fifoLock // held by whoever moves or frees memory of this device

	draining sync.Mutex // held, with moving, while what was on the drop list is freed (poolmates.go)

	victims   victims     // guarded by moving
	fullHost  fullHost    // for soft budgets: hostfull.go
	admitting []uint32    // the buffers of the launch that is being admitted; guarded by moving
	restoring *Record     // the buffer that gets device memory now; guarded by moving
	marked    []candidate // victims that the holder of the turnstile waits for, in state Spilling; guarded by turnstile

	holds     holdTable
	releases  atomic.Uint64 // holds and exports that ended so far
	addresses addressIndex
	tokens    tokenTable

	wake    chan struct{} // capacity 1: something that the waiting launch waits for may have ended
	maxWait atomic.Int64  // nanoseconds

	// When help is due.
	bornBytes  int64   // bytes of all buffers ever made; guarded by books
	garbage    garbage // guarded by books
	relievedAt int64   // Books.AllocateCount when relief was last asked for because the device was full; -1: never. Guarded by moving

	drained int64     // bytes of dropped buffers given back to the driver so far; guarded by books
	relief  roomStart // of the call of MakeRoom that asked for relief last; guarded by moving

	total   atomic.Int64 // the driver's total, or Unknown while it was not told
	unfreed atomic.Int64 // bytes that the driver failed to free; they count as gone
	lost    atomic.Pointer[LostError]
	broken  atomic.Pointer[BrokenError]
	stopped chan struct{} // closed when the device breaks
	notices Notices

	ended  stayLog    // what left the device since the peaks of watched scopes
	spills spillLog   // why buffers were spilled
	lines  lines      // what was said in the log
	events *eventRing // guarded by books; nil: off
	closed bool       // guarded by moving

	origins Origins // guarded by books
}

// NewDevice opens a device over a driver. The device owns the driver from now on: Close closes it.
func NewDevice(driver Driver, options Options) (*Device, error) {
	books, whole, err := newBooks()
	if err != nil {
		return nil, fmt.Errorf("%s: no memory for the books: %w", driver.Name(), err)
	}
	registerBarrier()
	d := &Device{driver: driver, name: driver.Name(), pool: options.Pool, movable: options.Movable, check: options.Check,
		books: books, whole: whole, spills: spillLog{clock: sinceStart()}, wake: make(chan struct{}, 1), stopped: make(chan struct{}), garbage: garbage{askedAt: -1, clock: time.Now}, relievedAt: -1}
	d.overcommits, _ = driver.(Overcommitter)
	d.reaper, _ = driver.(Reaper)
	if d.pool == nil {
		d.pool = NewHostPool()
	}
	d.books.Device, d.books.Budget = options.Index, -1
	d.registry.device = options.Index
	d.addresses.where = d.lies
	d.turnstile.rank, d.moving.rank = rankTurnstile, rankMoving
	d.turnstile.stopped, d.moving.stopped = d.stopped, d.stopped
	d.SetMaxWait(options.MaxWait)
	d.total.Store(Unknown)
	d.learnTotal()
	d.pool.join(d)
	return d, nil
}

// PlainCounts reports whether launch counts may be plain stores under Python's GIL: the kernel has membarrier, so the spiller pays for
// the order. Where it is false, counts must be raised by atomic adds.
func PlainCounts() bool { return registerBarrier() }

// Name is the device's name, "cuda:0".
func (d *Device) Name() string { return d.name }

// Driver is the driver given to NewDevice. It stays the device's.
func (d *Device) Driver() Driver { return d.driver }

// Books is the device's counters, at an address that stays for ever: the page is not unmapped by Close, for C reads it without asking, and the figures of a
// closed device can be read.
func (d *Device) Books() *Books { return d.books }

// Record is the record of a live buffer, at an address that C may keep until the buffer is dropped.
func (d *Device) Record(index uint32) *Record { return d.registry.record(index) }

// Movable reports whether buffers of this device can be spilled.
func (d *Device) Movable() bool { return d.movable }

// SetMaxWait sets how long a launch waits for other launches without progress; 0: DefaultMaxWait.
func (d *Device) SetMaxWait(wait time.Duration) {
	if wait <= 0 {
		wait = DefaultMaxWait
	}
	d.maxWait.Store(int64(wait))
}

// SetCheck turns the verification of the books after every operation on or off. Not while other calls are under way.
func (d *Device) SetCheck(on bool) { d.check = on }

// Synchronize waits until the device has done all queued work, and gives dropped memory back.
func (d *Device) Synchronize() (err error) {
	defer d.guard(&err)
	return d.whileNothingMoves(func() error { return d.driverFault(d.driver.Synchronize()) })
}

// whileNothingMoves calls f with the moving lock, and with what was dropped given back.
func (d *Device) whileNothingMoves(f func() error) error {
	if err := d.lockMoving(Wait{}); err != nil {
		return err
	}
	err := f()
	d.unlockMoving() // by no defer: see broken.go
	return err
}

// Trim gives back to the system what is kept for later use: dropped buffers, and the driver's cache. It waits for the device.
func (d *Device) Trim() (released uint64, err error) {
	defer d.guard(&err)
	err = d.whileNothingMoves(func() error {
		if err := d.driver.Synchronize(); err != nil {
			return d.driverFault(err)
		}
		var err error
		released, err = d.driver.Trim()
		return d.driverFault(err)
	})
	return released, err
}

// RecordEvents keeps the newest `capacity` events of this device from now on; 0 turns it off. The error is a *HostMemoryError: what was recorded before goes
// on.
func (d *Device) RecordEvents(capacity int) error {
	ring, err := newEventRing(capacity)
	if err != nil {
		return fmt.Errorf("%s: no memory to record %d events in: %w", d.name, capacity, err)
	}
	d.keepEvents(ring)
	return nil
}

// keepEvents records events in this ring from now on (nil: in none), and ends the one before.
func (d *Device) keepEvents(ring *eventRing) {
	d.books.lock()
	old := d.events.endLocked()
	d.events = ring
	d.books.unlock()
	unmapEvents(old)
}

// Events returns the events recorded since RecordEvents, oldest first, and how many of them were overwritten.
func (d *Device) Events() (events []Event, lost int64) {
	d.books.lock()
	ring := d.events
	d.books.unlock()
	return ring.copyOut(d.books.lock, d.books.unlock)
}

// EventCount is how many events were recorded since RecordEvents; those that were overwritten are among them.
func (d *Device) EventCount() int64 {
	d.books.lock()
	defer d.books.unlock()
	if d.events == nil {
		return 0
	}
	return int64(d.events.next)
}

// noteLocked records an event; the books' lock is held. began is when the move began; zero for what moves nothing.
func (d *Device) noteLocked(kind EventKind, index uint32, nbytes int64, began time.Time) {
	if d.events == nil {
		return
	}
	b := d.books
	now := time.Now()
	e := Event{Nanoseconds: now.UnixNano(), Kind: kind, Index: index, Bytes: nbytes, InUse: b.InUse, Spilled: b.Spilled, Budget: b.Budget}
	if !began.IsZero() {
		e.Elapsed = int64(now.Sub(began))
	}
	d.events.record(e)
}

// Close ends the device: it frees what was dropped, closes the driver and gives back the records. It fails, and changes nothing, while
// buffers are alive or being made, or room is reserved. Where the driver fails to close, nothing but the driver has changed, and Close can be called again:
// what keeps a driver from closing (work or a capture of the host's that still runs) mostly ends. After it succeeded, it does nothing.
func (d *Device) Close() (err error) {
	defer d.guard(&err)
	return d.whileNothingMoves(func() error {
		if d.closed {
			return nil
		}
		d.books.lock()
		live, reserved := d.books.AllocateCount-d.books.FreeCount, d.books.Reserved
		d.books.unlock()
		switch {
		case live > 0:
			return fmt.Errorf("%s: cannot be closed while %d buffers are alive", d.name, live)
		case reserved > 0:
			return fmt.Errorf("%s: cannot be closed while %d bytes are reserved", d.name, reserved)
		case !d.registry.seal():
			return fmt.Errorf("%s: cannot be closed while a buffer is being made", d.name)
		}
		if err := d.driver.Close(); err != nil {
			d.registry.unseal()
			return d.driverFault(err)
		}
		d.closed = true
		d.pool.part(d)
		d.registry.close()
		d.keepEvents(nil)
		return nil
	})
}

// learnTotal asks the driver how much memory the device has, until it knows.
func (d *Device) learnTotal() int64 {
	if total := d.total.Load(); total != Unknown {
		return total
	}
	memory, err := d.driver.Memory()
	if err != nil {
		return Unknown // a figure for refusing early, nothing else; the operation itself will meet the error
	}
	d.total.Store(memory.Total)
	return memory.Total
}

// TotalChanged tells that the device has another capacity from now on. Only simulated devices have that, while nothing is allocated on them.
func (d *Device) TotalChanged() {
	d.total.Store(Unknown)
	d.learnTotal()
}

// driverFault turns a driver's error into ours. A lost device is remembered.
func (d *Device) driverFault(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, ErrLost) {
		lost := &LostError{Device: d.name, Cause: err}
		d.lost.CompareAndSwap(nil, lost)
		return lost
	}
	return err
}

// freeDeviceLocked gives a buffer's device memory back to the driver, and returns how many bytes it has got. A failed free is counted (Info.Unfreed)
// and a notice: no call can be told of it, since nothing can be undone.
func (d *Device) freeDeviceLocked(r *Record, c *cold, address uint64) (freed uint64) {
	c.device = false
	if c.hosts {
		return 0 // its host does
	}
	err := d.driver.Free(Block{Address: address, Bytes: r.Size, How: c.how})
	c.how = HowDriver // what a restore allocates is the driver's own
	if err == nil {
		return r.Size
	}
	d.unfreed.Add(int64(r.Size))
	if d.lost.Load() == nil { // on a lost device every free fails, and whoever uses it next is told
		d.notices.add(LevelError, "%s: the driver failed to free %d bytes of device memory: %v", d.name, r.Size, d.driverFault(err))
	}
	return 0
}

// Notices are what happened on this device that nobody's call could be told of.
func (d *Device) Notices() *Notices { return &d.notices }

// Unfreed is the bytes that the driver failed to free so far.
func (d *Device) Unfreed() int64 { return d.unfreed.Load() }

// verify checks the books after an operation when the device was made with Check. Wrong books break the device.
func (d *Device) verify() {
	if !d.check {
		return
	}
	if err := d.Check(); err != nil && !isBroken(err) {
		panic(err)
	}
}

func loadUse(r *Record) uint64 { return atomic.LoadUint64(&r.LastUse) }

// use counts a use of the buffer.
func (d *Device) use(r *Record) { atomic.StoreUint64(&r.LastUse, d.books.tick()) }
