//go:build !linux || race

package gomem

import "unsafe"

// adviseHuge does nothing here: the system has no such advice, or (race builds) the memory is Go's.
func adviseHuge(unsafe.Pointer, uintptr) {}

// discardPages can give nothing back here.
func discardPages(unsafe.Pointer, uintptr) bool { return false }
