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
	Nanoseconds int64            `json:"time_ns"` // since 1970, as all moments here
	Origins     string           `json:"origins"`
	AtPeak      *atPeak          `json:"at_peak"`
	Spills      []spill          `json:"spills"`
	SpillsLost  int64            `json:"spills_lost"` // spills while origins were off
	Thrashing   *thrashing       `json:"thrashing"`
}

func reportOf(device string, told gomem.Report) report {
	r := report{
		Device: device, Info: infoOf(told.Info), Holders: wire.Holders(told.Holders), Unspillable: told.Unspillable, HostPool: hostPool(),
		Nanoseconds: told.Nanoseconds, Origins: told.Origins.String(), Spills: make([]spill, len(told.Spills)), SpillsLost: told.SpillsLost,
	}
	if p := told.AtPeak; p != nil {
		r.AtPeak = &atPeak{p.Bytes, p.Spilled, p.Nanoseconds, wire.Holders(p.Holders)}
	}
	for i, s := range told.Spills {
		r.Spills[i] = spill{
			place{textOrNull(s.Label), textOrNull(s.Origin), s.Stack}, s.Bytes, s.Largest, s.Count, s.Restores, s.Out, s.StillOut, s.Cause,
			textOrNull(s.ByLabel), textOrNull(s.ByOrigin), s.ByStack, countOrNull(s.ByBytes), s.Last,
		}
	}
	if t := told.Thrashing; t != nil {
		r.Thrashing = &thrashing{t.Rounds, t.Bytes, t.Since, make([]turning, len(t.Holders))}
		for i, h := range t.Holders {
			r.Thrashing.Holders[i] = turning{place{textOrNull(h.Label), textOrNull(h.Origin), h.Stack}, h.Spills, h.Restores, h.Bytes}
		}
	}
	return r
}

// place is where buffers come from; null: not known.
type place struct {
	Label  *string  `json:"label"`
	Origin *string  `json:"origin"`
	Stack  []string `json:"stack"`
}

// atPeak is gomem.PeakHolders.
type atPeak struct {
	Bytes       int64         `json:"bytes"`
	Spilled     int64         `json:"spilled"`
	Nanoseconds int64         `json:"time_ns"`
	Holders     []wire.Holder `json:"holders"`
}

// spill is gomem.Spill.
type spill struct {
	place
	Bytes    int64    `json:"bytes"`
	Largest  int64    `json:"nbytes"`
	Count    int64    `json:"count"`
	Restores int64    `json:"restores"`
	Out      int64    `json:"out_ns"`
	StillOut int64    `json:"still_out"`
	Cause    string   `json:"cause"`
	ByLabel  *string  `json:"by_label"`
	ByOrigin *string  `json:"by_origin"`
	ByStack  []string `json:"by_stack"`
	ByBytes  *int64   `json:"by_nbytes"` // null: no size was asked for
	Last     int64    `json:"last_ns"`
}

// thrashing is gomem.Thrashing.
type thrashing struct {
	Rounds  int64     `json:"rounds"`
	Bytes   int64     `json:"bytes"`
	Since   int64     `json:"since_ns"`
	Holders []turning `json:"holders"`
}

// turning is gomem.Turning.
type turning struct {
	place
	Spills   int64 `json:"spills"`
	Restores int64 `json:"restores"`
	Bytes    int64 `json:"bytes"`
}

func textOrNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func countOrNull(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
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
	ReceivedBytes   int64 `json:"received_bytes"`
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
		RestoredBytes: i.RestoredBytes, ReceivedBytes: i.ReceivedBytes, Live: i.Live, DriverPending: i.DriverPending, Unfreed: i.Unfreed, DeviceFree: i.Driver.Free, DeviceTotal: i.Driver.Total,
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
