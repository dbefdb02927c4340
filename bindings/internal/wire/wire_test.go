package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/ordered"
	"github.com/tack-memory/tack-memory/bindings/internal/engine"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

func TestEveryErrorHasItsKind(t *testing.T) {
	driver := &gomem.DriverError{Device: "sim:0", Call: "cuMemFree_v2", Code: 700, Kind: gomem.ErrLost}
	for _, c := range []struct {
		err  error
		kind Kind
	}{
		{gomem.ErrCollect, Collect},
		{gomem.ErrRelieve, Relieve},
		{gomem.ErrCancelled, Cancelled},
		{&gomem.LostError{Device: "sim:0", Cause: driver}, Lost},
		{driver, Lost},
		{&gomem.BrokenError{Device: "sim:0"}, Lost},
		{&gomem.MemoryError{Reason: "device", Cause: &gomem.DriverError{Kind: gomem.ErrOutOfMemory}}, Memory},
		{&gomem.HostMemoryError{}, Memory},
		{&gomem.BusyError{}, Busy},
		{&gomem.OverlapError{}, Overlap},
		{gomem.ErrFreed, Freed},
		{&gomem.RangeError{}, Value},
		{&gomem.HowError{}, Value},
		{&gomem.BlockError{}, Value},
		{&gomem.StreamError{Cause: &gomem.DriverError{Kind: gomem.ErrInvalidHandle}}, Value},
		{&engine.UnknownDeviceError{Name: "x"}, Value},
		{ValueError{"no"}, Value},
		{&ordered.CaptureError{Cause: &gomem.DriverError{}}, Capture},
		{&gomem.DriverError{Code: 999}, Failed},
		{Panic("why"), Failed},
		{errors.New("anything else"), Failed},
	} {
		assert.Equal(t, c.kind, KindOf(c.err), "%T", c.err)
		assert.Equal(t, c.kind, KindOf(fmt.Errorf("wrapped: %w", c.err)), "%T", c.err)
	}
}

// Python and both ways to it read these names.
func TestFieldsOfAnOutOfMemoryError(t *testing.T) {
	memory := &gomem.MemoryError{Device: "sim:0", Requested: 5, InUse: 4, Cached: 3, Spilled: 2, Budget: -1, DeviceFree: 7, DeviceTotal: 8, LargestFree: 6,
		Reason: gomem.ReasonBudget, Unspillable: map[string]int64{"launch": 3}, Holders: []gomem.Holder{{Label: "a", Bytes: 9}}, Cause: errors.New("why")}
	assert.JSONEq(t, `{"device": "sim:0", "requested": 5, "in_use": 4, "cached": 3, "spilled": 2, "budget": -1, "device_free": 7, "device_total": 8,
		"largest_free": 6, "unspillable": {"launch": 3}, "reason": "budget", "cause": "why",
		"holders": [{"label": "a", "origin": "", "stack": null, "device": "", "bytes": 9, "resident": 0, "spilled": 0, "count": 0, "holds": ""}]}`,
		JSON(Fields(fmt.Errorf("wrapped: %w", memory), nil)))
}

// Host memory that could not be had outside of a request for device memory: the figures are those of the device that the call was about.
func TestFieldsOfAHostMemoryError(t *testing.T) {
	device, err := gomem.NewDevice(fakedriver.New(fakedriver.Options{}), gomem.Options{Movable: true})
	require.NoError(t, err)
	index, err := device.Allocate(100, gomem.AllocateOptions{})
	require.NoError(t, err)
	for _, of := range []*gomem.Device{nil, device} {
		var fields map[string]any
		require.NoError(t, json.Unmarshal([]byte(JSON(Fields(&gomem.HostMemoryError{Requested: 9, Limit: 5}, of))), &fields))
		assert.EqualValues(t, 9, fields["requested"])
		assert.Equal(t, "host", fields["reason"])
		assert.Contains(t, fields["cause"], "a limit of 5")
		assert.EqualValues(t, -1, fields["device_free"])
		if of == nil {
			assert.Equal(t, "", fields["device"])
			continue
		}
		assert.Equal(t, "fake:0", fields["device"])
		assert.EqualValues(t, 100, fields["in_use"])
		assert.EqualValues(t, -1, fields["budget"])
	}
	device.Drop(index)
	require.NoError(t, device.Close())
}

func TestNoticesOfNoDevice(t *testing.T) {
	require.Empty(t, TakeNotices())
	require.False(t, gomem.Noticed())
	General.Add(gomem.LevelWarning, "something")
	require.True(t, gomem.Noticed())
	taken := TakeNotices()
	require.Len(t, taken, 1)
	require.Equal(t, "WARNING", taken[0].Level)
	require.Equal(t, "something", taken[0].Text)
	require.Greater(t, taken[0].Seconds, 1.7e9)
	require.Equal(t, "[]", JSON(TakeNotices()))
}
