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
		"create":    func(r *rig) { require.NoError(t, r.Software.Fail("hipMemPoolCreate", 1, notSupported)) },
	} {
		t.Run(name, func(t *testing.T) {
			pools := int64(0)
			if name == "create" {
				pools = 1
			}
			r := open(t, settings{"pools": pools}, 0)
			prepare(r)
			a := r.Allocate(1000)
			assert.Equal(t, 1, r.Software.Calls("hipMalloc"))
			r.drop(a, 1000)
			assert.Equal(t, a, r.Allocate(1000), "it was kept")
			r.drop(a, 1000)
			assert.Zero(t, r.Software.Calls("hipFree"))
			assert.EqualValues(t, 1024, r.Memory().Cached)
		})
	}
}

// TestAdoptedMemoryIsFreedAsItWasMade, and is not kept: what its real size is only its maker knows.
func TestAdoptedMemoryIsFreedAsItWasMade(t *testing.T) {
	for _, pools := range []int64{0, 1} {
		t.Run(fmt.Sprint("pools=", pools), func(t *testing.T) {
			r := open(t, settings{"pools": pools, "delay_us": 300}, 0)
			onThread(r, func() {
				r.drop(r.Allocate(5000), 5000)
				stream := r.host.Ask("hipStreamCreateWithFlags", 1)
				frees, asyncs := r.Software.Calls("hipFree"), r.Software.Calls("hipFreeAsync")
				for _, how := range []gomem.How{gomem.HowHIP, gomem.HowDriver} {
					if how == gomem.HowDriver && pools == 1 {
						continue // the driver's own way is hipFreeAsync then, which takes such memory, too, and waits for the device
					}
					a := r.host.Ask("hipMalloc", 5000)
					require.NoError(t, r.Driver.Free(gomem.Block{Address: a, Bytes: 5000, How: how}))
					require.NoError(t, r.Driver.Synchronize())
					frees++
					assert.Equal(t, frees, r.Software.Calls("hipFree"), "%v", how)
					assert.Equal(t, asyncs, r.Software.Calls("hipFreeAsync"))
				}
				if pools == 1 {
					a := r.host.Ask("hipMallocAsync", 5000, stream)
					require.NoError(t, r.Driver.Free(gomem.Block{Address: a, Bytes: 5000, How: gomem.HowHIPAsync}))
					assert.Equal(t, frees, r.Software.Calls("hipFree"))
					assert.Equal(t, asyncs+1, r.Software.Calls("hipFreeAsync"))
				}
				r.host.Must("hipStreamSynchronize", stream)
				r.host.Must("hipStreamDestroy", stream)
			})
			for how, ours := range map[gomem.How]bool{gomem.HowDriver: true, gomem.HowHIP: true, gomem.HowHIPAsync: true, gomem.HowCUDA: false, gomem.HowCUDAAsync: false, gomem.HowLevelZero: false} {
				assert.Equal(t, ours, r.Driver.CanFree(how))
				if !ours {
					assert.ErrorContains(t, r.Driver.Free(gomem.Block{Address: 1, Bytes: 1, How: how}), "cannot be freed by HIP")
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
			a := r.Allocate(n)
			require.NoError(t, r.Driver.Fill(a, []byte{1}, n))
			r.Free(a, n)
		}
		require.NoError(t, r.Driver.Synchronize())
	}
	assert.Zero(t, r.Software.Calls("hipFree"))
	assert.LessOrEqual(t, r.Software.Calls("hipMalloc"), len(sizes))
}

// TestBlocksAreKeptForTheirSize: a kept block serves its size and what is less by at most an eighth, the best fit first, and nothing else.
func TestBlocksAreKeptForTheirSize(t *testing.T) {
	r := keeping(t, nil)
	large, small := r.Allocate(1<<20), r.Allocate(1000<<10)
	r.Free(large, 1<<20)
	r.drop(small, 1000<<10)
	assert.EqualValues(t, 1<<20+1000<<10, r.Memory().Cached)
	for _, c := range []struct {
		n    uint64
		want uint64 // 0: a new block
	}{{1<<20 + 1, 0}, {1000<<10 - 1, small}, {990 << 10, small}, {1001 << 10, large}, {1 << 20, large}, {900 << 10, small}, {880 << 10, 0}, {1, 0}} {
		a := r.Allocate(c.n)
		if c.want == 0 {
			assert.NotContains(t, []uint64{large, small}, a, "%d", c.n)
		} else {
			assert.Equal(t, c.want, a, "%d", c.n)
		}
		r.drop(a, c.n)
		if c.want == 0 { // take what was made here out again
			_, err := r.Driver.Trim()
			require.NoError(t, err)
			large, small = r.Allocate(1<<20), r.Allocate(1000<<10)
			r.Free(large, 1<<20)
			r.drop(small, 1000<<10)
		}
	}
}

// TestKeptBlocksAreBounded: a quarter of the device, the oldest goes first, and a block larger than that is given back at once.
func TestKeptBlocksAreBounded(t *testing.T) {
	const limit, n = capacity / 4, 1 << 20
	r := keeping(t, nil)
	r.drop(r.Allocate(limit+1), limit+1)
	assert.Zero(t, r.Memory().Cached)
	assert.Equal(t, 1, r.Software.Calls("hipFree"))

	var addresses []uint64
	for range limit/n + 3 {
		addresses = append(addresses, r.Allocate(n))
	}
	for _, a := range addresses {
		r.drop(a, n)
	}
	assert.EqualValues(t, limit, r.Memory().Cached)
	assert.Equal(t, 1+3, r.Software.Calls("hipFree"))
	for range addresses[3:] {
		a := r.Allocate(n)
		assert.Contains(t, addresses[3:], a, "the newest were kept")
		defer r.Free(a, n)
	}
	assert.Zero(t, r.Memory().Cached)
}

// TestManySmallBlocksAreBounded by their number: an allocation looks at each.
func TestManySmallBlocksAreBounded(t *testing.T) {
	r := keeping(t, nil)
	var addresses []uint64
	for range 3000 {
		addresses = append(addresses, r.Allocate(512))
	}
	for _, a := range addresses {
		r.Free(a, 512)
	}
	require.NoError(t, r.Driver.Synchronize())
	assert.LessOrEqual(t, r.Memory().Cached, int64(1024*512))
	assert.GreaterOrEqual(t, r.Memory().Cached, int64(1000*512))
	assert.EqualValues(t, r.Memory().Cached/512, r.Figure("live"))
}

// TestEvictionThatFails: a block that has to go and cannot be freed now waits, and the next Synchronize frees it.
func TestEvictionThatFails(t *testing.T) {
	const limit = capacity / 4
	r := keeping(t, nil)
	a, b := r.Allocate(limit-512), r.Allocate(1024)
	r.drop(a, limit-512)
	require.NoError(t, r.Software.Fail("hipFree", 1, 999))
	r.drop(b, 1024)
	assert.EqualValues(t, limit-512, r.Driver.PendingFree())
	assert.EqualValues(t, 1024, r.Memory().Cached)
	require.NoError(t, r.Driver.Synchronize())
	assert.Zero(t, r.Driver.PendingFree())
	assert.EqualValues(t, 1, r.Figure("live"))
}

// TestTrimThatFails gives back what it can, says what failed, and the rest goes with the next.
func TestTrimThatFails(t *testing.T) {
	r := keeping(t, nil)
	a, b := r.Allocate(1<<20), r.Allocate(2<<20)
	r.Free(a, 1<<20)
	r.drop(b, 2<<20)
	require.NoError(t, r.Software.Fail("hipFree", 1, 999))
	released, err := r.Driver.Trim()
	require.Error(t, err)
	assert.EqualValues(t, 2<<20, released)
	assert.Zero(t, r.Memory().Cached)
	assert.EqualValues(t, 1<<20, r.Driver.PendingFree())
	_, err = r.Driver.Trim()
	require.NoError(t, err)
	assert.Zero(t, r.Driver.PendingFree())
}

// TestMemoryFreedLate: memory that hipFree gave back can be had only after the device was waited for once more. The core's ladder (wait, trim, wait,
// try again) has to get it.
func TestMemoryFreedLate(t *testing.T) {
	r := keeping(t, settings{"late_free": 1})
	const n = capacity / 2
	a, b := r.Allocate(n), r.Allocate(n)
	r.Free(a, n)
	require.NoError(t, r.Driver.Synchronize())
	_, err := r.Driver.Trim()
	require.NoError(t, err)
	a = r.Allocate(n)
	r.Free(a, n)
	_, err = r.Driver.Allocate(n) // frees what is ready, too late for itself
	require.ErrorIs(t, err, gomem.ErrOutOfMemory)
	require.NoError(t, r.Driver.Synchronize())
	_, err = r.Driver.Trim()
	require.NoError(t, err)
	r.Free(r.Allocate(n), n)
	r.Free(b, n)
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
			a := r.Allocate(n)
			require.NotContains(t, live, a)
			live[a] = n
			order = append(order, a)
			continue
		}
		i := random.IntN(len(order))
		a := order[i]
		order[i] = order[len(order)-1]
		order = order[:len(order)-1]
		r.Free(a, live[a])
		delete(live, a)
	}
	require.NoError(t, r.Driver.Synchronize())
	_, err := r.Driver.Trim()
	require.NoError(t, err)
	assert.EqualValues(t, len(live), r.Figure("live"), "what is kept is gone, and nothing else")
	for _, a := range order {
		r.Free(a, live[a])
	}
}

// TestEveryBlockIsKnownAgain: a block that is dropped is found among those in use, in whatever order they come and go; else it would be given back
// at once.
func TestEveryBlockIsKnownAgain(t *testing.T) {
	r := keeping(t, nil)
	random := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		frees := r.Software.Calls("hipFree")
		live := map[uint64]uint64{}
		for range 1000 {
			n := uint64(1 + random.IntN(16_000))
			live[r.Allocate(n)] = n
		}
		for a, n := range live { // in random order
			r.Free(a, n)
		}
		require.NoError(t, r.Driver.Synchronize())
		require.Equal(t, frees, r.Software.Calls("hipFree"))
		_, err := r.Driver.Trim()
		require.NoError(t, err)
		require.Equal(t, frees+len(live), r.Software.Calls("hipFree"))
	}
}

// TestDisownedBlocksAreNotKept: the host frees such a block by itself, and its address may come back as a smaller one, which would be kept for its old size.
func TestDisownedBlocksAreNotKept(t *testing.T) {
	r := keeping(t, settings{"quarantine": 0})
	onThread(r, func() {
		a := r.Allocate(64 << 10)
		r.Driver.Disown(gomem.Block{Address: a, Bytes: 64 << 10})
		r.host.Must("hipFree", a)
		again := r.host.Ask("hipMalloc", 4<<10)
		require.Equal(t, a, again, "addresses are used again at once")
		require.NoError(t, r.Driver.Free(gomem.Block{Address: again, Bytes: 4 << 10, How: gomem.HowHIP}))
		require.NoError(t, r.Driver.Synchronize())
		assert.Zero(t, r.Memory().Cached)

		// And where nobody had said that it was disowned: what is freed by the host's own call was not made here.
		b := r.Allocate(64 << 10)
		r.host.Must("hipFree", b)
		require.Equal(t, b, r.host.Ask("hipMalloc", 4<<10))
		require.NoError(t, r.Driver.Free(gomem.Block{Address: b, Bytes: 4 << 10, How: gomem.HowHIP}))
		require.NoError(t, r.Driver.Synchronize())
		assert.Zero(t, r.Memory().Cached)
	})
}

// TestHostMemoryThatTheRuntimeKnows: pinned memory has a range like a block, and is refused by its kind, whose number is another one before HIP 6.
func TestHostMemoryThatTheRuntimeKnows(t *testing.T) {
	for _, version := range []int64{50221153, 60342134, 70253211} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			r := open(t, settings{"driver_version": version}, 0)
			onThread(r, func() {
				r.drop(r.Allocate(1), 1)
				pinned, block := r.host.Ask("hipHostMalloc", 100, 0), r.host.Ask("hipMalloc", 100)
				require.NoError(t, r.Driver.Examine(gomem.Block{Address: block, Bytes: 100, How: gomem.HowHIP}))
				err := r.Driver.Examine(gomem.Block{Address: pinned, Bytes: 100, How: gomem.HowHIP})
				var refused *gomem.BlockError
				require.ErrorAs(t, err, &refused)
				assert.Equal(t, gomem.Allocation{Base: pinned, Bytes: 100, Host: true}, refused.Found)
				r.host.Must("hipFree", block)
				r.host.Must("hipHostFree", pinned)
			})
		})
	}
}
