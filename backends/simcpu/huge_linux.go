package simcpu

import "golang.org/x/sys/unix"

// adviseHuge asks for huge pages. A kernel without them refuses, which changes nothing but the speed, so there is no error to report.
func adviseHuge(memory []byte) { _ = unix.Madvise(memory, unix.MADV_HUGEPAGE) }
