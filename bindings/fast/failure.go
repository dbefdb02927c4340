package fast

/*
#include "fast.h"
*/
import "C"

import (
	"errors"

	"github.com/tack-memory/tack-memory/bindings/internal/wire"
	"github.com/tack-memory/tack-memory/gomem"
)

// fail writes an error into the call: what C has to do about it, and its text. Errors are rare, so text and JSON are good enough.
func fail(c *C.tm_call, err error) {
	if errors.Is(err, gomem.ErrNotNow) {
		c.code = C.TM_AGAIN
		return
	}
	if errors.Is(err, gomem.ErrStillRuns) {
		c.code = C.TM_LATER
		return
	}
	if errors.Is(err, gomem.ErrLate) {
		c.code = C.TM_SETTLE
		return
	}
	c.code = code(wire.KindOf(err))
	if c.code == C.TM_MEMORY {
		c.text = C.CString(wire.JSON(wire.Fields(err, device(c))))
	} else {
		c.text = C.CString(err.Error())
	}
}

// code is what the fast lane calls a kind of error; errors.c has the exceptions.
func code(kind wire.Kind) C.int32_t {
	switch kind {
	case wire.Collect:
		return C.TM_COLLECT
	case wire.Relieve:
		return C.TM_RELIEVE
	case wire.Cancelled:
		return C.TM_CANCELLED
	case wire.Memory:
		return C.TM_MEMORY
	case wire.Lost:
		return C.TM_LOST
	case wire.Capture:
		return C.TM_CAPTURE
	case wire.Busy:
		return C.TM_BUSY
	case wire.Value, wire.Overlap, wire.Freed:
		return C.TM_VALUE
	default: // wire.Failed
		return C.TM_FAILED
	}
}

// rescue turns a panic outside of a device's own calls into an error of the call: a panic that leaves an exported function ends the process.
func rescue(c *C.tm_call) {
	if r := recover(); r != nil {
		fail(c, wire.Panic(r))
	}
}

// tmReport keeps what a release ended with, which has nobody to raise to, for Python's logger (takeNotices).
//
//export tmReport
func tmReport(device C.uint32_t, text *C.char) {
	notices(uint32(device)).Add(gomem.LevelError, C.GoString(text))
}
