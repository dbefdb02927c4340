package simcpu

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tack-memory/tack-memory/backends/common"
	"github.com/tack-memory/tack-memory/gomem"
)

// unusable are the flags of addresses that are only taken: no memory is kept for them.
const unusable = unix.MAP_PRIVATE | unix.MAP_ANON | unix.MAP_NORESERVE

// mapRegion takes addresses that the process does not use yet.
func mapRegion(nbytes uint64) (begin uint64, err error) {
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(nbytes), unix.PROT_NONE, unusable)
	return uint64(uintptr(p)), err
}

// mapUsable lets pages of a region be read and written; they are zero.
func mapUsable(begin, nbytes uint64) error {
	if err := unix.Mprotect(memory(begin, nbytes), unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return err
	}
	if nbytes >= large {
		adviseHuge(memory(begin, nbytes))
	}
	return nil
}

// mapUnusable puts new pages that nobody may touch in place of what is there, in one step: the old ones are gone, and the kernel joins the new ones with
// their neighbours, since they are alike. (After an mprotect they would not be: a mapping that had memory remembers it.)
func mapUnusable(begin, nbytes uint64) error {
	_, err := unix.MmapPtr(-1, 0, common.Pointer(begin), uintptr(nbytes), unix.PROT_NONE, unusable|unix.MAP_FIXED)
	return err
}

// empty lets nobody touch a mapping's pages any more, and gives their memory back; the mapping stays one of its own.
func empty(begin, nbytes uint64) error {
	return errors.Join(unix.Mprotect(memory(begin, nbytes), unix.PROT_NONE), unix.Madvise(memory(begin, nbytes), unix.MADV_DONTNEED))
}

func memory(begin, nbytes uint64) []byte {
	return unsafe.Slice((*byte)(common.Pointer(begin)), nbytes)
}

// addressLimit is how many bytes of addresses the process may have (ulimit -v).
func addressLimit() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &limit); err != nil {
		return unix.RLIM_INFINITY
	}
	return limit.Cur
}

// whyNoAddresses explains that the system reserves none.
func whyNoAddresses(err error) error {
	limit := "the process has no limit of its own (ulimit -v)"
	if bytes := addressLimit(); bytes != unix.RLIM_INFINITY {
		limit = fmt.Sprintf("the process may have %s of them (ulimit -v): raise that", gomem.SizeText(bytes))
	}
	return refusedBy("mmap", err, "no addresses are left, since none is used again; "+limit+`, or use the address mode "reuse"`)
}

// whyNoMemory explains that the system makes no pages usable.
func whyNoMemory(call string, err error) error {
	if mappingsUsed() >= mappingLimit() {
		return tooManyBlocks(call)
	}
	return refusedBy(call, err, "the system gives this process no more memory")
}

// tooManyBlocks is the refusal of one more block where the process has all the mappings that it may have, but for some that others need.
func tooManyBlocks(call string) error {
	return &refusal{call, unix.ENOMEM, fmt.Sprintf("a process may have %d mappings (vm.max_map_count), and each block takes two, "+
		"so that there can be %d blocks: free some, or raise that limit with sysctl", mappingLimit(), mostBlocks())}
}

func refusedBy(call string, err error, advice string) error {
	var code unix.Errno
	if !errors.As(err, &code) {
		return err
	}
	return &refusal{call, code, advice}
}
