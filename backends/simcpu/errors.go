package simcpu

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tack-memory/tack-memory/gomem"
)

// RefusedError says why the system gave no memory or no addresses, and what to do about it. It is an out of memory: other blocks, once freed, may help.
type RefusedError struct {
	Cause  *gomem.DriverError
	Advice string
}

func (e *RefusedError) Error() string { return fmt.Sprintf("%v: %s", e.Cause, e.Advice) }

// Unwrap gives the system's error.
func (e *RefusedError) Unwrap() error { return e.Cause }

// InUseError says that a device cannot be set up anew while memory is allocated on it.
type InUseError struct {
	Device string
	Bytes  uint64
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("%s: cannot be set up anew while memory is allocated on it (%s); free its buffers first", e.Device, gomem.SizeText(e.Bytes))
}

// called makes the error of a call to the system that failed.
func (d *Driver) called(call string, err error, kind error) *gomem.DriverError {
	failed := &gomem.DriverError{Device: d.name, Call: call, Name: err.Error(), Kind: kind}
	var code unix.Errno
	if errors.As(err, &code) {
		failed.Code, failed.Name = int(code), unix.ErrnoName(code)
	}
	return failed
}

// refused makes the error of a request that the system did not grant.
func (d *Driver) refused(err error) error {
	var refusal *refusal
	if !errors.As(err, &refusal) {
		return d.called("mmap", err, nil)
	}
	if refusal.code != unix.ENOMEM {
		return d.called(refusal.call, refusal.code, nil)
	}
	return &RefusedError{Cause: d.called(refusal.call, refusal.code, gomem.ErrOutOfMemory), Advice: refusal.advice}
}
