package hip_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
)

// TestPoolsThatAreNone: the attribute is 0, or it promises pools and making one says 801: then memory comes from hipMalloc.
func TestPoolsThatAreNone(t *testing.T) {
	const notSupported = 801
	for name, prepare := range map[string]func(r *rig){
		"attribute": func(*rig) {},
		"create":    func(r *rig) { require.NoError(t, r.software.Fail("hipMemPoolCreate", 1, notSupported)) },
	} {
		t.Run(name, func(t *testing.T) {
			pools := int64(0)
			if name == "create" {
				pools = 1
			}
			r := open(t, settings{"pools": pools}, 0)
			prepare(r)
			a := r.allocate(1000)
			assert.Equal(t, 1, r.software.Calls("hipMalloc"))
			r.drop(a, 1000)
			assert.Equal(t, a, r.allocate(1000), "it was kept")
			r.drop(a, 1000)
			assert.Zero(t, r.software.Calls("hipFree"))
			assert.EqualValues(t, 1024, r.cached())
		})
	}
}

// TestAdoptedMemoryIsFreedAsItWasMade, and is not kept: what its real size is only its maker knows.
func TestAdoptedMemoryIsFreedAsItWasMade(t *testing.T) {
	for _, pools := range []int64{0, 1} {
		t.Run(fmt.Sprint("pools=", pools), func(t *testing.T) {
			r := open(t, settings{"pools": pools, "delay_us": 300}, 0)
			onThread(r, func() {
				r.drop(r.allocate(5000), 5000)
				stream := r.host.Ask("hipStreamCreateWithFlags", 1)
				frees, asyncs := r.software.Calls("hipFree"), r.software.Calls("hipFreeAsync")
				for _, how := range []gomem.How{gomem.HowHIP, gomem.HowDriver} {
					if how == gomem.HowDriver && pools == 1 {
						continue // the driver's own way is hipFreeAsync then, which takes such memory, too, and waits for the device
					}
					a := r.host.Ask("hipMalloc", 5000)
					require.NoError(t, r.driver.Free(gomem.Block{Address: a, Bytes: 5000, How: how}))
					require.NoError(t, r.driver.Synchronize())
					frees++
					assert.Equal(t, frees, r.software.Calls("hipFree"), "%v", how)
					assert.Equal(t, asyncs, r.software.Calls("hipFreeAsync"))
				}
				if pools == 1 {
					a := r.host.Ask("hipMallocAsync", 5000, stream)
					require.NoError(t, r.driver.Free(gomem.Block{Address: a, Bytes: 5000, How: gomem.HowHIPAsync}))
					assert.Equal(t, frees, r.software.Calls("hipFree"))
					assert.Equal(t, asyncs+1, r.software.Calls("hipFreeAsync"))
				}
				r.host.Must("hipStreamSynchronize", stream)
				r.host.Must("hipStreamDestroy", stream)
			})
			for how, ours := range map[gomem.How]bool{gomem.HowDriver: true, gomem.HowHIP: true, gomem.HowHIPAsync: true, gomem.HowCUDA: false, gomem.HowCUDAAsync: false, gomem.HowLevelZero: false} {
				assert.Equal(t, ours, r.driver.CanFree(how))
				if !ours {
					assert.ErrorContains(t, r.driver.Free(gomem.Block{Address: 1, Bytes: 1, How: how}), "cannot be freed by HIP")
				}
			}
		})
	}
}

// keeping opens a device without pools, which keeps what is dropped.
func keeping(t *testing.T, more settings) *rig {
	t.Helper()
	s := settings{"pools": 0, "quarantine": 0}
	for key, value := range more {
		s[key] = value
	}
	return open(t, s, 0)
}

// TestSteadyStateFreesNothing: hipFree waits for the whole device, so a program that makes and drops the same sizes again and again calls it never.
func TestSteadyStateFreesNothing(t *testing.T) {
	r := keeping(t, settings{"delay_us": 50})
	sizes := []uint64{1, 700, 1 << 16, 1<<20 + 5}
	for range 20 {
		for _, n := range sizes {
			a := r.allocate(n)
			require.NoError(t, r.driver.Fill(a, []byte{1}, n))
			r.free(a, n)
		}
		require.NoError(t, r.driver.Synchronize())
	}
	assert.Zero(t, r.software.Calls("hipFree"))
	assert.LessOrEqual(t, r.software.Calls("hipMalloc"), len(sizes))
}

// TestBlocksAreKeptForTheirSize: a kept block serves its size and what is less by at most an eighth, the best fit first, and nothing else.
func TestBlocksAreKeptForTheirSize(t *testing.T) {
	r := keeping(t, nil)
	large, small := r.allocate(1<<20), r.allocate(1000<<10)
	r.free(large, 1<<20)
	r.drop(small, 1000<<10)
	assert.EqualValues(t, 1<<20+1000<<10, r.cached())
	for _, c := range []struct {
		n    uint64
		want uint64 // 0: a new block
	}{{1<<20 + 1, 0}, {1000<<10 - 1, small}, {990 << 10, small}, {1001 << 10, large}, {1 << 20, large}, {900 << 10, small}, {880 << 10, 0}, {1, 0}} {
		a := r.allocate(c.n)
		if c.want == 0 {
			assert.NotContains(t, []uint64{large, small}, a, "%d", c.n)
		} else {
			assert.Equal(t, c.want, a, "%d", c.n)
		}
		r.drop(a, c.n)
		if c.want == 0 { // take what was made here out again
			_, err := r.driver.Trim()
			require.NoError(t, err)
			large, small = r.allocate(1<<20), r.allocate(1000<<10)
			r.free(large, 1<<20)
			r.drop(small, 1000<<10)
		}
	}
}

// TestKeptBlocksAreBounded: a quarter of the device, the oldest goes first, and a block larger than that is given back at once.
func TestKeptBlocksAreBounded(t *testing.T) {
	const limit, n = capacity / 4, 1 << 20
	r := keeping(t, nil)
	r.drop(r.allocate(limit+1), limit+1)
	assert.Zero(t, r.cached())
	assert.Equal(t, 1, r.software.Calls("hipFree"))

	var addresses []uint64
	for range limit/n + 3 {
		addresses = append(addresses, r.allocate(n))
	}
	for _, a := range addresses {
		r.drop(a, n)
	}
	assert.EqualValues(t, limit, r.cached())
	assert.Equal(t, 1+3, r.software.Calls("hipFree"))
	for range addresses[3:] {
		a := r.allocate(n)
		assert.Contains(t, addresses[3:], a, "the newest were kept")
		defer r.free(a, n)
	}
	assert.Zero(t, r.cached())
}

// TestManySmallBlocksAreBounded by their number: an allocation looks at each.
func TestManySmallBlocksAreBounded(t *testing.T) {
	r := keeping(t, nil)
	var addresses []uint64
	for range 3000 {
		addresses = append(addresses, r.allocate(512))
	}
	for _, a := range addresses {
		r.free(a, 512)
	}
	require.NoError(t, r.driver.Synchronize())
	assert.LessOrEqual(t, r.cached(), int64(1024*512))
	assert.GreaterOrEqual(t, r.cached(), int64(1000*512))
	assert.EqualValues(t, r.cached()/512, r.figure("live"))
}

// TestEvictionThatFails: a block that has to go and cannot be freed now waits, and the next Synchronize frees it.
func TestEvictionThatFails(t *testing.T) {
	const limit = capacity / 4
	r := keeping(t, nil)
	a, b := r.allocate(limit-512), r.allocate(1024)
	r.drop(a, limit-512)
	require.NoError(t, r.software.Fail("hipFree", 1, 999))
	r.drop(b, 1024)
	assert.EqualValues(t, limit-512, r.driver.PendingFree())
	assert.EqualValues(t, 1024, r.cached())
	require.NoError(t, r.driver.Synchronize())
	assert.Zero(t, r.driver.PendingFree())
	assert.EqualValues(t, 1, r.figure("live"))
}

// TestTrimThatFails gives back what it can, says what failed, and the rest goes with the next.
func TestTrimThatFails(t *testing.T) {
	r := keeping(t, nil)
	a, b := r.allocate(1<<20), r.allocate(2<<20)
	r.free(a, 1<<20)
	r.drop(b, 2<<20)
	require.NoError(t, r.software.Fail("hipFree", 1, 999))
	released, err := r.driver.Trim()
	require.Error(t, err)
	assert.EqualValues(t, 2<<20, released)
	assert.Zero(t, r.cached())
	assert.EqualValues(t, 1<<20, r.driver.PendingFree())
	_, err = r.driver.Trim()
	require.NoError(t, err)
	assert.Zero(t, r.driver.PendingFree())
}

// TestMemoryFreedLate: memory that hipFree gave back can be had only after the device was waited for once more. The core's ladder (wait, trim, wait,
// try again) has to get it.
func TestMemoryFreedLate(t *testing.T) {
	r := keeping(t, settings{"late_free": 1})
	const n = capacity / 2
	a, b := r.allocate(n), r.allocate(n)
	r.free(a, n)
	require.NoError(t, r.driver.Synchronize())
	_, err := r.driver.Trim()
	require.NoError(t, err)
	a = r.allocate(n)
	r.free(a, n)
	_, err = r.driver.Allocate(n) // frees what is ready, too late for itself
	require.ErrorIs(t, err, gomem.ErrOutOfMemory)
	require.NoError(t, r.driver.Synchronize())
	_, err = r.driver.Trim()
	require.NoError(t, err)
	r.free(r.allocate(n), n)
	r.free(b, n)
}

// TestManyBlocks: thousands of blocks come and go in random order, and no address is ever given to two at a time.
func TestManyBlocks(t *testing.T) {
	r := keeping(t, nil)
	random := rand.New(rand.NewPCG(1, 2))
	live := map[uint64]uint64{} // address -> bytes
	var order []uint64
	for range 20_000 {
		if random.IntN(100) < 52 && len(order) < 4000 || len(order) == 0 {
			n := uint64(1 + random.IntN(6000))
			a := r.allocate(n)
			require.NotContains(t, live, a)
			live[a] = n
			order = append(order, a)
			continue
		}
		i := random.IntN(len(order))
		a := order[i]
		order[i] = order[len(order)-1]
		order = order[:len(order)-1]
		r.free(a, live[a])
		delete(live, a)
	}
	require.NoError(t, r.driver.Synchronize())
	_, err := r.driver.Trim()
	require.NoError(t, err)
	assert.EqualValues(t, len(live), r.figure("live"), "what is kept is gone, and nothing else")
	for _, a := range order {
		r.free(a, live[a])
	}
}

// TestEveryBlockIsKnownAgain: a block that is dropped is found among those in use, in whatever order they come and go; else it would be given back
// at once.
func TestEveryBlockIsKnownAgain(t *testing.T) {
	r := keeping(t, nil)
	random := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		frees := r.software.Calls("hipFree")
		live := map[uint64]uint64{}
		for range 1000 {
			n := uint64(1 + random.IntN(16_000))
			live[r.allocate(n)] = n
		}
		for a, n := range live { // in random order
			r.free(a, n)
		}
		require.NoError(t, r.driver.Synchronize())
		require.Equal(t, frees, r.software.Calls("hipFree"))
		_, err := r.driver.Trim()
		require.NoError(t, err)
		require.Equal(t, frees+len(live), r.software.Calls("hipFree"))
	}
}

// TestDisownedBlocksAreNotKept: the host frees such a block by itself, and its address may come back as a smaller one, which would be kept for its old size.
func TestDisownedBlocksAreNotKept(t *testing.T) {
	r := keeping(t, settings{"quarantine": 0})
	onThread(r, func() {
		a := r.allocate(64 << 10)
		r.driver.Disown(gomem.Block{Address: a, Bytes: 64 << 10})
		r.host.Must("hipFree", a)
		again := r.host.Ask("hipMalloc", 4<<10)
		require.Equal(t, a, again, "addresses are used again at once")
		require.NoError(t, r.driver.Free(gomem.Block{Address: again, Bytes: 4 << 10, How: gomem.HowHIP}))
		require.NoError(t, r.driver.Synchronize())
		assert.Zero(t, r.cached())

		// And where nobody had said that it was disowned: what is freed by the host's own call was not made here.
		b := r.allocate(64 << 10)
		r.host.Must("hipFree", b)
		require.Equal(t, b, r.host.Ask("hipMalloc", 4<<10))
		require.NoError(t, r.driver.Free(gomem.Block{Address: b, Bytes: 4 << 10, How: gomem.HowHIP}))
		require.NoError(t, r.driver.Synchronize())
		assert.Zero(t, r.cached())
	})
}

// TestHostMemoryThatTheRuntimeKnows: pinned memory has a range like a block, and is refused by its kind, whose number is another one before HIP 6.
func TestHostMemoryThatTheRuntimeKnows(t *testing.T) {
	for _, version := range []int64{50221153, 60342134, 70253211} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			r := open(t, settings{"driver_version": version}, 0)
			onThread(r, func() {
				r.drop(r.allocate(1), 1)
				pinned, block := r.host.Ask("hipHostMalloc", 100, 0), r.host.Ask("hipMalloc", 100)
				require.NoError(t, r.driver.Examine(gomem.Block{Address: block, Bytes: 100, How: gomem.HowHIP}))
				err := r.driver.Examine(gomem.Block{Address: pinned, Bytes: 100, How: gomem.HowHIP})
				var refused *gomem.BlockError
				require.ErrorAs(t, err, &refused)
				assert.Equal(t, gomem.Allocation{Base: pinned, Bytes: 100, Host: true}, refused.Found)
				r.host.Must("hipFree", block)
				r.host.Must("hipHostFree", pinned)
			})
		})
	}
}
