package gomem

import "math/bits"

// Sizes of host blocks go up in four steps a doubling (64, 80, 96, 112, 128, 160, ...): a block is at most a quarter larger than
// what was asked, and copies of nearly equal sizes use each other's blocks.

const (
	minBlockBytes   = 64       // and 16 is the alignment of all blocks
	smallBlockBytes = 64 << 10 // up to here blocks are cut from small chunks
	chunkBlockBytes = 1 << 20  // up to here from large chunks; above, each block is a mapping of its own

	smallChunkBytes = 1 << 20
	largeChunkBytes = 8 << 20

	// hugeBytes is the size of a huge page (x86-64, and arm64 with 4 KiB pages): mappings from here on begin at a multiple of it.
	hugeBytes = 2 << 20

	// bigWaste is the share of a request (1/bigWaste) that a warm block from an earlier, larger request may waste.
	bigWaste = 4
)

// sizeClass returns the number of the smallest class that holds nbytes, and that class's size. Class 0 is minBlockBytes; nbytes is at
// most 2^62.
func sizeClass(nbytes uint64) (class int, size uint64) {
	if nbytes <= minBlockBytes {
		return 0, minBlockBytes
	}
	// nbytes lies in (2^top, 2^(top+1)], which has four classes.
	top := bits.Len64(nbytes-1) - 1
	step := uint64(1) << (top - 2)
	quarter := (nbytes - 1 - 1<<top) / step // 0..3
	const minTop = 6                        // 2^6 is minBlockBytes
	return (top-minTop)*4 + int(quarter) + 1, 1<<top + (quarter+1)*step
}

// classSize is the size of a class.
func classSize(class int) uint64 {
	if class == 0 {
		return minBlockBytes
	}
	top := (class-1)/4 + 6
	return 1<<top + uint64((class-1)%4+1)<<(top-2)
}

// chunkBytes is the size of the chunks that blocks of this size are cut from; 0: they are not cut from chunks.
func chunkBytes(size uint64) uintptr {
	switch {
	case size <= smallBlockBytes:
		return smallChunkBytes
	case size <= chunkBlockBytes:
		return largeChunkBytes
	}
	return 0
}

// refusedSizes remembers which sizes the pool has refused, for who asks for many blocks one after the other and takes none of them back: asking
// again for each would look through the pool's chunks each time. A refusal of one class says nothing of the others: those may have an idle block,
// which cannot always be given back to make room elsewhere. What has a mapping of its own finds none idle after any refusal, so there only
// what is smaller than all that was refused can still be had.
type refusedSizes struct {
	classes uint64 // bit n: blocks of class n
	big     uint64 // with a mapping of their own: this size and more; 0: none was refused
}

var _ [64 - chunkClasses]struct{} // a bit for each class

func (f *refusedSizes) add(nbytes uint64) {
	class, size := sizeClass(nbytes)
	if size <= chunkBlockBytes {
		f.classes |= 1 << class
		f.big = chunkBlockBytes + 1
	} else if f.big == 0 || nbytes < f.big {
		f.big = nbytes
	}
}

// has reports whether a block of this size would be refused, too.
func (f *refusedSizes) has(nbytes uint64) bool {
	class, size := sizeClass(nbytes)
	if size <= chunkBlockBytes {
		return f.classes&(1<<class) != 0
	}
	return f.big != 0 && nbytes >= f.big
}
