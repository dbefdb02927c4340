package bindings

import (
	"github.com/tack-memory/tack-memory/bindings/internal/engine"
	"github.com/tack-memory/tack-memory/bindings/internal/wire"
	"github.com/tack-memory/tack-memory/gomem"
)

// The JSON forms of the core's records. Sizes are bytes; -1 stands for unknown, or for no budget.

type report struct {
	Device      string           `json:"device"`
	Info        deviceInfo       `json:"info"`
	Holders     []wire.Holder    `json:"holders"`
	Unspillable map[string]int64 `json:"unspillable"`
	HostPool    hostPoolInfo     `json:"host_pool"`
}

type deviceInfo struct {
	InUse           int64 `json:"in_use"`
	Peak            int64 `json:"peak"`
	Spilled         int64 `json:"spilled"`
	Reserved        int64 `json:"reserved"`
	PendingFree     int64 `json:"pending_free"`
	Budget          int64 `json:"budget"`
	Strict          bool  `json:"strict"`
	OverBudgetCount int64 `json:"over_budget_count"`
	SpillCount      int64 `json:"spill_count"`
	RestoreCount    int64 `json:"restore_count"`
	SpilledBytes    int64 `json:"spilled_bytes"`
	RestoredBytes   int64 `json:"restored_bytes"`
	Live            int64 `json:"live"` // buffers
	DriverPending   int64 `json:"driver_pending"`
	Unfreed         int64 `json:"unfreed"` // the driver failed to free them; the log has said why
	DeviceFree      int64 `json:"device_free"`
	DeviceTotal     int64 `json:"device_total"`
	Cached          int64 `json:"cached"`
	DriverAllocated int64 `json:"driver_allocated"`
	LargestFree     int64 `json:"largest_free"`
}

func infoOf(i gomem.Info) deviceInfo {
	return deviceInfo{
		InUse: i.InUse, Peak: i.Peak, Spilled: i.Spilled, Reserved: i.Reserved, PendingFree: i.PendingFree, Budget: i.Budget, Strict: i.Strict != 0,
		OverBudgetCount: i.OverBudgetCount, SpillCount: i.SpillCount, RestoreCount: i.RestoreCount, SpilledBytes: i.SpilledBytes,
		RestoredBytes: i.RestoredBytes, Live: i.Live, DriverPending: i.DriverPending, Unfreed: i.Unfreed, DeviceFree: i.Driver.Free, DeviceTotal: i.Driver.Total,
		Cached: i.Driver.Cached, DriverAllocated: i.Driver.Allocated, LargestFree: i.Driver.LargestFree,
	}
}

type hostPoolInfo struct {
	Used   int64 `json:"used"`
	Pooled int64 `json:"pooled"`
}

func hostPool() hostPoolInfo {
	used, pooled := engine.Pool().Bytes()
	return hostPoolInfo{used, pooled}
}

type eventList struct {
	Events []event `json:"events"`
	Lost   int64   `json:"lost"`
}

type event struct {
	Nanoseconds int64  `json:"ns"`
	Kind        string `json:"kind"`
	Index       uint32 `json:"index"`
	Bytes       int64  `json:"bytes"`
	InUse       int64  `json:"in_use"`
	Spilled     int64  `json:"spilled"`
	Budget      int64  `json:"budget"`
	Elapsed     int64  `json:"elapsed"`
}

func eventsOf(events []gomem.Event, lost int64) eventList {
	list := eventList{Events: make([]event, len(events)), Lost: lost}
	for i, e := range events {
		list.Events[i] = event{e.Nanoseconds, e.Kind.String(), e.Index, e.Bytes, e.InUse, e.Spilled, e.Budget, e.Elapsed}
	}
	return list
}
