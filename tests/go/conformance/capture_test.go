package conformance

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/ordered"
	"github.com/tack-memory/tack-memory/gomem"
)

// capturer is a host whose vendor records graphs from streams. The modes have the same numbers for all.
type capturer interface {
	begin(stream, mode uint64)
	captured(stream uint64) (status uint64)
	endCapture(stream uint64) // of a capture that goes on
}

const (
	captureGlobal, captureThreadLocal, captureRelaxed = 0, 1, 2
	captureActive                                     = 1
)

// capturing is a capture that a test has under way.
type capturing struct {
	name      string
	mode      uint64
	elsewhere bool // begun by another thread
}

var capturings = []capturing{
	{"global", captureGlobal, false}, {"thread-local", captureThreadLocal, false}, {"relaxed", captureRelaxed, false},
	{"global, another thread's", captureGlobal, true},
}

func (c capturing) begin(h capturer, stream uint64) {
	if !c.elsewhere {
		h.begin(stream, c.mode)
		return
	}
	begun := make(chan struct{})
	go func() {
		defer close(begun)
		runtime.LockOSThread() // and the thread ends with the goroutine
		h.begin(stream, c.mode)
	}()
	<-begun
}

// forEachCapture runs a test for each flavour that captures, and each way to.
func forEachCapture(t *testing.T, test func(t *testing.T, f flavour, c capturing)) {
	t.Helper()
	captures := func(f flavour) bool { return f.steered() && (f.abi == cudaVendor.abi || f.abi == hipVendor.abi) } // the host's side is made for these
	run(t, captures, func(t *testing.T, f flavour) {
		for _, c := range capturings {
			t.Run(c.name, onThread(func(t *testing.T) { test(t, f, c) }))
		}
	})
}

// waitsForAll says whether a call has to wait for the whole device, which no capture survives: only to get memory back that a plain free of this
// vendor keeps until then.
func (f flavour) waitsForAll(call string) bool {
	return f.abi == hipVendor.abi && f.settings["pools"] == 0 && (call == "Trim" || call == "SetStream, a host's" || call == "SetStream, none")
}

// TestCaptureOfAnotherStream: while the host records a graph from a stream that is not the device's, every call works and the recording is not
// spoiled, whatever its mode, and the thread's own mode is as it was.
func TestCaptureOfAnotherStream(t *testing.T) {
	forEachCapture(t, func(t *testing.T, f flavour, c capturing) {
		for _, call := range driverCalls {
			t.Run(call.Name, onThread(func(t *testing.T) {
				s := newScene(t, f)
				h := s.host.(capturer)
				stream := s.host.stream()
				before := s.host.thread()
				c.begin(h, stream)
				err := call.Run(s)
				if f.waitsForAll(call.Name) {
					var refused *ordered.CaptureError
					require.ErrorAs(t, err, &refused)
					assert.Equal(t, ordered.SomeStream, refused.Stream)
				} else {
					require.NoError(t, err)
					assert.EqualValues(t, captureActive, h.captured(stream))
					h.endCapture(stream)
				}
				assert.Equal(t, before, s.host.thread())
				s.host.endStream(stream)
				s.clear()
			}))
		}
	})
}

// TestMovesDuringTheCaptureOfAnotherStream: the core spills, restores and makes room as ever.
func TestMovesDuringTheCaptureOfAnotherStream(t *testing.T) {
	forEachCapture(t, func(t *testing.T, f flavour, c capturing) {
		core := newCore(t, f, nil)
		h := core.host.(capturer)
		const n = 1 << 20
		a, b, spilled := core.buffer(n, 1), core.buffer(n, 2), core.buffer(n, 3)
		_, err := core.device.Spill(spilled, gomem.Wait{})
		require.NoError(t, err)
		stream := core.host.stream()
		c.begin(h, stream)
		_, err = core.device.Spill(a, gomem.Wait{})
		require.NoError(t, err)
		require.NoError(t, core.device.Admit([]uint32{a, b, spilled}, gomem.Wait{}))
		core.device.Discharge([]uint32{a, b, spilled})
		_, _, err = core.device.SetBudget(n, false, gomem.Wait{})
		require.NoError(t, err)
		made, err := core.device.Allocate(n, gomem.AllocateOptions{})
		require.NoError(t, err)
		require.EqualValues(t, n, core.info().InUse)
		require.EqualValues(t, 3*n, core.info().Spilled)
		core.device.Drop(made)
		require.NoError(t, core.device.Synchronize())
		assert.EqualValues(t, captureActive, h.captured(stream))
		h.endCapture(stream)
		core.host.endStream(stream)
		for i, index := range []uint32{a, b, spilled} {
			core.requireContents(index, n, uint32(i+1))
		}
		core.end(a, b, spilled)
	})
}

// TestCaptureOfTheDevicesStream: nothing is spilled, restored or allocated, and the error says why; a launch of what is resident goes on; what was
// refused has changed nothing, and works once the recording has ended.
func TestCaptureOfTheDevicesStream(t *testing.T) {
	forEachCapture(t, func(t *testing.T, f flavour, c capturing) {
		core := newCore(t, f, nil)
		h := core.host.(capturer)
		const n = 1 << 20
		a, b, spilled := core.buffer(n, 1), core.buffer(n, 2), core.buffer(n, 3)
		_, err := core.device.Spill(spilled, gomem.Wait{})
		require.NoError(t, err)
		stream, err := core.device.Stream()
		require.NoError(t, err)
		before := core.info()
		c.begin(h, stream)
		refused := map[string]func() error{
			"spill":    func() error { _, err := core.device.Spill(a, gomem.Wait{}); return err },
			"restore":  func() error { return core.device.MakeResident(spilled, gomem.Wait{}) },
			"launch":   func() error { return core.device.Admit([]uint32{a, spilled}, gomem.Wait{}) },
			"allocate": func() error { _, err := core.device.Allocate(n, gomem.AllocateOptions{}); return err },
			"budget":   func() error { _, _, err := core.device.SetBudget(n, false, gomem.Wait{}); return err },
			"wait":     func() error { return core.device.Synchronize() },
			"fill":     func() error { return core.device.Fill(a, 0, []byte{1}, n, gomem.Wait{}) },
		}
		for name, call := range refused {
			var captured *ordered.CaptureError
			err := call()
			require.ErrorAs(t, err, &captured, name)
			assert.Equal(t, ordered.DevicesStream, captured.Stream, name)
			assert.ErrorContains(t, err, "the device's stream is being captured", name)
			require.NoError(t, core.device.Check(), name)
			for index, state := range map[uint32]gomem.State{a: gomem.Resident, b: gomem.Resident, spilled: gomem.Spilled} {
				now, _ := gomem.StateOf(core.device.Record(index).Word)
				assert.Equal(t, state, now, name)
			}
		}
		require.NoError(t, core.device.Admit([]uint32{a, b}, gomem.Wait{}), "all of it is resident")
		core.device.Discharge([]uint32{a, b})
		info := core.info()
		assert.Equal(t, [2]int64{before.InUse, before.Spilled}, [2]int64{info.InUse, info.Spilled})
		assert.EqualValues(t, n, info.Budget, "the budget was set, and is kept from the next allocation on")
		assert.EqualValues(t, captureActive, h.captured(stream))
		h.endCapture(stream)
		for i, index := range []uint32{a, b, spilled} {
			core.requireContents(index, n, uint32(i+1))
		}
		made, err := core.device.Allocate(n, gomem.AllocateOptions{})
		require.NoError(t, err)
		assert.EqualValues(t, n, core.info().InUse)
		core.end(a, b, spilled, made)
	})
}
