package cpu

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
)

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

func TestCopies(t *testing.T) {
	d := Open("cpu")
	const n = 1000
	a, b := allocate(t, d, n), allocate(t, d, n)
	for i := range at(a, n) {
		at(a, n)[i] = byte(i * 7)
	}
	want := bytes.Clone(at(a, n))
	require.NoError(t, d.CopyOut(unsafe.Pointer(&at(b, n)[0]), a, n))
	assert.Equal(t, want, at(b, n))
	clear(at(a, n))
	require.NoError(t, d.CopyIn(a, unsafe.Pointer(&at(b, n)[0]), n))
	assert.Equal(t, want, at(a, n))
	for _, shift := range []uint64{0, 1, 100} {
		for _, up := range []bool{true, false} {
			t.Run(fmt.Sprint(shift, up), func(t *testing.T) {
				copy(at(a, n), want)
				model := bytes.Clone(want)
				to, from := a+shift, a
				if !up {
					to, from = from, to
				}
				copy(model[to-a:][:n-shift], bytes.Clone(model[from-a:][:n-shift]))
				require.NoError(t, d.CopyWithin(to, from, n-shift))
				assert.Equal(t, model, at(a, n))
			})
		}
	}
}

func TestFill(t *testing.T) {
	d := Open("cpu")
	const n = 257
	a := allocate(t, d, n)
	for length := 1; length <= 16; length++ {
		pattern := []byte("abcdefghijklmnop")[:length]
		for _, nbytes := range []uint64{1, 2, 15, 16, 17, 100, n - 1} {
			at(a, n)[nbytes] = 0xff
			require.NoError(t, d.Fill(a, pattern, nbytes))
			assert.Equal(t, bytes.Repeat(pattern, n)[:nbytes], at(a, nbytes))
			assert.Equal(t, byte(0xff), at(a, n)[nbytes], "one byte too many")
		}
	}
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

func TestManyThreads(t *testing.T) {
	d := Open("cpu")
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for i := range 500 {
				n := uint64(1 + (i*37+worker)%3000)
				address, err := d.Allocate(n)
				if !assert.NoError(t, err) {
					return
				}
				assert.NoError(t, d.Fill(address, []byte{byte(worker), byte(i)}, n))
				assert.Equal(t, byte(worker), at(address, n)[0])
				assert.NoError(t, d.Free(gomem.Block{Address: address, Bytes: n}))
			}
		})
	}
	group.Wait()
}

// TestDevice runs the core over it: counted, never spilled.
func TestDevice(t *testing.T) {
	d, err := gomem.NewDevice(Open("cpu"), gomem.Options{Check: true})
	require.NoError(t, err)
	index, err := d.Allocate(1<<20, gomem.AllocateOptions{Zero: true})
	require.NoError(t, err)
	assert.Zero(t, at(d.Record(index).Address, 1<<20)[12345])
	_, _, err = d.SetBudget(1000, false, gomem.Wait{})
	require.NoError(t, err)
	freed, err := d.Spill(index, gomem.Wait{})
	require.NoError(t, err)
	assert.Zero(t, freed)
	info, err := d.Info(true)
	require.NoError(t, err)
	assert.EqualValues(t, 1<<20, info.InUse)
	assert.Positive(t, info.Driver.Free)
	d.Drop(index)
	require.NoError(t, d.Close())
}

func TestReadFacts(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{
		"proc/cpuinfo": "processor\t: 0\nmodel name\t: A Processor 9\n\nprocessor\t: 1\nmodel name\t: Another\n",
		"proc/meminfo": "MemTotal:  100 kB\nHugePages_Total:      12\nHugePages_Free:        7\nHugepagesize:       2048 kB\n",
		"sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(content), 0o600))
	}
	want := Facts{Product: "A Processor 9", PageBytes: os.Getpagesize(), TransparentHugePages: "madvise", HugePageBytes: 2 << 20, HugePages: 12, HugePagesFree: 7}
	assert.Equal(t, want, readFacts(root))
	assert.Equal(t, Facts{PageBytes: os.Getpagesize()}, readFacts(t.TempDir()))
	assert.Positive(t, ReadFacts().PageBytes)
}
