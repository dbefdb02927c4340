package conformance

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// scene is a stage with a host's stream. It is the second device, so that a vendor with a current device per thread has to change it.
type scene struct {
	*rig
	soft.Stage
	stream uint64
}

// driverCalls is every method of the Driver that can call the library, in the variants that take different paths.
var driverCalls = soft.Calls(func(s *scene) *soft.Stage { return &s.Stage },
	soft.Call[*scene]{Name: "Examine of a host's block", Run: func(s *scene) error {
		if examiner, asks := s.Driver.(gomem.Examiner); asks {
			return examiner.Examine(s.Blocks[0])
		}
		return nil
	}},
	soft.Call[*scene]{Name: "Join", Run: func(s *scene) error { return s.Driver.Join(s.stream, 0) }},
	soft.Call[*scene]{Name: "SetStream, a host's", Run: func(s *scene) error { return s.Driver.SetStream(s.host.context(), s.stream) }},
)

// newScene sets the stage, on a device that has dropped a block, which is kept where such are.
func newScene(t testing.TB, f flavour) *scene {
	t.Helper()
	s := &scene{rig: f.rigOn(t, f.open(t, nil), f.ordinal(1))}
	s.Free(s.Allocate(2000), 2000)
	require.NoError(t, s.Driver.Synchronize())
	s.Stage = soft.SetStage(t, s.Driver, func() gomem.Block {
		s.stream = s.host.stream()
		return gomem.Block{Address: s.host.allocate(5000), Bytes: 5000, How: f.plain}
	})
	return s
}

// clear gives everything back.
func (s *scene) clear() {
	s.T.Helper()
	s.Clear(s.T)
	s.host.endStream(s.stream)
}

// TestTheThreadIsLeftAsItWas: whatever the library keeps for the calling thread (a current context or device, an error for the host to ask for),
// each operation leaves it.
func TestTheThreadIsLeftAsItWas(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		for _, call := range driverCalls {
			t.Run(call.Name, onThread(func(t *testing.T) {
				s := newScene(t, f)
				before := s.host.thread()
				require.NoError(t, call.Run(s))
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
	struck := newStruck()
	forEach(t, func(t *testing.T, f flavour) {
		faults := 0
		for call := range driverCalls {
			for _, function := range f.functions(f.open(t, nil)) {
				for _, code := range []int{f.codes.other, f.codes.full, f.codes.refused} {
					if code == f.codes.refused && slices.Contains(f.noBlock, function) {
						continue // see TestFreeOfWhatIsNoBlock
					}
					for nth := 1; f.failOnce(t, call, function, nth, code); nth++ {
						faults++
						struck.note(f, function)
						if t.Failed() {
							t.Fatalf("%s: call %d of %s failed with %#x", driverCalls[call].Name, nth, function, code)
						}
					}
				}
			}
		}
		f.strikeTheRest(t, struck)
		t.Logf("%d faults", faults)
		assert.Greater(t, faults, 200, "the table and the operations are there")
		struck.done(f)
	})
	struck.requireAll(t, func(c callers) []string { return c.notOfTheDriver })
}

// strikeTheRest tries again what no operation called so far and depends on how far the device is: a list is used again where its work is seen to be done,
// which on a busy machine may be late in every operation.
func (f flavour) strikeTheRest(t *testing.T, struck *struck) {
	t.Helper()
	for _, function := range f.functions(f.open(t, nil)) {
		if !slices.Contains(f.history, function) || slices.Contains(f.calls.notOfTheDriver, function) || slices.Contains(f.calls.elsewhere, function) {
			continue
		}
		for try := 0; try < 20 && !struck.functions[f.vendor][function]; try++ {
			for call := range driverCalls {
				if f.failOnce(t, call, function, 1, f.codes.other) {
					struck.note(f, function)
					break
				}
			}
		}
	}
}

// failOnce runs one case; false where the operation makes fewer than nth calls of the function.
func (f flavour) failOnce(t *testing.T, call int, function string, nth, code int) (reached bool) {
	t.Helper()
	ran := t.Run(fmt.Sprintf("%s/%s/%#x/%d", driverCalls[call].Name, function, code, nth), onThread(func(t *testing.T) {
		s := newScene(t, f)
		before := s.host.thread()
		blocks := len(s.Blocks)
		calls := s.Software.Calls(function)
		require.NoError(t, s.Software.Fail(function, nth, code))
		err := driverCalls[call].Run(s)
		reached = s.Software.Calls(function)-calls >= nth
		require.NoError(t, s.Software.Fail(function, 0, 0))
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
			if len(s.Blocks) == blocks { // a free that failed has no block to try again with
				require.NoError(t, driverCalls[call].Run(s), "the next call works")
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
