package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// TestBooksAgreeWithTheDevice runs random operations, with the books verified after each, and compares them with what the device itself counts whenever
// nothing waits and nothing is cached.
func TestBooksAgreeWithTheDevice(t *testing.T) {
	const granule = 512 // the software driver counts in these
	forAll(t, func(t *testing.T, f flavour) {
		seed := rand.Uint64()
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		})
		random := rand.New(rand.NewPCG(seed, 0))
		c := newCore(t, f, settings{"jitter_us": 50, "pageable": int64(random.IntN(2)), "quarantine": int64(random.IntN(2))})
		type buffer struct {
			index uint32
			n     int
			seed  uint32
		}
		var live []buffer
		for step := range 250 {
			switch pick := random.IntN(10); {
			case pick < 4 || len(live) == 0:
				n := 1 + random.IntN(1<<20)
				if random.IntN(3) == 0 {
					n = 256 << 10 // a size that comes again
				}
				live = append(live, buffer{c.buffer(n, uint32(step)), n, uint32(step)})
			case pick < 7:
				i := random.IntN(len(live))
				c.requireContents(live[i].index, live[i].n, live[i].seed)
				c.device.Drop(live[i].index)
				live = append(live[:i], live[i+1:]...)
			case pick == 7:
				_, err := c.device.Spill(live[random.IntN(len(live))].index, gomem.Wait{})
				require.NoError(t, err)
			case pick == 8:
				b := live[random.IntN(len(live))]
				require.NoError(t, c.device.MakeResident(b.index, gomem.Wait{}))
			default:
				require.NoError(t, c.device.Synchronize())
				_, err := c.device.Trim()
				require.NoError(t, err)
				info := c.info()
				assert.Zero(t, info.DriverPending)
				assert.Zero(t, info.PendingFree)
				held := int64(0)
				for _, b := range live {
					held += int64(b.n)
				}
				assert.Equal(t, held, info.InUse+info.Spilled, "step %d: the books have what is there", step)
				if c.Software == nil {
					continue
				}
				used := c.Figure("reserved") - info.Driver.Cached
				assert.GreaterOrEqual(t, used, info.InUse, "step %d: the device has what the books say", step)
				// An eighth: a block that was kept may serve a little less than it has.
				assert.LessOrEqual(t, used, info.InUse+info.InUse/8+int64(len(live))*granule, "step %d: and no more", step)
			}
		}
		indexes := make([]uint32, len(live))
		for i, b := range live {
			c.requireContents(b.index, b.n, b.seed)
			indexes[i] = b.index
		}
		c.end(indexes...)
	})
}

// TestCached: what was dropped and is kept, by a pool or by us, is what Trim gives back, to the byte; then it is 0.
func TestCached(t *testing.T) {
	forEachThatSpills(t, func(t *testing.T, f flavour) {
		r := newRig(t, f, nil)
		r.Free(r.Allocate(100), 100)
		require.NoError(t, r.Driver.Synchronize())
		_, err := r.Driver.Trim()
		require.NoError(t, err)
		require.Zero(t, r.Memory().Cached)
		before := r.Memory().Free
		var addresses []uint64
		const n = 3<<20 + 1
		for range 3 {
			addresses = append(addresses, r.Allocate(n))
		}
		for _, address := range addresses {
			r.Free(address, n)
		}
		require.NoError(t, r.Driver.Synchronize())
		memory := r.Memory()
		if f.settings["late_free"] == 0 { // else what was not kept is free only after a wait for the whole device, as in Trim
			assert.Equal(t, before, memory.Free+memory.Cached, "kept, or given back")
		}
		released, err := r.Driver.Trim()
		require.NoError(t, err)
		assert.EqualValues(t, memory.Cached, released)
		memory = r.Memory()
		assert.Zero(t, memory.Cached)
		assert.Equal(t, before, memory.Free)
		r.Free(r.Allocate(rigCapacity-1<<20), rigCapacity-1<<20) // the whole device can be had
	})
}

// TestHostCache: what a host framework says that its own cache keeps is shown beside what the pools keep, and is never part of what Trim gives back.
func TestHostCache(t *testing.T) {
	forEachThatSpills(t, func(t *testing.T, f flavour) {
		r := newRig(t, f, nil)
		_, err := r.Driver.Trim()
		require.NoError(t, err)
		teller, takes := r.Driver.(interface{ SetHostCache(nbytes int64) error })
		require.Equal(t, slices.Contains([]string{soft.CUDA, soft.HIP}, f.abi), takes)
		if !takes {
			return
		}
		before := r.Memory()
		for _, nbytes := range []int64{1 << 20, 0} {
			require.NoError(t, teller.SetHostCache(nbytes))
			assert.Equal(t, before.Cached+nbytes, r.Memory().Cached)
			assert.Equal(t, before.Free, r.Memory().Free)
			released, err := r.Driver.Trim()
			require.NoError(t, err)
			assert.Zero(t, released)
			r.Free(r.Allocate(100), 100) // from here on there is a context, and figures of pools
			require.NoError(t, r.Driver.Synchronize())
			_, err = r.Driver.Trim()
			require.NoError(t, err)
			assert.Equal(t, nbytes, r.Memory().Cached)
			before = r.Memory()
			before.Cached -= nbytes
		}
		assert.ErrorContains(t, teller.SetHostCache(-1), "-1 bytes")
		assert.Equal(t, before.Cached, r.Memory().Cached)
	})
}

// TestZeroSize: nothing is legal everywhere, never reaches the driver, and never moves.
func TestZeroSize(t *testing.T) {
	forAll(t, func(t *testing.T, f flavour) {
		c := newCore(t, f, nil)
		calls := func() int {
			if c.Software == nil {
				return 0
			}
			return c.Software.Calls("*")
		}
		before := calls()
		index, err := c.device.Allocate(0, gomem.AllocateOptions{Zero: true})
		require.NoError(t, err)
		require.NoError(t, c.device.MakeResident(index, gomem.Wait{}))
		require.NoError(t, c.device.CopyToHost(index, 0, nil, 0, gomem.Wait{}))
		require.NoError(t, c.device.CopyFromHost(index, 0, nil, 0, gomem.Wait{}))
		require.NoError(t, c.device.Fill(index, 0, []byte{1}, 0, gomem.Wait{}))
		freed, err := c.device.Spill(index, gomem.Wait{})
		require.NoError(t, err)
		assert.Zero(t, freed)
		require.NoError(t, c.device.Free(index, gomem.Wait{}))
		assert.Equal(t, before, calls(), "the library was called")
		c.end()
	})
}

// TestStorm: many threads allocate, write, read and drop under pressure; contents and books stay right.
func TestStorm(t *testing.T) {
	forAll(t, func(t *testing.T, f flavour) {
		c := newCore(t, f, settings{"jitter_us": 100, "pageable": 1, "quarantine": 1, "capacity": 4 << 20})
		t.Run("threads", func(t *testing.T) {
			for worker := range 4 {
				t.Run(fmt.Sprint(worker), func(t *testing.T) {
					t.Parallel()
					mine := *c
					rig := *c.rig
					rig.T = t
					mine.rig = &rig
					random := rand.New(rand.NewPCG(uint64(worker), 1))
					type buffer struct {
						index uint32
						n     int
					}
					var live []buffer
					for step := range 40 {
						n := 1 + random.IntN(300_000)
						live = append(live, buffer{mine.buffer(n, uint32(worker)), n})
						if i := random.IntN(len(live)); len(live) > 4 || step%7 == 0 {
							mine.requireContents(live[i].index, live[i].n, uint32(worker))
							mine.device.Drop(live[i].index)
							live = append(live[:i], live[i+1:]...)
						}
					}
					for _, b := range live {
						mine.requireContents(b.index, b.n, uint32(worker))
						mine.device.Drop(b.index)
					}
				})
			}
		})
		c.end()
	})
}
