package levelzero_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/levelzero"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// The codes that calls are made to fail with: one that means nothing to the core, a full device, an argument that is refused.
var faultCodes = []int{unknown, outOfDeviceMemory, invalidArgument}

// faultModes are those that call different functions.
var faultModes = []settings{{}, {"free_policies": 0, "sysman": 0}, {"api_version": version(6), "sysman": 0, "usablemem": 0}}

// scene is a stage with a host's context and lists.
type scene struct {
	*rig
	soft.Stage
	context uint64
	list    uint64
	other   uint64 // another list of the host
}

// operations is every method of the Driver that can call the driver, in the variants that take different paths.
var operations = soft.Calls(func(s *scene) *soft.Stage { return &s.Stage },
	soft.Call[*scene]{Name: "Room", Run: func(s *scene) error { _, err := s.Driver.Room(1000, 1000); return err }},
	soft.Call[*scene]{Name: "Fill with 4 bytes, unaligned", Run: func(s *scene) error { return s.Driver.Fill(s.A+1, []byte{1, 2, 3, 4}, soft.BlockBytes-1) }},
	soft.Call[*scene]{Name: "Join", Run: func(s *scene) error { return s.Driver.Join(s.other, 0) }},
	soft.Call[*scene]{Name: "Join, ours", Run: func(s *scene) error { return s.Driver.Join(0, s.other) }},
	soft.Call[*scene]{Name: "SetStream, a host's", Run: func(s *scene) error { return s.Driver.SetStream(s.context, s.list) }},
	soft.Call[*scene]{Name: "SetStream, the context", Run: func(s *scene) error { return s.Driver.SetStream(s.context, 0) }},
)

// newScene sets the stage. bound: a host's list is set.
func newScene(t testing.TB, r *rig, bound bool) *scene {
	t.Helper()
	s := &scene{rig: r}
	s.context = r.host.context()
	inOrder := r.Driver.Facts().InOrder
	s.list, s.other = r.host.list(s.context, inOrder), r.host.list(s.context, inOrder)
	if bound {
		require.NoError(t, r.Driver.SetStream(s.context, s.list))
	} else {
		require.NoError(t, r.Driver.SetStream(s.context, 0))
	}
	s.Stage = soft.SetStage(t, r.Driver, func() gomem.Block {
		return gomem.Block{Address: r.host.memory(s.context, 5000), Bytes: 5000, How: gomem.HowLevelZero}
	})
	return s
}

// clear gives everything back.
func (s *scene) clear() {
	s.T.Helper()
	s.Clear(s.T)
	s.host.Must("zeCommandListDestroy", s.list)
	s.host.Must("zeCommandListDestroy", s.other)
	s.host.Must("zeContextDestroy", s.context)
}

// functions is the names of the symbol table.
func functions() []string {
	var names []string
	for _, symbol := range levelzero.Symbols {
		names = append(names, symbol.Name)
	}
	return names
}

// TestEveryCallFailsOnce makes each call of each function of the vendor that an operation makes fail once: for every operation, every
// function of the symbol table, and every n up to the number of its calls in a run without a fault. Afterwards: the error is typed and names
// the call, the same operation works, and all memory comes back.
func TestEveryCallFailsOnce(t *testing.T) {
	faults := 0
	for _, mode := range faultModes {
		for _, bound := range []bool{false, true} {
			for _, operation := range operations {
				for function, calls := range trace(t, mode, bound, operation) {
					for _, code := range faultCodes {
						if code == invalidArgument && (function == "zeMemFree" || function == "zeMemFreeExt") {
							continue // it means: no block of ours. Nobody would try again; see TestFreeOfWhatIsNoBlock
						}
						for nth := 1; nth <= calls; nth++ {
							failOnce(t, mode, bound, operation, function, nth, code)
							faults++
							if t.Failed() {
								t.Fatalf("%v, bound=%v, %s: call %d of %s failed with %#x", mode, bound, operation.Name, nth, function, code)
							}
						}
					}
				}
			}
		}
	}
	t.Logf("%d faults", faults)
	assert.Greater(t, faults, 1000, "the table and the operations are there")
}

// trace counts the calls that an operation makes.
func trace(t *testing.T, mode settings, bound bool, operation soft.Call[*scene]) map[string]int {
	t.Helper()
	calls := map[string]int{}
	t.Run(fmt.Sprintf("%v/bound=%v/%s", mode, bound, operation.Name), func(t *testing.T) {
		s := newScene(t, open(t, mode, 0), bound)
		for _, function := range functions() {
			calls[function] = -s.Software.Calls(function)
		}
		require.NoError(t, operation.Run(s))
		for _, function := range functions() {
			calls[function] += s.Software.Calls(function)
		}
		s.clear()
	})
	return calls
}

func failOnce(t *testing.T, mode settings, bound bool, operation soft.Call[*scene], function string, nth, code int) {
	t.Helper()
	t.Run(fmt.Sprintf("%v/bound=%v/%s/%s/%#x/%d", mode, bound, operation.Name, function, code, nth), func(t *testing.T) {
		s := newScene(t, open(t, mode, 0), bound)
		blocks := len(s.Blocks)
		require.NoError(t, s.Software.Fail(function, nth, code))
		err := operation.Run(s)
		require.NoError(t, s.Software.Fail(function, 0, 0))
		if err != nil {
			var failed *gomem.DriverError
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, function, failed.Call)
			assert.Equal(t, code, failed.Code)
			assert.Equal(t, "sim:0", failed.Device)
			assert.Equal(t, code == outOfDeviceMemory, errors.Is(err, gomem.ErrOutOfMemory))
			if len(s.Blocks) == blocks { // a free that failed has no block to try again with
				require.NoError(t, operation.Run(s), "the next call works")
			}
		}
		s.clear()
	})
}

// TestOpeningFailsOnce does the same for the calls that find and open a device.
func TestOpeningFailsOnce(t *testing.T) {
	_, software := library(t)
	for _, mode := range faultModes {
		for _, function := range functions() {
			for nth := 1; ; nth++ {
				software.Reset()
				for key, value := range mode {
					require.NoError(t, software.Set(key, value))
				}
				library, _ := library(t)
				require.NoError(t, software.Fail(function, nth, unknown))
				driver, err := library.Open("sim:0", 0)
				if software.Calls(function) < nth {
					require.NoError(t, err)
					break
				}
				if err == nil { // the figure of free memory had another source
					require.True(t, driver.Facts().Free == levelzero.SourceUsableSize || driver.Facts().Free == levelzero.SourceNone, function)
					require.NoError(t, driver.Close())
					continue
				}
				var failed *gomem.DriverError
				require.ErrorAs(t, err, &failed)
				assert.Equal(t, function, failed.Call)
				driver, err = library.Open("sim:0", 0)
				require.NoError(t, err)
				require.NoError(t, driver.Close())
			}
		}
	}
	software.Reset()
}

// made and gone are functions that make and destroy what a device needs.
var made, gone = []string{"zeContextCreate", "zeCommandListCreateImmediate", "zeCommandQueueCreate", "zeCommandListCreate", "zeFenceCreate", "zeEventPoolCreate", "zeEventCreate"},
	[]string{"zeContextDestroy", "zeCommandListDestroy", "zeCommandQueueDestroy", "zeFenceDestroy", "zeEventPoolDestroy", "zeEventDestroy"}

// requireBalance sees that what was made is gone. failed is a function whose failed calls count for nothing.
func requireBalance(t *testing.T, calls func(string) int, failed string, failures int) {
	t.Helper()
	balance := 0
	for _, name := range made {
		balance += calls(name)
	}
	for _, name := range gone {
		balance -= calls(name)
	}
	switch {
	case slices.Contains(made, failed):
		balance -= failures
	case slices.Contains(gone, failed):
		balance += failures
	}
	require.Zero(t, balance, "made and not destroyed, after %s had failed", failed)
}

// TestStartingFailsOnce: the first allocation makes the context and the stream; wherever that fails, the next one goes on and nothing is
// made twice.
func TestStartingFailsOnce(t *testing.T) {
	reached := 0
	for _, mode := range faultModes {
		for _, function := range functions() {
			for nth := 1; ; nth++ {
				library, software := library(t)
				software.Reset()
				for key, value := range mode {
					require.NoError(t, software.Set(key, value))
				}
				driver, err := library.Open("sim:0", 0)
				require.NoError(t, err)
				calls := software.Calls(function)
				require.NoError(t, software.Fail(function, nth, unknown))
				address, err := driver.Allocate(100)
				failures := 0
				if err != nil {
					reached++
					failures++
					var failed *gomem.DriverError
					require.ErrorAs(t, err, &failed)
					assert.Equal(t, function, failed.Call)
					address, err = driver.Allocate(100)
					require.NoError(t, err, "after %s had failed", function)
				}
				done := software.Calls(function)-calls < nth
				require.NoError(t, software.Fail(function, 0, 0))
				require.NoError(t, driver.Free(gomem.Block{Address: address, Bytes: 100}))
				require.NoError(t, driver.Close(), "after %s had failed", function)
				requireBalance(t, software.Calls, function, failures)
				live, err := software.Get("live.0")
				require.NoError(t, err)
				assert.Zero(t, live)
				if done {
					break
				}
			}
		}
	}
	assert.Greater(t, reached, 8)
}

// TestClosingFailsOnce: Close can be called again, and goes on where it failed.
func TestClosingFailsOnce(t *testing.T) {
	reached := 0
	for _, mode := range faultModes {
		for _, bound := range []bool{false, true} {
			for _, function := range functions() {
				for nth := 1; ; nth++ {
					library, software := library(t)
					software.Reset()
					for key, value := range mode {
						require.NoError(t, software.Set(key, value))
					}
					driver, err := library.Open("sim:0", 0)
					require.NoError(t, err)
					r := newRig(t, driver, software, 0)
					for range 3 {
						r.Free(r.Allocate(100), 100)
					}
					context, list := uint64(0), uint64(0)
					if bound {
						context = r.host.context()
						list = r.host.list(context, driver.Facts().InOrder)
						require.NoError(t, driver.SetStream(context, list))
						r.Free(r.Allocate(100), 100)
					}
					calls := software.Calls(function)
					require.NoError(t, software.Fail(function, nth, unknown))
					err = driver.Close()
					done := software.Calls(function)-calls < nth
					require.NoError(t, software.Fail(function, 0, 0))
					failures := 0
					if err != nil {
						reached++
						failures++
						_, refused := driver.Allocate(1)
						assert.ErrorIs(t, refused, levelzero.ErrClosed)
						require.NoError(t, driver.Close(), "after %s had failed", function)
					} else if !done {
						failures++ // it tried again by itself
					}
					if bound {
						r.host.Must("zeCommandListDestroy", list)
						r.host.Must("zeContextDestroy", context)
					}
					requireBalance(t, software.Calls, function, failures)
					r.requireLive(0)
					if done {
						break
					}
				}
			}
		}
	}
	assert.Greater(t, reached, 20)
}
