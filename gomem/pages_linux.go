//go:build linux && !race

package gomem

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// adviseHuge asks the kernel for huge pages: fresh memory is then written about three times as fast, and unmapped some twenty times
// as fast. A kernel without them refuses, which changes nothing but the speed, so there is no error to report.
func adviseHuge(p unsafe.Pointer, nbytes uintptr) {
	_ = unix.Madvise(unsafe.Slice((*byte)(p), nbytes), unix.MADV_HUGEPAGE)
}

// discardPages gives the memory behind a range back to the system while the range stays mapped; it reads as zero afterwards. It reports false,
// and changes nothing, where that is not possible: the range is not made of whole pages.
func discardPages(p unsafe.Pointer, nbytes uintptr) bool {
	if page := uintptr(unix.Getpagesize()); uintptr(p)%page != 0 || nbytes%page != 0 {
		return false
	}
	return unix.Madvise(unsafe.Slice((*byte)(p), nbytes), unix.MADV_DONTNEED) == nil
}
