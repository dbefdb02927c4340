package ordered

/*
#include "device.h"

static enum tmo_meaning tmo_meaning_of(const tmo_vendor *v, int code) { return v->meaning(code); }
static const char *tmo_name_of(const tmo_vendor *v, const void *api, int code) { return v->error_name(api, code); }
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/tack-memory/tack-memory/gomem"
)

// ErrCapturing says that a graph is being recorded from a stream of the device. See CaptureError.
var ErrCapturing = errors.New("a stream is being captured into a graph")

// CaptureError says that an operation was refused because a graph is being recorded from a stream that it needs: what is queued then becomes
// part of the graph and does not run now, so memory can neither be made, nor moved, nor waited for. Nothing changed.
type CaptureError struct {
	Cause  *gomem.DriverError
	Stream CapturedStream
}

// CapturedStream is which stream is captured.
type CapturedStream int32

// The streams that a CaptureError can speak of.
const (
	SomeStream    CapturedStream = C.TMO_SOME_STREAM    // one of the device's context: the driver does not say which
	DevicesStream CapturedStream = C.TMO_DEVICES_STREAM // the device's own
	OtherStream   CapturedStream = C.TMO_OTHER_STREAM   // another one that the operation was given, or that a block was used on
)

var captured = map[CapturedStream]string{
	SomeStream:    "a stream of the device is being captured into a graph, and the device cannot be waited for",
	DevicesStream: "the device's stream is being captured into a graph, and no memory can be allocated, spilled or restored on it",
	OtherStream:   "a stream that is not the device's own, and that this has to wait for, is being captured into a graph: it cannot be waited for",
}

func (e *CaptureError) Error() string {
	return fmt.Sprintf("%s: %s until the capture ends; make what the graph needs resident before the capture begins, and hold it (%s: %s)",
		e.Cause.Device, captured[e.Stream], e.Cause.Call, e.Cause.Name)
}

// Unwrap gives errors.Is the sentinel and errors.As the vendor's error.
func (e *CaptureError) Unwrap() []error { return []error{ErrCapturing, e.Cause} }

// kinds is what a vendor's code means to the core.
var kinds = map[C.enum_tmo_meaning]error{C.TMO_FULL: gomem.ErrOutOfMemory, C.TMO_LOST: gomem.ErrLost, C.TMO_STALE: gomem.ErrInvalidHandle}

// failure turns a status with a code into an error.
func (l *Library) failure(device string, status C.tmo_status) error {
	meaning := l.meaning(status)
	e := &gomem.DriverError{Device: device, Call: l.vendor.Symbols[status.call&C.TMO_CALL_MASK].Name, Code: int(status.code), Name: l.errorName(status.code), Kind: kinds[meaning]}
	if meaning == C.TMO_CAPTURING {
		return &CaptureError{Cause: e, Stream: CapturedStream(status.call >> C.TMO_CAPTURED_BITS)}
	}
	return e
}

func (l *Library) meaning(status C.tmo_status) C.enum_tmo_meaning {
	return C.tmo_meaning_of(l.functions, C.int(status.code))
}

// errorName asks the library; "" where it has no name for the code.
func (l *Library) errorName(code C.int32_t) string {
	name := C.tmo_name_of(l.functions, unsafe.Pointer(l.api), C.int(code))
	if name == nil {
		return ""
	}
	return C.GoString(name)
}
