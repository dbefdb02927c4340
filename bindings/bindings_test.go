package bindings

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/bindings/internal/engine"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

func TestMain(m *testing.M) { soft.Main(m) }

// simulated is the index of sim:0, opened once.
func simulated(t *testing.T) int64 {
	t.Helper()
	if engine.At(0) == nil {
		require.NoError(t, SetSimFolder(filepath.Dir(soft.Library(t, soft.CUDA))))
		require.NoError(t, ConfigureSim("67108864, 33554432"))
	}
	index, err := engine.Open("sim", 0)
	require.NoError(t, err)
	return int64(index)
}

// told is the JSON of an error that crosses to Python.
func told(t *testing.T, err error) (w struct {
	Kind   string
	Msg    string
	Fields map[string]any
}) {
	t.Helper()
	require.Error(t, err)
	text, found := strings.CutPrefix(err.Error(), "tm1:")
	require.True(t, found, "%v", err)
	require.NoError(t, json.Unmarshal([]byte(text), &w))
	return w
}

func decode(t *testing.T, text string, err error, into any) {
	t.Helper()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(text), into))
}

func TestVersion(t *testing.T) { assert.NotEmpty(t, Version()) }

func TestDevices(t *testing.T) {
	simulated(t)
	var devices []map[string]any
	text, err := Devices()
	decode(t, text, err, &devices)
	found := map[string]map[string]any{}
	for _, device := range devices {
		for _, key := range []string{"name", "kind", "ordinal", "usable", "library", "version", "total", "pools", "why"} {
			assert.Contains(t, device, key)
		}
		found[device["name"].(string)] = device
	}
	assert.Equal(t, true, found["cpu"]["usable"])
	assert.EqualValues(t, 64<<20, found["sim:0"]["total"])
	assert.EqualValues(t, 1, found["sim:1"]["ordinal"])
}

func TestReportAndHolders(t *testing.T) {
	index := simulated(t)
	device := engine.At(uint32(index))
	buffer, err := device.Allocate(1<<20, gomem.AllocateOptions{Label: gomem.Intern("mesh"), Origin: gomem.Intern("sweep.py:7"), Unmovable: true, Reason: gomem.Intern("MPI")})
	require.NoError(t, err)
	var told struct {
		Device      string
		Info        map[string]any
		Holders     []map[string]any
		Unspillable map[string]int64
		HostPool    map[string]int64 `json:"host_pool"`
	}
	text, err := Report(index)
	decode(t, text, err, &told)
	assert.Equal(t, "sim:0", told.Device)
	assert.EqualValues(t, 1<<20, told.Info["in_use"])
	assert.EqualValues(t, 64<<20, told.Info["device_total"])
	require.Len(t, told.Holders, 1)
	assert.Equal(t, "mesh", told.Holders[0]["label"])
	assert.Equal(t, "sweep.py:7", told.Holders[0]["origin"])
	assert.EqualValues(t, 1<<20, told.Holders[0]["resident"])
	total := int64(0)
	for reason, bytes := range told.Unspillable {
		assert.Contains(t, reason, "MPI")
		total += bytes
	}
	assert.EqualValues(t, 1<<20, total)
	assert.Contains(t, told.HostPool, "used")

	var holders []map[string]any
	text, err = Holders(index, 5)
	decode(t, text, err, &holders)
	assert.Len(t, holders, 1)
	device.Drop(buffer)
	text, err = Holders(index, 0)
	decode(t, text, err, &holders)
	assert.Empty(t, holders)
	assert.Equal(t, "[]", text, "a list, and not null")
	require.NoError(t, Check(index))
}

// What is not known is null, and lists are lists.
func TestReportOfSpills(t *testing.T) {
	index := simulated(t)
	device := engine.At(uint32(index))
	defer engine.SetOrigins(gomem.OriginsOff)
	report := func() (told map[string]any) {
		text, err := Report(index)
		decode(t, text, err, &told)
		return told
	}
	told := report()
	assert.Equal(t, []any{"off", nil, []any{}, nil}, []any{told["origins"], told["at_peak"], told["spills"], told["thrashing"]})
	engine.SetOrigins(gomem.OriginsStack)
	stack := gomem.InternStack("sweep.py:7 f\nsweep.py:9 g", gomem.Intern("sweep.py:7"))
	device.ResetPeak()
	buffer, err := device.Allocate(1<<20, gomem.AllocateOptions{Origin: stack})
	require.NoError(t, err)
	_, err = device.Spill(buffer, gomem.Wait{})
	require.NoError(t, err)
	told = report()
	assert.Equal(t, "stack", told["origins"])
	assert.EqualValues(t, 1<<20, told["at_peak"].(map[string]any)["bytes"])
	require.Len(t, told["spills"], 1)
	spill := told["spills"].([]any)[0].(map[string]any)
	assert.Positive(t, spill["out_ns"])
	assert.InDelta(t, told["time_ns"], spill["last_ns"], 1e11)
	delete(spill, "out_ns")
	delete(spill, "last_ns")
	assert.Equal(t, map[string]any{
		"label": nil, "origin": "sweep.py:7", "stack": []any{"sweep.py:7 f", "sweep.py:9 g"}, "bytes": 1048576.0, "nbytes": 1048576.0, "count": 1.0, "restores": 0.0,
		"still_out": 1.0, "cause": "asked", "by_label": nil, "by_origin": nil, "by_stack": nil, "by_nbytes": nil,
	}, spill)
	assert.Equal(t, told["holders"].([]any)[0].(map[string]any)["stack"], spill["stack"])
	device.Drop(buffer)
}

func TestEvents(t *testing.T) {
	index := simulated(t)
	device := engine.At(uint32(index))
	require.NoError(t, RecordEvents(index, 3))
	buffer, err := device.Allocate(4096, gomem.AllocateOptions{})
	require.NoError(t, err)
	_, err = device.Spill(buffer, gomem.Wait{})
	require.NoError(t, err)
	device.Drop(buffer)
	var told struct {
		Events []map[string]any
		Lost   int64
	}
	text, err := Events(index)
	decode(t, text, err, &told)
	require.Len(t, told.Events, 3)
	assert.Equal(t, "allocate", told.Events[0]["kind"])
	assert.Equal(t, "spill", told.Events[1]["kind"])
	assert.EqualValues(t, 4096, told.Events[1]["bytes"])
	for _, key := range []string{"ns", "in_use", "spilled", "budget"} {
		assert.Contains(t, told.Events[2], key)
	}
	assert.Zero(t, told.Lost)
	count, err := EventCount(index)
	require.NoError(t, err)
	assert.EqualValues(t, 3, count)
	require.NoError(t, RecordEvents(index, 0))
	count, err = EventCount(index)
	require.NoError(t, err)
	assert.Zero(t, count)
	text, err = Events(index)
	decode(t, text, err, &told)
	assert.Empty(t, told.Events)
}

func TestSettings(t *testing.T) {
	index := simulated(t)
	require.NoError(t, SetMaxWait(index, 100))
	require.NoError(t, SetMaxWait(index, 0))
	require.NoError(t, SetHostLimit(1<<30))
	require.NoError(t, SetHostLimit(-1))
	require.NoError(t, SetCheck(true))
	require.NoError(t, SetCheck(false))
	require.NoError(t, SetPools(false))
	require.NoError(t, SetPools(true))
	var pool map[string]int64
	text, err := HostPool()
	decode(t, text, err, &pool)
	assert.Contains(t, pool, "pooled")
}

// TestBadArguments: each is a ValueError for Python, and changes nothing.
func TestBadArguments(t *testing.T) {
	index := simulated(t)
	for name, err := range map[string]error{
		"report":          second(Report(-1)),
		"report, unknown": second(Report(1 << 40)),
		"holders":         second(Holders(99, 1)),
		"holders limit":   second(Holders(index, -1)),
		"events":          second(Events(99)),
		"event count":     second(EventCount(99)),
		"record":          RecordEvents(99, 1),
		"record negative": RecordEvents(index, -1),
		"record too many": RecordEvents(index, 1<<40),
		"wait":            SetMaxWait(99, 1),
		"wait negative":   SetMaxWait(index, -1),
		"wait too long":   SetMaxWait(index, 1<<62),
		"limit":           SetHostLimit(-2),
		"check":           Check(99),
		"cache":           SetHostCache(99, 1),
		"cache negative":  SetHostCache(index, -2),
		"object":          second(MetalBuffer(99, 1)),
		"object no Metal": second(MetalBuffer(index, 1)),
		"sim":             ConfigureSim("1 GiB"),
		"sim empty":       ConfigureSim(""),
		"sim negative":    ConfigureSim("-1"),
		"sim too late":    ConfigureSim("1048576"),
		"sim-cpu size":    SetSimCPU(0, "fresh"),
		"sim-cpu mode":    SetSimCPU(1, "stale"),
	} {
		assert.Equal(t, "value", told(t, err).Kind, name)
	}
}

func second[T any](_ T, err error) error { return err }

// TestFailures is the table of kinds.
func TestFailures(t *testing.T) {
	lost := &gomem.DriverError{Device: "sim:0", Call: "cuMemFree_v2", Code: 700, Kind: gomem.ErrLost}
	for _, c := range []struct {
		err  error
		kind string
	}{
		{&gomem.LostError{Device: "sim:0", Cause: lost}, "lost"},
		{fmt.Errorf("wrapped: %w", lost), "lost"},
		{&gomem.BusyError{Device: "sim:0"}, "busy"},
		{&gomem.OverlapError{}, "overlap"},
		{&gomem.RangeError{}, "value"},
		{gomem.ErrFreed, "freed"},
		{gomem.ErrCancelled, "cancelled"},
		{&engine.UnknownDeviceError{Name: "x"}, "value"},
		{errors.New("anything else"), "failed"},
	} {
		w := told(t, failure(c.err))
		assert.Equal(t, c.kind, w.Kind)
		assert.Equal(t, c.err.Error(), w.Msg)
	}

	w := told(t, failure(fmt.Errorf("wrapped: %w", &gomem.MemoryError{Device: "sim:0", Requested: 5, Budget: -1, DeviceFree: 7, Reason: "budget",
		Unspillable: map[string]int64{"launch": 3}, Holders: []gomem.Holder{{Label: "a"}}, Cause: errors.New("why")})))
	assert.Equal(t, "memory", w.Kind)
	assert.EqualValues(t, 5, w.Fields["requested"])
	assert.EqualValues(t, -1, w.Fields["budget"])
	assert.EqualValues(t, 7, w.Fields["device_free"])
	assert.Equal(t, "why", w.Fields["cause"])
	assert.Equal(t, map[string]any{"launch": 3.0}, w.Fields["unspillable"])
	assert.Equal(t, "host", told(t, failure(&gomem.HostMemoryError{Requested: 9})).Fields["reason"])
}

// TestPanicsBecomeErrors: one that left an exported function would end the Python process.
func TestPanicsBecomeErrors(t *testing.T) {
	crash := func() (err error) {
		defer rescue(&err)
		var nothing *gomem.Device
		return nothing.Check()
	}
	w := told(t, crash())
	assert.Equal(t, "failed", w.Kind)
	assert.Contains(t, w.Msg, "panic in the Go core")
}
