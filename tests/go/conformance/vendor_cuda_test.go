package conformance

import (
	"runtime"
	"testing"

	"github.com/tack-memory/tack-memory/backends/cuda"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

var cudaVendor = vendor{
	abi:     soft.CUDA,
	symbols: cuda.Symbols,
	load:    loadOrdered(cuda.Load),
	host:    newCUDAHost,
	plain:   gomem.HowCUDA,
	ordered: gomem.HowCUDAAsync,
	mask:    "CUDA_VISIBLE_DEVICES",
	codes:   codes{other: 999, full: 2, refused: 1, lost: 700},
	history: []string{"cuEventCreate", "cuEventDestroy_v2"},
	fewest:  4,
	noBlock: []string{"cuMemFree_v2", "cuMemFreeAsync"},
	calls: callers{
		opening: []string{"cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceTotalMem_v2", "cuDeviceGetAttribute",
			"cuDeviceGetUuid", "cuDeviceGetUuid_v2", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2", "cuStreamCreate", "cuStreamDestroy_v2",
			"cuMemPoolCreate", "cuMemPoolDestroy", "cuMemPoolSetAttribute"},
		// Where a context cannot be popped, or a stream not be waited for: one fault does neither (TestContextThatCannotBePopped, TestStreamThatCannotBeWaitedFor
		// of package cuda make them fail).
		elsewhere:      []string{"cuCtxSetCurrent", "cuCtxSynchronize"},
		notOfTheDriver: []string{"cuGetErrorName"},                                              // it follows a failure, and one fault is made at a time
		notOfTheCore:   []string{"cuStreamWaitEvent", "cuEventSynchronize", "cuMemsetD16Async"}, // Join, which is the host's; its patterns are of 1 and 7 bytes
	},
}

// cudaHost holds the device's primary context until the test ends: without anybody who does, all that is in it would go.
type cudaHost struct {
	*soft.Host
	t                testing.TB
	ordinal, primary uint64
}

func newCUDAHost(t testing.TB, h *soft.Host, ordinal int) host {
	t.Helper()
	h.Must("cuInit", 0) // the backend may not have done so yet
	made := cudaHost{h, t, uint64(ordinal), h.Ask("cuDevicePrimaryCtxRetain", uint64(ordinal))}
	t.Cleanup(func() { h.Must("cuDevicePrimaryCtxRelease_v2", made.ordinal) })
	return made
}

// onContext runs f with the device's primary context current.
func (h cudaHost) onContext(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	h.Must("cuCtxPushCurrent_v2", h.primary)
	f()
	h.Ask("cuCtxPopCurrent_v2")
}

func (h cudaHost) allocate(nbytes uint64) (address uint64) {
	h.onContext(func() { address = h.Ask("cuMemAlloc_v2", nbytes) })
	return address
}

func (h cudaHost) free(address uint64) { h.onContext(func() { h.Must("cuMemFree_v2", address) }) }

func (h cudaHost) pin(nbytes uint64) (address uint64) {
	h.onContext(func() { address = h.Ask("cuMemAllocHost_v2", nbytes) })
	return address
}

func (h cudaHost) unpin(address uint64) { h.onContext(func() { h.Must("cuMemFreeHost", address) }) }

func (h cudaHost) keepAll() {
	attribute, value := everything(h.t)
	h.Must("cuMemPoolSetAttribute", h.Ask("cuDeviceGetMemPool", h.ordinal), attribute, value)
}

func (h cudaHost) allocateOrdered(nbytes, stream uint64) (address uint64) {
	h.onContext(func() { address = h.Ask("cuMemAllocAsync", nbytes, stream) })
	return address
}

func (h cudaHost) context() uint64 { return 0 }

func (h cudaHost) stream() (stream uint64) {
	const nonBlocking = 1
	h.onContext(func() { stream = h.Ask("cuStreamCreate", nonBlocking) })
	return stream
}

func (h cudaHost) endStream(stream uint64) {
	h.onContext(func() { h.Must("cuStreamDestroy_v2", stream) })
}

func (h cudaHost) fill(address uint64, value byte, nbytes, stream uint64) {
	h.onContext(func() { h.Must("cuMemsetD8Async", address, uint64(value), nbytes, stream) })
}

func (h cudaHost) wait(stream uint64) { h.onContext(func() { h.Must("cuStreamSynchronize", stream) }) }

// thread is the current context, and the mode for captures: asking for that sets the mode of a new thread.
func (h cudaHost) thread() any {
	return [2]uint64{h.Ask("cuCtxGetCurrent"), h.Ask("cuThreadExchangeStreamCaptureMode")}
}

func (h cudaHost) begin(stream, mode uint64) {
	h.onContext(func() { h.Must("cuStreamBeginCapture_v2", stream, mode) })
}

func (h cudaHost) captured(stream uint64) (status uint64) {
	h.onContext(func() { status = h.AskLast("cuStreamIsCapturing", stream) })
	return status
}

func (h cudaHost) endCapture(stream uint64) {
	h.onContext(func() { h.Must("cuGraphDestroy", h.AskLast("cuStreamEndCapture", stream)) })
}

// startOver also takes contexts off the thread: a lost driver cannot.
func (h cudaHost) startOver() {
	for h.Ask("cuCtxGetCurrent") != 0 {
		h.Ask("cuCtxPopCurrent_v2")
	}
	h.Must("cuDevicePrimaryCtxReset_v2", h.ordinal)
}
