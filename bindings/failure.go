package bindings

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tack-memory/tack-memory/backends/cuda"
	"github.com/tack-memory/tack-memory/bindings/internal/engine"
	"github.com/tack-memory/tack-memory/gomem"
)

// valueError is a wrong argument.
type valueError struct{ text string }

func (e valueError) Error() string { return e.text }

// wire is an error on its way to Python. Kinds are those that tack_memory's _errors.py knows: "memory" becomes DeviceMemoryError with the
// fields, "lost" DeviceLostError, "busy" BufferError, "value", "overlap" and "freed" ValueError, "cancelled" KeyboardInterrupt; every other
// is a RuntimeError with the text.
type wire struct {
	Kind   string `json:"kind"`
	Text   string `json:"msg"`
	Fields any    `json:"fields,omitempty"`
}

// failure packs an error for Python. gopy gives Python a RuntimeError with a text and nothing else.
func failure(err error) error {
	w := wire{Kind: "failed", Text: err.Error()}
	var (
		memory  *gomem.MemoryError
		host    *gomem.HostMemoryError
		lost    *gomem.LostError
		busy    *gomem.BusyError
		overlap *gomem.OverlapError
		ranges  *gomem.RangeError
		how     *gomem.HowError
		value   valueError
		unknown *engine.UnknownDeviceError
		capture *cuda.CaptureError
	)
	switch {
	case errors.As(err, &lost), errors.Is(err, gomem.ErrLost):
		w.Kind = "lost"
	case errors.As(err, &memory):
		w.Kind, w.Fields = "memory", memoryOf(memory)
	case errors.As(err, &host):
		w.Kind, w.Fields = "memory", memoryFields{Requested: host.Requested, Reason: gomem.ReasonHost, Cause: host.Error(),
			Cached: gomem.Unknown, Budget: gomem.Unknown, DeviceFree: gomem.Unknown, DeviceTotal: gomem.Unknown, LargestFree: gomem.Unknown}
	case errors.As(err, &busy):
		w.Kind = "busy"
	case errors.As(err, &overlap):
		w.Kind = "overlap"
	case errors.Is(err, gomem.ErrFreed):
		w.Kind = "freed"
	case errors.Is(err, gomem.ErrCancelled):
		w.Kind = "cancelled"
	case errors.As(err, &value), errors.As(err, &ranges), errors.As(err, &how), errors.As(err, &unknown):
		w.Kind = "value"
	case errors.As(err, &capture):
		w.Kind = "capture"
	}
	text, jsonErr := json.Marshal(w)
	if jsonErr != nil { // cannot be: strings and numbers
		return errors.Join(err, jsonErr)
	}
	return errors.New("tm1:" + string(text))
}

// rescue turns a panic into an error: one that leaves an exported function would end the Python process.
func rescue(err *error) {
	if r := recover(); r != nil {
		*err = failure(fmt.Errorf("panic in the Go core: %v", r))
	}
}

func toJSON(value any) (string, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return "", failure(err)
	}
	return string(text), nil
}
