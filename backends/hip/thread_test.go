package hip_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/hip"
	"github.com/tack-memory/tack-memory/backends/ordered"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// What the runtime keeps for each thread is the host framework's: its current device, and the error that its next hipGetLastError gives.

// TestDeviceIsPutBackAtTheSecondTry: the thread must not keep our device.
func TestDeviceIsPutBackAtTheSecondTry(t *testing.T) {
	open(t, settings{"pools": 0}, 0)
	r := open(t, nil, 1)
	onThread(r, func() {
		r.drop(r.Allocate(100), 100)
		require.NoError(t, r.Software.Fail("hipSetDevice", 2, 999)) // the first makes it ours
		a := r.Allocate(100)
		assert.Equal(t, 0, r.currentDevice())
		r.drop(a, 100)
	})
}

// TestDeviceThatCannotBePutBack: who cannot leave the thread as it was reports that, and keeps no memory that the caller does not get.
func TestDeviceThatCannotBePutBack(t *testing.T) {
	extra := soft.Compile(t, `
		int hipGetDevice(int *device) { *device = 0; return 0; }
		static int back; /* how often the thread was to get device 0 back: once after the start, then twice for each try that fails */
		int hipSetDevice(int device) { return device == 0 && back++ > 0 && back <= 1 + 2 * 6 ? 999 : 0; }`)
	first := open(t, settings{"pools": 0}, 0)
	library, err := hip.Load(soft.Patched{Loader: dl.System, Extra: extra}, []dl.Candidate{{Name: soft.Library(t, soft.HIP)}})
	require.NoError(t, err)
	driver, err := library.Open("hip:1", 1) // its memory is the first device's: that is current all the time
	require.NoError(t, err)
	require.NoError(t, driver.SetStream(0, 0))
	for range 3 {
		_, err = driver.Allocate(5000) // and the free of what was allocated
		var failed *gomem.DriverError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, "hipSetDevice", failed.Call)
	}
	require.NoError(t, driver.Synchronize())
	_, err = driver.Trim()
	require.NoError(t, err)
	assert.Zero(t, driver.PendingFree())
	assert.Zero(t, first.Figure("live"), "the blocks that nobody got were freed")
	require.NoError(t, driver.Close())
}

// TestLastErrorIsTheHosts: an error that the host has not asked for yet is still there after what we did, where the runtime keeps such errors (from
// 7 on), and a failure of ours is never there.
func TestLastErrorIsTheHosts(t *testing.T) {
	const invalidValue, outOfMemory, success = 1, 2, 0
	for _, version := range []int64{60241134, 70153211} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			r := open(t, settings{"driver_version": version, "pools": 0, "delay_us": 2000}, 0)
			onThread(r, func() {
				a := r.Allocate(1 << 20)
				require.NoError(t, r.Driver.Fill(a, []byte{1}, 1<<20))
				r.Free(a, 1<<20)         // its event is not ready for long
				b := r.Allocate(1 << 20) // asks for that
				assert.Equal(t, success, r.host.Call("hipPeekAtLastError"), "not ready")
				_, err := r.Driver.Allocate(capacity)
				require.ErrorIs(t, err, gomem.ErrOutOfMemory)
				assert.Equal(t, success, r.host.Call("hipGetLastError"), "our own failure")

				assert.Equal(t, invalidValue, r.host.Call("hipMalloc", 0, 1))
				require.NoError(t, r.Driver.Fill(b, []byte{2}, 100))
				if version >= 70_000_000 {
					assert.Equal(t, invalidValue, r.host.Call("hipGetLastError"), "the host's failure")
				}
				r.Free(b, 1<<20)
			})
		})
	}
}

// TestDefaultStreamsHandle: 1 is the default stream for us in every version, but only HIP 6 and later know it by that.
func TestDefaultStreamsHandle(t *testing.T) {
	extra := soft.Compile(t, "int hipStreamQuery(void *stream) { return stream == (void *)1 ? 709 : 0; }\n")
	library, err := hip.Load(soft.Patched{Loader: dl.System, Extra: extra}, []dl.Candidate{{Name: soft.Library(t, soft.HIP)}})
	require.NoError(t, err)
	driver, err := library.Open("hip:0", 0)
	require.NoError(t, err)
	require.NoError(t, driver.SetStream(0, 1))
	require.NoError(t, driver.Close())
}

// TestHandles: a context has no meaning, and a stream that is none is refused as such: 709, which is not the end of the device.
func TestHandles(t *testing.T) {
	r := open(t, nil, 0)
	onThread(r, func() {
		own := r.Driver.Stream()
		stream := r.host.Ask("hipStreamCreateWithFlags", 1)
		require.NoError(t, r.Driver.SetStream(0, stream))
		assert.Equal(t, stream, r.Driver.Stream())
		require.NoError(t, r.Driver.SetStream(0xdead0, 1), "a context has no meaning")
		r.drop(r.Allocate(1000), 1000)
		require.NoError(t, r.Driver.SetStream(0, stream))
		require.NoError(t, r.Driver.Join(1, 0))
		require.NoError(t, r.Driver.SetStream(0, 0))
		r.host.Must("hipStreamDestroy", stream)

		for _, none := range []uint64{stream, 0xdead0} {
			err := r.Driver.SetStream(0, none)
			require.ErrorIs(t, err, gomem.ErrInvalidHandle)
			assert.NotErrorIs(t, err, gomem.ErrLost)
			r.drop(r.Allocate(1000), 1000)
		}
		assert.NotEqual(t, own, r.Driver.Stream())
	})
}

// TestLost is the table of codes after which no call can succeed, and of some after which it can.
func TestLost(t *testing.T) {
	for code, lost := range map[int]bool{4: true, 214: true, 700: true, 702: true, 710: true, 719: true, 709: false, 400: false, 999: false, 1: false} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			r := open(t, nil, 0)
			onThread(r, func() {
				a := r.Allocate(100)
				require.NoError(t, r.Software.Fail("hipStreamSynchronize", 1, code))
				err := r.Driver.Synchronize()
				var failed *gomem.DriverError
				require.ErrorAs(t, err, &failed)
				assert.Equal(t, code, failed.Code)
				if lost {
					assert.ErrorIs(t, err, gomem.ErrLost, "%d", code)
				} else {
					assert.NotErrorIs(t, err, gomem.ErrLost, "%d", code)
				}
				r.Software.Reset()
				r.Free(a, 100)
			})
		})
	}
}

// TestCapture: while a graph is recorded from the stream nothing is allocated or moved, the error says so, a free waits, and the recording is not
// spoiled.
func TestCapture(t *testing.T) {
	const relaxed, active = 2, 1
	for _, pools := range []int64{0, 1} {
		t.Run(fmt.Sprint("pools=", pools), func(t *testing.T) {
			r := open(t, settings{"pools": pools}, 0)
			onThread(r, func() {
				stream := r.host.Ask("hipStreamCreateWithFlags", 1)
				require.NoError(t, r.Driver.SetStream(0, stream))
				a := r.Allocate(1000)
				r.host.Must("hipStreamBeginCapture", stream, relaxed)
				_, err := r.Driver.Allocate(1000)
				for _, err := range []error{err, r.Driver.Fill(a, []byte{1}, 10), r.Driver.Synchronize()} {
					require.ErrorIs(t, err, ordered.ErrCapturing)
					assert.ErrorContains(t, err, "until the capture ends")
				}
				r.Free(a, 1000)
				assert.EqualValues(t, 1000, r.Driver.PendingFree())
				assert.EqualValues(t, active, r.host.AskLast("hipStreamIsCapturing", stream), "the capture goes on")
				r.host.Must("hipGraphDestroy", r.host.AskLast("hipStreamEndCapture", stream))
				require.NoError(t, r.Driver.Synchronize())
				assert.Zero(t, r.Driver.PendingFree())
				require.NoError(t, r.Driver.SetStream(0, 0))
				r.host.Must("hipStreamDestroy", stream)
			})
		})
	}
}
