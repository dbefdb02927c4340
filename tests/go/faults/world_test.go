package faults

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/cuda"
	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/simcuda"
)

const (
	size     = 16 << 10     // of most buffers
	capacity = 8*size + 512 // of the device: so small that a few buffers fill it
)

func TestMain(m *testing.M) {
	if err := os.Setenv("TMSOFT_CAPACITY", fmt.Sprint(capacity)); err != nil {
		panic(err)
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // frees that fail are logged, by the thousand here
	simcuda.Main(m)
}

// bench is the software driver, loaded once, and a device over it that many cases use one after the other.
type bench struct {
	library  *cuda.Library
	software *cuda.Software
	host     *simcuda.Host
	pools    int64
	device   *gomem.Device
	driver   *probe
	pool     *gomem.HostPool
}

var library *cuda.Library

func newBench(t *testing.T, pools int64) *bench {
	t.Helper()
	file := simcuda.Library(t)
	if library == nil {
		found, err := cuda.Load(dl.System, []dl.Candidate{{Name: file}})
		require.NoError(t, err)
		library = found
	}
	b := &bench{library: library, software: library.Software(), host: simcuda.NewHost(t, file), pools: pools}
	b.renew(t)
	return b
}

// renew opens a new device, as a new process would.
func (b *bench) renew(t *testing.T) {
	t.Helper()
	b.software.Reset()
	require.NoError(t, b.software.Set("pools", b.pools))
	driver, err := b.library.Open("sim:0", 0)
	require.NoError(t, err)
	b.pool = gomem.NewHostPool()
	b.driver = &probe{Driver: driver}
	b.device, err = gomem.NewDevice(b.driver, gomem.Options{Movable: true, Pool: b.pool, Check: true})
	require.NoError(t, err)
	index, err := b.device.Allocate(1, gomem.AllocateOptions{}) // the context, the stream and the pool are there
	require.NoError(t, err)
	b.device.Drop(index)
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
		address := w.alien(size)
		index, err := w.device.Adopt(address, size, gomem.AdoptOptions{How: gomem.HowCUDA})
		require.NoError(w.t, err)
		w.target = index
		w.write(index, content(size, 2))
	}},
}

func content(n int, seed byte) []byte {
	bytes := make([]byte, n)
	for i := range bytes {
		bytes[i] = byte(i>>8)*31 + byte(i)*7 + seed
	}
	return bytes
}

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
	host, pointer := simcuda.Bytes(w.t, len(bytes))
	copy(host, bytes)
	require.NoError(w.t, w.device.CopyFromHost(index, 0, pointer, uint64(len(bytes)), gomem.Wait{}))
	w.contents[index] = bytes
}

// alien allocates memory as a host framework does.
func (w *world) alien(n uint64) uint64 {
	w.t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	w.host.Must("cuCtxPushCurrent_v2", w.host.Ask("cuDevicePrimaryCtxRetain", 0))
	address := w.host.Ask("cuMemAlloc_v2", n)
	w.host.Ask("cuCtxPopCurrent_v2")
	w.host.Must("cuDevicePrimaryCtxRelease_v2", 0)
	return address
}

// freeAlien frees it.
func (w *world) freeAlien(address uint64) {
	w.t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	w.host.Must("cuCtxPushCurrent_v2", w.host.Ask("cuDevicePrimaryCtxRetain", 0))
	w.host.Must("cuMemFree_v2", address)
	w.host.Ask("cuCtxPopCurrent_v2")
	w.host.Must("cuDevicePrimaryCtxRelease_v2", 0)
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
		host, pointer := simcuda.Bytes(w.t, len(want))
		require.NoError(w.t, w.device.CopyToHost(index, 0, pointer, uint64(len(want)), gomem.Wait{}))
		if doubt, some := w.unsure[index]; some {
			copy(host[doubt.from:doubt.to], want[doubt.from:doubt.to])
		}
		for i := range want {
			if host[i] != want[i] {
				w.t.Fatalf("buffer %d: byte %d is %d instead of %d", index, i, host[i], want[i])
			}
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
		w.freeAlien(w.foreign)
	}
	_, _, err := w.device.SetBudget(-1, false, gomem.Wait{})
	require.NoError(w.t, err)
	require.NoError(w.t, w.device.Synchronize())
	_, err = w.device.Trim()
	require.NoError(w.t, err)
	require.NoError(w.t, w.device.Check())
	used, _ := w.pool.Bytes()
	assert.Zero(w.t, used, "host memory of copies")
	for _, figure := range []string{"live", "reserved"} {
		value, err := w.software.Get(figure)
		require.NoError(w.t, err)
		assert.Zero(w.t, value, figure)
	}
}
