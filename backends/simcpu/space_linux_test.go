package simcpu

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tack-memory/tack-memory/backends/common"
	"github.com/tack-memory/tack-memory/gomem"
)

// childVariable says which part of a test a child process plays.
const childVariable = "TACK_MEMORY_TEST_CHILD"

// inChild runs a test again in a process of its own, and returns what it printed and how it ended.
func inChild(t *testing.T) (output string, err error) {
	t.Helper()
	command := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
	command.Env = append(os.Environ(), childVariable+"=1")
	told, err := command.CombinedOutput()
	return string(told), err
}

func isChild() bool { return os.Getenv(childVariable) != "" }

// TestStalePointerCrashes: the process ends by SIGSEGV at the very address.
func TestStalePointerCrashes(t *testing.T) {
	if isChild() {
		d := open(t, unlimited(Fresh))
		address := d.must(t, 1000)
		memory(address, 1)[0] = 1
		d.mustFree(t, address)
		fmt.Printf("reading %#x\n", address)
		sink = memory(address, 1)[0]
		fmt.Println("still there")
		return
	}
	output, err := inChild(t)
	require.Error(t, err)
	_, rest, found := strings.Cut(output, "reading ")
	require.True(t, found, output)
	address, rest, _ := strings.Cut(rest, "\n")
	assert.Contains(t, rest, "SIGSEGV")
	assert.Contains(t, rest, "addr="+address)
	assert.NotContains(t, output, "still there")
}

// status reads a figure of the process, in bytes.
func status(t testing.TB, key string) int64 {
	t.Helper()
	content, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	for line := range strings.Lines(string(content)) {
		if value, found := strings.CutPrefix(line, key+":"); found {
			kib, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			require.NoError(t, err)
			return kib << 10
		}
	}
	t.Fatalf("the kernel does not tell %s", key)
	return 0
}

// TestMemoryGoesBack: a freed block's pages are the system's again.
func TestMemoryGoesBack(t *testing.T) {
	d := open(t, unlimited(Fresh))
	const n = 64 << 20
	before := status(t, "VmRSS")
	address := d.must(t, n)
	assert.Less(t, status(t, "VmRSS")-before, int64(n/4), "pages come when they are used")
	gomem.FillMemory(common.Pointer(address), []byte{1}, n)
	assert.Greater(t, status(t, "VmRSS")-before, int64(n*3/4))
	d.mustFree(t, address)
	assert.Less(t, status(t, "VmRSS")-before, int64(n/4))
}

// TestDeadBlocksCostNothing: neither mappings nor page tables grow with what was freed, in whatever order that was.
func TestDeadBlocksCostNothing(t *testing.T) {
	d := open(t, unlimited(Fresh))
	const n, live, rounds = 64 << 10, 100, 20_000 // 1.3 GB of addresses, whose page tables have 2.6 MB
	mappingsBefore, tablesBefore := mappingsUsed(), status(t, "VmPTE")
	var kept []uint64
	for i := range rounds {
		address := d.must(t, n)
		memory(address, n)[0], memory(address, n)[n-1] = 1, 1
		kept = append(kept, address)
		if len(kept) == live {
			at := i * 7919 % live
			d.mustFree(t, kept[at])
			kept = append(kept[:at], kept[at+1:]...)
		}
	}
	assert.LessOrEqual(t, mappingsUsed()-mappingsBefore, 2*live+50)
	for _, address := range kept {
		d.mustFree(t, address)
	}
	assert.LessOrEqual(t, mappingsUsed()-mappingsBefore, 50)
	assert.Less(t, status(t, "VmPTE")-tablesBefore, int64(512<<10))
	addresses.mu.Lock()
	defer addresses.mu.Unlock()
	assert.LessOrEqual(t, len(addresses.ends), 1+addresses.blocks*2)
}

// TestTooManyBlocks: the limit of mappings is one of live blocks, and an error that says so; the process lives on.
func TestTooManyBlocks(t *testing.T) {
	if mappingLimit() > 1<<20 {
		t.Skipf("this system allows %d mappings, and to make so many takes too long: it is run after sysctl vm.max_map_count=65530, which is usual", mappingLimit())
	}
	d := open(t, unlimited(Fresh))
	var blocks []uint64
	var err error
	for err == nil {
		var address uint64
		if address, err = d.Allocate(1); err == nil {
			blocks = append(blocks, address)
		}
	}
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	assert.ErrorIs(t, err, gomem.ErrOutOfMemory)
	assert.ErrorContains(t, err, "vm.max_map_count")
	assert.ErrorContains(t, err, strconv.Itoa(mappingLimit()))
	assert.InDelta(t, mostBlocks(), len(blocks), 10)
	assert.Less(t, mappingsUsed(), mappingLimit()*9/10)
	for i, address := range blocks { // first every second one: each is a mapping between two others
		if i%2 == 0 {
			d.mustFree(t, address)
		}
	}
	for i, address := range blocks {
		if i%2 == 1 {
			d.mustFree(t, address)
		}
	}
	d.mustFree(t, d.must(t, 1))
}

// TestWhereNothingCanBeMapped: at the limit of mappings a free still gives the memory back, and leaves a stale pointer nothing to read.
func TestWhereNothingCanBeMapped(t *testing.T) {
	s := &space{}
	const n = 32 << 20
	begin, err := s.take(n)
	require.NoError(t, err)
	gomem.FillMemory(common.Pointer(begin), []byte{1}, n)
	before := status(t, "VmRSS")
	s.unmap = func(uint64, uint64) error { return unix.ENOMEM }
	require.NoError(t, s.retire(begin, n))
	assert.True(t, faults(begin, false))
	assert.True(t, faults(begin+n-1, true))
	assert.Less(t, status(t, "VmRSS")-before, int64(-n/2))

	s.unmap = nil
	small, err := s.take(page)
	require.NoError(t, err)
	assert.Greater(t, small, begin+n)
	require.NoError(t, s.retire(small, page))
	assert.Zero(t, s.blocks)
}

// TestPlaces: a region begins with a page that nobody may touch, and large blocks begin with a chunk, in which a huge page can lie.
func TestPlaces(t *testing.T) {
	s := &space{region: 8 * chunk}
	first, err := s.take(page)
	require.NoError(t, err)
	assert.Equal(t, page, first%chunk)
	second, err := s.take(large)
	require.NoError(t, err)
	assert.Equal(t, first-page+chunk, second)
	third, err := s.take(large) // does not fit behind it with its page and its place
	require.NoError(t, err)
	assert.Zero(t, third%chunk)
	huge, err := s.take(20 * chunk) // more than a region has
	require.NoError(t, err)
	assert.False(t, faults(huge+20*chunk-1, true))
	assert.True(t, faults(huge+20*chunk, true))
	for begin, pages := range map[uint64]uint64{first: page, second: large, third: large, huge: 20 * chunk} {
		require.NoError(t, s.retire(begin, pages))
	}
	assert.Empty(t, s.ends)
}

// TestFewAddresses: under a limit of addresses the device takes small parts of them, and says so when they are used up; others still get some.
func TestFewAddresses(t *testing.T) {
	if !isChild() {
		output, err := inChild(t)
		require.NoError(t, err, output)
		assert.Contains(t, output, "PASS")
		return
	}
	const room = 4 << 30
	limit := uint64(status(t, "VmSize")) + room
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: limit, Max: limit}))
	d := open(t, unlimited(Fresh))
	d.mustFree(t, d.must(t, 1))
	assert.Less(t, addresses.end-addresses.next, uint64(room/4))
	const n = 16 << 20
	var err error
	taken := 0
	for err == nil {
		var address uint64
		if address, err = d.Allocate(n); err == nil {
			d.mustFree(t, address)
			taken++
		}
	}
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	assert.ErrorIs(t, err, gomem.ErrOutOfMemory)
	assert.ErrorContains(t, err, gomem.SizeText(limit))
	assert.ErrorContains(t, err, `"reuse"`)
	assert.Greater(t, taken, room/n/2)
	require.NoError(t, d.SetUp(unlimited(Reuse)))
	d.mustFree(t, d.must(t, 1000))
}

// BenchmarkAllocateFree is what the core pays for a buffer, without and with the use of all its pages.
func BenchmarkAllocateFree(b *testing.B) {
	for _, mode := range []Mode{Fresh, Reuse} {
		for _, n := range []uint64{1000, 64 << 10, 1 << 20} {
			for _, used := range []bool{false, true} {
				b.Run(fmt.Sprintf("%v/%d/used=%v", mode, n, used), func(b *testing.B) {
					d := open(b, unlimited(mode))
					for b.Loop() {
						address := d.must(b, n)
						if used {
							gomem.FillMemory(common.Pointer(address), []byte{1}, n)
						}
						d.mustFree(b, address)
					}
				})
			}
		}
	}
}
