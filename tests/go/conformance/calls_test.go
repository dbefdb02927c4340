package conformance

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// scene is a device with two blocks of blockBytes, a host's block and stream, and host memory. It is the second device, so that a vendor with
// a current device per thread has to change it.
type scene struct {
	*rig
	a, b   uint64
	memory unsafe.Pointer
	blocks []gomem.Block // what the operation under test has made, and the scene's own; the host's is the first
	stream uint64
}

const blockBytes = 64 << 10

// driverCalls is every method of the Driver that can call the library, in the variants that take different paths.
var driverCalls = []struct {
	name string
	run  func(s *scene) error
}{
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
	{"Examine of a host's block", func(s *scene) error {
		if examiner, asks := s.driver.(gomem.Examiner); asks {
			return examiner.Examine(s.blocks[0])
		}
		return nil
	}},
	{"CopyOut", func(s *scene) error { return s.driver.CopyOut(s.memory, s.a, blockBytes) }},
	{"CopyIn", func(s *scene) error { return s.driver.CopyIn(s.a, s.memory, blockBytes) }},
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
	{"SetStream, a host's", func(s *scene) error { return s.driver.SetStream(s.host.context(), s.stream) }},
	{"SetStream, none", func(s *scene) error { return s.driver.SetStream(0, 0) }},
}

// newScene sets the stage. Work is queued and a free waits, so that every path has something to do.
func newScene(t testing.TB, f flavour) *scene {
	t.Helper()
	s := &scene{rig: f.rigOn(t, f.open(t, nil), f.ordinal(1))}
	_, s.memory = soft.Bytes(t, blockBytes)
	kept := s.allocate(2000) // a block that was dropped, and is kept where such are
	s.free(kept, 2000)
	require.NoError(t, s.driver.Synchronize())
	s.a, s.b = s.allocate(blockBytes), s.allocate(blockBytes)
	s.stream = s.host.stream()
	s.blocks = append(s.blocks, gomem.Block{Address: s.host.allocate(5000), Bytes: 5000, How: f.plain})
	extra := s.allocate(4000)
	s.blocks = append(s.blocks, gomem.Block{Address: s.allocate(3000), Bytes: 3000})
	require.NoError(t, s.driver.Fill(s.a, []byte{5}, blockBytes))
	s.free(extra, 4000)
	return s
}

// clear gives everything back.
func (s *scene) clear() {
	s.t.Helper()
	for _, block := range append(s.blocks, gomem.Block{Address: s.a, Bytes: blockBytes}, gomem.Block{Address: s.b, Bytes: blockBytes}) {
		require.NoError(s.t, s.driver.Free(block))
	}
	require.NoError(s.t, s.driver.SetStream(0, 0))
	s.host.endStream(s.stream)
}

// TestTheThreadIsLeftAsItWas: whatever the library keeps for the calling thread (a current context or device, an error for the host to ask for),
// each operation leaves it.
func TestTheThreadIsLeftAsItWas(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		for _, call := range driverCalls {
			t.Run(call.name, onThread(func(t *testing.T) {
				s := newScene(t, f)
				before := s.host.thread()
				require.NoError(t, call.run(s))
				assert.Equal(t, before, s.host.thread())
				s.clear()
			}))
		}
	})
}

// TestEveryCallFailsOnce makes each call of each function of the vendor that an operation makes fail once: for every operation, every
// function of the symbol table, and every n for which the operation calls that function n times. Afterwards: the error is typed and names
// the call, the calling thread is as it was, the same operation works, and all memory comes back.
func TestEveryCallFailsOnce(t *testing.T) {
	forEachWhole(t, func(t *testing.T, f flavour) {
		faults := 0
		for call := range driverCalls {
			for _, function := range f.functions(f.open(t, nil)) {
				for _, code := range []int{f.codes.other, f.codes.full, f.codes.refused} {
					if code == f.codes.refused && slices.Contains(f.noBlock, function) {
						continue // see TestFreeOfWhatIsNoBlock
					}
					for nth := 1; f.failOnce(t, call, function, nth, code); nth++ {
						faults++
						if t.Failed() {
							t.Fatalf("%s: call %d of %s failed with %#x", driverCalls[call].name, nth, function, code)
						}
					}
				}
			}
		}
		t.Logf("%d faults", faults)
		assert.Greater(t, faults, 200, "the table and the operations are there")
	})
}

// failOnce runs one case; false where the operation makes fewer than nth calls of the function.
func (f flavour) failOnce(t *testing.T, call int, function string, nth, code int) (reached bool) {
	t.Helper()
	ran := t.Run(fmt.Sprintf("%s/%s/%#x/%d", driverCalls[call].name, function, code, nth), onThread(func(t *testing.T) {
		s := newScene(t, f)
		before := s.host.thread()
		blocks := len(s.blocks)
		calls := s.software.Calls(function)
		require.NoError(t, s.software.Fail(function, nth, code))
		err := driverCalls[call].run(s)
		reached = s.software.Calls(function)-calls >= nth
		require.NoError(t, s.software.Fail(function, 0, 0))
		assert.Equal(t, before, s.host.thread())
		if code == f.codes.refused && saysNoBlock(err) {
			require.True(t, reached) // the code is an answer: nothing is there
		} else if err != nil {
			require.True(t, reached)
			var failed *gomem.DriverError
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, function, failed.Call)
			assert.Equal(t, code, failed.Code)
			assert.Equal(t, "sim:1", failed.Device)
			assert.Equal(t, code == f.codes.full, errors.Is(err, gomem.ErrOutOfMemory))
			if len(s.blocks) == blocks { // a free that failed has no block to try again with
				require.NoError(t, driverCalls[call].run(s), "the next call works")
			}
		}
		s.clear()
	}))
	return ran && reached
}

// saysNoBlock reports an error of Examine about the block, and not about a call.
func saysNoBlock(err error) bool {
	var none *gomem.BlockError
	return errors.As(err, &none) || errors.Is(err, gomem.ErrInvalidHandle)
}

// TestOpeningFailsOnce does the same for the calls that open a device.
func TestOpeningFailsOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		f.failsOnce(t, func(l library) error {
			driver, err := l.OpenDriver("sim:1", 1)
			if err != nil {
				return err
			}
			if err = driver.Close(); err != nil {
				require.NoError(t, driver.Close(), "closing goes on where it failed")
			}
			return err
		})
	})
}

// TestFirstUseAndEndFailOnce: the first allocation makes what a device needs, and Close gives it back; wherever that fails, the next call goes on, and
// nothing is made twice or left behind.
func TestFirstUseAndEndFailOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		var driver gomem.Driver
		closing := false
		failed := f.failsOnce(t, func(l library) (err error) {
			if driver == nil {
				if driver, err = l.OpenDriver("sim:1", 1); err != nil {
					driver = nil
					return err
				}
			}
			if !closing {
				address, err := driver.Allocate(100)
				if err == nil {
					err = errors.Join(driver.Free(gomem.Block{Address: address, Bytes: 100}), driver.Synchronize())
				}
				if err != nil {
					return err
				}
			}
			closing = true
			if err := driver.Close(); err != nil {
				return err
			}
			driver, closing = nil, false
			return nil
		})
		assert.Greater(t, failed, 10)
	})
}

// failsOnce runs something once for each call that it makes, with that call failing, until it works again.
func (f flavour) failsOnce(t *testing.T, run func(l library) error) (failed int) {
	t.Helper()
	for _, function := range f.functions(f.open(t, nil)) {
		for nth := 1; ; nth++ {
			l := f.open(t, nil)
			calls := l.Software().Calls(function)
			require.NoError(t, l.Software().Fail(function, nth, f.codes.other))
			err := run(l)
			if err != nil {
				failed++
				var e *gomem.DriverError
				require.ErrorAs(t, err, &e)
				assert.Equal(t, function, e.Call)
				require.NoError(t, run(l), "after call %d of %s had failed", nth, function)
			}
			reached := l.Software().Calls(function)-calls >= nth
			for _, figure := range []string{"live.1", "reserved.1"} {
				left, err := l.Software().Get(figure)
				require.NoError(t, err)
				assert.Zero(t, left, "%s after call %d of %s had failed", figure, nth, function)
			}
			if !reached {
				break
			}
		}
	}
	l := f.open(t, nil)
	l.Software().Reset()
	return failed
}
