package cuda_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/cuda"
	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// The codes that calls are made to fail with: one that means nothing to the core, a full device, an argument that is refused.
var faultCodes = []int{999, 2, 1}

// present is the functions of the symbol table that the software driver has.
func present(t *testing.T) []dl.Symbol {
	t.Helper()
	library, _ := library(t)
	return slices.DeleteFunc(slices.Clone(cuda.Symbols), func(s dl.Symbol) bool { return slices.Contains(library.Missing(), s) })
}

// TestEveryCallFailsOnce makes each call of each function of the vendor that an operation makes fail once: for every operation, every
// function of the symbol table, and every n for which the operation calls that function n times. Afterwards: the error is typed and names
// the call, the calling thread's context is as it was, the same operation works, and all memory comes back.
func TestEveryCallFailsOnce(t *testing.T) {
	faults := 0
	for _, mode := range []settings{{"pools": 1}, {"pools": 0}, {"pools": 1, wantsContext: 1}} {
		for _, operation := range operations {
			for _, symbol := range present(t) {
				for _, code := range faultCodes {
					if code == 1 && (symbol.Name == "cuMemFree_v2" || symbol.Name == "cuMemFreeAsync") {
						continue // it means: no block of ours. Nobody would try again; see TestFreeOfWhatIsNoBlock
					}
					for nth := 1; failOnce(t, mode, operation, symbol.Name, nth, code); nth++ {
						faults++
						if t.Failed() {
							t.Fatalf("pools=%d, %s: call %d of %s failed with %d", mode["pools"], operation.Name, nth, symbol.Name, code)
						}
					}
				}
			}
		}
	}
	t.Logf("%d faults", faults)
	assert.Greater(t, faults, 500, "the table and the operations are there")
}

// failOnce runs one case; false where the operation makes fewer than nth calls of the function.
func failOnce(t *testing.T, mode settings, operation soft.Call[*scene], function string, nth, code int) (reached bool) {
	t.Helper()
	ran := t.Run(fmt.Sprintf("pools=%d,context=%d/%s/%s/%d/%d", mode["pools"], mode[wantsContext], operation.Name, function, code, nth), func(t *testing.T) {
		s := newScene(t, open(t, mode, 0))
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		before := s.host.Ask("cuCtxGetCurrent")
		blocks := len(s.Blocks)
		calls := s.Software.Calls(function)
		require.NoError(t, s.Software.Fail(function, nth, code))
		err := operation.Run(s)
		reached = s.Software.Calls(function)-calls >= nth
		require.NoError(t, s.Software.Fail(function, 0, 0))
		assert.Equal(t, before, s.host.Ask("cuCtxGetCurrent"))
		if err != nil {
			require.True(t, reached)
			var failed *gomem.DriverError
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, function, failed.Call)
			assert.Equal(t, code, failed.Code)
			assert.Equal(t, "sim:0", failed.Device)
			assert.Equal(t, code == 2, errors.Is(err, gomem.ErrOutOfMemory))
			if len(s.Blocks) == blocks { // a free that failed has no block to try again with
				require.NoError(t, operation.Run(s), "the next call works")
			}
		}
		s.clear()
	})
	return ran && reached
}

// TestOpeningFailsOnce does the same for the calls that open a device.
func TestOpeningFailsOnce(t *testing.T) {
	library, software := library(t)
	for _, symbol := range present(t) {
		for nth := 1; ; nth++ {
			software.Reset()
			require.NoError(t, software.Fail(symbol.Name, nth, 999))
			driver, err := library.Open("sim:0", 0)
			if software.Calls(symbol.Name) < nth {
				require.NoError(t, err)
				break
			}
			if strings.HasPrefix(symbol.Name, "cuDeviceGetUuid") {
				require.NoError(t, err, "see TestUUID")
				require.NoError(t, driver.Close())
				continue
			}
			var failed *gomem.DriverError
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, symbol.Name, failed.Call)
			driver, err = library.Open("sim:0", 0)
			require.NoError(t, err)
			require.NoError(t, driver.Close())
		}
	}
	software.Reset()
}

// TestStartingFailsOnce: the first allocation takes the context and makes the stream and the pool; wherever that fails, the next one goes on
// and nothing is made twice.
func TestStartingFailsOnce(t *testing.T) {
	library, software := library(t)
	reached := 0
	for _, pools := range []int64{0, 1} {
		for _, symbol := range present(t) {
			for nth := 1; ; nth++ {
				software.Reset()
				require.NoError(t, software.Set("pools", pools))
				driver, err := library.Open("sim:0", 0)
				require.NoError(t, err)
				calls := software.Calls(symbol.Name)
				require.NoError(t, software.Fail(symbol.Name, nth, 999))
				address, err := driver.Allocate(100)
				if err != nil {
					reached++
					var failed *gomem.DriverError
					require.ErrorAs(t, err, &failed)
					assert.Equal(t, symbol.Name, failed.Call)
					address, err = driver.Allocate(100)
					require.NoError(t, err, "after %s had failed", symbol.Name)
				}
				done := software.Calls(symbol.Name)-calls < nth
				require.NoError(t, software.Fail(symbol.Name, 0, 0))
				require.NoError(t, driver.Free(gomem.Block{Address: address, Bytes: 100}))
				require.NoError(t, driver.Close(), "after %s had failed", symbol.Name)
				created, retained := software.Calls("cuStreamCreate"), software.Calls("cuDevicePrimaryCtxRetain")
				if symbol.Name != "cuStreamCreate" && symbol.Name != "cuDevicePrimaryCtxRetain" {
					assert.Equal(t, 1, created)
					assert.Equal(t, 1, retained)
				}
				live, err := software.Get("live.0")
				require.NoError(t, err)
				assert.Zero(t, live)
				if done {
					break
				}
			}
		}
	}
	assert.Greater(t, reached, 10)
	software.Reset()
}

// TestClosingFailsOnce: Close can be called again, and goes on where it failed.
func TestClosingFailsOnce(t *testing.T) {
	library, software := library(t)
	reached := 0
	for _, pools := range []int64{0, 1} {
		for _, symbol := range present(t) {
			for nth := 1; ; nth++ {
				software.Reset()
				require.NoError(t, software.Set("pools", pools))
				driver, err := library.Open("sim:0", 0)
				require.NoError(t, err)
				address, err := driver.Allocate(100)
				require.NoError(t, err)
				require.NoError(t, driver.Free(gomem.Block{Address: address, Bytes: 100}))
				calls := software.Calls(symbol.Name)
				require.NoError(t, software.Fail(symbol.Name, nth, 999))
				err = driver.Close()
				done := software.Calls(symbol.Name)-calls < nth
				require.NoError(t, software.Fail(symbol.Name, 0, 0))
				if err != nil {
					reached++
					require.NoError(t, driver.Close(), "after %s had failed", symbol.Name)
				}
				assert.Equal(t, 1, software.Calls("cuDevicePrimaryCtxRelease_v2")-failures(symbol.Name, "cuDevicePrimaryCtxRelease_v2", err))
				assert.Equal(t, 1, software.Calls("cuStreamDestroy_v2")-failures(symbol.Name, "cuStreamDestroy_v2", err))
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
	software.Reset()
}

func failures(failing, function string, err error) int {
	if failing == function && err != nil {
		return 1
	}
	return 0
}
