//go:build race

package gomem

import (
	"fmt"
	"sync"
	"syscall"
	"unsafe"
)

// The race detector watches Go's heap and nothing else. In race builds the memory that is otherwise mapped (slab_mmap.go) comes from
// the heap, so that an unsynchronised access to a record, to the books or to a host copy is found. Go's collector does not
// move objects, so addresses are stable here, too.

// slabs keeps the blocks alive: the core refers to them by pointers that the collector cannot follow.
var slabs struct {
	sync.Mutex
	blocks map[unsafe.Pointer][]byte // by the address handed out
}

// mapSlab returns nbytes of zeroed memory, 64-byte aligned. The caller gives it back with unmapSlab and the same nbytes.
func mapSlab(nbytes uintptr) (unsafe.Pointer, error) { return mapAligned(nbytes, 64) }

// unmapSlab gives memory of mapSlab back. Nobody may touch it afterwards.
func unmapSlab(p unsafe.Pointer, nbytes uintptr) {
	slabs.Lock()
	defer slabs.Unlock()
	block, known := slabs.blocks[p]
	if !known || uintptr(len(block)) != nbytes {
		panic(fmt.Sprintf("gomem: unmapping %d bytes at %p, where %d bytes are mapped", nbytes, p, len(block)))
	}
	delete(slabs.blocks, p)
}

// mapAligned is mapSlab at a multiple of align, a power of two.
func mapAligned(nbytes, align uintptr) (unsafe.Pointer, error) {
	const most = 1 << 40 // make panics beyond what the heap can hold; mmap would return ENOMEM
	if nbytes == 0 {
		return nil, fmt.Errorf("mapping 0 bytes: %w", syscall.EINVAL)
	}
	if nbytes > most {
		return nil, fmt.Errorf("mapping %d bytes: %w", nbytes, syscall.ENOMEM)
	}
	block := make([]byte, nbytes+align)
	head := -uintptr(unsafe.Pointer(&block[0])) & (align - 1)
	block = block[head : head+nbytes : head+nbytes]
	p := unsafe.Pointer(&block[0])
	slabs.Lock()
	defer slabs.Unlock()
	if slabs.blocks == nil {
		slabs.blocks = make(map[unsafe.Pointer][]byte)
	}
	slabs.blocks[p] = block
	return p, nil
}
