package levelzero_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/levelzero"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// TestOrder: everything takes its place in the order of the calls, over a device that is slow and runs side by side what may run so. A copy
// out holds what was queued before it, and the source of a copy in may be overwritten at once.
func TestOrder(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			r := open(t, mode, 0)
			require.NoError(t, r.Software.Set("delay_us", 1000))
			require.NoError(t, r.Software.Set("jitter_us", 3000))
			const n = 100_000
			a, b := r.Allocate(n), r.Allocate(n)
			for i := range 8 {
				content := soft.Noise(n, uint32(i))
				r.Write(a, content) // clears its source
				require.NoError(t, r.Driver.CopyWithin(b, a, n))
				require.NoError(t, r.Driver.Fill(a, []byte{1, 2, 3, 4, 5}, n))
				require.NoError(t, r.Driver.CopyWithin(a+1, a, n-1))
				require.Equal(t, content, r.Read(b, n))
				require.NoError(t, r.Driver.Fill(b, []byte{byte(i)}, n/2))
				require.NoError(t, r.Driver.CopyWithin(a, b, n))
				copied := r.Read(a, n)
				require.Equal(t, byte(i), copied[n/2-1])
				require.Equal(t, content[n/2:], copied[n/2:])
			}
			r.Free(a, n)
			r.Free(b, n)
		})
	}
}

// TestManySubmissions: more than the queue keeps lists for, while the device is behind.
func TestManySubmissions(t *testing.T) {
	r := open(t, settings{"api_version": version(4)}, 0)
	a := r.Allocate(1000)
	require.NoError(t, r.Software.Set("delay_us", 100))
	for i := range 600 {
		require.NoError(t, r.Driver.Fill(a, []byte{byte(i)}, 1000))
	}
	assert.Equal(t, byte(600%256-1), r.Read(a, 1000)[0])
	assert.LessOrEqual(t, r.Software.Calls("zeCommandListCreate"), 256)
	r.Free(a, 1000)
}

// TestWaitForTheOldestSubmissionFails: that ends the operation that needed its list, and no other.
func TestWaitForTheOldestSubmissionFails(t *testing.T) {
	r := open(t, settings{"api_version": version(4)}, 0)
	a := r.Allocate(1000)
	require.NoError(t, r.Software.Set("delay_us", 1000))
	require.NoError(t, r.Software.Fail("zeFenceHostSynchronize", 1, unknown))
	var err error
	for i := 0; i < 5000 && err == nil; i++ {
		err = r.Driver.Fill(a, []byte{1}, 1000)
	}
	var failed *gomem.DriverError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, "zeFenceHostSynchronize", failed.Call)
	assert.Equal(t, unknown, failed.Code)
	require.NoError(t, r.Driver.Fill(a, []byte{7}, 1000), "the next one waits, and goes on")
	assert.Equal(t, byte(7), r.Read(a, 1000)[999])
	r.Free(a, 1000)
}

func TestAskingMakesNoContext(t *testing.T) {
	r := open(t, nil, 0)
	memory, err := r.Driver.Memory()
	require.NoError(t, err)
	assert.Equal(t, gomem.DriverMemory{Free: capacity, Total: capacity, Allocated: gomem.Unknown, LargestFree: gomem.Unknown}, memory)
	assert.Zero(t, r.Driver.PendingFree())
	assert.Equal(t, "sim:0", r.Driver.Name())
	assert.EqualValues(t, capacity, r.Driver.Facts().Total)
	require.NoError(t, r.Driver.Synchronize())
	released, err := r.Driver.Trim()
	require.NoError(t, err)
	assert.Zero(t, released)
	room, err := r.Driver.Room(1<<20, 1)
	require.NoError(t, err)
	assert.EqualValues(t, capacity-1<<20, room)
	_, err = r.Driver.Allocate(capacity + 1)
	assert.ErrorIs(t, err, gomem.ErrTooLarge)
	assert.Zero(t, r.Software.Calls("zeContextCreate"))

	r.Free(r.Allocate(1), 1)
	assert.Equal(t, 1, r.Software.Calls("zeContextCreate"))
}

// TestFreeWaitsOnTheDeviceOnly: the device is busy for long. A free does not wait, and what is freed counts as pending until the host has
// seen that its users are done: by a wait, or by looking.
func TestFreeWaitsOnTheDeviceOnly(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			r := open(t, mode, 0)
			const n = 1 << 20
			a, b := r.Allocate(n), r.Allocate(n)
			require.NoError(t, r.Driver.Synchronize())
			require.NoError(t, r.Software.Set("delay_us", 20_000))
			require.NoError(t, r.Driver.Fill(a, []byte{1}, n))
			require.NoError(t, r.Driver.CopyWithin(b, a, n))
			waits := r.Software.Calls("zeCommandListHostSynchronize") + r.Software.Calls("zeCommandQueueSynchronize")
			r.Free(a, n)
			assert.Equal(t, waits, r.Software.Calls("zeCommandListHostSynchronize")+r.Software.Calls("zeCommandQueueSynchronize"), "a free does not wait")
			assert.EqualValues(t, n, r.Driver.PendingFree())
			assert.EqualValues(t, 2, r.Figure("live"), "the block is still the device's")
			assert.Zero(t, r.Software.Calls("zeMemFree")+r.Software.Calls("zeMemFreeExt"))
			require.NoError(t, r.Driver.Synchronize())
			assert.Zero(t, r.Driver.PendingFree())
			r.requireLive(1)
			call := "zeMemFree"
			if mode.defers() && r.Driver.Facts().Free != levelzero.SourceNone {
				call = "zeMemFreeExt"
			}
			assert.Equal(t, 1, r.Software.Calls(call))
			assert.Equal(t, byte(1), r.Read(b, n)[n-1], "nobody had the memory before the copy was done with it")
			r.Free(b, n)
		})
	}
}

// TestAllocationReapsWhatIsDone: a program that never waits still gets its freed memory back.
func TestAllocationReapsWhatIsDone(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			r := open(t, mode, 0)
			scratch := r.Allocate(1)
			for range 200 {
				r.Free(r.Allocate(4<<20), 4<<20)
				r.Read(scratch, 1) // the device is idle
			}
			r.Free(r.Allocate(1), 1)
			assert.LessOrEqual(t, r.Driver.PendingFree(), uint64(8<<20))
			r.Free(scratch, 1)
		})
	}
}

// TestManyFreesWhileTheDeviceIsBehind: more than there are marks; none is lost.
func TestManyFreesWhileTheDeviceIsBehind(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			r := open(t, mode, 0)
			var blocks []uint64
			for range 300 {
				blocks = append(blocks, r.Allocate(5000))
			}
			require.NoError(t, r.Driver.Synchronize())
			require.NoError(t, r.Software.Set("delay_us", 50_000))
			require.NoError(t, r.Driver.Fill(blocks[0], []byte{1}, 5000))
			for _, block := range blocks {
				r.Free(block, 5000)
			}
			assert.EqualValues(t, 300*5000, r.Driver.PendingFree())
			require.NoError(t, r.Software.Set("delay_us", 0))
			require.Eventually(t, func() bool {
				r.Free(r.Allocate(1), 1) // no wait: it only looks
				return r.Driver.PendingFree() <= 100
			}, 10*time.Second, time.Millisecond)
		})
	}
}

func TestAdoptedMemoryIsFreedAsItWasMade(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			r := open(t, mode, 0)
			context := r.host.context()
			require.NoError(t, r.Driver.SetStream(context, 0))
			a := r.host.memory(context, 5000)
			require.NoError(t, r.Driver.Fill(a, []byte{3}, 5000))
			assert.Equal(t, byte(3), r.Read(a, 5000)[4999])
			require.NoError(t, r.Driver.Free(gomem.Block{Address: a, Bytes: 5000, How: gomem.HowLevelZero}))
			require.NoError(t, r.Driver.Synchronize())
			r.requireLive(0)
			require.NoError(t, r.Driver.SetStream(0, 0))
			r.host.Must("zeContextDestroy", context)
		})
	}
	r := open(t, nil, 0)
	for _, how := range []gomem.How{gomem.HowDriver, gomem.HowLevelZero} {
		assert.True(t, r.Driver.CanFree(how))
	}
	for _, how := range []gomem.How{gomem.HowCUDA, gomem.HowCUDAAsync, gomem.HowHIP, gomem.HowHIPAsync} {
		assert.False(t, r.Driver.CanFree(how))
		assert.ErrorContains(t, r.Driver.Free(gomem.Block{Address: 1, Bytes: 1, How: how}), "cannot be freed by Level Zero")
	}
}

// TestFreeOfWhatIsNoBlock: an address that the driver does not know is an error, reported once, and does not stay on the list.
func TestFreeOfWhatIsNoBlock(t *testing.T) {
	inAllModes(t, func(t *testing.T, r *rig) {
		a := r.Allocate(64)
		for _, how := range []gomem.How{gomem.HowDriver, gomem.HowLevelZero} {
			err := r.Driver.Free(gomem.Block{Address: 0x10, Bytes: 64, How: how})
			err = errors.Join(err, r.Driver.Synchronize())
			var failed *gomem.DriverError
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, invalidArgument, failed.Code)
			assert.Equal(t, "ZE_RESULT_ERROR_INVALID_ARGUMENT", failed.Name)
			require.NoError(t, r.Driver.Synchronize())
			assert.Zero(t, r.Driver.PendingFree())
		}
		r.Free(a, 64)
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
	assert.NotEqual(t, a.Driver.Facts().UUID, b.Driver.Facts().UUID)
	a.Free(x, 1<<20)
	require.NoError(t, a.Driver.Synchronize())
	a.requireLive(0)
	assert.EqualValues(t, 1, b.Figure("live"))
	b.Free(y, 1<<20)
}

// TestCodes is the table of codes that mean something to the core.
func TestCodes(t *testing.T) {
	for code, kind := range map[int]error{deviceLost: gomem.ErrLost, 0x70000006: gomem.ErrLost, outOfDeviceMemory: gomem.ErrOutOfMemory,
		outOfHostMemory: levelzero.ErrOutOfHostMemory, unsupportedSize: gomem.ErrTooLarge, unknown: nil, notReady: nil} {
		t.Run(fmt.Sprintf("%#x", code), func(t *testing.T) {
			r := open(t, nil, 0)
			require.NoError(t, r.Software.Fail("zeMemAllocDevice", 1, code))
			_, err := r.Driver.Allocate(100)
			var failed *gomem.DriverError
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, code, failed.Code)
			assert.Equal(t, "zeMemAllocDevice", failed.Call)
			assert.NotEmpty(t, failed.Name)
			assert.Equal(t, kind, failed.Kind)
			r.Software.Reset()
			r.Free(r.Allocate(100), 100)
		})
	}
	r := open(t, nil, 0)
	a := r.Allocate(100)
	require.NoError(t, r.Software.Fail("zeCommandListAppendMemoryFill", 1, unsupportedSize))
	err := r.Driver.Fill(a, []byte{1}, 1)
	require.Error(t, err)
	assert.NotErrorIs(t, err, gomem.ErrTooLarge, "of an allocation only")
	r.Free(a, 100)
}

// TestUseAfterFreeIsLost: a real illegal access on the device, not an injected code.
func TestUseAfterFreeIsLost(t *testing.T) {
	r := open(t, settings{"quarantine": 1}, 0)
	a, b := r.Allocate(4096), r.Allocate(4096)
	r.Free(a, 4096)
	require.NoError(t, r.Driver.Synchronize())
	r.requireLive(1)
	err := errors.Join(r.Driver.CopyWithin(b, a, 4096), r.Driver.Synchronize())
	require.ErrorIs(t, err, gomem.ErrLost)
	_, err = r.Driver.Allocate(1)
	assert.ErrorIs(t, err, gomem.ErrLost, "the next call, too")
	assert.ErrorIs(t, r.Driver.Free(gomem.Block{Address: b, Bytes: 4096}), gomem.ErrLost)
	_, err = r.Driver.Memory()
	assert.ErrorIs(t, err, gomem.ErrLost)
	r.Software.Reset() // the block waits to be freed
}

func TestClosedDriver(t *testing.T) {
	library, software := library(t)
	software.Reset()
	driver, err := library.Open("sim:0", 0)
	require.NoError(t, err)
	address, err := driver.Allocate(100)
	require.NoError(t, err)
	require.NoError(t, driver.Free(gomem.Block{Address: address, Bytes: 100}))
	require.NoError(t, driver.Close())
	for made, gone := range map[string]string{"zeContextCreate": "zeContextDestroy", "zeCommandListCreateImmediate": "zeCommandListDestroy",
		"zeEventPoolCreate": "zeEventPoolDestroy", "zeEventCreate": "zeEventDestroy"} {
		assert.Positive(t, software.Calls(made), made)
		assert.Equal(t, software.Calls(made), software.Calls(gone), gone)
	}
	_, err = driver.Allocate(1)
	assert.ErrorIs(t, err, levelzero.ErrClosed)
	assert.ErrorIs(t, driver.Free(gomem.Block{Address: address, Bytes: 1}), levelzero.ErrClosed)
	assert.ErrorIs(t, driver.SetStream(0, 0), levelzero.ErrClosed)
	assert.ErrorIs(t, driver.Join(1, 0), levelzero.ErrClosed)
	assert.Zero(t, driver.PendingFree())
	assert.Zero(t, driver.Stream())
	assert.NoError(t, driver.Synchronize())
	_, err = driver.Memory()
	assert.NoError(t, err)
}
