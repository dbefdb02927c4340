package gomem

import (
	"bytes"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestSlabIsZeroedAlignedAndStable(t *testing.T) {
	_, err := mapSlab(0)
	require.Error(t, err)
	_, err = mapSlab(1 << 62)
	require.Error(t, err)
	for _, nbytes := range []uintptr{1, 64, 4096, 5 << 20} {
		p, err := mapSlab(nbytes)
		require.NoError(t, err)
		require.Zero(t, uintptr(p)%64)
		memory := unsafe.Slice((*byte)(p), nbytes)
		require.Equal(t, int(nbytes), bytes.Count(memory, []byte{0}))
		memory[nbytes-1] = 1
		unmapSlab(p, nbytes)
	}
}

func TestMapAligned(t *testing.T) {
	for _, align := range []uintptr{1 << 16, 1 << 20, 8 << 20} {
		p, err := mapAligned(3<<20, align)
		require.NoError(t, err)
		require.Zero(t, uintptr(p)%align)
		clear(unsafe.Slice((*byte)(p), 3<<20))
		unmapSlab(p, 3<<20)
	}
	_, err := mapAligned(^uintptr(0)-100, 1<<20)
	require.Error(t, err)
}
