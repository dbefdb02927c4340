package metal_test

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/common"
	"github.com/tack-memory/tack-memory/backends/metal"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/mac"
)

// openDriver opens a device for the length of the test; at its end all of the device's buffers must be gone.
func openDriver(t *testing.T, l *metal.Library, ordinal int) *metal.Driver {
	t.Helper()
	d, err := l.Open(fmt.Sprintf("metal:%d", ordinal), ordinal)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	return d
}

// one is a machine with one device, open.
func one(t *testing.T) (*mac.Machine, *mac.GPU, *metal.Driver) {
	t.Helper()
	m := mac.New(t, newest)
	g := m.NewGPU("Apple M9")
	return m, g, openDriver(t, open(t, m), 0)
}

func allocate(t *testing.T, d *metal.Driver, nbytes uint64) uint64 {
	t.Helper()
	address, err := d.Allocate(nbytes)
	require.NoError(t, err)
	return address
}

func TestFigures(t *testing.T) {
	_, g, d := one(t)
	assert.Equal(t, "metal:0", d.Name())
	g.Allocated = 1000 // the host framework's own buffers
	memory, err := d.Memory()
	require.NoError(t, err)
	assert.Equal(t, gomem.DriverMemory{Free: gomem.Unknown, Total: 1 << 30, Cached: 0, Allocated: 1000, LargestFree: gomem.Unknown}, memory)

	require.NoError(t, d.SetHostCache(600))
	address := allocate(t, d, 4096)
	memory, err = d.Memory()
	require.NoError(t, err)
	assert.EqualValues(t, 600, memory.Cached)
	assert.EqualValues(t, 5096, memory.Allocated)

	released, err := d.Trim()
	require.NoError(t, err)
	assert.Zero(t, released, "the pool is the host framework's to empty")
	assert.Zero(t, d.PendingFree())
	require.NoError(t, d.Free(gomem.Block{Address: address, Bytes: 4096}))
	g.Allocated = math.MaxUint64
	memory, err = d.Memory()
	require.NoError(t, err)
	assert.EqualValues(t, math.MaxInt64, memory.Allocated, "no figure wraps")
	assert.Equal(t, gomem.Unknown, memory.Free)
}

func TestHostCache(t *testing.T) {
	_, _, d := one(t)
	cached := func() int64 {
		memory, err := d.Memory()
		require.NoError(t, err)
		return memory.Cached
	}
	assert.Zero(t, cached(), "without a host framework nothing is kept")
	for _, nbytes := range []int64{1 << 20, 0, gomem.Unknown} {
		require.NoError(t, d.SetHostCache(nbytes))
		assert.Equal(t, nbytes, cached())
	}
	assert.ErrorContains(t, d.SetHostCache(-2), "-2 bytes")
	assert.Equal(t, gomem.Unknown, cached(), "a wrong figure changes nothing")
}

func TestClose(t *testing.T) {
	_, g, d := one(t)
	q := g.NewQueue()
	require.NoError(t, d.SetStream(0, uint64(q.ID())))
	address := allocate(t, d, 100)
	var left *common.BuffersLeftError
	require.ErrorAs(t, d.Close(), &left)
	assert.Equal(t, 1, left.Count)
	copy(mac.Bytes(address, 100), "still there")
	require.NoError(t, d.Free(gomem.Block{Address: address, Bytes: 100}))
	require.NoError(t, d.Close())
	require.NoError(t, d.Close(), "closing twice changes nothing")
	q.Release()
	assert.Zero(t, q.References(), "the queue is not kept")
	assert.Equal(t, 2, g.References(), "the system's reference and the library's")

	memory, err := d.Memory()
	require.NoError(t, err, "figures can be read after the end")
	assert.EqualValues(t, 1<<30, memory.Total)
	assert.Equal(t, gomem.Unknown, memory.Allocated)
	_, allocateErr := d.Allocate(1)
	for name, err := range map[string]error{
		"allocate": allocateErr, "free": d.Free(gomem.Block{Address: 1, Bytes: 1}), "fill": d.Fill(1, []byte{1}, 1), "copy": d.CopyWithin(1, 2, 1),
		"synchronize": d.Synchronize(), "stream": d.SetStream(0, 0), "join": d.Join(1, 2),
	} {
		assert.ErrorIs(t, err, common.ErrClosed, name)
	}
}

func TestTwoDevicesDoNotDisturbEachOther(t *testing.T) {
	m := mac.New(t, newest)
	first, second := m.NewGPU("A"), m.NewGPU("B")
	second.Recommended, second.Longest = 1<<20, 1<<16
	l := open(t, m)
	a, b := openDriver(t, l, 0), openDriver(t, l, 1)
	address := allocate(t, a, 1<<17)
	_, err := b.Allocate(1 << 17)
	assert.ErrorIs(t, err, gomem.ErrTooLarge)
	var unknown *metal.NotABufferError
	assert.ErrorAs(t, b.Free(gomem.Block{Address: address, Bytes: 1 << 17}), &unknown, "each frees its own")
	require.NoError(t, a.SetHostCache(7))
	memory, err := b.Memory()
	require.NoError(t, err)
	assert.Equal(t, gomem.DriverMemory{Free: gomem.Unknown, Total: 1 << 20, LargestFree: gomem.Unknown}, memory)

	q := first.NewQueue()
	defer q.Release()
	assert.ErrorContains(t, b.SetStream(0, uint64(q.ID())), "another device")
	assert.ErrorIs(t, b.Join(uint64(q.ID()), 0), gomem.ErrInvalidHandle)
	require.NoError(t, a.Join(uint64(q.ID()), 0))
	assert.Zero(t, b.Stream())
	require.NoError(t, a.Free(gomem.Block{Address: address, Bytes: 1 << 17}))
}

func TestManyThreads(t *testing.T) {
	_, g, d := one(t)
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for i := range 200 {
				n := uint64(1 + (i*37+worker)%3000)
				address, err := d.Allocate(n)
				if !assert.NoError(t, err) {
					return
				}
				assert.NoError(t, d.Fill(address, []byte{byte(worker)}, n))
				assert.Equal(t, byte(worker), mac.Bytes(address, n)[n-1])
				_, err = d.Memory()
				assert.NoError(t, err)
				assert.NoError(t, d.Free(gomem.Block{Address: address, Bytes: n}))
			}
		})
	}
	group.Wait()
	assert.Zero(t, g.Allocated)
	assert.Equal(t, 800, g.MadeBuffers)
}

// TestDevice runs the core over it, beside arrays of the host framework. That its own are counted and never spilled is tested by tests/go/conformance.
func TestDevice(t *testing.T) {
	m := mac.New(t, newest)
	g := m.NewGPU("Apple M9")
	driver, err := open(t, m).Open("metal:0", 0)
	require.NoError(t, err)
	d, err := gomem.NewDevice(driver, gomem.Options{Check: true})
	require.NoError(t, err)
	index, err := d.Allocate(1<<20, gomem.AllocateOptions{Zero: true})
	require.NoError(t, err)
	// An array of the host framework: counted while it lives, and the framework's to free.
	own := g.NewBuffer(3<<20, 0)
	address := uint64(m.Send(own, m.Selector("contents")))
	hosts, err := d.Adopt(address, 3<<20, gomem.AdoptOptions{How: gomem.HowHost})
	require.NoError(t, err)
	_, err = d.Adopt(address, 3<<20, gomem.AdoptOptions{How: gomem.HowHost})
	var overlap *gomem.OverlapError
	assert.ErrorAs(t, err, &overlap)
	_, err = d.Adopt(0x1000, 100, gomem.AdoptOptions{How: gomem.HowCUDA})
	var how *gomem.HowError
	assert.ErrorAs(t, err, &how)

	info, err := d.Info(true)
	require.NoError(t, err)
	assert.EqualValues(t, 4<<20, info.InUse)
	assert.EqualValues(t, 4<<20, info.Driver.Allocated)
	assert.EqualValues(t, 1<<30, info.Driver.Total)
	assert.Equal(t, gomem.Unknown, info.Driver.Free)

	d.Drop(hosts)
	d.Drop(index)
	d.Drain()
	info, err = d.Info(true)
	require.NoError(t, err)
	assert.Zero(t, info.InUse)
	assert.EqualValues(t, 3<<20, info.Driver.Allocated, "the framework's array is still there")
	m.Send(own, m.Selector("release"))

	g.Capacity = 1 << 20
	_, err = d.Allocate(2<<20, gomem.AllocateOptions{})
	var full *gomem.MemoryError
	require.ErrorAs(t, err, &full)
	assert.Equal(t, gomem.ReasonDevice, full.Reason)
	assert.Equal(t, gomem.Unknown, full.DeviceFree)
	_, err = d.Allocate(1<<29, gomem.AllocateOptions{})
	require.ErrorAs(t, err, &full)
	assert.Equal(t, gomem.ReasonTooLarge, full.Reason)
	index, err = d.Allocate(1<<19, gomem.AllocateOptions{Zero: true})
	require.NoError(t, err, "after an error a smaller one works")
	d.Drop(index)
	require.NoError(t, d.Close())
}
