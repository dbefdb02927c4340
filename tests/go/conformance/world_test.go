package conformance

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/softdriver"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

const (
	size     = 16 << 10     // of most buffers
	capacity = 8*size + 512 // of the device: so small that a few buffers fill it
	ordinal  = 1            // of the device: not the one that a thread begins with
)

func TestMain(m *testing.M) {
	for name, value := range map[string]string{"TMSOFT_CAPACITY": fmt.Sprint(rigCapacity), "TMSOFT_DEVICES": "2"} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // frees that fail are logged, by the thousand here
	soft.Main(m)
}

// bench is a flavour's software driver, and a device over it that many cases use one after the other.
type bench struct {
	flavour
	library  library
	software *softdriver.Control
	calls    []string // functions that the backend calls and the software driver has
	host     host
	device   *gomem.Device
	driver   *probe
	pool     *gomem.HostPool
}

func newBench(t *testing.T, f flavour) *bench {
	t.Helper()
	l := f.open(t, nil)
	b := &bench{flavour: f, library: l, software: l.Software(), calls: f.functions(l), host: f.host(t, soft.NewHost(t, soft.Library(t, f.abi)), ordinal)}
	b.renew(t)
	return b
}

// renew opens a new device, as a new process would.
func (b *bench) renew(t *testing.T) {
	t.Helper()
	b.open(t, settings{"capacity": capacity})
	driver, err := b.library.OpenDriver("sim:1", ordinal)
	require.NoError(t, err)
	b.pool = gomem.NewHostPool()
	b.driver = &probe{Driver: driver}
	b.device, err = gomem.NewDevice(b.driver.asDriver(), gomem.Options{Movable: true, Pool: b.pool, Check: true})
	require.NoError(t, err)
	index, err := b.device.Allocate(1, gomem.AllocateOptions{}) // the context, the stream and the pool are there
	require.NoError(t, err)
	b.device.Drop(index)
	require.NoError(t, b.device.Synchronize()) // and nothing is kept, as after each case
	_, err = b.device.Trim()
	require.NoError(t, err)
}

// close ends the device and sees that nothing was lost on the way.
func (b *bench) close(t *testing.T) {
	t.Helper()
	require.NoError(t, b.device.Synchronize())
	_, err := b.device.Trim()
	require.NoError(t, err)
	require.NoError(t, b.device.Close())
	b.software.Reset()
}

// probe sits between the core and the backend. It notes in which states the target is while the driver works, and can drop the target in
// the middle of a move.
type probe struct {
	gomem.Driver
	observe func() // called before each operation of the driver; nil: nothing
}

// asDriver passes on what a driver that gives more than the device has says of its room.
func (p *probe) asDriver() gomem.Driver {
	if overcommits, yes := p.Driver.(gomem.Overcommitter); yes {
		return roomProbe{p, overcommits}
	}
	return p
}

type roomProbe struct {
	*probe
	overcommits gomem.Overcommitter
}

func (p roomProbe) Room(live, nbytes uint64) (room uint64, err error) {
	return p.overcommits.Room(live, nbytes)
}

// Examine passes on a question about memory that is to become ours.
func (p *probe) Examine(block gomem.Block) error {
	p.look()
	if examiner, asked := p.Driver.(gomem.Examiner); asked {
		return examiner.Examine(block)
	}
	return nil
}

// Adopt passes on what a driver wants to know of memory that becomes ours.
func (p *probe) Adopt(block gomem.Block) error {
	if adopter, told := p.Driver.(gomem.Adopter); told {
		return adopter.Adopt(block)
	}
	return nil
}

// Disown passes on what a driver wants to know of memory that becomes somebody else's.
func (p *probe) Disown(block gomem.Block) {
	if disowner, told := p.Driver.(gomem.Disowner); told {
		disowner.Disown(block)
	}
}

func (p *probe) look() {
	if p.observe != nil {
		p.observe()
	}
}

func (p *probe) Allocate(nbytes uint64) (uint64, error) {
	p.look()
	return p.Driver.Allocate(nbytes)
}

func (p *probe) Free(block gomem.Block) error {
	p.look()
	return p.Driver.Free(block)
}

func (p *probe) CopyOut(host unsafe.Pointer, address, nbytes uint64) error {
	p.look()
	return p.Driver.CopyOut(host, address, nbytes)
}

func (p *probe) CopyIn(address uint64, host unsafe.Pointer, nbytes uint64) error {
	p.look()
	return p.Driver.CopyIn(address, host, nbytes)
}

func (p *probe) Fill(address uint64, pattern []byte, nbytes uint64) error {
	p.look()
	return p.Driver.Fill(address, pattern, nbytes)
}

func (p *probe) CopyWithin(destination, source, nbytes uint64) error {
	p.look()
	return p.Driver.CopyWithin(destination, source, nbytes)
}

func (p *probe) Synchronize() error {
	p.look()
	return p.Driver.Synchronize()
}

func (p *probe) Trim() (uint64, error) {
	p.look()
	return p.Driver.Trim()
}

func (p *probe) Memory() (gomem.DriverMemory, error) {
	p.look()
	return p.Driver.Memory()
}

func (p *probe) SetStream(context, stream uint64) error {
	p.look()
	return p.Driver.SetStream(context, stream)
}

// world is a device with three buffers: the oldest, the target of the operation, and one that is spilled.
type world struct {
	*bench
	t        *testing.T
	oldest   uint32
	target   uint32
	spilled  uint32
	dropped  bool              // the target is gone
	hold     uint64            // on the target; 0: none
	contents map[uint32][]byte // what each live buffer must contain
	unsure   map[uint32]span   // where a write failed: its bytes may be there or not
	foreign  uint64            // memory of the host framework, not adopted; 0: none
}

type span struct{ from, to int }

// states are those that last: the buffer is in one of them when an operation begins.
var states = []struct {
	name string
	make func(w *world)
}{
	{"resident", func(w *world) { w.target = w.add(size, 2) }},
	{"spilled", func(w *world) {
		w.target = w.add(size, 2)
		_, err := w.device.Spill(w.target, gomem.Wait{})
		require.NoError(w.t, err)
	}},
	{"held", func(w *world) {
		w.target = w.add(size, 2)
		hold, err := w.device.Hold(w.target, gomem.HoldExport, gomem.Intern("test"), gomem.Wait{})
		require.NoError(w.t, err)
		w.hold = hold
	}},
	{"adopted", func(w *world) {
		address := w.host.allocate(size)
		index, err := w.device.Adopt(address, size, gomem.AdoptOptions{How: w.plain})
		require.NoError(w.t, err)
		w.target = index
		w.write(index, content(size, 2))
	}},
}

func content(n int, seed byte) []byte { return soft.Noise(n, uint32(seed)) }

func newWorld(t *testing.T, b *bench, state int) *world {
	t.Helper()
	w := &world{bench: b, t: t, contents: map[uint32][]byte{}, unsure: map[uint32]span{}}
	w.oldest = w.add(size, 1)
	states[state].make(w)
	w.spilled = w.add(size, 3)
	_, err := w.device.Spill(w.spilled, gomem.Wait{})
	require.NoError(t, err)
	return w
}

// add makes a buffer with contents.
func (w *world) add(n int, seed byte) uint32 {
	w.t.Helper()
	index, err := w.device.Allocate(uint64(n), gomem.AllocateOptions{})
	require.NoError(w.t, err)
	w.write(index, content(n, seed))
	return index
}

func (w *world) write(index uint32, bytes []byte) {
	w.t.Helper()
	host, pointer := soft.Bytes(w.t, len(bytes))
	copy(host, bytes)
	require.NoError(w.t, w.device.CopyFromHost(index, 0, pointer, uint64(len(bytes)), gomem.Wait{}))
	w.contents[index] = bytes
}

// dropTarget lets go of the target, in whatever state it is.
func (w *world) dropTarget() {
	if w.dropped {
		return
	}
	w.dropped = true
	delete(w.contents, w.target)
	w.device.Drop(w.target)
}

// checkContents compares every live buffer with what it must contain. No byte of any buffer may be lost, wherever it lies.
func (w *world) checkContents() {
	w.t.Helper()
	for index, want := range w.contents {
		host, pointer := soft.Bytes(w.t, len(want))
		require.NoError(w.t, w.device.CopyToHost(index, 0, pointer, uint64(len(want)), gomem.Wait{}))
		if doubt, some := w.unsure[index]; some {
			copy(host[doubt.from:doubt.to], want[doubt.from:doubt.to])
		}
		if !bytes.Equal(host, want) {
			w.t.Fatalf("buffer %d has not what was written there", index)
		}
	}
}

// checkBooks compares the books with the buffers, and the buffers with what the test knows.
func (w *world) checkBooks() {
	w.t.Helper()
	require.NoError(w.t, w.device.Check())
	info, err := w.device.Info(false)
	require.NoError(w.t, err)
	bytes := int64(0)
	for _, content := range w.contents {
		bytes += int64(len(content))
	}
	assert.EqualValues(w.t, len(w.contents), info.Live)
	assert.Equal(w.t, bytes, info.InUse+info.Spilled)
	assert.Zero(w.t, info.Reserved)
}

// clear drops everything and sees that no memory is left anywhere.
func (w *world) clear() {
	w.t.Helper()
	w.driver.observe = nil
	if w.hold != 0 && !w.dropped {
		w.device.Release(w.target, w.hold)
	}
	for index := range w.contents {
		w.device.Drop(index)
	}
	if w.foreign != 0 {
		w.host.free(w.foreign)
	}
	_, _, err := w.device.SetBudget(-1, false, gomem.Wait{})
	require.NoError(w.t, err)
	require.NoError(w.t, w.device.Synchronize())
	_, err = w.device.Trim()
	require.NoError(w.t, err)
	require.NoError(w.t, w.device.Check())
	used, _ := w.pool.Bytes()
	assert.Zero(w.t, used, "host memory of copies")
	require.Eventually(w.t, func() bool { // deferred frees end on a thread of the software driver's, which on a busy machine may come late
		deferred, err := w.software.Get("deferred.1")
		return assert.NoError(w.t, err) && deferred == 0
	}, time.Minute, time.Millisecond, "deferred frees never end")
	for _, figure := range []string{"live.1", "reserved.1"} {
		value, err := w.software.Get(figure)
		require.NoError(w.t, err)
		assert.Zero(w.t, value, figure)
	}
}
