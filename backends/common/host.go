package common

import (
	"fmt"
	"unsafe"
)

// Pointer turns the address of memory that is none of Go's into a pointer. Not inlined: the compiler of Go 1.26 breaks on a copy between two
// addresses that it knows to be numbers.
//
//go:noinline
func Pointer(address uint64) unsafe.Pointer { return unsafe.Add(unsafe.Pointer(nil), address) }

// BuffersLeftError says that a device cannot be closed while buffers of it are in use.
type BuffersLeftError struct {
	Device string
	Count  int
}

func (e *BuffersLeftError) Error() string {
	return fmt.Sprintf("%s: cannot be closed while %d buffers are in use; free them first", e.Device, e.Count)
}
