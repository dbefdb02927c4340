package conformance

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/cpu"
	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/metal"
	"github.com/tack-memory/tack-memory/backends/softdriver"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/mac"
)

var cpuVendor = vendor{counted: func(testing.TB) library { return cpuLibrary{} }}

// metalVendor is over a stand-in for a Mac, a new one for each test.
var metalVendor = vendor{counted: func(t testing.TB) library {
	const newest = 1405 // a macOS with all methods
	machine := mac.New(t, newest)
	for _, product := range []string{"A", "B"} {
		machine.NewGPU(product)
	}
	found := metal.New(machine)
	t.Cleanup(found.Close)
	return metalLibrary{Library: found}
}}

// noLibrary is the answers of backends that have no vendor's library with a table of functions.
type noLibrary struct{}

func (noLibrary) Software() *softdriver.Control { return nil }
func (noLibrary) Missing() []dl.Symbol          { return nil }
func (noLibrary) UUID(int) (string, error)      { return "", nil }

type cpuLibrary struct{ noLibrary }

func (cpuLibrary) Path() string                                        { return "" }
func (cpuLibrary) Count() (int, error)                                 { return 1, nil }
func (cpuLibrary) OpenDriver(name string, _ int) (gomem.Driver, error) { return cpu.Open(name), nil }

type metalLibrary struct {
	noLibrary
	*metal.Library
}

func (l metalLibrary) Missing() []dl.Symbol { return l.noLibrary.Missing() }

func (l metalLibrary) OpenDriver(name string, ordinal int) (gomem.Driver, error) {
	return l.Open(name, ordinal)
}

// TestCountedOnly: where memory lies already where spilling would put it, a budget is passed and counted, and nothing moves.
func TestCountedOnly(t *testing.T) {
	forEachCounted(t, func(t *testing.T, f flavour) {
		c := newCore(t, f, nil)
		const n = 1 << 20
		_, _, err := c.device.SetBudget(n/2, false, gomem.Wait{})
		require.NoError(t, err)
		first, second := c.buffer(n, 1), c.buffer(n, 2)
		address := c.device.Record(first).Address
		freed, err := c.device.Spill(first, gomem.Wait{})
		require.NoError(t, err)
		assert.Zero(t, freed)
		freed, err = c.device.SpillAll(gomem.Wait{})
		require.NoError(t, err)
		assert.Zero(t, freed)
		info := c.info()
		assert.EqualValues(t, 2*n, info.InUse)
		assert.Zero(t, info.Spilled)
		assert.Zero(t, info.SpillCount)
		assert.Positive(t, info.OverBudgetCount)
		assert.Equal(t, address, c.device.Record(first).Address)
		c.requireContents(first, n, 1)
		c.requireContents(second, n, 2)
		c.end(first, second)
	})
}
