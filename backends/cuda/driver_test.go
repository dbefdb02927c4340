package cuda_test

import (
	"errors"
	"fmt"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/cuda"
	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

func TestContentsGoOutAndIn(t *testing.T) {
	inAllModes(t, func(t *testing.T, r *rig) {
		for i, n := range []int{1, 7, 4096, 70_000, 3 << 20} {
			a := r.allocate(uint64(n))
			content := soft.Noise(n, uint32(i))
			r.write(a, content)
			require.Equal(t, content, r.read(a, n))
			r.free(a, uint64(n))
		}
	})
}

// TestCopiesAreCompleteAtReturn: the device is slow and pageable copies return early; a copy out must hold what was queued before it, and
// the source of a copy in may be overwritten at once.
func TestCopiesAreCompleteAtReturn(t *testing.T) {
	r := open(t, settings{"pageable": 1, "delay_us": 5000}, 0)
	const n = 100_000
	a, b := r.allocate(n), r.allocate(n)
	content := soft.Noise(n, 1)
	r.write(a, content) // clears its source
	require.NoError(t, r.driver.CopyWithin(b, a, n))
	require.Equal(t, content, r.read(b, n))
	require.NoError(t, r.driver.Fill(b, []byte{7}, n/2))
	assert.Equal(t, byte(7), r.read(b, n)[n/2-1])
	r.free(a, n)
	r.free(b, n)
}

// TestPinnedHostMemory: copies of pinned memory are asynchronous in every version, and read their source late.
func TestPinnedHostMemory(t *testing.T) {
	r := open(t, settings{"delay_us": 5000}, 0)
	const n = 100_000
	a := r.allocate(n)
	onContext(t, r, func() {
		address := r.host.Ask("cuMemHostAlloc", n, 0)
		pointer := unsafe.Add(unsafe.Pointer(nil), address)
		pinned := unsafe.Slice((*byte)(pointer), n)
		content := soft.Noise(n, 1)
		copy(pinned, content)
		require.NoError(t, r.driver.CopyIn(a, pointer, n))
		clear(pinned)
		require.NoError(t, r.driver.CopyOut(pointer, a, n))
		assert.Equal(t, content, append([]byte(nil), pinned...))
		r.host.Must("cuMemFreeHost", address)
	})
	r.free(a, n)
}

func TestAskingMakesNoContext(t *testing.T) {
	r := open(t, nil, 0)
	before := r.software.Calls("cuDevicePrimaryCtxRetain")
	memory, err := r.driver.Memory()
	require.NoError(t, err)
	assert.Equal(t, gomem.DriverMemory{Free: gomem.Unknown, Total: capacity, Allocated: gomem.Unknown, LargestFree: gomem.Unknown}, memory)
	assert.Zero(t, r.driver.PendingFree())
	assert.Equal(t, "sim:0", r.driver.Name())
	assert.EqualValues(t, capacity, r.driver.Facts().Total)
	require.NoError(t, r.driver.Synchronize())
	released, err := r.driver.Trim()
	require.NoError(t, err)
	assert.Zero(t, released)
	_, err = r.driver.Allocate(capacity + 1)
	assert.ErrorIs(t, err, gomem.ErrTooLarge)
	assert.Equal(t, before, r.software.Calls("cuDevicePrimaryCtxRetain"))
	assert.Equal(t, 0, r.software.Calls("cuStreamCreate"))

	r.free(r.allocate(1), 1)
	assert.Equal(t, before+1, r.software.Calls("cuDevicePrimaryCtxRetain"))
	memory, err = r.driver.Memory()
	require.NoError(t, err)
	assert.Positive(t, memory.Free)
}

func TestFigures(t *testing.T) {
	r := open(t, settings{"pools": 1}, 0)
	a := r.allocate(10 << 20)
	memory, err := r.driver.Memory()
	require.NoError(t, err)
	assert.EqualValues(t, capacity, memory.Total)
	assert.LessOrEqual(t, memory.Free, int64(capacity-10<<20))
	before := memory.Cached
	r.free(a, 10<<20)
	require.NoError(t, r.driver.Synchronize())
	memory, err = r.driver.Memory()
	require.NoError(t, err)
	assert.GreaterOrEqual(t, memory.Cached-before, int64(10<<20), "the pool keeps what was freed, also after a wait")

	// Memory that another user of the driver takes shows in Free and nowhere else.
	require.NoError(t, r.software.Set("taken", 5<<20))
	after, err := r.driver.Memory()
	require.NoError(t, err)
	assert.EqualValues(t, memory.Free-5<<20, after.Free)
	assert.Equal(t, memory.Cached, after.Cached)

	released, err := r.driver.Trim()
	require.NoError(t, err)
	assert.EqualValues(t, after.Cached, released)
	memory, err = r.driver.Memory()
	require.NoError(t, err)
	assert.Zero(t, memory.Cached)
	require.NoError(t, r.software.Set("taken", 0))
	r.free(r.allocate(capacity-1<<20), capacity-1<<20) // the whole device can be had
}

// TestTrimWaits: a block is given back to the system only after its free was seen to be complete.
func TestTrimWaits(t *testing.T) {
	r := open(t, settings{"pools": 1, "delay_us": 3000}, 0)
	a := r.allocate(10 << 20)
	require.NoError(t, r.driver.Fill(a, []byte{1}, 10<<20))
	r.free(a, 10<<20)
	released, err := r.driver.Trim()
	require.NoError(t, err)
	assert.GreaterOrEqual(t, released, uint64(10<<20))
}

func TestOutOfMemory(t *testing.T) {
	inAllModes(t, func(t *testing.T, r *rig) {
		const half = capacity/2 + 4096
		a := r.allocate(half)
		_, err := r.driver.Allocate(half)
		require.ErrorIs(t, err, gomem.ErrOutOfMemory)
		assert.False(t, errors.Is(err, gomem.ErrTooLarge))
		var failed *gomem.DriverError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, "sim:0", failed.Device)
		assert.Equal(t, 2, failed.Code)
		assert.Equal(t, "CUDA_ERROR_OUT_OF_MEMORY", failed.Name)
		assert.Contains(t, failed.Call, "cuMemAlloc")

		_, err = r.driver.Allocate(capacity + 1)
		assert.ErrorIs(t, err, gomem.ErrTooLarge)
		assert.False(t, errors.Is(err, gomem.ErrOutOfMemory))

		r.free(a, half)
		require.NoError(t, r.driver.Synchronize())
		_, err = r.driver.Trim()
		require.NoError(t, err)
		r.free(r.allocate(half), half)
	})
}

// TestFreeDoesNotWait: the device is busy for long, and nothing that is freed is given to anybody before it is done with it.
func TestFreeWaitsOnTheDeviceOnly(t *testing.T) {
	for _, pools := range []int64{0, 1} {
		t.Run(fmt.Sprint("pools=", pools), func(t *testing.T) {
			r := open(t, settings{"pools": pools, "delay_us": 20_000, "quarantine": 0}, 0)
			const n = 1 << 20
			a, b := r.allocate(n), r.allocate(n)
			require.NoError(t, r.driver.Fill(a, []byte{1}, n))
			require.NoError(t, r.driver.CopyWithin(b, a, n))
			waits := r.software.Calls("cuStreamSynchronize")
			r.free(a, n)
			assert.Equal(t, waits, r.software.Calls("cuStreamSynchronize"), "a free does not wait")
			if pools == 0 {
				assert.EqualValues(t, n, r.driver.PendingFree())
				assert.EqualValues(t, 2, r.figure("live"), "the block is still the device's")
			}
			require.NoError(t, r.driver.Synchronize())
			assert.Zero(t, r.driver.PendingFree())
			assert.EqualValues(t, 1, r.figure("live"))
			assert.Equal(t, byte(1), r.read(b, n)[n-1])
			r.free(b, n)
		})
	}
}

// TestAllocationReapsWhatIsDone: without pools, a program that never waits still gets its freed memory back.
func TestAllocationReapsWhatIsDone(t *testing.T) {
	r := open(t, settings{"pools": 0}, 0)
	for range 200 {
		r.free(r.allocate(4<<20), 4<<20)
		r.read(r.driverScratch(), 1) // the device is idle
	}
	assert.LessOrEqual(t, r.driver.PendingFree(), uint64(8<<20))
}

// driverScratch is a block that lives as long as the test.
func (r *rig) driverScratch() uint64 {
	if scratch[r.t] == 0 {
		scratch[r.t] = r.allocate(1)
		r.t.Cleanup(func() { r.free(scratch[r.t], 1) })
	}
	return scratch[r.t]
}

var scratch = map[testing.TB]uint64{}

func TestAdoptedMemoryIsFreedAsItWasMade(t *testing.T) {
	for _, pools := range []int64{0, 1} {
		t.Run(fmt.Sprint("pools=", pools), func(t *testing.T) {
			r := open(t, settings{"pools": pools, "delay_us": 300}, 0)
			r.free(r.allocate(1), 1)
			require.NoError(t, r.driver.Synchronize())
			onContext(t, r, func() {
				stream := r.host.Ask("cuStreamCreate", 1)
				frees, asyncs := r.software.Calls("cuMemFree_v2"), r.software.Calls("cuMemFreeAsync")
				a := r.host.Ask("cuMemAlloc_v2", 5000)
				require.NoError(t, r.driver.Free(gomem.Block{Address: a, Bytes: 5000, How: gomem.HowCUDA}))
				require.NoError(t, r.driver.Synchronize())
				assert.Equal(t, frees+1, r.software.Calls("cuMemFree_v2"))
				assert.Equal(t, asyncs, r.software.Calls("cuMemFreeAsync"))
				if pools == 1 {
					a = r.host.Ask("cuMemAllocAsync", 5000, stream)
					require.NoError(t, r.driver.Free(gomem.Block{Address: a, Bytes: 5000, How: gomem.HowCUDAAsync}))
					assert.Equal(t, frees+1, r.software.Calls("cuMemFree_v2"))
					assert.Equal(t, asyncs+1, r.software.Calls("cuMemFreeAsync"))
				}
				r.host.Must("cuStreamSynchronize", stream)
				require.NoError(t, r.driver.Synchronize())
				r.host.Must("cuStreamDestroy_v2", stream)
			})
			for _, how := range []gomem.How{gomem.HowDriver, gomem.HowCUDA, gomem.HowCUDAAsync} {
				assert.True(t, r.driver.CanFree(how))
			}
			for _, how := range []gomem.How{gomem.HowHIP, gomem.HowHIPAsync, gomem.HowLevelZero} {
				assert.False(t, r.driver.CanFree(how))
				assert.ErrorContains(t, r.driver.Free(gomem.Block{Address: 1, Bytes: 1, How: how}), "cannot be freed by CUDA")
			}
		})
	}
}

// TestFreeOfWhatIsNoBlock: an address that the driver does not know is an error, reported once, and does not stay on the list.
func TestFreeOfWhatIsNoBlock(t *testing.T) {
	inAllModes(t, func(t *testing.T, r *rig) {
		r.free(r.allocate(1), 1)
		err := r.driver.Free(gomem.Block{Address: 0x10, Bytes: 64})
		err = errors.Join(err, r.driver.Synchronize())
		var failed *gomem.DriverError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, 1, failed.Code)
		require.NoError(t, r.driver.Synchronize())
		assert.Zero(t, r.driver.PendingFree())
	})
}

func TestTwoDevices(t *testing.T) {
	a := open(t, nil, 0)
	b := open(t, nil, 1)
	x, y := a.allocate(1<<20), b.allocate(1<<20)
	a.write(x, soft.Noise(1<<20, 1))
	b.write(y, soft.Noise(1<<20, 2))
	assert.Equal(t, soft.Noise(1<<20, 1), a.read(x, 1<<20))
	assert.Equal(t, soft.Noise(1<<20, 2), b.read(y, 1<<20))
	assert.EqualValues(t, 1, a.figure("live"))
	assert.EqualValues(t, 1, b.figure("live"))
	assert.NotEqual(t, a.driver.Facts().UUID, b.driver.Facts().UUID)
	a.free(x, 1<<20)
	require.NoError(t, a.driver.Synchronize())
	assert.EqualValues(t, 0, a.figure("live"))
	assert.EqualValues(t, 1, b.figure("live"))
	b.free(y, 1<<20)
}

// TestLost is the table of codes after which no call can succeed.
func TestLost(t *testing.T) {
	for _, code := range []int{4, 214, 700, 709, 719} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			r := open(t, nil, 0)
			onBareThread(r.host, func() {
				a := r.allocate(100)
				require.NoError(t, r.software.Fail("cuStreamSynchronize", 1, code))
				err := r.driver.Synchronize()
				require.ErrorIs(t, err, gomem.ErrLost)
				var failed *gomem.DriverError
				require.ErrorAs(t, err, &failed)
				assert.Equal(t, code, failed.Code)
				r.software.Reset()
				r.free(a, 100)
			})
		})
	}
}

// TestUseAfterFreeIsSticky: a real illegal access on the device, not an injected code.
func TestUseAfterFreeIsSticky(t *testing.T) {
	r := open(t, settings{"quarantine": 1}, 0)
	a, b := r.allocate(4096), r.allocate(4096)
	r.free(a, 4096)
	require.NoError(t, r.driver.Synchronize())
	onBareThread(r.host, func() {
		err := errors.Join(r.driver.CopyWithin(b, a, 4096), r.driver.Synchronize())
		require.Error(t, err)
		if !errors.Is(err, gomem.ErrLost) {
			return // the software driver may refuse the copy before it is queued, as a driver that knows its blocks does
		}
		_, err = r.driver.Allocate(1)
		assert.ErrorIs(t, err, gomem.ErrLost, "the next call, too")
		assert.ErrorIs(t, r.driver.Free(gomem.Block{Address: b, Bytes: 4096}), gomem.ErrLost)
		_, err = r.driver.Memory()
		assert.ErrorIs(t, err, gomem.ErrLost)
		r.software.Reset()
	})
	r.free(b, 4096)
}

func TestClosedDriver(t *testing.T) {
	library, software := library(t)
	software.Reset()
	driver, err := library.Open("sim:0", 0)
	require.NoError(t, err)
	address, err := driver.Allocate(100)
	require.NoError(t, err)
	require.NoError(t, driver.Free(gomem.Block{Address: address, Bytes: 100}))
	retained, released := software.Calls("cuDevicePrimaryCtxRetain"), software.Calls("cuDevicePrimaryCtxRelease_v2")
	require.NoError(t, driver.Close())
	assert.Equal(t, retained, software.Calls("cuDevicePrimaryCtxRelease_v2")-released, "each retained context is released")
	_, err = driver.Allocate(1)
	assert.ErrorIs(t, err, cuda.ErrClosed)
	assert.ErrorIs(t, driver.Free(gomem.Block{Address: address, Bytes: 1}), cuda.ErrClosed)
	assert.ErrorIs(t, driver.SetStream(0, 0), cuda.ErrClosed)
	assert.Zero(t, driver.PendingFree())
	assert.NoError(t, driver.Synchronize())
	_, err = driver.Memory()
	assert.NoError(t, err)
}

// TestPoolCallsNeedNoContext: they name their stream, and the thread's context is not even looked at; unless the driver wants one.
func TestPoolCallsNeedNoContext(t *testing.T) {
	for want, mode := range map[int]settings{0: {"pools": 1}, 2: {"pools": 1, wantsContext: 1}} {
		t.Run(fmt.Sprint("changes=", want), func(t *testing.T) {
			r := open(t, mode, 0)
			onBareThread(r.host, func() {
				r.free(r.allocate(100), 100)
				before := r.software.Calls("cuCtxPushCurrent_v2")
				r.free(r.allocate(100), 100)
				assert.Equal(t, want, r.software.Calls("cuCtxPushCurrent_v2")-before)
			})
		})
	}
}

// TestWithoutTheFunctionTheCallerIsBelieved: a driver that cannot tell what lies at an address lets everything be adopted.
func TestWithoutTheFunctionTheCallerIsBelieved(t *testing.T) {
	r := open(t, nil, 0)
	r.free(r.allocate(1), 1)
	none := gomem.Block{Address: 0x10000, Bytes: 64, How: gomem.HowCUDA}
	var refused *gomem.BlockError
	require.ErrorAs(t, r.driver.Examine(none), &refused)
	extra := soft.Compile(t, "int nothing;\n")
	library, err := cuda.Load(soft.Patched{Loader: dl.System, Extra: extra, Hidden: "cuMemGetAddressRange_v2"}, []dl.Candidate{{Name: soft.Library(t, soft.CUDA)}})
	require.NoError(t, err)
	blind, err := library.Open("sim:0", 0)
	require.NoError(t, err)
	require.NoError(t, blind.Examine(none))
	require.NoError(t, blind.Close())
}

// TestHostMemoryThatTheDriverKnows: pinned memory has a range like a block, and is refused by its kind.
func TestHostMemoryThatTheDriverKnows(t *testing.T) {
	r := open(t, nil, 0)
	r.free(r.allocate(1), 1)
	onContext(t, r, func() {
		pinned := r.host.Ask("cuMemAllocHost_v2", 100)
		err := r.driver.Examine(gomem.Block{Address: pinned, Bytes: 100, How: gomem.HowCUDA})
		var refused *gomem.BlockError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, gomem.Allocation{Base: pinned, Bytes: 100, Host: true}, refused.Found)
		assert.ErrorContains(t, err, "is host memory; only device memory can be adopted")
		r.host.Must("cuMemFreeHost", pinned)
	})
}
