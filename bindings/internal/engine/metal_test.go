package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/metal"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/mac"
)

// onMac makes the engine as it is in a new process on a Mac.
func onMac(t *testing.T, version int) *mac.Machine {
	t.Helper()
	machine := mac.New(t, version)
	library := metal.New(machine)
	t.Cleanup(library.Close)
	reset(t) // its clean-up, which closes the devices, comes before the library's
	*metalKind = *newMetalKind(func() (*metal.Library, error) { return library, nil })
	return machine
}

// described is what reports say of Metal, by name.
func described() map[string]Description {
	found := map[string]Description{}
	for _, d := range Describe() {
		if d.Kind == "metal" {
			found[d.Name] = d
		}
	}
	return found
}

func TestMetalElsewhere(t *testing.T) {
	reset(t)
	assert.Equal(t, map[string]Description{"metal": {Name: "metal", Kind: "metal", Why: "macOS only", Notes: []string{}}}, described())
	_, err := Open("metal", 0)
	var unknown *UnknownDeviceError
	require.ErrorAs(t, err, &unknown)
	assert.Equal(t, "macOS only", unknown.Why)
}

func TestMetalDevices(t *testing.T) {
	machine := onMac(t, 1405)
	first, second := machine.NewGPU("Apple M9"), machine.NewGPU("Radeon")
	second.Unified, second.Recommended = false, 0
	found := described()
	require.Len(t, found, 2)
	d := found["metal:0"]
	require.NotNil(t, d.Total)
	assert.EqualValues(t, first.Recommended, *d.Total)
	d.Total = nil
	assert.Equal(t, Description{Name: "metal:0", Kind: "metal", Usable: true, Library: "/System/Metal", Version: "macOS 14.5", Product: "Apple M9", Notes: []string{
		"unified memory: the device and the host use the same",
		"the total is what macOS recommends this process to use on the device; how much is free it does not tell",
		"one buffer has at most 268435456 bytes",
		"registry ID 0x100000400",
	}}, d)
	d = found["metal:1"]
	assert.Equal(t, 1, d.Ordinal)
	assert.Nil(t, d.Total, "unknown, and not 0")
	assert.Contains(t, d.Notes[0], "memory of its own")
}

func TestMetalOnOldSystems(t *testing.T) {
	machine := onMac(t, 1011)
	machine.NewGPU("Radeon")
	machine.Lacks = []string{"devices beside the default one"}
	d := described()["metal:0"]
	assert.True(t, d.Usable)
	assert.Nil(t, d.Total)
	assert.Len(t, d.Notes, 6)
	for _, note := range d.Notes {
		assert.Regexp(t, "^missing: ", note)
	}
	assert.Contains(t, d.Notes[0], "beside the default one")
}

func TestMetalWithoutDevices(t *testing.T) {
	onMac(t, 1405)
	d := described()["metal"]
	assert.False(t, d.Usable)
	assert.Equal(t, "the library reports no device", d.Why)
	assert.Equal(t, "/System/Metal", d.Library)
}

// TestMetalIsCounted opens a device and uses it as the bindings do.
func TestMetalIsCounted(t *testing.T) {
	machine := onMac(t, 1405)
	machine.NewGPU("Apple M9")
	index, err := Open("metal", 0)
	require.NoError(t, err)
	device := At(index)
	assert.False(t, device.Movable())
	buffer, err := device.Allocate(4096, gomem.AllocateOptions{Zero: true})
	require.NoError(t, err)
	require.NoError(t, SetHostCache(index, 12345))
	info, err := device.Info(true)
	require.NoError(t, err)
	assert.EqualValues(t, 4096, info.InUse)
	assert.Equal(t, gomem.DriverMemory{Free: gomem.Unknown, Total: 1 << 30, Cached: 12345, Allocated: 4096, LargestFree: gomem.Unknown}, info.Driver)

	address := device.Record(buffer).Address
	object, err := MetalBuffer(index, address)
	require.NoError(t, err)
	assert.EqualValues(t, address, machine.Send(metal.Object(object), machine.Selector("contents")))
	_, err = MetalBuffer(index, address+1)
	var none *metal.NotABufferError
	assert.ErrorAs(t, err, &none)
	assert.Error(t, SetHostCache(index, -5))

	processor, err := Open("cpu", 0)
	require.NoError(t, err)
	assert.ErrorContains(t, SetHostCache(processor, 1), "cpu takes no figure")
	_, err = MetalBuffer(processor, address)
	assert.ErrorContains(t, err, "cpu is no Metal device")
	device.Drop(buffer)
}
