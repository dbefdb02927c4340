package cuda_test

import (
	"runtime"
	"testing"
	"unsafe"

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
	context := r.host.Ask("cuDevicePrimaryCtxRetain", uint64(r.ordinal))
	r.host.Must("cuCtxPushCurrent_v2", context)
	f()
	assert.Equal(t, context, r.host.Ask("cuCtxPopCurrent_v2"), "the thread's context was changed")
	r.host.Must("cuDevicePrimaryCtxRelease_v2", uint64(r.ordinal))
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

// operation is one call of the Driver on a device with some memory.
type operation struct {
	name string
	run  func(s *scene) error
}

// scene is a device with two blocks of blockBytes, a host's block and stream, and host memory.
type scene struct {
	*rig
	a, b    uint64
	memory  []byte
	blocks  []gomem.Block // what the operation under test has made, and the scene's own
	context uint64
	stream  uint64
}

const blockBytes = 64 << 10

// operations is every method of the Driver that can call the driver, in the variants that take different paths.
var operations = []operation{
	{"Allocate", func(s *scene) error {
		address, err := s.driver.Allocate(1000)
		if err == nil {
			s.blocks = append(s.blocks, gomem.Block{Address: address, Bytes: 1000})
		}
		return err
	}},
	{"Free", func(s *scene) error {
		block := s.blocks[len(s.blocks)-1]
		s.blocks = s.blocks[:len(s.blocks)-1]
		return s.driver.Free(block)
	}},
	{"Free of a host's block", func(s *scene) error {
		block := s.blocks[0]
		s.blocks = s.blocks[1:]
		return s.driver.Free(block)
	}},
	{"CopyOut", func(s *scene) error { return s.driver.CopyOut(unsafe.Pointer(&s.memory[0]), s.a, blockBytes) }},
	{"CopyIn", func(s *scene) error { return s.driver.CopyIn(s.a, unsafe.Pointer(&s.memory[0]), blockBytes) }},
	{"CopyWithin", func(s *scene) error { return s.driver.CopyWithin(s.b, s.a, blockBytes) }},
	{"CopyWithin, a few steps", func(s *scene) error { return s.driver.CopyWithin(s.a, s.a+blockBytes/4, blockBytes*3/4) }},
	{"CopyWithin, by a detour", func(s *scene) error { return s.driver.CopyWithin(s.a+8, s.a, blockBytes-8) }},
	{"Fill with a byte", func(s *scene) error { return s.driver.Fill(s.a, []byte{1}, blockBytes) }},
	{"Fill with 2 bytes", func(s *scene) error { return s.driver.Fill(s.a, []byte{1, 2}, blockBytes-1) }},
	{"Fill with 4 bytes", func(s *scene) error { return s.driver.Fill(s.a, []byte{1, 2, 3, 4}, blockBytes-1) }},
	{"Fill with 7 bytes", func(s *scene) error { return s.driver.Fill(s.a, []byte{1, 2, 3, 4, 5, 6, 7}, blockBytes) }},
	{"Synchronize", func(s *scene) error { return s.driver.Synchronize() }},
	{"Trim", func(s *scene) error { _, err := s.driver.Trim(); return err }},
	{"Memory", func(s *scene) error { _, err := s.driver.Memory(); return err }},
	{"Join", func(s *scene) error { return s.driver.Join(s.stream, 0) }},
	{"SetStream, a host's", func(s *scene) error { return s.driver.SetStream(s.context, s.stream) }},
	{"SetStream, none", func(s *scene) error { return s.driver.SetStream(0, 0) }},
}

// newScene sets the stage. Work is queued and a free waits, so that every path has something to do.
func newScene(t testing.TB, r *rig) *scene {
	t.Helper()
	s := &scene{rig: r}
	s.memory, _ = soft.Bytes(t, blockBytes)
	s.a, s.b = r.allocate(blockBytes), r.allocate(blockBytes)
	onContext(t, r, func() {
		s.context = r.host.Ask("cuCtxGetCurrent")
		s.stream = r.host.Ask("cuStreamCreate", 1)
		s.blocks = append(s.blocks, gomem.Block{Address: r.host.Ask("cuMemAlloc_v2", 5000), Bytes: 5000, How: gomem.HowCUDA})
	})
	extra := r.allocate(2000)
	s.blocks = append(s.blocks, gomem.Block{Address: r.allocate(3000), Bytes: 3000})
	require.NoError(t, r.driver.Fill(s.a, []byte{5}, blockBytes))
	r.free(extra, 2000)
	return s
}

// clear gives everything back.
func (s *scene) clear() {
	s.t.Helper()
	for _, block := range append(s.blocks, gomem.Block{Address: s.a, Bytes: blockBytes}, gomem.Block{Address: s.b, Bytes: blockBytes}) {
		require.NoError(s.t, s.driver.Free(block))
	}
	require.NoError(s.t, s.driver.SetStream(0, 0))
	onContext(s.t, s.rig, func() { s.host.Must("cuStreamDestroy_v2", s.stream) })
}

// host0 is the rig's other user of the driver (scene.host is memory).
func (r *rig) host0() *soft.Host { return r.host }

// TestContextOfTheCallerIsKept: whatever context the calling thread has, each method leaves it, and the depth of its stack, as they were.
func TestContextOfTheCallerIsKept(t *testing.T) {
	for _, mode := range modes {
		for _, current := range []string{"none", "our device's", "another device's"} {
			for _, operation := range operations {
				t.Run(mode.String()+"/"+current+"/"+operation.name, func(t *testing.T) {
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
					require.NoError(t, operation.run(s))
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
			ours := r.driver.Stream()
			a := r.allocate(blockBytes)
			require.NoError(t, r.driver.Fill(a, []byte{1}, blockBytes))
			onContext(t, r, func() {
				context, stream := r.host.Ask("cuCtxGetCurrent"), r.host.Ask("cuStreamCreate", 1)
				require.NoError(t, r.driver.SetStream(context, stream))
				assert.Equal(t, stream, r.driver.Stream())
				assert.NotEqual(t, ours, stream)
				require.NoError(t, r.software.Set("delay_us", 3000))
				r.host.Must("cuMemsetD8Async", a, 9, blockBytes, stream)
				assert.Equal(t, byte(9), r.read(a, blockBytes)[blockBytes-1], "a copy out comes after what the host has queued")
				b := r.allocate(100)
				r.host.Must("cuMemsetD8Async", b, 3, 100, stream)
				r.free(b, 100)
				r.free(a, blockBytes)
				require.NoError(t, r.driver.SetStream(0, 0))
				r.host.Must("cuStreamDestroy_v2", stream)
			})
			assert.Zero(t, r.driver.Stream(), "the legacy default stream")
		})
	}
}

func TestSetStreamRefusesWhatIsNone(t *testing.T) {
	r := open(t, nil, 0)
	stream := r.driver.Stream()
	for _, wrong := range []struct{ context, stream uint64 }{{0, 0xdead0}, {0xdead0, stream}} {
		var failed *gomem.DriverError
		require.ErrorAs(t, r.driver.SetStream(wrong.context, wrong.stream), &failed)
		assert.Equal(t, stream, r.driver.Stream())
		a := r.allocate(100)
		r.write(a, soft.Noise(100, 1))
		assert.Equal(t, soft.Noise(100, 1), r.read(a, 100), "nothing changed")
		r.free(a, 100)
	}
}

// TestHostsStreamFirst: a host's stream that is set before anything else makes no context and no stream of our own.
func TestHostsStreamFirst(t *testing.T) {
	r := open(t, nil, 0)
	onContext(t, r, func() {
		context, stream := r.host.Ask("cuCtxGetCurrent"), r.host.Ask("cuStreamCreate", 1)
		retained, created := r.software.Calls("cuDevicePrimaryCtxRetain"), r.software.Calls("cuStreamCreate")
		require.NoError(t, r.driver.SetStream(context, stream))
		memory, err := r.driver.Memory()
		require.NoError(t, err)
		assert.Positive(t, memory.Free)
		r.free(r.allocate(100), 100)
		assert.Equal(t, retained, r.software.Calls("cuDevicePrimaryCtxRetain"))
		assert.Equal(t, created, r.software.Calls("cuStreamCreate"))
		require.NoError(t, r.driver.SetStream(0, 0))
		r.host.Must("cuStreamDestroy_v2", stream)
	})
}

// TestJoin: what is queued on one stream is done before what another stream gets afterwards.
func TestJoin(t *testing.T) {
	r := open(t, settings{"delay_us": 5000}, 0)
	a := r.allocate(blockBytes)
	require.NoError(t, r.driver.Synchronize())
	onContext(t, r, func() {
		stream := r.host.Ask("cuStreamCreate", 1)
		for i := range 4 {
			r.host.Must("cuMemsetD8Async", a, uint64(i), blockBytes, stream)
		}
		require.NoError(t, r.driver.Join(stream, 0))
		assert.Equal(t, byte(3), r.read(a, blockBytes)[0], "our copy waits for the host's work")
		for i := range 4 {
			require.NoError(t, r.driver.Fill(a, []byte{byte(10 + i)}, blockBytes))
		}
		require.NoError(t, r.driver.Join(0, stream))
		require.NoError(t, r.driver.Join(stream, stream))
		host, pointer := soft.Bytes(t, blockBytes)
		r.host.Must("cuMemcpyDtoHAsync_v2", uint64(uintptr(pointer)), a, blockBytes, stream)
		r.host.Must("cuStreamSynchronize", stream)
		assert.Equal(t, byte(13), host[0], "the host's copy waits for our work")
		r.host.Must("cuStreamDestroy_v2", stream)
	})
	r.free(a, blockBytes)
}

// TestCapture: while a graph is recorded from the stream nothing is allocated, moved or waited for, the error says so, and the recording
// is not spoiled.
func TestCapture(t *testing.T) {
	for _, mode := range modes {
		for _, operation := range operations {
			t.Run(mode.String()+"/"+operation.name, func(t *testing.T) {
				s := newScene(t, open(t, mode, 0))
				h := s.host
				require.NoError(t, s.driver.SetStream(s.context, s.stream))
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				h.Must("cuCtxPushCurrent_v2", s.context)
				const relaxed, perThread = 2, 2
				h.Must("cuStreamBeginCapture_v2", s.stream, relaxed)
				pending := s.driver.PendingFree()
				err := operation.run(s)
				switch operation.name {
				case "Free", "Free of a host's block":
					require.NoError(t, err)
					assert.Greater(t, s.driver.PendingFree(), pending, "a block that is freed waits for the end of the capture")
				case "Memory":
					require.NoError(t, err)
				case "Join":
					require.NoError(t, err, "of a stream with itself: there is nothing to do")
					err = s.driver.Join(perThread, 0)
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
				require.NoError(t, s.driver.Synchronize())
				assert.Zero(t, s.driver.PendingFree())
				s.clear()
			})
		}
	}
}
