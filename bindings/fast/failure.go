package fast

/*
#include "fast.h"
*/
import "C"

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tack-memory/tack-memory/bindings/internal/engine"
	"github.com/tack-memory/tack-memory/gomem"
)

// fail writes an error into the call: what C has to do about it, and its text. Errors are rare, so text and JSON are good enough.
func fail(c *C.tm_call, err error) {
	c.code = codeOf(err)
	var memory *gomem.MemoryError
	var host *gomem.HostMemoryError
	switch {
	case c.code != C.TM_MEMORY:
		c.text = C.CString(err.Error())
	case errors.As(err, &memory):
		c.text = C.CString(memoryFields(memory))
	case errors.As(err, &host):
		c.text = C.CString(hostFields(c, host))
	}
}

// codeOf is the one table from Go's errors to what Python raises (errors.c).
func codeOf(err error) C.int32_t {
	var (
		memory  *gomem.MemoryError
		host    *gomem.HostMemoryError
		lost    *gomem.LostError
		busy    *gomem.BusyError
		overlap *gomem.OverlapError
		ranges  *gomem.RangeError
		how     *gomem.HowError
		unknown *engine.UnknownDeviceError
	)
	switch {
	case errors.Is(err, gomem.ErrCollect):
		return C.TM_COLLECT
	case errors.Is(err, gomem.ErrRelieve):
		return C.TM_RELIEVE
	case errors.Is(err, gomem.ErrCancelled):
		return C.TM_CANCELLED
	case errors.As(err, &lost), errors.Is(err, gomem.ErrLost):
		return C.TM_LOST
	case errors.As(err, &memory), errors.As(err, &host):
		return C.TM_MEMORY
	case errors.As(err, &busy):
		return C.TM_BUSY
	case errors.As(err, &overlap), errors.As(err, &ranges), errors.As(err, &how), errors.Is(err, gomem.ErrFreed), errors.As(err, &unknown):
		return C.TM_VALUE
	default:
		return C.TM_FAILED
	}
}

// rescue turns a panic into an error of the call: a panic that leaves an exported function ends the process.
func rescue(c *C.tm_call) {
	if r := recover(); r != nil {
		c.code = C.TM_FAILED
		c.text = C.CString(fmt.Sprintf("panic in the Go core: %v", r))
	}
}

type holderFields struct {
	Label    string `json:"label"`
	Origin   string `json:"origin"`
	Device   string `json:"device"`
	Bytes    int64  `json:"bytes"`
	Resident int64  `json:"resident"`
	Spilled  int64  `json:"spilled"`
	Count    int64  `json:"count"`
	Holds    string `json:"holds"`
}

// memoryFields are the fields of DeviceMemoryError as JSON; figures of -1 are unknown, or (the budget) none.
func memoryFields(e *gomem.MemoryError) string {
	holders := make([]holderFields, len(e.Holders))
	for i, h := range e.Holders {
		holders[i] = holderFields(h)
	}
	cause := ""
	if e.Cause != nil {
		cause = e.Cause.Error()
	}
	return toJSON(map[string]any{
		"device": e.Device, "requested": e.Requested, "in_use": e.InUse, "cached": e.Cached, "spilled": e.Spilled, "budget": e.Budget,
		"device_free": e.DeviceFree, "device_total": e.DeviceTotal, "largest_free": e.LargestFree, "unspillable": e.Unspillable, "reason": e.Reason,
		"holders": holders, "cause": cause,
	})
}

// hostFields are the same for host memory that could not be had outside of a request for device memory.
func hostFields(c *C.tm_call, e *gomem.HostMemoryError) string {
	fields := map[string]any{"requested": e.Requested, "reason": gomem.ReasonHost, "cause": e.Error()}
	if d := device(c); d != nil {
		books := figures(d)
		fields["device"], fields["in_use"], fields["spilled"], fields["budget"] = d.Name(), books.InUse, books.Spilled, books.Budget
	}
	return toJSON(fields)
}

func toJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		// Maps of strings and numbers, and structs of them, always have a JSON form.
		panic(err)
	}
	return string(text)
}
