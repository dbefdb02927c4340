package simcpu

import (
	"errors"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/common"
	"github.com/tack-memory/tack-memory/gomem"
)

// What this device shares with others that spill (contents, copies, fills, the ladder, books, threads) is tested by tests/go/conformance.

// open makes a device for the length of the test; at its end nothing may be left on it.
func open(t testing.TB, settings Settings) *Driver {
	t.Helper()
	d, err := Open("sim-cpu:0", settings)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, d.Close())
		assert.Zero(t, d.used)
		assert.Zero(t, d.kept.nbytes)
		assert.Zero(t, d.kept.pages)
		assert.Nil(t, d.kept.first)
		assert.Empty(t, d.kept.newest)
	})
	return d
}

func unlimited(mode Mode) Settings { return Settings{Capacity: gomem.Unknown, Mode: mode} }

func (d *Driver) must(t testing.TB, nbytes uint64) uint64 {
	t.Helper()
	address, err := d.Allocate(nbytes)
	require.NoError(t, err)
	return address
}

func (d *Driver) mustFree(t testing.TB, address uint64) {
	t.Helper()
	require.NoError(t, d.Free(gomem.Block{Address: address}))
}

// faults says whether a read of one byte, or a write, crashes; here it only panics.
func faults(address uint64, write bool) (faulted bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			fault, is := r.(interface{ Addr() uintptr })
			faulted = is && uint64(fault.Addr()) == address
		}
	}()
	if write {
		memory(address, 1)[0] = 1
	} else {
		sink = memory(address, 1)[0]
	}
	return false
}

var sink byte

// TestBoundsAreGuarded: what lies behind a block crashes at once where the size is a multiple of the alignment, else after less than one; what lies before
// it, before its first page.
func TestBoundsAreGuarded(t *testing.T) {
	for _, mode := range []Mode{Fresh, Reuse} {
		t.Run(mode.String(), func(t *testing.T) {
			d := open(t, unlimited(mode))
			for _, nbytes := range []uint64{1, 63, 64, 65, 1000, page - 1, page, page + 1, 3*page - 64, 5 << 20} {
				address := d.must(t, nbytes)
				assert.Zero(t, address%align)
				whole := memory(address, nbytes)
				whole[0], whole[nbytes-1] = 1, 2
				end := address + roundUp(nbytes, page) // where addresses are reused, a block begins with its pages
				if mode == Fresh {
					end = address + roundUp(nbytes, align)
					assert.Zero(t, end%page)
				} else {
					assert.Zero(t, address%page)
				}
				assert.False(t, faults(end-1, false), "%d bytes", nbytes)
				for _, write := range []bool{false, true} {
					assert.True(t, faults(end, write), "%d bytes", nbytes)
					assert.True(t, faults(end+page-1, write), "%d bytes", nbytes)
					assert.True(t, faults(address&^(page-1)-1, write), "%d bytes", nbytes)
				}
				d.mustFree(t, address)
			}
		})
	}
}

// TestFreshAddressesNeverRepeat also sees that the old ones stay dead, and that they are nobody else's.
func TestFreshAddressesNeverRepeat(t *testing.T) {
	d := open(t, unlimited(Fresh))
	seen := make(map[uint64]bool, 100_000) // pages that were used
	var old []uint64
	for i := range uint64(100_000) {
		nbytes := 1 + i*i%(2*page)
		address := d.must(t, nbytes)
		for at := address &^ (page - 1); at < address+nbytes; at += page {
			require.False(t, seen[at], "a page is used again")
			seen[at] = true
		}
		if i%5000 == 0 {
			memory(address, 1)[0] = 1
			old = append(old, address)
		}
		d.mustFree(t, address)
	}
	for _, address := range old {
		assert.True(t, faults(address, false))
	}
	other := open(t, unlimited(Fresh)) // another device of the process
	address := other.must(t, 1)
	assert.False(t, seen[address&^(page-1)])
	other.mustFree(t, address)
}

// TestReuse: what was freed last is handed out first, to whoever asks for as many pages; it is mapped and stale until then.
func TestReuse(t *testing.T) {
	d := open(t, unlimited(Reuse))
	a, b, c := d.must(t, 3*page), d.must(t, 3*page), d.must(t, page)
	assert.Equal(t, byte(stale), memory(a, 3*page)[3*page-1], "nobody has written it yet")
	clear(memory(a, 3*page))
	d.mustFree(t, a)
	for i, x := range memory(a, 3*page) { // what a stale pointer reads
		require.Equal(t, byte(stale), x, "byte %d", i)
	}
	assert.Equal(t, a, d.must(t, 3*page), "at once")
	d.mustFree(t, a)
	d.mustFree(t, b)
	assert.NotEqual(t, b, c, "another size")
	assert.Equal(t, b, d.must(t, 2*page+1), "the last one first; it is as many pages")
	assert.Equal(t, byte(stale), memory(b, 1)[0])
	assert.Equal(t, a, d.must(t, 3*page))
	other := d.must(t, 3*page)
	assert.NotContains(t, []uint64{a, b, c}, other)

	for _, address := range []uint64{a, b, c, other} {
		d.mustFree(t, address)
	}
	memory, err := d.Memory()
	require.NoError(t, err)
	assert.EqualValues(t, 3*page+2*page+1+page+3*page, memory.Cached)
	released, err := d.Trim()
	require.NoError(t, err)
	assert.EqualValues(t, memory.Cached, released)
	for _, address := range []uint64{a, b, c, other} {
		assert.True(t, faults(address, false), "unmapped")
	}
	assert.NotContains(t, []uint64{a, b, other}, d.must(t, 3*page), "and never used again")
	for address := range d.live {
		d.mustFree(t, address)
	}
}

// TestKept compares the list with a slice, through random operations.
func TestKept(t *testing.T) {
	var k kept
	var want []*block // oldest first
	random := uint64(1)
	next := func(n uint64) uint64 {
		random = random*6364136223846793005 + 1442695040888963407
		return random >> 33 % n
	}
	drop := func(b *block) {
		for i := range want {
			if want[i] == b {
				want = append(want[:i], want[i+1:]...)
				return
			}
		}
		t.Fatal("it was not kept")
	}
	for range 20_000 {
		switch pages := next(3); next(5) {
		case 0, 1:
			b := &block{pages: pages, nbytes: next(100)}
			k.put(b)
			want = append(want, b)
		case 2, 3:
			var newest *block
			for _, b := range want {
				if b.pages == pages {
					newest = b
				}
			}
			require.Same(t, newest, k.take(pages))
			if newest != nil {
				drop(newest)
			}
		default:
			var oldest *block
			if len(want) > 0 {
				oldest = want[0]
				want = want[1:]
			}
			require.Same(t, oldest, k.takeOldest())
		}
		nbytes, pages := uint64(0), uint64(0)
		for _, b := range want {
			nbytes, pages = nbytes+b.nbytes, pages+b.pages
		}
		require.Equal(t, [2]uint64{nbytes, pages}, [2]uint64{k.nbytes, k.pages})
	}
}

// TestKeptIsBounded: the oldest go, but never what was freed last.
func TestKeptIsBounded(t *testing.T) {
	d := open(t, unlimited(Reuse))
	d.most = 4 << 20
	half := d.most/2 + 1
	a, b := d.must(t, half), d.must(t, half)
	d.mustFree(t, a)
	d.mustFree(t, b)
	assert.True(t, faults(a, false))
	assert.False(t, faults(b, false))
	assert.Equal(t, b, d.must(t, half))
	large := d.must(t, 2*d.most)
	d.mustFree(t, large)
	assert.Equal(t, large, d.must(t, 2*d.most))
	d.mustFree(t, large)
	d.mustFree(t, b)
	assert.True(t, faults(large, false))
}

// TestCapacity is exact in what was asked for: pages are not counted.
func TestCapacity(t *testing.T) {
	for _, mode := range []Mode{Fresh, Reuse} {
		t.Run(mode.String(), func(t *testing.T) {
			d := open(t, Settings{Capacity: 1000, Mode: mode})
			free := func() int64 {
				m, err := d.Memory()
				require.NoError(t, err)
				assert.EqualValues(t, 1000, m.Total)
				assert.Equal(t, m.Free, m.LargestFree)
				return m.Free + m.Cached
			}
			_, err := d.Allocate(1001)
			require.ErrorIs(t, err, gomem.ErrTooLarge)
			a := d.must(t, 400)
			b := d.must(t, 599)
			assert.EqualValues(t, 1, free())
			_, err = d.Allocate(2)
			var full *gomem.DriverError
			require.ErrorAs(t, err, &full)
			assert.ErrorIs(t, err, gomem.ErrOutOfMemory)
			assert.Equal(t, "sim-cpu:0: mmap failed: ENOMEM (12)", err.Error())
			c := d.must(t, 1)
			assert.Zero(t, free())
			d.mustFree(t, a)
			assert.EqualValues(t, 400, free())
			assert.Equal(t, mode == Reuse, a == d.must(t, 400))
			for address := range d.live {
				d.mustFree(t, address)
			}
			assert.EqualValues(t, 1000, free())
			_, err = d.Trim()
			require.NoError(t, err)
			d.mustFree(t, d.must(t, 1000))
			_, _ = b, c
		})
	}
}

// TestKeptTakesRoom: what is kept of another size is the device's until it is trimmed, as with real pools.
func TestKeptTakesRoom(t *testing.T) {
	d := open(t, Settings{Capacity: int64(3 * page), Mode: Reuse})
	d.mustFree(t, d.must(t, 2*page))
	m, err := d.Memory()
	require.NoError(t, err)
	assert.Equal(t, [2]int64{int64(page), int64(2 * page)}, [2]int64{m.Free, m.Cached})
	_, err = d.Allocate(page + 1 - page/2)
	require.NoError(t, err)
	_, err = d.Allocate(page)
	require.ErrorIs(t, err, gomem.ErrOutOfMemory)
	_, err = d.Trim()
	require.NoError(t, err)
	d.must(t, page)
	for address := range d.live {
		d.mustFree(t, address)
	}
}

// TestUnlimited: nothing is known of such a device but what it keeps; more than the host has is too large all the same.
func TestUnlimited(t *testing.T) {
	d := open(t, unlimited(Fresh))
	m, err := d.Memory()
	require.NoError(t, err)
	assert.Equal(t, gomem.DriverMemory{Free: gomem.Unknown, Total: gomem.Unknown, Allocated: gomem.Unknown, LargestFree: gomem.Unknown}, m)
	total, _ := gomem.HostMemory()
	_, err = d.Allocate(uint64(total) + 1)
	assert.ErrorIs(t, err, gomem.ErrTooLarge)
	assert.NotErrorIs(t, err, gomem.ErrOutOfMemory)
}

func TestSetUp(t *testing.T) {
	d := open(t, unlimited(Fresh))
	small := Settings{Capacity: 100, Mode: Reuse}
	address := d.must(t, 500)
	var busy *InUseError
	require.ErrorAs(t, d.SetUp(small), &busy)
	assert.Equal(t, InUseError{Device: "sim-cpu:0", Bytes: 500}, *busy)
	assert.ErrorContains(t, busy, "(500 B)")
	assert.Equal(t, unlimited(Fresh), d.Settings(), "nothing has changed")
	d.mustFree(t, address)

	require.NoError(t, d.SetUp(small))
	assert.Equal(t, small, d.Settings())
	_, err := d.Allocate(101)
	assert.ErrorIs(t, err, gomem.ErrTooLarge)
	address = d.must(t, 100)
	d.mustFree(t, address)
	require.NoError(t, d.SetUp(unlimited(Fresh)))
	assert.True(t, faults(address, false), "what was kept is unmapped")
	assert.NotEqual(t, address, d.must(t, 100))
	for address := range d.live {
		d.mustFree(t, address)
	}

	for _, wrong := range []Settings{{Capacity: 0}, {Capacity: -2}, {Capacity: 1, Mode: 2}} {
		assert.Error(t, d.SetUp(wrong))
		_, err := Open("sim-cpu:0", wrong)
		assert.Error(t, err)
	}
	mode, err := ParseMode("reuse")
	require.NoError(t, err)
	assert.Equal(t, Reuse, mode)
	_, err = ParseMode("stale")
	assert.ErrorContains(t, err, "fresh and reuse")
}

func TestRefusals(t *testing.T) {
	d := open(t, unlimited(Fresh))
	address := d.must(t, 10)
	var left *common.BuffersLeftError
	require.ErrorAs(t, d.Close(), &left)
	assert.Equal(t, 1, left.Count)
	assert.Error(t, d.Free(gomem.Block{Address: address + align}), "inside a block")
	assert.Error(t, d.Free(gomem.Block{Address: address, How: gomem.HowHost}))
	assert.False(t, d.CanFree(gomem.HowCUDA))
	d.mustFree(t, address)
	var failed *gomem.DriverError
	require.ErrorAs(t, d.Free(gomem.Block{Address: address}), &failed, "twice")
	assert.False(t, errors.Is(failed, gomem.ErrOutOfMemory))
	require.NoError(t, d.SetStream(0, 0))
	assert.ErrorIs(t, d.SetStream(0, 1), gomem.ErrInvalidHandle)

	address = d.must(t, 10)
	d.Disown(gomem.Block{Address: address, Bytes: 10})
	assert.Empty(t, d.live)
	assert.False(t, faults(address, true), "it is somebody else's now, who may use it for ever")
	require.NoError(t, d.Close())
	assert.ErrorIs(t, d.SetUp(unlimited(Reuse)), common.ErrClosed)
}

// TestThreads: many at a time; each finds in its blocks what it has put there.
func TestThreads(t *testing.T) {
	for _, c := range []struct {
		mode Mode
		keep int // blocks of each worker: with none, chunks die while others are being taken
	}{{Fresh, 0}, {Fresh, 8}, {Reuse, 8}} {
		d := open(t, unlimited(c.mode))
		var group sync.WaitGroup
		for worker := range byte(4) {
			group.Go(func() {
				var mine []uint64
				for step := range uint64(3000) {
					if len(mine) > c.keep {
						for _, x := range memory(mine[0], page) {
							if x != worker {
								t.Errorf("somebody else wrote here")
								return
							}
						}
						assert.NoError(t, d.Free(gomem.Block{Address: mine[0]}))
						mine = mine[1:]
					}
					address, err := d.Allocate(page + step%7*page)
					if !assert.NoError(t, err) {
						return
					}
					gomem.FillMemory(common.Pointer(address), []byte{worker}, page)
					mine = append(mine, address)
				}
				for _, address := range mine {
					assert.NoError(t, d.Free(gomem.Block{Address: address}))
				}
			})
		}
		group.Wait()
	}
}
