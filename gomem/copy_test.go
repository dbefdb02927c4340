package gomem

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// mapped returns memory outside Go's heap with random contents.
func mapped(t *testing.T, nbytes int, seed uint64) []byte {
	t.Helper()
	p, err := mapSlab(uintptr(nbytes))
	require.NoError(t, err)
	t.Cleanup(func() { unmapSlab(p, uintptr(nbytes)) })
	memory := unsafe.Slice((*byte)(p), nbytes)
	random := rand.New(rand.NewPCG(seed, 0))
	block := make([]byte, min(nbytes, 1<<16))
	for i := range block {
		block[i] = byte(random.Uint32())
	}
	for at := 0; at < nbytes; at += len(block) - len(block)/17 { // overlapping, so that the period fits no slice
		copy(memory[at:], block)
	}
	return memory
}

func TestCopyMemory(t *testing.T) {
	for _, n := range []int{0, 1, 63, copySlice - 1, copySlice, copySlice + 1, copyParallel - 1, copyParallel, copyParallel + 5001} {
		src, dst := mapped(t, n+64, 1), mapped(t, n+64, 2)
		before, after := bytes.Clone(dst[:16]), bytes.Clone(dst[16+n:])
		CopyMemory(unsafe.Pointer(&dst[16]), unsafe.Pointer(&src[32]), uint64(n))
		require.True(t, bytes.Equal(src[32:32+n], dst[16:16+n]), "%d bytes", n)
		require.Equal(t, before, dst[:16])
		require.Equal(t, after, dst[16+n:])
	}
}

func TestCopyMemoryOverlapping(t *testing.T) {
	const n = copyParallel + 12345
	for _, distance := range []int{1, 100, copySlice - 1, copySlice, copySlice + 1, n / 2} {
		for _, up := range []bool{false, true} {
			memory := mapped(t, n+distance, 3)
			from, to := distance, 0
			if up {
				from, to = 0, distance
			}
			want := bytes.Clone(memory[from : from+n])
			require.NoError(t, copyMemoryUntil(unsafe.Pointer(&memory[to]), unsafe.Pointer(&memory[from]), n, new(Cancel)))
			require.True(t, bytes.Equal(want, memory[to:to+n]), "by %d, up: %v", distance, up)
		}
	}
}

func TestCopyMemoryCanBeCancelled(t *testing.T) {
	src, dst := mapped(t, 4096, 1), mapped(t, 4096, 2)
	unchanged := bytes.Clone(dst)
	var c Cancel
	c.Cancel()
	require.ErrorIs(t, copyMemoryUntil(unsafe.Pointer(&dst[0]), unsafe.Pointer(&src[0]), 4096, &c), ErrCancelled)
	require.Equal(t, unchanged, dst)
	require.NoError(t, copyMemoryUntil(unsafe.Pointer(&dst[0]), unsafe.Pointer(&src[0]), 4096, new(Cancel)))
	require.Equal(t, src, dst)
}

func TestFillMemory(t *testing.T) {
	for _, n := range []int{0, 1, 2, 15, 16, 17, 1000, 3*copySlice + 7} {
		for length := 1; length <= 16; length++ {
			memory := mapped(t, n+1, 4)
			last := memory[n]
			pattern := mapped(t, 16, uint64(length))[:length]
			FillMemory(unsafe.Pointer(&memory[0]), pattern, uint64(n))
			want := bytes.Repeat(pattern, n/length+1)[:n]
			require.True(t, bytes.Equal(want, memory[:n]), "%d bytes, pattern of %d", n, length)
			require.Equal(t, last, memory[n])
		}
	}
	for _, n := range []int{100, 2*copySlice + 7} {
		memory := mapped(t, n, 4)
		FillMemory(unsafe.Pointer(&memory[0]), []byte{0}, uint64(n))
		require.True(t, bytes.Equal(make([]byte, n), memory), "%d bytes", n)
	}
}

// The parts of a fill follow each other without a gap, and each goes on with the pattern where the one before has ended.
func TestPartsOfAFill(t *testing.T) {
	const n = 3*cancelSlice + 7
	for pattern := 1; pattern <= 16; pattern++ {
		next, parts := uint64(0), 0
		require.NoError(t, fillParts(n, pattern, new(Cancel), func(done, part uint64) error {
			require.Equal(t, next, done)
			require.Zero(t, done%uint64(pattern))
			require.Zero(t, done%4096)
			require.LessOrEqual(t, part, uint64(cancelSlice))
			next += part
			parts++
			return nil
		}))
		require.EqualValues(t, n, next)
		require.Equal(t, 4, parts)
	}
	parts := 0
	require.NoError(t, fillParts(n, 1, nil, func(done, part uint64) error { parts++; return nil }))
	require.Equal(t, 1, parts, "nobody can end it")
}
