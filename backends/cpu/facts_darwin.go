package cpu

import (
	"os"

	"golang.org/x/sys/unix"
)

// ReadFacts asks the system. macOS gives no huge pages to a process that only asks for memory, and has no switch for them.
func ReadFacts() Facts {
	facts := Facts{PageBytes: os.Getpagesize()}
	if product, err := unix.Sysctl("machdep.cpu.brand_string"); err == nil {
		facts.Product = product
	}
	// The kernel's own: Rosetta shows pages of 4 KiB to a process on a kernel with pages of 16 KiB.
	if bytes, err := unix.SysctlUint64("vm.pagesize"); err == nil {
		facts.KernelPageBytes = int(bytes)
	} else if bytes, err := unix.SysctlUint32("vm.pagesize"); err == nil {
		facts.KernelPageBytes = int(bytes)
	}
	return facts
}
