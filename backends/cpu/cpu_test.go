package cpu

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
)

// What a device whose memory is only counted shares with others (contents, copies, fills, books, threads) is tested by tests/go/conformance.

// at is memory of the C library as bytes. Not inlined: the compiler of Go 1.26 breaks on a copy between two addresses that it knows to be
// numbers.
//
//go:noinline
func at(address, nbytes uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(nil), address)), nbytes)
}

func allocate(t *testing.T, d *Driver, nbytes uint64) uint64 {
	t.Helper()
	address, err := d.Allocate(nbytes)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Free(gomem.Block{Address: address, Bytes: nbytes})) })
	return address
}

func TestMemoryIsAlignedAndApart(t *testing.T) {
	d := Open("cpu")
	seen := map[uint64]bool{}
	for _, nbytes := range []uint64{1, 63, 64, 65, 4096, 1 << 20, 1, 1} {
		address := allocate(t, d, nbytes)
		assert.Zero(t, address%64)
		assert.False(t, seen[address])
		seen[address] = true
		for i := range at(address, nbytes) {
			at(address, nbytes)[i] = byte(i)
		}
	}
}

func mappings(t *testing.T) int {
	content, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	return bytes.Count(content, []byte("\n"))
}

func TestSmallBlocksTakeNoMappingEach(t *testing.T) {
	d := Open("cpu")
	before := mappings(t)
	for range 5000 {
		allocate(t, d, 4000)
	}
	assert.Less(t, mappings(t), before+500)
}

func TestRefusals(t *testing.T) {
	d := Open("cpu")
	total, _ := gomem.HostMemory()
	_, err := d.Allocate(uint64(total) + 1)
	assert.ErrorIs(t, err, gomem.ErrTooLarge)
	var failed *gomem.DriverError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, "cpu", failed.Device)
	assert.False(t, errors.Is(err, gomem.ErrOutOfMemory))

	assert.True(t, d.CanFree(gomem.HowDriver))
	assert.False(t, d.CanFree(gomem.HowCUDA))
	assert.ErrorContains(t, d.Free(gomem.Block{Address: 1, Bytes: 1, How: gomem.HowCUDA}), "not the host's")
	assert.Error(t, d.SetStream(1, 1))
	assert.Error(t, d.Fill(1, nil, 1))
}

func TestFigures(t *testing.T) {
	d := Open("cpu")
	memory, err := d.Memory()
	require.NoError(t, err)
	assert.Positive(t, memory.Total)
	assert.Positive(t, memory.Free)
	assert.LessOrEqual(t, memory.Free, memory.Total)
	assert.Equal(t, gomem.Unknown, memory.LargestFree)
	released, err := d.Trim()
	require.NoError(t, err)
	assert.Zero(t, released)
	assert.Zero(t, d.PendingFree())
}
