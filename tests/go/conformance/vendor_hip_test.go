package conformance

import (
	"runtime"
	"testing"

	"github.com/tack-memory/tack-memory/backends/hip"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

var hipVendor = vendor{
	abi:     soft.HIP,
	symbols: hip.Symbols,
	load:    loadOrdered(hip.Load),
	host:    func(t testing.TB, h *soft.Host, ordinal int) host { return hipHost{h, t, uint64(ordinal)} },
	plain:   gomem.HowHIP,
	ordered: gomem.HowHIPAsync,
	mask:    "HIP_VISIBLE_DEVICES",
	codes:   codes{other: 999, full: 2, refused: 1, lost: 700},
	silent:  []string{"hipGetErrorName", "hipGetLastError"},
	history: []string{"hipEventCreateWithFlags", "hipEventDestroy", "hipDeviceSynchronize"},
	fewest:  4,
	noBlock: []string{"hipFree", "hipFreeAsync"},
	calls: callers{
		opening: []string{"hipInit", "hipGetDeviceCount", "hipDeviceGet", "hipDeviceGetName", "hipDeviceTotalMem", "hipDeviceGetAttribute",
			"hipDeviceGetUuid", "hipStreamCreateWithFlags", "hipStreamDestroy", "hipMemPoolCreate", "hipMemPoolDestroy", "hipMemPoolSetAttribute"},
		notOfTheCore: []string{"hipStreamWaitEvent", "hipEventSynchronize", "hipMemsetD16Async"}, // Join, which is the host's; its patterns are of 1 and 7 bytes
	},
}

type hipHost struct {
	*soft.Host
	t       testing.TB
	ordinal uint64
}

// onDevice runs f with the device current.
func (h hipHost) onDevice(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := h.Ask("hipGetDevice")
	h.Must("hipSetDevice", h.ordinal)
	f()
	h.Must("hipSetDevice", before)
}

func (h hipHost) allocate(nbytes uint64) (address uint64) {
	h.onDevice(func() { address = h.Ask("hipMalloc", nbytes) })
	return address
}

func (h hipHost) free(address uint64) { h.onDevice(func() { h.Must("hipFree", address) }) }

func (h hipHost) pin(nbytes uint64) (address uint64) {
	h.onDevice(func() { address = h.Ask("hipHostMalloc", nbytes, 0) })
	return address
}

func (h hipHost) unpin(address uint64) { h.onDevice(func() { h.Must("hipHostFree", address) }) }

func (h hipHost) keepAll() {
	attribute, value := everything(h.t)
	h.Must("hipMemPoolSetAttribute", h.Ask("hipDeviceGetMemPool", h.ordinal), attribute, value)
}

func (h hipHost) allocateOrdered(nbytes, stream uint64) (address uint64) {
	h.onDevice(func() { address = h.Ask("hipMallocAsync", nbytes, stream) })
	return address
}

func (h hipHost) context() uint64 { return 0 }

func (h hipHost) stream() (stream uint64) {
	const nonBlocking = 1
	h.onDevice(func() { stream = h.Ask("hipStreamCreateWithFlags", nonBlocking) })
	return stream
}

func (h hipHost) endStream(stream uint64) { h.onDevice(func() { h.Must("hipStreamDestroy", stream) }) }

func (h hipHost) fill(address uint64, value byte, nbytes, stream uint64) {
	h.onDevice(func() { h.Must("hipMemsetAsync", address, uint64(value), nbytes, stream) })
}

func (h hipHost) wait(stream uint64) { h.onDevice(func() { h.Must("hipStreamSynchronize", stream) }) }

// thread is the current device, the error that the host's next hipGetLastError would give, and the mode for captures: asking for that sets the
// mode of a new thread.
func (h hipHost) thread() any {
	last := h.Call("hipPeekAtLastError")
	return [3]int{last, int(int32(h.Ask("hipGetDevice"))), int(h.Ask("hipThreadExchangeStreamCaptureMode"))}
}

func (h hipHost) begin(stream, mode uint64) {
	h.onDevice(func() { h.Must("hipStreamBeginCapture", stream, mode) })
}

func (h hipHost) captured(stream uint64) (status uint64) {
	h.onDevice(func() { status = h.AskLast("hipStreamIsCapturing", stream) })
	return status
}

func (h hipHost) endCapture(stream uint64) {
	h.onDevice(func() { h.Must("hipGraphDestroy", h.AskLast("hipStreamEndCapture", stream)) })
}

// startOver also puts the thread's device back: a lost driver cannot.
func (h hipHost) startOver() {
	h.onDevice(func() { h.Must("hipDeviceReset") })
	h.Must("hipSetDevice", 0)
}
