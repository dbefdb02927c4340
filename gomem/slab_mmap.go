//go:build !race

package gomem

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Memory outside Go's heap: its address never changes, the garbage collector neither scans nor counts it, and C may keep pointers
// into it. slab_race.go has the same functions over Go's heap.

// mapSlab returns nbytes of zeroed memory at a page boundary. The caller gives it back with unmapSlab and the same nbytes.
func mapSlab(nbytes uintptr) (unsafe.Pointer, error) {
	if nbytes == 0 {
		return nil, fmt.Errorf("mapping 0 bytes: %w", unix.EINVAL)
	}
	p, err := unix.MmapPtr(-1, 0, nil, nbytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes: %w", nbytes, err)
	}
	return p, nil
}

// unmapSlab gives memory of mapSlab back. Nobody may touch it afterwards.
func unmapSlab(p unsafe.Pointer, nbytes uintptr) {
	err := unix.MunmapPtr(p, nbytes)
	if err == unix.ENOMEM {
		// The kernel joins neighbouring mappings and may be at its limit of how many there may be (vm.max_map_count) when it has to cut one
		// out. The memory can be given back all the same; only the addresses stay taken.
		err = unix.Madvise(unsafe.Slice((*byte)(p), nbytes), unix.MADV_DONTNEED)
	}
	if err != nil {
		panic(fmt.Sprintf("gomem: unmapping %d bytes at %p: %v", nbytes, p, err)) // no mapping of ours
	}
}

// mapAligned is mapSlab at a multiple of align, a power of two that is at least a page. It maps align bytes more than asked and
// cuts off what lies outside; unmapSlab with nbytes gives all of it back.
func mapAligned(nbytes, align uintptr) (unsafe.Pointer, error) {
	if nbytes > ^uintptr(0)-align {
		return nil, fmt.Errorf("mapping %d bytes: %w", nbytes, unix.ENOMEM)
	}
	p, err := mapSlab(nbytes + align)
	if err != nil {
		return nil, err
	}
	head := -uintptr(p) & (align - 1)
	start := unsafe.Add(p, head)
	if head > 0 {
		unmapSlab(p, head)
	}
	if tail := align - head; tail > 0 {
		unmapSlab(unsafe.Add(start, nbytes), tail)
	}
	return start, nil
}
