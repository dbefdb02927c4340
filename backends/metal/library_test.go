package metal_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/metal"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/mac"
)

// newest is a macOS with all methods.
const newest = 1405

func open(t *testing.T, m *mac.Machine) *metal.Library {
	library := metal.New(m)
	t.Cleanup(library.Close)
	return library
}

// products are the names of a library's devices, in order.
func products(t *testing.T, l *metal.Library) (names []string) {
	t.Helper()
	n, err := l.Count()
	require.NoError(t, err)
	for ordinal := range n {
		facts, err := l.Facts("metal", ordinal)
		require.NoError(t, err)
		names = append(names, facts.Name)
	}
	return names
}

func TestOrderOfDevices(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m *mac.Machine)
		want   []string
	}{
		"as Metal lists them":            {func(m *mac.Machine) {}, []string{"A", "B", "C"}},
		"the default one first":          {func(m *mac.Machine) { m.Default = m.Listed[2] }, []string{"C", "A", "B"}},
		"no default one":                 {func(m *mac.Machine) { m.Default = nil }, []string{"A", "B", "C"}},
		"the system cannot list them":    {func(m *mac.Machine) { m.NoList = true }, []string{"A"}},
		"the default one is not listed":  {func(m *mac.Machine) { m.Listed = m.Listed[1:] }, []string{"A", "B", "C"}},
		"only the default one is listed": {func(m *mac.Machine) { m.Listed = m.Listed[:1] }, []string{"A"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := mac.New(t, newest)
			var made []*mac.GPU
			for _, product := range []string{"A", "B", "C"} {
				made = append(made, m.NewGPU(product))
			}
			c.change(m)
			l := open(t, m)
			assert.Equal(t, c.want, products(t, l))
			assert.Equal(t, c.want, products(t, l), "and it stays so")
			assert.Equal(t, 1, m.Asked, "asking for the default device may wake a second GPU up")
			l.Close()
			for _, g := range made {
				assert.Equal(t, 1, g.References(), "references to %s: the system's", g.Product)
			}
		})
	}
}

// TestOneDeviceBehindTwoObjects: some macOS wraps the default device, and then only the registry's number tells.
func TestOneDeviceBehindTwoObjects(t *testing.T) {
	m := mac.New(t, newest)
	wrapped, plain, other := m.NewGPU("A"), m.NewGPU("A"), m.NewGPU("A")
	plain.Number = wrapped.Number
	m.Listed = []*mac.GPU{plain, other}
	assert.Len(t, products(t, open(t, m)), 2)

	old := mac.New(t, 1012) // no numbers: two objects are two devices
	old.NewGPU("A")
	old.NewGPU("A")
	assert.Len(t, products(t, open(t, old)), 2)
}

func TestNoDevice(t *testing.T) {
	m := mac.New(t, newest)
	l := open(t, m)
	n, err := l.Count()
	require.NoError(t, err, "no device is not an error")
	assert.Zero(t, n)
	_, err = l.Facts("metal:0", 0)
	assert.EqualError(t, err, "metal:0: Metal shows 0 devices")
	_, err = l.Open("metal:0", 0)
	assert.Error(t, err)

	m.NewGPU("late")
	assert.Equal(t, []string{"late"}, products(t, l), "that there was none is not remembered")
	for _, ordinal := range []int{-1, 1} {
		_, err = l.Open("metal", ordinal)
		assert.ErrorContains(t, err, "shows 1 devices")
	}
}

func TestFacts(t *testing.T) {
	m := mac.New(t, newest)
	g := m.NewGPU("Apple M9 “Größe”")
	facts, err := open(t, m).Facts("metal:0", 0)
	require.NoError(t, err)
	assert.Equal(t, metal.Facts{Name: "Apple M9 “Größe”", RegistryID: g.Number, Total: 1 << 30, MaxBuffer: 1 << 28, Unified: metal.Yes}, facts)

	m = mac.New(t, newest)
	g = m.NewGPU("Radeon")
	g.Unified, g.Recommended, g.Longest = false, 0, 0
	facts, err = open(t, m).Facts("metal:0", 0)
	require.NoError(t, err)
	assert.Equal(t, metal.No, facts.Unified, "a BOOL is one byte of the register")
	assert.Equal(t, gomem.Unknown, facts.Total, "0 is no answer")
	assert.Equal(t, gomem.Unknown, facts.MaxBuffer)
	assert.Empty(t, facts.Missing)
}

// TestOldSystems: each figure is there from the version of macOS on that has its method, and unknown before.
func TestOldSystems(t *testing.T) {
	for _, c := range []struct {
		version int
		missing []string
	}{
		{1011, []string{"registryID", "recommendedMaxWorkingSetSize", "currentAllocatedSize", "maxBufferLength", "hasUnifiedMemory"}},
		{1012, []string{"registryID", "currentAllocatedSize", "maxBufferLength", "hasUnifiedMemory"}},
		{1013, []string{"maxBufferLength", "hasUnifiedMemory"}},
		{1014, []string{"hasUnifiedMemory"}},
		{1015, nil},
	} {
		m := mac.New(t, c.version)
		g := m.NewGPU("GPU")
		l := open(t, m)
		d := openDriver(t, l, 0)
		facts := d.Facts()
		assert.Equal(t, "GPU", facts.Name)
		require.Len(t, facts.Missing, len(c.missing), "macOS %d: %v", c.version, facts.Missing)
		for i, method := range c.missing {
			assert.Contains(t, facts.Missing[i], method)
			assert.Contains(t, facts.Missing[i], mac.VersionText(mac.Introduced[method]), "it says which macOS has it")
		}
		since := func(method string, value int64) int64 {
			if c.version < mac.Introduced[method] {
				return gomem.Unknown
			}
			return value
		}
		address := allocate(t, d, 5000)
		memory, err := d.Memory()
		require.NoError(t, err)
		assert.Equal(t, gomem.DriverMemory{Free: gomem.Unknown, Total: since("recommendedMaxWorkingSetSize", 1<<30),
			Allocated: since("currentAllocatedSize", 5000), LargestFree: gomem.Unknown}, memory, "macOS %d", c.version)
		assert.Equal(t, since("maxBufferLength", 1<<28), facts.MaxBuffer)
		assert.Equal(t, c.version >= mac.Introduced["hasUnifiedMemory"], facts.Unified != metal.Untold)
		assert.Equal(t, c.version >= mac.Introduced["registryID"], facts.RegistryID == g.Number)
		require.NoError(t, d.Free(gomem.Block{Address: address, Bytes: 5000}))
	}
}

func TestWhatTheLibraryIs(t *testing.T) {
	m := mac.New(t, newest)
	m.Lacks = []string{"CoreGraphics"}
	l := open(t, m)
	assert.Equal(t, "/System/Metal", l.Path())
	assert.Equal(t, "14.5", l.VersionText())
	assert.Equal(t, m.Lacks, l.Missing())
	assert.Zero(t, m.Asked, "no device is asked for before one is wanted")
}

func TestDriversOutliveTheLibrary(t *testing.T) {
	m := mac.New(t, newest)
	g := m.NewGPU("GPU")
	l := metal.New(m)
	d, err := l.Open("metal:0", 0)
	require.NoError(t, err)
	l.Close()
	assert.Equal(t, 2, g.References(), "the system's reference and the driver's")
	_, err = d.Memory()
	require.NoError(t, err)
	assert.Equal(t, []string{"GPU"}, products(t, l), "a closed library can be used again")
	l.Close()
	require.NoError(t, d.Close())
}
