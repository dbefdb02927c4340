package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// TestContents: what goes in comes out, for sizes around those at which libraries change their ways.
func TestContents(t *testing.T) {
	forAll(t, func(t *testing.T, f flavour) {
		r := newRig(t, f, nil)
		for i, n := range []int{1, 7, 4096, 70_000, 3 << 20} {
			a := r.Allocate(uint64(n))
			content := soft.Noise(n, uint32(i))
			r.Write(a, content)
			require.Equal(t, content, r.Read(a, n))
			r.Free(a, uint64(n))
		}
	})
}

// copyModes are the ways in which copies of pageable memory behave: done at return, or late, over a slow device whose operations take
// random times.
var copyModes = []settings{
	{"pageable": 0},
	{"pageable": 1, "delay_us": 300, "jitter_us": 500},
	{"pageable": 1, "copy_mib_s": 200},
}

// copyModes is those that the flavour can be put into.
func (f flavour) copyModes() []settings {
	if f.steered() {
		return copyModes
	}
	return []settings{nil}
}

// TestCopiesAreCompleteAtReturn: a copy out holds what was queued before it, and the source of a copy in may be overwritten at once, however late
// the library really copies; also with several threads that copy at the same time.
func TestCopiesAreCompleteAtReturn(t *testing.T) {
	forAll(t, func(t *testing.T, f flavour) {
		for _, mode := range f.copyModes() {
			t.Run(fmt.Sprint(mode), func(t *testing.T) {
				r := newRig(t, f, mode)
				const n = 100_000
				var group sync.WaitGroup
				for worker := range 3 {
					host, pointer := soft.Bytes(t, n)
					group.Go(func() {
						a, errA := r.Driver.Allocate(n)
						b, errB := r.Driver.Allocate(n)
						if !assert.NoError(t, errors.Join(errA, errB)) {
							return
						}
						for round := range 4 {
							content := soft.Noise(n, uint32(10*worker+round))
							copy(host, content)
							assert.NoError(t, r.Driver.CopyIn(a, pointer, n))
							clear(host)
							assert.NoError(t, r.Driver.CopyWithin(b, a, n))
							assert.NoError(t, r.Driver.Fill(b, []byte{7}, n/2))
							assert.NoError(t, r.Driver.CopyOut(pointer, b, n))
							for i := range content[:n/2] {
								content[i] = 7
							}
							assert.True(t, bytes.Equal(content, host), "worker %d, round %d", worker, round)
						}
						assert.NoError(t, errors.Join(r.Driver.Free(gomem.Block{Address: a, Bytes: n}), r.Driver.Free(gomem.Block{Address: b, Bytes: n})))
					})
				}
				group.Wait()
			})
		}
	})
}

// TestManyThreads: all operations at once, with contents checked, over a slow device.
func TestManyThreads(t *testing.T) {
	forEachThatSpills(t, func(t *testing.T, f flavour) {
		r := newRig(t, f, settings{"delay_us": 200, "jitter_us": 300})
		var group sync.WaitGroup
		for worker := range 4 {
			host, pointer := soft.Bytes(t, 10_000)
			group.Go(func() {
				for i := range 40 {
					n := uint64(1 + (i*997+worker*31)%10_000)
					a, err := r.Driver.Allocate(n)
					if !assert.NoError(t, err) {
						return
					}
					mark := byte(worker*50 + i)
					assert.NoError(t, r.Driver.Fill(a, []byte{mark}, n))
					assert.NoError(t, r.Driver.CopyOut(pointer, a, n))
					assert.Equal(t, bytes.Repeat([]byte{mark}, int(n)), host[:n], "worker %d, round %d", worker, i)
					assert.NoError(t, r.Driver.Free(gomem.Block{Address: a, Bytes: n}))
					if i%10 != worker {
						continue
					}
					assert.NoError(t, r.Driver.Synchronize())
					_, err = r.Driver.Trim()
					assert.NoError(t, err)
					_, err = r.Driver.Memory()
					assert.NoError(t, err)
					if overcommits, does := r.Driver.(gomem.Overcommitter); does {
						_, err = overcommits.Room(0, 1)
						assert.NoError(t, err)
					}
				}
			})
		}
		group.Wait()
	})
}

// TestCopyWithin is memmove, for ranges that overlap a little, much, and not at all, with device memory to spare and without.
func TestCopyWithin(t *testing.T) {
	forAll(t, func(t *testing.T, f flavour) {
		for _, full := range []bool{false, true} {
			if full && !f.steered() {
				continue // that takes too long
			}
			t.Run(fmt.Sprint("full=", full), func(t *testing.T) {
				var mode settings
				if !full && f.steered() {
					mode = copyModes[1] // what is queued is late, and read all the same
				}
				r := newRig(t, f, mode)
				const n = 200_000
				a := r.Allocate(n)
				for full { // nothing is left for a detour
					filler, err := r.Driver.Allocate(32 << 10)
					if err != nil {
						break
					}
					defer r.Free(filler, 32<<10)
				}
				for _, distance := range []int{0, 1, 8, 1000, n / 33, n / 3, n / 2, n - 1} {
					for _, up := range []bool{true, false} {
						content := soft.Noise(n, uint32(distance))
						r.Write(a, content)
						to, from := distance, 0
						if !up {
							to, from = from, to
						}
						want := bytes.Clone(content)
						copy(want[to:to+n-distance], content[from:])
						require.NoError(t, r.Driver.CopyWithin(a+uint64(to), a+uint64(from), uint64(n-distance)))
						require.True(t, bytes.Equal(want, r.Read(a, n)), "distance %d, up %v", distance, up)
					}
				}
				r.Free(a, n)
			})
		}
	})
}

// TestFill compares patterns of every length, at several alignments, with a few lengths around the edges; what lies around the range stays.
func TestFill(t *testing.T) {
	forAll(t, func(t *testing.T, f flavour) {
		r := newRig(t, f, nil)
		const room = 600
		a := r.Allocate(room)
		background := soft.Noise(room, 1)
		for length := 1; length <= 16; length++ {
			pattern := soft.Noise(length, uint32(100+length))
			for _, offset := range []int{0, 1, 2, 4, 7} {
				for _, n := range []int{1, 3, 4, 5, length, length + 1, 3*length - 1, 16 * length, 500} {
					r.Write(a, background)
					require.NoError(t, r.Driver.Fill(a+uint64(offset), pattern, uint64(n)))
					want := bytes.Clone(background)
					copy(want[offset:offset+n], bytes.Repeat(pattern, n))
					require.Equal(t, want, r.Read(a, room), "pattern of %d at +%d over %d", length, offset, n)
				}
			}
		}
		assert.Error(t, r.Driver.Fill(a, nil, 1))
		if f.counted == nil {
			assert.Error(t, r.Driver.Fill(a, make([]byte, 17), 1))
		}
		r.Free(a, room)
	})
}

// TestTooLarge: more than the device has is an error that no free can help, and it names the device.
func TestTooLarge(t *testing.T) {
	forAll(t, func(t *testing.T, f flavour) {
		r := newRig(t, f, nil)
		_, err := r.Driver.Allocate(uint64(r.Memory().Total) + 1)
		require.ErrorIs(t, err, gomem.ErrTooLarge)
		assert.False(t, errors.Is(err, gomem.ErrOutOfMemory))
		var failed *gomem.DriverError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, f.deviceName(r.Ordinal), failed.Device)
		r.Free(r.Allocate(1), 1)
	})
}

// TestFull: a full device is an error that a free can help, and it is the vendor's.
func TestFull(t *testing.T) {
	forEachThatSpills(t, func(t *testing.T, f flavour) {
		r := newRig(t, f, nil)
		const half = rigCapacity/2 + 4096
		a := r.Allocate(half)
		_, err := r.Driver.Allocate(half)
		require.ErrorIs(t, err, gomem.ErrOutOfMemory)
		assert.False(t, errors.Is(err, gomem.ErrTooLarge))
		var failed *gomem.DriverError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, "sim:0", failed.Device)
		assert.Equal(t, f.codes.full, failed.Code)
		assert.NotEmpty(t, failed.Name)

		// The ladder's first rungs. (A driver that frees late needs the wait after the free.)
		r.Free(a, half)
		require.NoError(t, r.Driver.Synchronize())
		_, err = r.Driver.Trim()
		require.NoError(t, err)
		r.Free(r.Allocate(half), half)
	})
}

// TestAskingMakesNoContext: until the device is used, questions leave it alone, and there is nothing to wait for.
func TestAskingMakesNoContext(t *testing.T) {
	forEachThatSpills(t, func(t *testing.T, f flavour) {
		l := f.open(t, nil)
		name := f.deviceName(f.ordinal(0))
		driver, err := l.OpenDriver(name, f.ordinal(0))
		require.NoError(t, err)
		before := 0
		if f.steered() {
			before = l.Software().Calls("*")
		}
		memory, err := driver.Memory()
		require.NoError(t, err)
		if f.steered() {
			assert.EqualValues(t, rigCapacity, memory.Total)
		}
		assert.Positive(t, memory.Total)
		assert.Zero(t, memory.Cached)
		assert.Zero(t, driver.PendingFree())
		assert.Equal(t, name, driver.Name())
		require.NoError(t, driver.Synchronize())
		released, err := driver.Trim()
		require.NoError(t, err)
		assert.Zero(t, released)
		_, err = driver.Allocate(uint64(memory.Total) + 1)
		assert.ErrorIs(t, err, gomem.ErrTooLarge)
		if f.steered() && memory.Free == gomem.Unknown {
			assert.Equal(t, before, l.Software().Calls("*"), "the library was called")
		}
		require.NoError(t, driver.Close())
	})
}

// TestClosedDriver: every operation of a closed driver fails or does nothing, and none reaches the library.
func TestClosedDriver(t *testing.T) {
	forEachThatSpills(t, func(t *testing.T, f flavour) {
		l := f.open(t, nil)
		driver, err := l.OpenDriver(f.deviceName(f.ordinal(0)), f.ordinal(0))
		require.NoError(t, err)
		address, err := driver.Allocate(100)
		require.NoError(t, err)
		require.NoError(t, driver.Free(gomem.Block{Address: address, Bytes: 100}))
		require.NoError(t, driver.Close())
		if f.steered() {
			live, err := l.Software().Get("live.0")
			require.NoError(t, err)
			assert.Zero(t, live, "a dropped block that was kept is given back, too")
		}
		_, err = driver.Allocate(1)
		assert.Error(t, err)
		assert.Error(t, driver.Free(gomem.Block{Address: address, Bytes: 1}))
		assert.Error(t, driver.SetStream(0, 0))
		assert.Zero(t, driver.PendingFree())
		assert.NoError(t, driver.Synchronize())
		_, err = driver.Memory()
		assert.NoError(t, err)
	})
}

// TestCanFree: a driver frees what its own vendor's calls made, and refuses the others'.
func TestCanFree(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		r := newRig(t, f, nil)
		a := r.host.allocate(5000)
		require.True(t, r.Driver.CanFree(f.plain))
		require.True(t, r.Driver.CanFree(gomem.HowDriver))
		require.NoError(t, r.Driver.Free(gomem.Block{Address: a, Bytes: 5000, How: f.plain}))
		require.NoError(t, r.Driver.Synchronize())
		if r.Software != nil {
			assert.Zero(t, r.Figure("live"), "what a host made is not kept: its size is not known")
		}
		for _, how := range []gomem.How{gomem.HowCUDA, gomem.HowHIP, gomem.HowLevelZero} {
			if how == f.plain {
				continue
			}
			assert.False(t, r.Driver.CanFree(how))
			assert.ErrorContains(t, r.Driver.Free(gomem.Block{Address: 1, Bytes: 1, How: how}), how.String())
		}
	})
}

// TestFreeOfWhatIsNoBlock: an address that the driver does not know is an error, reported once, and does not stay on a list.
func TestFreeOfWhatIsNoBlock(t *testing.T) {
	forEachThatSpills(t, func(t *testing.T, f flavour) {
		r := newRig(t, f, nil)
		r.Free(r.Allocate(1), 1)
		err := r.Driver.Free(gomem.Block{Address: 0x10, Bytes: 64})
		err = errors.Join(err, r.Driver.Synchronize())
		var failed *gomem.DriverError
		require.ErrorAs(t, err, &failed)
		require.NoError(t, r.Driver.Synchronize())
		assert.Zero(t, r.Driver.PendingFree())
	})
}

// TestNoAllocationOnTheHotPath: an allocation with its free makes no garbage in Go.
func TestNoAllocationOnTheHotPath(t *testing.T) {
	forEachThatSpills(t, func(t *testing.T, f flavour) {
		r := newRig(t, f, settings{"quarantine": 0})
		r.Free(r.Allocate(1000), 1000)
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			address, err := r.Driver.Allocate(1000)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Driver.Free(gomem.Block{Address: address, Bytes: 1000}); err != nil {
				t.Fatal(err)
			}
		}))
	})
}

// BenchmarkAllocateFree is what package gomem pays a driver for each buffer.
func BenchmarkAllocateFree(b *testing.B) {
	for _, f := range present {
		b.Run(f.name, func(b *testing.B) {
			r := newRig(b, f, settings{"quarantine": 0})
			for b.Loop() {
				address, err := r.Driver.Allocate(1000)
				if err != nil {
					b.Fatal(err)
				}
				if err := r.Driver.Free(gomem.Block{Address: address, Bytes: 1000}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
