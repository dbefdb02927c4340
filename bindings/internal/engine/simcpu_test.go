package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/simcpu"
	"github.com/tack-memory/tack-memory/gomem"
)

func TestSimCPUExistsOnlyAfterItWasAskedFor(t *testing.T) {
	reset(t)
	_, err := Open("sim-cpu", 0)
	var unknown *UnknownDeviceError
	require.ErrorAs(t, err, &unknown)
	assert.ErrorContains(t, err, "install(host, simulate=")
	assert.NotContains(t, unknown.Known, "sim-cpu:0")
	assert.Empty(t, describe("sim-cpu"))

	require.NoError(t, SetSimCPU(gomem.Unknown, "fresh"))
	described := describe("sim-cpu")
	require.Len(t, described, 1)
	assert.Equal(t, "sim-cpu:0", described[0].Name)
	assert.True(t, described[0].Usable && described[0].Spills)
	assert.Nil(t, described[0].Total)
	assert.Contains(t, described[0].Notes[0], "never used again")
	index, err := Open("sim-cpu", 0)
	require.NoError(t, err)
	assert.True(t, At(index).Movable())
	_, err = Open("sim-cpu", 1)
	assert.ErrorAs(t, err, &unknown)
}

// TestSimCPUSetUpAnew: a process may simulate one size after the other, each when nothing is left of the one before.
func TestSimCPUSetUpAnew(t *testing.T) {
	reset(t)
	require.NoError(t, SetSimCPU(gomem.Unknown, "fresh"))
	opened, err := Open("sim-cpu", 0)
	require.NoError(t, err)
	device := At(opened)
	buffer, err := device.Allocate(4096, gomem.AllocateOptions{})
	require.NoError(t, err)

	var busy *simcpu.InUseError
	require.ErrorAs(t, SetSimCPU(1000, "reuse"), &busy)
	assert.EqualValues(t, 4096, busy.Bytes)
	_, err = device.Spill(buffer, gomem.Wait{})
	require.NoError(t, err)
	assert.ErrorContains(t, SetSimCPU(1000, "reuse"), "(4 KiB spilled)")
	assert.Equal(t, gomem.Unknown, simCPU.Capacity, "nothing has changed")
	device.LetGo(buffer) // the memory may not be back yet

	require.NoError(t, SetSimCPU(1000, "reuse"))
	assert.EqualValues(t, 1000, *describe("sim-cpu")[0].Total)
	assert.Contains(t, describe("sim-cpu")[0].Notes[0], "reused at once")
	again, err := Open("sim-cpu", 0)
	require.NoError(t, err)
	assert.Equal(t, opened, again)
	var full *gomem.MemoryError
	_, err = device.Allocate(1001, gomem.AllocateOptions{})
	require.ErrorAs(t, err, &full)
	assert.Equal(t, gomem.ReasonTooLarge, full.Reason)

	require.NoError(t, SetSimCPU(100_000, "fresh"))
	buffer, err = device.Allocate(100_000, gomem.AllocateOptions{})
	require.NoError(t, err, "the larger capacity counts, not the one before")
	device.Drop(buffer)
	require.NoError(t, SetSimCPU(gomem.Unknown, "fresh"))
	info, err := device.Info(true)
	require.NoError(t, err)
	assert.Equal(t, gomem.Unknown, info.Driver.Total)

	for _, wrong := range []error{SetSimCPU(0, "fresh"), SetSimCPU(-2, "fresh"), SetSimCPU(1, "Fresh"), SetSimCPU(1, "")} {
		assert.Error(t, wrong)
	}
	assert.Equal(t, simcpu.Settings{Capacity: gomem.Unknown}, *simCPU)
}
