package gomem

import (
	"runtime"
	"slices"
	"sync"
	"unsafe"
)

const (
	// copySlice is the most that one memmove moves. Go can stop a goroutine only between two of them: this bounds how long a garbage
	// collection waits for a copy, to some 100 microseconds.
	copySlice = 1 << 20

	// cancelSlice is how much is copied or filled between two looks at a Cancel: some 10 ms of copying.
	cancelSlice = 64 << 20

	// copyParallel is the size from which a second thread pays: two threads copy 1.5 times as fast as one where both have a CPU
	// (18 against 12 GB/s), and starting one takes some microseconds.
	copyParallel = 8 << 20
	copyThreads  = 2 // more than two do not help: memory is the limit then
)

// CopyMemory copies n bytes of host memory, as memmove does where the ranges overlap. Large copies take two threads.
func CopyMemory(dst, src unsafe.Pointer, n uint64) {
	if n < copyParallel || overlaps(dst, src, n) || runtime.GOMAXPROCS(0) < copyThreads {
		copySerial(dst, src, n)
		return
	}
	// Cut at a page, so that the threads share no cache line.
	half := (n / 2) &^ 4095
	var other sync.WaitGroup
	other.Go(func() { copySerial(unsafe.Add(dst, half), unsafe.Add(src, half), n-half) })
	copySerial(dst, src, half)
	other.Wait()
}

// copyMemoryUntil is CopyMemory that c can end: then it returns ErrCancelled, and dst is partly written.
func copyMemoryUntil(dst, src unsafe.Pointer, n uint64, c *Cancel) error {
	if c == nil || overlaps(dst, src, n) {
		// A half-done move within one buffer would leave neither the old contents nor the new.
		CopyMemory(dst, src, n)
		return nil
	}
	for done := uint64(0); done < n; {
		if err := c.err(); err != nil {
			return err
		}
		part := min(cancelSlice, n-done)
		CopyMemory(unsafe.Add(dst, done), unsafe.Add(src, done), part)
		done += part
	}
	return nil
}

// copySerial copies in slices: forward, or backward where a forward copy would overwrite what it has still to read.
func copySerial(dst, src unsafe.Pointer, n uint64) {
	if uintptr(dst) > uintptr(src) && overlaps(dst, src, n) {
		for end := n; end > 0; {
			part := min(copySlice, end)
			end -= part
			moveMemory(unsafe.Add(dst, end), unsafe.Add(src, end), part)
		}
		return
	}
	for done := uint64(0); done < n; {
		part := min(copySlice, n-done)
		moveMemory(unsafe.Add(dst, done), unsafe.Add(src, done), part)
		done += part
	}
}

// moveMemory is one memmove.
func moveMemory(dst, src unsafe.Pointer, n uint64) {
	copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
}

// FillMemory repeats pattern over n bytes of host memory; the last repetition may be cut.
func FillMemory(dst unsafe.Pointer, pattern []byte, n uint64) {
	target := unsafe.Slice((*byte)(dst), n)
	if len(pattern) == 1 && pattern[0] == 0 {
		for part := range slices.Chunk(target, copySlice) { // Go cannot stop a goroutine inside one clear either
			clear(part)
		}
		return
	}
	filled := copy(target, pattern)
	// Doubling what is there keeps the phase only while whole repetitions are copied; every part below is a multiple of the pattern.
	most := copySlice / len(pattern) * len(pattern)
	for filled < len(target) {
		filled += copy(target[filled:], target[:min(filled, most)])
	}
}

// fillMemoryUntil is FillMemory that c can end: then it returns ErrCancelled, and dst is partly written.
func fillMemoryUntil(dst unsafe.Pointer, pattern []byte, n uint64, c *Cancel) error {
	return fillParts(n, len(pattern), c, func(done, part uint64) error {
		FillMemory(unsafe.Add(dst, done), pattern, part)
		return nil
	})
}

// fillParts calls fill for n bytes in parts of some 10 ms each, and looks at c in between. Each part but the last is a multiple of the pattern, so that the
// next one begins with its first byte, and of a page, so that it is aligned as the first one is.
func fillParts(n uint64, pattern int, c *Cancel, fill func(done, part uint64) error) error {
	most := n
	if c != nil && pattern > 0 { // a driver refuses a pattern without a byte
		const page = 4096
		most = cancelSlice / (page * uint64(pattern)) * (page * uint64(pattern))
	}
	for done := uint64(0); done < n; {
		if done > 0 && c.cancelled() {
			return ErrCancelled
		}
		part := min(most, n-done)
		if err := fill(done, part); err != nil {
			return err
		}
		done += part
	}
	return nil
}

// overlaps reports whether two ranges of n bytes share any.
func overlaps(a, b unsafe.Pointer, n uint64) bool {
	if uintptr(a) > uintptr(b) {
		a, b = b, a
	}
	return uint64(uintptr(b)-uintptr(a)) < n
}
