// Package fakedriver is a device in memory for tests and benchmarks of the core: a gomem.Driver whose memory is Go's, so that the race
// detector sees every access, with a small capacity, queued work, deferred frees, a cache, and calls that fail when told to. It stops
// the test when it is misused: an access outside of a block or after its free, a double free, a size of zero.
//
// Nothing that is shipped imports it.
package fakedriver

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tack-memory/tack-memory/gomem"
)

// Options of a fake device. The zero value has unlimited memory, does everything at once, and uses addresses again immediately.
type Options struct {
	Name     string // "fake:0" if empty
	Capacity uint64 // bytes; 0: unlimited

	// Quarantine never uses an address again, so that a stale one is always found. Otherwise addresses are used again at once, as
	// real pools do: then a stale one shows as wrong contents.
	Quarantine bool
	// Pool keeps freed memory for blocks of exactly the same size; others get it only after Trim.
	Pool bool
	// DeferFrees gives freed memory back only at Synchronize.
	DeferFrees bool
	// Asynchronous queues all work on a stream that a goroutine of its own executes; Fill, CopyWithin, Free and Run return at once.
	Asynchronous bool
	// Delay and a random part up to Jitter pass before each piece of work.
	Delay, Jitter time.Duration
	Seed          uint64
	// NoContents keeps no bytes: copies and fills do nothing. For benchmarks with very many or very large blocks.
	NoContents bool
	// CorruptEvery makes every so manieth CopyOut return one wrong byte, to see that a test would notice; 0: never.
	CorruptEvery int
}

// The methods that can be made to fail, by name.
const (
	Allocate    = "Allocate"
	Free        = "Free"
	CopyOut     = "CopyOut"
	CopyIn      = "CopyIn"
	CopyWithin  = "CopyWithin"
	Fill        = "Fill"
	Synchronize = "Synchronize"
	Trim        = "Trim"
	Memory      = "Memory"
	SetStream   = "SetStream"
	Join        = "Join"
	Close       = "Close"
)

// Methods has all of the above.
var Methods = []string{Allocate, Free, CopyOut, CopyIn, CopyWithin, Fill, Synchronize, Trim, Memory, SetStream, Join, Close}

// Device is a fake device. Its methods may be called from any goroutine.
type Device struct {
	options Options
	queue   chan func()    // of the stream; nil: not asynchronous
	worker  sync.WaitGroup // the goroutine that executes it
	stream  atomic.Uint64

	mu       sync.Mutex // guards all below
	blocks   map[uint64]*block
	free     []uint64 // numbers of blocks that may be used again
	last     uint64   // highest number given out
	used     uint64   // bytes of blocks allocated and not given back, the deferred ones included
	pending  uint64   // bytes of frees not done yet
	deferred []*block // freed, waiting for Synchronize
	cached   uint64
	pool     map[uint64]uint64 // bytes of a block -> how many are cached
	faults   map[string]fault
	calls    map[string]int
	byHow    map[gomem.How]int
	lost     bool
	panicked bool
	late     []string // methods that were called after one had panicked
	closed   bool
	random   *rand.Rand
}

type block struct {
	number uint64
	size   uint64
	data   []byte
	freed  bool // Free was called; guarded by Device.mu
}

type fault struct {
	at     int // the number of the call that fails
	err    error
	panics bool // it panics instead
}

// blockShift is where the number of a block stands in an address: blocks are up to 64 GiB.
const blockShift = 36

// poison fills memory that was freed, so that whoever still reads it gets something wrong.
const poison = 0xDB

// New makes a fake device. Close ends it.
func New(options Options) *Device {
	if options.Name == "" {
		options.Name = "fake:0"
	}
	d := &Device{options: options, blocks: make(map[uint64]*block), pool: make(map[uint64]uint64), faults: make(map[string]fault),
		calls: make(map[string]int), byHow: make(map[gomem.How]int), random: rand.New(rand.NewPCG(options.Seed, 17))}
	if options.Asynchronous {
		d.queue = make(chan func(), 256)
		d.worker.Go(func() {
			for work := range d.queue {
				work()
			}
		})
	}
	return d
}

// Fail makes the nth next call of a method (1: the next one) fail with err, without doing anything; 0 takes that back.
func (d *Device) Fail(method string, nth int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if nth <= 0 {
		delete(d.faults, method)
		return
	}
	d.faults[method] = fault{at: d.calls[method] + nth, err: err}
}

// Panic makes the nth next call of a method (1: the next one) panic, without doing anything: a mistake in the driver. From then on nobody should call the
// driver: see Late.
func (d *Device) Panic(method string, nth int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults[method] = fault{at: d.calls[method] + nth, panics: true}
}

// Late has the methods that were called after one had panicked, in order. A real driver may have kept a lock of its own, so each of them could hang.
func (d *Device) Late() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.late)
}

// Calls is how many times a method was called.
func (d *Device) Calls(method string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[method]
}

// Lose makes every call from now on fail: the device is lost.
func (d *Device) Lose() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost = true
}

// SetCapacity changes the capacity; 0: unlimited. What is allocated stays.
func (d *Device) SetCapacity(nbytes uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.options.Capacity = nbytes
}

// Live is how many blocks are allocated and not freed, and their bytes.
func (d *Device) Live() (blocks int, nbytes uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.blocks {
		if !b.freed {
			blocks++
			nbytes += b.size
		}
	}
	return blocks, nbytes
}

// FreedAs is how many blocks were freed as allocated by this call.
func (d *Device) FreedAs(how gomem.How) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.byHow[how]
}

// Error makes the error of a call that the driver refuses, as a vendor's backend does.
func (d *Device) Error(call string, kind error) error {
	code, name := 999, "FAKE_ERROR_UNKNOWN"
	switch kind {
	case gomem.ErrOutOfMemory:
		code, name = 2, "FAKE_ERROR_OUT_OF_MEMORY"
	case gomem.ErrTooLarge:
		code, name = 3, "FAKE_ERROR_TOO_LARGE"
	case gomem.ErrLost:
		code, name = 700, "FAKE_ERROR_LOST"
	}
	return &gomem.DriverError{Device: d.options.Name, Call: "fake" + call, Code: code, Name: name, Kind: kind}
}

// called counts a call and returns the error that it is to fail with, if any.
func (d *Device) called(method string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls[method]++
	if d.panicked {
		d.late = append(d.late, method)
	}
	if d.lost {
		return d.Error(method, gomem.ErrLost)
	}
	f, armed := d.faults[method]
	if !armed || d.calls[method] != f.at {
		return nil
	}
	delete(d.faults, method)
	if f.panics {
		d.panicked = true
		panic("a mistake in " + method)
	}
	return f.err
}

// misuse stops the test: the core did what no driver allows.
func (d *Device) misuse(format string, arguments ...any) {
	panic(d.options.Name + ": " + fmt.Sprintf(format, arguments...))
}

// at returns the block of an address, and the offset in it, for an access of nbytes.
func (d *Device) at(what string, address, nbytes uint64) (*block, uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.blocks[address>>blockShift]
	offset := address & (1<<blockShift - 1)
	switch {
	case nbytes == 0:
		d.misuse("%s of 0 bytes at %#x", what, address)
	case b == nil || b.freed:
		d.misuse("%s of %d bytes at %#x, which is not allocated", what, nbytes, address)
	case offset > b.size || nbytes > b.size-offset:
		d.misuse("%s of %d bytes at %#x, outside of a block of %d bytes", what, nbytes, address, b.size)
	}
	return b, offset
}

// Bytes gives a kernel the device's memory. It is valid until the block is freed, as on a real device.
func (d *Device) Bytes(address, nbytes uint64) []byte {
	b, offset := d.at("kernel", address, nbytes)
	if b.data == nil {
		d.misuse("a kernel on a device without contents")
	}
	return b.data[offset : offset+nbytes : offset+nbytes]
}

// Run queues a kernel on the stream; without a queue it runs now.
func (d *Device) Run(kernel func()) { d.enqueue(kernel) }

// enqueue puts work on the stream.
func (d *Device) enqueue(work func()) {
	delayed := func() {
		d.delay()
		work()
	}
	if d.queue == nil {
		delayed()
		return
	}
	d.queue <- delayed
}

// wait puts work on the stream and returns when it is done, and with it all work queued before.
func (d *Device) wait(work func()) {
	if d.queue == nil {
		d.delay()
		work()
		return
	}
	done := make(chan struct{})
	d.enqueue(func() {
		work()
		close(done)
	})
	<-done
}

func (d *Device) delay() {
	pause := d.options.Delay
	if d.options.Jitter > 0 {
		d.mu.Lock()
		pause += time.Duration(d.random.Int64N(int64(d.options.Jitter)))
		d.mu.Unlock()
	}
	if pause > 0 {
		time.Sleep(pause)
	}
}

func hostBytes(host unsafe.Pointer, nbytes uint64) []byte {
	return unsafe.Slice((*byte)(host), nbytes)
}

// repeat fills memory with a pattern, whose last repetition may be cut.
func repeat(memory, pattern []byte) {
	for filled := copy(memory, pattern); filled < len(memory); {
		filled += copy(memory[filled:], memory[:filled])
	}
}
