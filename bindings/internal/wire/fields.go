package wire

import (
	"encoding/json"
	"errors"

	"github.com/tack-memory/tack-memory/gomem"
)

// The JSON forms of what both ways send. Sizes are bytes; -1 stands for unknown, or for no budget.

// Holder is gomem.Holder.
type Holder struct {
	Label    string   `json:"label"`
	Origin   string   `json:"origin"`
	Stack    []string `json:"stack"` // null: no stack was recorded
	Device   string   `json:"device"`
	Bytes    int64    `json:"bytes"`
	Resident int64    `json:"resident"`
	Spilled  int64    `json:"spilled"`
	Count    int64    `json:"count"`
	Holds    string   `json:"holds"`
}

// Holders are the JSON form of holders; an empty list and never null.
func Holders(holders []gomem.Holder) []Holder {
	list := make([]Holder, len(holders))
	for i, h := range holders {
		list[i] = Holder(h)
	}
	return list
}

// MemoryFields are the fields of DeviceMemoryError.
type MemoryFields struct {
	Device      string           `json:"device"`
	Requested   int64            `json:"requested"`
	InUse       int64            `json:"in_use"`
	Cached      int64            `json:"cached"`
	Spilled     int64            `json:"spilled"`
	Budget      int64            `json:"budget"`
	DeviceFree  int64            `json:"device_free"`
	DeviceTotal int64            `json:"device_total"`
	LargestFree int64            `json:"largest_free"`
	Unspillable map[string]int64 `json:"unspillable"`
	Reason      string           `json:"reason"`
	Holders     []Holder         `json:"holders"`
	Cause       string           `json:"cause"`
}

// Fields are the fields of an error of kind Memory. device is the one that the call was about, for errors that do not know it (host memory that could
// not be had outside of a request for device memory); nil: none.
func Fields(err error, device *gomem.Device) MemoryFields {
	var memory *gomem.MemoryError
	if errors.As(err, &memory) {
		fields := MemoryFields{
			Device: memory.Device, Requested: memory.Requested, InUse: memory.InUse, Cached: memory.Cached, Spilled: memory.Spilled, Budget: memory.Budget,
			DeviceFree: memory.DeviceFree, DeviceTotal: memory.DeviceTotal, LargestFree: memory.LargestFree, Unspillable: memory.Unspillable,
			Reason: memory.Reason, Holders: Holders(memory.Holders),
		}
		if memory.Cause != nil {
			fields.Cause = memory.Cause.Error()
		}
		return fields
	}
	fields := MemoryFields{Reason: gomem.ReasonHost, Cause: err.Error(), Holders: []Holder{}, Cached: gomem.Unknown, Budget: gomem.Unknown,
		DeviceFree: gomem.Unknown, DeviceTotal: gomem.Unknown, LargestFree: gomem.Unknown}
	var host *gomem.HostMemoryError
	if errors.As(err, &host) {
		fields.Requested = host.Requested
	}
	if device != nil {
		fields.Device = device.Name()
		if info, err := device.Info(false); err == nil { // the books alone, which can always be read
			fields.InUse, fields.Spilled, fields.Budget = info.InUse, info.Spilled, info.Budget
		}
	}
	return fields
}

// JSON is a value as text. The values of this package always have one.
func JSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}
