package cuda_test

import (
	"errors"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/cuda"
	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// TestCopiesAreCompleteAtReturn: the device is slow and pageable copies return early; a copy out must hold what was queued before it, and
// the source of a copy in may be overwritten at once.
func TestCopiesAreCompleteAtReturn(t *testing.T) {
	r := open(t, settings{"pageable": 1, "delay_us": 5000}, 0)
	const n = 100_000
	a, b := r.Allocate(n), r.Allocate(n)
	content := soft.Noise(n, 1)
	r.Write(a, content) // clears its source
	require.NoError(t, r.Driver.CopyWithin(b, a, n))
	require.Equal(t, content, r.Read(b, n))
	require.NoError(t, r.Driver.Fill(b, []byte{7}, n/2))
	assert.Equal(t, byte(7), r.Read(b, n)[n/2-1])
	r.Free(a, n)
	r.Free(b, n)
}

// TestPinnedHostMemory: copies of pinned memory are asynchronous in every version, and read their source late.
func TestPinnedHostMemory(t *testing.T) {
	r := open(t, settings{"delay_us": 5000}, 0)
	const n = 100_000
	a := r.Allocate(n)
	onContext(t, r, func() {
		address := r.host.Ask("cuMemHostAlloc", n, 0)
		pointer := unsafe.Add(unsafe.Pointer(nil), address)
		pinned := unsafe.Slice((*byte)(pointer), n)
		content := soft.Noise(n, 1)
		copy(pinned, content)
		require.NoError(t, r.Driver.CopyIn(a, pointer, n))
		clear(pinned)
		require.NoError(t, r.Driver.CopyOut(pointer, a, n))
		assert.Equal(t, content, append([]byte(nil), pinned...))
		r.host.Must("cuMemFreeHost", address)
	})
	r.Free(a, n)
}

func TestAskingMakesNoContext(t *testing.T) {
	r := open(t, nil, 0)
	before := r.Software.Calls("cuDevicePrimaryCtxRetain")
	memory, err := r.Driver.Memory()
	require.NoError(t, err)
	assert.Equal(t, gomem.DriverMemory{Free: gomem.Unknown, Total: capacity, Allocated: gomem.Unknown, LargestFree: gomem.Unknown}, memory)
	assert.Zero(t, r.Driver.PendingFree())
	assert.Equal(t, "sim:0", r.Driver.Name())
	assert.EqualValues(t, capacity, r.Driver.Facts().Total)
	require.NoError(t, r.Driver.Synchronize())
	released, err := r.Driver.Trim()
	require.NoError(t, err)
	assert.Zero(t, released)
	_, err = r.Driver.Allocate(capacity + 1)
	assert.ErrorIs(t, err, gomem.ErrTooLarge)
	assert.Equal(t, before, r.Software.Calls("cuDevicePrimaryCtxRetain"))
	assert.Equal(t, 0, r.Software.Calls("cuStreamCreate"))

	r.Free(r.Allocate(1), 1)
	assert.Equal(t, before+1, r.Software.Calls("cuDevicePrimaryCtxRetain"))
	memory, err = r.Driver.Memory()
	require.NoError(t, err)
	assert.Positive(t, memory.Free)
}

func TestFigures(t *testing.T) {
	r := open(t, settings{"pools": 1}, 0)
	a := r.Allocate(10 << 20)
	memory, err := r.Driver.Memory()
	require.NoError(t, err)
	assert.EqualValues(t, capacity, memory.Total)
	assert.LessOrEqual(t, memory.Free, int64(capacity-10<<20))
	before := memory.Cached
	r.Free(a, 10<<20)
	require.NoError(t, r.Driver.Synchronize())
	memory, err = r.Driver.Memory()
	require.NoError(t, err)
	assert.GreaterOrEqual(t, memory.Cached-before, int64(10<<20), "the pool keeps what was freed, also after a wait")

	// Memory that another user of the driver takes shows in Free and nowhere else.
	require.NoError(t, r.Software.Set("taken", 5<<20))
	after, err := r.Driver.Memory()
	require.NoError(t, err)
	assert.EqualValues(t, memory.Free-5<<20, after.Free)
	assert.Equal(t, memory.Cached, after.Cached)

	released, err := r.Driver.Trim()
	require.NoError(t, err)
	assert.EqualValues(t, after.Cached, released)
	memory, err = r.Driver.Memory()
	require.NoError(t, err)
	assert.Zero(t, memory.Cached)
	require.NoError(t, r.Software.Set("taken", 0))
	r.Free(r.Allocate(capacity-1<<20), capacity-1<<20) // the whole device can be had
}

// TestTrimWaits: a block is given back to the system only after its free was seen to be complete.
func TestTrimWaits(t *testing.T) {
	r := open(t, settings{"pools": 1, "delay_us": 3000}, 0)
	a := r.Allocate(10 << 20)
	require.NoError(t, r.Driver.Fill(a, []byte{1}, 10<<20))
	r.Free(a, 10<<20)
	released, err := r.Driver.Trim()
	require.NoError(t, err)
	assert.GreaterOrEqual(t, released, uint64(10<<20))
}

func TestOutOfMemory(t *testing.T) {
	inAllModes(t, func(t *testing.T, r *rig) {
		const half = capacity/2 + 4096
		a := r.Allocate(half)
		_, err := r.Driver.Allocate(half)
		require.ErrorIs(t, err, gomem.ErrOutOfMemory)
		assert.False(t, errors.Is(err, gomem.ErrTooLarge))
		var failed *gomem.DriverError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, "sim:0", failed.Device)
		assert.Equal(t, 2, failed.Code)
		assert.Equal(t, "CUDA_ERROR_OUT_OF_MEMORY", failed.Name)
		assert.Contains(t, failed.Call, "cuMemAlloc")

		_, err = r.Driver.Allocate(capacity + 1)
		assert.ErrorIs(t, err, gomem.ErrTooLarge)
		assert.False(t, errors.Is(err, gomem.ErrOutOfMemory))

		r.Free(a, half)
		require.NoError(t, r.Driver.Synchronize())
		_, err = r.Driver.Trim()
		require.NoError(t, err)
		r.Free(r.Allocate(half), half)
	})
}

// TestFreeDoesNotWait: the device is busy for long, and nothing that is freed is given to anybody before it is done with it.
func TestFreeWaitsOnTheDeviceOnly(t *testing.T) {
	for _, pools := range []int64{0, 1} {
		t.Run(fmt.Sprint("pools=", pools), func(t *testing.T) {
			r := open(t, settings{"pools": pools, "delay_us": 20_000, "quarantine": 0}, 0)
			const n = 1 << 20
			a, b := r.Allocate(n), r.Allocate(n)
			require.NoError(t, r.Driver.Fill(a, []byte{1}, n))
			require.NoError(t, r.Driver.CopyWithin(b, a, n))
			waits := r.Software.Calls("cuStreamSynchronize")
			r.Free(a, n)
			assert.Equal(t, waits, r.Software.Calls("cuStreamSynchronize"), "a free does not wait")
			if pools == 0 {
				assert.EqualValues(t, n, r.Driver.PendingFree())
				assert.EqualValues(t, 2, r.Figure("live"), "the block is still the device's")
			}
			require.NoError(t, r.Driver.Synchronize())
			assert.Zero(t, r.Driver.PendingFree())
			assert.EqualValues(t, 1, r.Figure("live"))
			assert.Equal(t, byte(1), r.Read(b, n)[n-1])
			r.Free(b, n)
		})
	}
}

// TestAllocationReapsWhatIsDone: without pools, a program that never waits still gets its freed memory back.
func TestAllocationReapsWhatIsDone(t *testing.T) {
	r := open(t, settings{"pools": 0}, 0)
	for range 200 {
		r.Free(r.Allocate(4<<20), 4<<20)
		r.Read(r.driverScratch(), 1) // the device is idle
	}
	assert.LessOrEqual(t, r.Driver.PendingFree(), uint64(8<<20))
}

// driverScratch is a block that lives as long as the test.
func (r *rig) driverScratch() uint64 {
	if scratch[r.T] == 0 {
		scratch[r.T] = r.Allocate(1)
		r.T.Cleanup(func() { r.Free(scratch[r.T], 1) })
	}
	return scratch[r.T]
}

var scratch = map[testing.TB]uint64{}

func TestAdoptedMemoryIsFreedAsItWasMade(t *testing.T) {
	for _, pools := range []int64{0, 1} {
		t.Run(fmt.Sprint("pools=", pools), func(t *testing.T) {
			r := open(t, settings{"pools": pools, "delay_us": 300}, 0)
			r.Free(r.Allocate(1), 1)
			require.NoError(t, r.Driver.Synchronize())
			onContext(t, r, func() {
				stream := r.host.Ask("cuStreamCreate", 1)
				frees, asyncs := r.Software.Calls("cuMemFree_v2"), r.Software.Calls("cuMemFreeAsync")
				a := r.host.Ask("cuMemAlloc_v2", 5000)
				require.NoError(t, r.Driver.Free(gomem.Block{Address: a, Bytes: 5000, How: gomem.HowCUDA}))
				require.NoError(t, r.Driver.Synchronize())
				assert.Equal(t, frees+1, r.Software.Calls("cuMemFree_v2"))
				assert.Equal(t, asyncs, r.Software.Calls("cuMemFreeAsync"))
				if pools == 1 {
					a = r.host.Ask("cuMemAllocAsync", 5000, stream)
					require.NoError(t, r.Driver.Free(gomem.Block{Address: a, Bytes: 5000, How: gomem.HowCUDAAsync}))
					assert.Equal(t, frees+1, r.Software.Calls("cuMemFree_v2"))
					assert.Equal(t, asyncs+1, r.Software.Calls("cuMemFreeAsync"))
				}
				r.host.Must("cuStreamSynchronize", stream)
				require.NoError(t, r.Driver.Synchronize())
				r.host.Must("cuStreamDestroy_v2", stream)
			})
			for _, how := range []gomem.How{gomem.HowDriver, gomem.HowCUDA, gomem.HowCUDAAsync} {
				assert.True(t, r.Driver.CanFree(how))
			}
			for _, how := range []gomem.How{gomem.HowHIP, gomem.HowHIPAsync, gomem.HowLevelZero} {
				assert.False(t, r.Driver.CanFree(how))
				assert.ErrorContains(t, r.Driver.Free(gomem.Block{Address: 1, Bytes: 1, How: how}), "cannot be freed by CUDA")
			}
		})
	}
}

// TestABlockWhoseFreeFailedHoldsUpNoOther: it waits for Synchronize, which tries again and tells of it; what is freed after it comes back as ever.
func TestABlockWhoseFreeFailedHoldsUpNoOther(t *testing.T) {
	r := open(t, settings{"pools": 0, "delay_us": 2000}, 0)
	const n = 5000
	free := func(fails int) {
		block := r.Allocate(n)
		require.NoError(t, r.Driver.Fill(block, []byte{1}, n)) // the device is busy with it, so the free must wait
		if fails > 0 {
			require.NoError(t, r.Software.Fail("cuMemFree_v2", fails, 999))
		}
		require.NoError(t, r.Driver.Free(gomem.Block{Address: block, Bytes: n}))
	}
	idle := func() {
		require.Eventually(t, func() bool { waits, err := r.Driver.Reap(); return err == nil && !waits }, time.Minute, time.Millisecond)
	}
	free(1)
	idle()
	require.EqualValues(t, n, r.Driver.PendingFree(), "the one that failed")
	require.NoError(t, r.Software.Fail("cuMemFree_v2", 0, 0))
	for range 3 {
		free(0)
		idle()
		assert.EqualValues(t, n, r.Driver.PendingFree(), "what came after it is back")
	}
	require.NoError(t, r.Driver.Synchronize())
	assert.Zero(t, r.Driver.PendingFree())
}

// TestFreeOfWhatIsNoBlock: an address that the driver does not know is an error, reported once, and does not stay on the list.
func TestFreeOfWhatIsNoBlock(t *testing.T) {
	inAllModes(t, func(t *testing.T, r *rig) {
		r.Free(r.Allocate(1), 1)
		err := r.Driver.Free(gomem.Block{Address: 0x10, Bytes: 64})
		err = errors.Join(err, r.Driver.Synchronize())
		var failed *gomem.DriverError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, 1, failed.Code)
		require.NoError(t, r.Driver.Synchronize())
		assert.Zero(t, r.Driver.PendingFree())
	})
}

func TestTwoDevices(t *testing.T) {
	a := open(t, nil, 0)
	b := open(t, nil, 1)
	x, y := a.Allocate(1<<20), b.Allocate(1<<20)
	a.Write(x, soft.Noise(1<<20, 1))
	b.Write(y, soft.Noise(1<<20, 2))
	assert.Equal(t, soft.Noise(1<<20, 1), a.Read(x, 1<<20))
	assert.Equal(t, soft.Noise(1<<20, 2), b.Read(y, 1<<20))
	assert.EqualValues(t, 1, a.Figure("live"))
	assert.EqualValues(t, 1, b.Figure("live"))
	assert.NotEqual(t, a.Driver.Facts().UUID, b.Driver.Facts().UUID)
	a.Free(x, 1<<20)
	require.NoError(t, a.Driver.Synchronize())
	assert.EqualValues(t, 0, a.Figure("live"))
	assert.EqualValues(t, 1, b.Figure("live"))
	b.Free(y, 1<<20)
}

// TestLost is the table of codes after which no call can succeed.
func TestLost(t *testing.T) {
	for _, code := range []int{4, 214, 700, 709, 719} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			r := open(t, nil, 0)
			onBareThread(r.host, func() {
				a := r.Allocate(100)
				require.NoError(t, r.Software.Fail("cuStreamSynchronize", 1, code))
				err := r.Driver.Synchronize()
				require.ErrorIs(t, err, gomem.ErrLost)
				var failed *gomem.DriverError
				require.ErrorAs(t, err, &failed)
				assert.Equal(t, code, failed.Code)
				r.Software.Reset()
				r.Free(a, 100)
			})
		})
	}
}

// TestUseAfterFreeIsSticky: a real illegal access on the device, not an injected code.
func TestUseAfterFreeIsSticky(t *testing.T) {
	r := open(t, settings{"quarantine": 1}, 0)
	a, b := r.Allocate(4096), r.Allocate(4096)
	r.Free(a, 4096)
	require.NoError(t, r.Driver.Synchronize())
	onBareThread(r.host, func() {
		err := errors.Join(r.Driver.CopyWithin(b, a, 4096), r.Driver.Synchronize())
		require.Error(t, err)
		if !errors.Is(err, gomem.ErrLost) {
			return // the software driver may refuse the copy before it is queued, as a driver that knows its blocks does
		}
		_, err = r.Driver.Allocate(1)
		assert.ErrorIs(t, err, gomem.ErrLost, "the next call, too")
		assert.ErrorIs(t, r.Driver.Free(gomem.Block{Address: b, Bytes: 4096}), gomem.ErrLost)
		_, err = r.Driver.Memory()
		assert.ErrorIs(t, err, gomem.ErrLost)
		r.Software.Reset()
	})
	r.Free(b, 4096)
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
				r.Free(r.Allocate(100), 100)
				before := r.Software.Calls("cuCtxPushCurrent_v2")
				r.Free(r.Allocate(100), 100)
				assert.Equal(t, want, r.Software.Calls("cuCtxPushCurrent_v2")-before)
			})
		})
	}
}

// TestWithoutTheFunctionTheCallerIsBelieved: a driver that cannot tell what lies at an address lets everything be adopted.
func TestWithoutTheFunctionTheCallerIsBelieved(t *testing.T) {
	r := open(t, nil, 0)
	r.Free(r.Allocate(1), 1)
	none := gomem.Block{Address: 0x10000, Bytes: 64, How: gomem.HowCUDA}
	var refused *gomem.BlockError
	require.ErrorAs(t, r.Driver.Examine(none), &refused)
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
	r.Free(r.Allocate(1), 1)
	onContext(t, r, func() {
		pinned := r.host.Ask("cuMemAllocHost_v2", 100)
		err := r.Driver.Examine(gomem.Block{Address: pinned, Bytes: 100, How: gomem.HowCUDA})
		var refused *gomem.BlockError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, gomem.Allocation{Base: pinned, Bytes: 100, Host: true}, refused.Found)
		assert.ErrorContains(t, err, "is host memory; only device memory can be adopted")
		r.host.Must("cuMemFreeHost", pinned)
	})
}
