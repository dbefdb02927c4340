package common

import (
	"errors"
	"fmt"

	"github.com/tack-memory/tack-memory/gomem"
)

// ErrClosed is the error of an operation on a closed Driver.
var ErrClosed = errors.New("the device is closed")

// StartError says that a vendor's library is there but cannot be used, and what to do about it.
type StartError struct {
	Library string // the file
	Advice  string
	Cause   *gomem.DriverError
}

func (e *StartError) Error() string { return fmt.Sprintf("%s: %v: %s", e.Library, e.Cause, e.Advice) }

// Unwrap gives the vendor's error.
func (e *StartError) Unwrap() error { return e.Cause }
