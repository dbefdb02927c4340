package cuda_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/cuda"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// onContext runs f on one thread with the device's primary context current, as a host framework does.
func onContext(t testing.TB, r *rig, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	context := r.host.Ask("cuDevicePrimaryCtxRetain", uint64(r.Ordinal))
	r.host.Must("cuCtxPushCurrent_v2", context)
	f()
	assert.Equal(t, context, r.host.Ask("cuCtxPopCurrent_v2"), "the thread's context was changed")
	r.host.Must("cuDevicePrimaryCtxRelease_v2", uint64(r.Ordinal))
}

// onBareThread runs f on one thread without a current context, and leaves it so: a lost driver takes no context off a thread.
func onBareThread(h *soft.Host, f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	clean := func() {
		for h.Ask("cuCtxGetCurrent") != 0 {
			h.Ask("cuCtxPopCurrent_v2")
		}
	}
	clean()
	f()
	clean()
}

// scene is a stage with a host's context and stream.
type scene struct {
	*rig
	soft.Stage
	context uint64
	stream  uint64
}

// operations is every method of the Driver that can call the driver, in the variants that take different paths.
var operations = soft.Calls(func(s *scene) *soft.Stage { return &s.Stage },
	soft.Call[*scene]{Name: "Join", Run: func(s *scene) error { return s.Driver.Join(s.stream, 0) }},
	soft.Call[*scene]{Name: "SetStream, a host's", Run: func(s *scene) error { return s.Driver.SetStream(s.context, s.stream) }},
)

// newScene sets the stage.
func newScene(t testing.TB, r *rig) *scene {
	t.Helper()
	s := &scene{rig: r}
	s.Stage = soft.SetStage(t, r.Driver, func() (block gomem.Block) {
		onContext(t, r, func() { // whose context ends with it, where the driver does not keep it, too
			s.context = r.host.Ask("cuCtxGetCurrent")
			s.stream = r.host.Ask("cuStreamCreate", 1)
			block = gomem.Block{Address: r.host.Ask("cuMemAlloc_v2", 5000), Bytes: 5000, How: gomem.HowCUDA}
		})
		return block
	})
	return s
}

// clear gives everything back.
func (s *scene) clear() {
	s.T.Helper()
	s.Clear(s.T)
	onContext(s.T, s.rig, func() { s.host.Must("cuStreamDestroy_v2", s.stream) })
}

// TestContextOfTheCallerIsKept: whatever context the calling thread has, each method leaves it, and the depth of its stack, as they were.
func TestContextOfTheCallerIsKept(t *testing.T) {
	for _, mode := range modes {
		for _, current := range []string{"none", "our device's", "another device's"} {
			for _, operation := range operations {
				t.Run(mode.String()+"/"+current+"/"+operation.Name, func(t *testing.T) {
					s := newScene(t, open(t, mode, 0))
					runtime.LockOSThread()
					defer runtime.UnlockOSThread()
					h := s.host
					var pushed uint64
					if current != "none" {
						ordinal := uint64(0)
						if current == "another device's" {
							ordinal = 1
						}
						pushed = h.Ask("cuDevicePrimaryCtxRetain", ordinal)
						h.Must("cuCtxPushCurrent_v2", pushed)
						defer func() { h.Must("cuDevicePrimaryCtxRelease_v2", ordinal) }()
					}
					require.NoError(t, operation.Run(s))
					assert.Equal(t, pushed, h.Ask("cuCtxGetCurrent"))
					if pushed != 0 {
						h.Ask("cuCtxPopCurrent_v2")
						assert.Zero(t, h.Ask("cuCtxGetCurrent"), "something was left on the stack")
					}
					s.clear()
				})
			}
		}
	}
}

// TestHostsStream: after SetStream, work is queued on the host's stream, in order with the host's own.
func TestHostsStream(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			r := open(t, mode, 0)
			ours := r.Driver.Stream()
			a := r.Allocate(soft.BlockBytes)
			require.NoError(t, r.Driver.Fill(a, []byte{1}, soft.BlockBytes))
			onContext(t, r, func() {
				context, stream := r.host.Ask("cuCtxGetCurrent"), r.host.Ask("cuStreamCreate", 1)
				require.NoError(t, r.Driver.SetStream(context, stream))
				assert.Equal(t, stream, r.Driver.Stream())
				assert.NotEqual(t, ours, stream)
				require.NoError(t, r.Software.Set("delay_us", 3000))
				r.host.Must("cuMemsetD8Async", a, 9, soft.BlockBytes, stream)
				assert.Equal(t, byte(9), r.Read(a, soft.BlockBytes)[soft.BlockBytes-1], "a copy out comes after what the host has queued")
				b := r.Allocate(100)
				r.host.Must("cuMemsetD8Async", b, 3, 100, stream)
				r.Free(b, 100)
				r.Free(a, soft.BlockBytes)
				require.NoError(t, r.Driver.SetStream(0, 0))
				r.host.Must("cuStreamDestroy_v2", stream)
			})
			assert.Zero(t, r.Driver.Stream(), "the legacy default stream")
		})
	}
}

func TestSetStreamRefusesWhatIsNone(t *testing.T) {
	r := open(t, nil, 0)
	stream := r.Driver.Stream()
	for _, wrong := range []struct{ context, stream uint64 }{{0, 0xdead0}, {0xdead0, stream}} {
		var failed *gomem.DriverError
		require.ErrorAs(t, r.Driver.SetStream(wrong.context, wrong.stream), &failed)
		assert.Equal(t, stream, r.Driver.Stream())
		a := r.Allocate(100)
		r.Write(a, soft.Noise(100, 1))
		assert.Equal(t, soft.Noise(100, 1), r.Read(a, 100), "nothing changed")
		r.Free(a, 100)
	}
}

// TestHostsStreamFirst: a host's stream that is set before anything else makes no context and no stream of our own.
func TestHostsStreamFirst(t *testing.T) {
	r := open(t, nil, 0)
	onContext(t, r, func() {
		context, stream := r.host.Ask("cuCtxGetCurrent"), r.host.Ask("cuStreamCreate", 1)
		retained, created := r.Software.Calls("cuDevicePrimaryCtxRetain"), r.Software.Calls("cuStreamCreate")
		require.NoError(t, r.Driver.SetStream(context, stream))
		memory, err := r.Driver.Memory()
		require.NoError(t, err)
		assert.Positive(t, memory.Free)
		r.Free(r.Allocate(100), 100)
		assert.Equal(t, retained, r.Software.Calls("cuDevicePrimaryCtxRetain"))
		assert.Equal(t, created, r.Software.Calls("cuStreamCreate"))
		require.NoError(t, r.Driver.SetStream(0, 0))
		r.host.Must("cuStreamDestroy_v2", stream)
	})
}

// TestJoin: what is queued on one stream is done before what another stream gets afterwards.
func TestJoin(t *testing.T) {
	r := open(t, settings{"delay_us": 5000}, 0)
	a := r.Allocate(soft.BlockBytes)
	require.NoError(t, r.Driver.Synchronize())
	onContext(t, r, func() {
		stream := r.host.Ask("cuStreamCreate", 1)
		for i := range 4 {
			r.host.Must("cuMemsetD8Async", a, uint64(i), soft.BlockBytes, stream)
		}
		require.NoError(t, r.Driver.Join(stream, 0))
		assert.Equal(t, byte(3), r.Read(a, soft.BlockBytes)[0], "our copy waits for the host's work")
		for i := range 4 {
			require.NoError(t, r.Driver.Fill(a, []byte{byte(10 + i)}, soft.BlockBytes))
		}
		require.NoError(t, r.Driver.Join(0, stream))
		require.NoError(t, r.Driver.Join(stream, stream))
		host, pointer := soft.Bytes(t, soft.BlockBytes)
		r.host.Must("cuMemcpyDtoHAsync_v2", uint64(uintptr(pointer)), a, soft.BlockBytes, stream)
		r.host.Must("cuStreamSynchronize", stream)
		assert.Equal(t, byte(13), host[0], "the host's copy waits for our work")
		r.host.Must("cuStreamDestroy_v2", stream)
	})
	r.Free(a, soft.BlockBytes)
}

// TestCapture: while a graph is recorded from the stream nothing is allocated, moved or waited for, the error says so, and the recording
// is not spoiled.
func TestCapture(t *testing.T) {
	for _, mode := range modes {
		for _, operation := range operations {
			t.Run(mode.String()+"/"+operation.Name, func(t *testing.T) {
				s := newScene(t, open(t, mode, 0))
				h := s.host
				require.NoError(t, s.Driver.SetStream(s.context, s.stream))
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				h.Must("cuCtxPushCurrent_v2", s.context)
				const relaxed, perThread = 2, 2
				h.Must("cuStreamBeginCapture_v2", s.stream, relaxed)
				pending := s.Driver.PendingFree()
				err := operation.Run(s)
				switch operation.Name {
				case "Free", "Free of a host's block":
					require.NoError(t, err)
					assert.Greater(t, s.Driver.PendingFree(), pending, "a block that is freed waits for the end of the capture")
				case "Memory":
					require.NoError(t, err)
				case "Join":
					require.NoError(t, err, "of a stream with itself: there is nothing to do")
					err = s.Driver.Join(perThread, 0)
					fallthrough
				default:
					require.ErrorIs(t, err, cuda.ErrCapturing)
					assert.ErrorContains(t, err, "until the capture ends")
					var failed *gomem.DriverError
					require.ErrorAs(t, err, &failed)
					assert.Nil(t, failed.Kind)
				}
				const active = 1
				assert.EqualValues(t, active, h.AskLast("cuStreamIsCapturing", s.stream), "the capture goes on")
				h.Must("cuGraphDestroy", h.AskLast("cuStreamEndCapture", s.stream))
				h.Ask("cuCtxPopCurrent_v2")
				require.NoError(t, s.Driver.Synchronize())
				assert.Zero(t, s.Driver.PendingFree())
				s.clear()
			})
		}
	}
}
