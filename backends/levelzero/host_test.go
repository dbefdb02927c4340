package levelzero_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/levelzero"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// hostModes are those in which a host's list can be used: the driver can wait for it.
var hostModes = []settings{{"quarantine": 1}, {"quarantine": 0, "free_policies": 0}, {"quarantine": 1, "api_version": version(6), "free_policies": 0}}

// TestHostsList: after SetStream our work takes its place among the host's, in the order of the calls, whether the host's list is in order
// or not; and nothing is ever appended to that list by us.
func TestHostsList(t *testing.T) {
	for _, mode := range hostModes {
		for _, inOrder := range []bool{true, false} {
			if inOrder && !mode.inOrder() {
				continue
			}
			t.Run(mode.String(), func(t *testing.T) {
				r := open(t, mode, 0)
				before := r.Allocate(soft.BlockBytes) // in our own context
				require.NoError(t, r.Driver.Fill(before, []byte{1}, soft.BlockBytes))
				ours := r.Driver.Stream()
				context := r.host.context()
				list := r.host.list(context, inOrder)
				require.NoError(t, r.Driver.SetStream(context, list))
				assert.Equal(t, list, r.Driver.Stream())
				assert.NotEqual(t, ours, list)
				require.NoError(t, r.Software.Set("delay_us", 3000))

				a := r.Allocate(soft.BlockBytes)
				for i := range 3 {
					r.host.fill(list, a, 9, soft.BlockBytes)
					assert.Equal(t, byte(9), r.Read(a, soft.BlockBytes)[soft.BlockBytes-1], "a copy out comes after what the host has queued")
					r.Write(a, soft.Noise(soft.BlockBytes, uint32(i)))
					r.host.fill(list, a, 4, 10)
					copied := r.Read(a, soft.BlockBytes)
					assert.Equal(t, []byte{4, 4, 4, 4, 4, 4, 4, 4, 4, 4}, copied[:10], "what the host queues later comes later")
					assert.Equal(t, soft.Noise(soft.BlockBytes, uint32(i))[10:], copied[10:])
					require.NoError(t, r.Driver.Fill(a, []byte{7}, soft.BlockBytes))
					r.host.fill(list, a, 5, 1)
					r.host.wait(list)
					assert.Equal(t, []byte{5, 7}, r.Read(a, 2))
				}
				b := r.Allocate(100)
				r.host.fill(list, b, 3, 100)
				r.Free(b, 100)
				assert.Positive(t, r.Driver.PendingFree(), "the host still uses it")
				r.Free(a, soft.BlockBytes)
				r.Free(before, soft.BlockBytes)
				require.NoError(t, r.Driver.SetStream(0, 0))
				assert.Zero(t, r.Driver.PendingFree())
				r.requireLive(0)
				assert.Equal(t, ours, r.Driver.Stream(), "back to our own")
				r.host.Must("zeCommandListDestroy", list)
				r.host.Must("zeContextDestroy", context)
			})
		}
	}
}

// TestHostAppendsFromItsOwnThread: the host goes on appending to its list while we work. The software driver refuses two threads that
// append to one list.
func TestHostAppendsFromItsOwnThread(t *testing.T) {
	r := open(t, settings{"delay_us": 20}, 0)
	context := r.host.context()
	list := r.host.list(context, true)
	require.NoError(t, r.Driver.SetStream(context, list))
	theirs := r.host.memory(context, soft.BlockBytes)
	pattern, place := soft.Bytes(t, 1)
	pattern[0] = 8
	var stop atomic.Bool
	var group sync.WaitGroup
	group.Go(func() {
		for !stop.Load() {
			assert.Zero(t, r.host.Call("zeCommandListAppendMemoryFill", list, theirs, soft.Place(place), 1, 100, 0, 0, 0))
			assert.Zero(t, r.host.Call("zeCommandListHostSynchronize", list, ^uint64(0)))
		}
	})
	for i := range 100 {
		a := r.Allocate(1000)
		require.NoError(t, r.Driver.Fill(a, []byte{byte(i)}, 1000))
		require.Equal(t, byte(i), r.Read(a, 1000)[999])
		r.Free(a, 1000)
	}
	stop.Store(true)
	group.Wait()
	require.NoError(t, r.Driver.Free(gomem.Block{Address: theirs, Bytes: soft.BlockBytes, How: gomem.HowLevelZero}))
	require.NoError(t, r.Driver.SetStream(0, 0))
	r.host.Must("zeCommandListDestroy", list)
	r.host.Must("zeContextDestroy", context)
}

// TestBlocksAreFreedInTheirContext: whatever context is the newest, and whatever was allocated where.
func TestBlocksAreFreedInTheirContext(t *testing.T) {
	for _, mode := range hostModes {
		t.Run(mode.String(), func(t *testing.T) {
			r := open(t, mode, 0)
			context := r.host.context()
			own := []uint64{r.Allocate(100), r.Allocate(100)}
			require.NoError(t, r.Driver.SetStream(context, 0))
			lent := []uint64{r.Allocate(100), r.Allocate(100)}
			theirs := []uint64{r.host.memory(context, 100), r.host.memory(context, 100)}
			for _, address := range theirs {
				require.NoError(t, r.Driver.Adopt(gomem.Block{Address: address, Bytes: 100, How: gomem.HowLevelZero}))
			}
			freeOne := func() {
				r.Free(own[0], 100)
				r.Free(lent[0], 100)
				require.NoError(t, r.Driver.Free(gomem.Block{Address: theirs[0], Bytes: 100, How: gomem.HowLevelZero}))
				own, lent, theirs = own[1:], lent[1:], theirs[1:]
				require.NoError(t, r.Driver.Synchronize())
				r.requireLive(int64(3 * len(own)))
			}
			freeOne()
			require.NoError(t, r.Driver.SetStream(0, 0))
			freeOne() // the host's context was left, and is still there
			r.host.Must("zeContextDestroy", context)
		})
	}
}

// TestMemoryOfTwoContexts: whichever context is set, memory of both can be read, written, filled and copied, in the order of the calls.
func TestMemoryOfTwoContexts(t *testing.T) {
	for _, mode := range hostModes {
		t.Run(mode.String(), func(t *testing.T) {
			r := open(t, merged(mode, settings{"delay_us": 500, "jitter_us": 1000}), 0)
			context := r.host.context()
			list := r.host.list(context, mode.inOrder())
			own := r.Allocate(soft.BlockBytes)
			require.NoError(t, r.Driver.SetStream(context, list))
			lent := r.Allocate(soft.BlockBytes)
			for _, bound := range []struct{ context, list uint64 }{{context, list}, {context, 0}, {0, 0}} {
				require.NoError(t, r.Driver.SetStream(bound.context, bound.list))
				for i, pair := range [][2]uint64{{own, lent}, {lent, own}, {lent, lent}, {own, own}} {
					to, from := pair[0], pair[1]
					require.NoError(t, r.Driver.Fill(to, []byte{1}, soft.BlockBytes))
					content := soft.Noise(soft.BlockBytes, uint32(i))
					r.Write(from, content)
					require.NoError(t, r.Driver.CopyWithin(to+1, from, soft.BlockBytes/2-1))
					require.NoError(t, r.Driver.Fill(from+soft.BlockBytes/2, []byte{3}, 100))
					require.Equal(t, content[:soft.BlockBytes/2-1], r.Read(to, soft.BlockBytes)[1:soft.BlockBytes/2], "pair %d", i)
					require.Equal(t, []byte{3}, r.Read(from+soft.BlockBytes/2, 1))
				}
			}
			r.Free(own, soft.BlockBytes)
			r.Free(lent, soft.BlockBytes)
			require.NoError(t, r.Driver.Synchronize())
			require.NoError(t, r.Driver.SetStream(0, 0))
			r.host.Must("zeCommandListDestroy", list)
			r.host.Must("zeContextDestroy", context)
		})
	}
}

// TestHostsListFirst: a host's context that is set before anything else makes none of our own.
func TestHostsListFirst(t *testing.T) {
	r := open(t, nil, 0)
	context := r.host.context()
	list := r.host.list(context, true)
	contexts := r.Software.Calls("zeContextCreate")
	require.NoError(t, r.Driver.SetStream(0, list), "a list tells its context")
	r.Free(r.Allocate(100), 100)
	assert.Equal(t, contexts, r.Software.Calls("zeContextCreate"))
	other := r.host.context()
	otherList := r.host.list(other, true)
	require.NoError(t, r.Driver.SetStream(other, otherList), "from one host to another")
	r.Free(r.Allocate(100), 100)
	require.NoError(t, r.Driver.SetStream(0, 0))
	for _, handle := range []uint64{list, otherList} {
		r.host.Must("zeCommandListDestroy", handle)
	}
	for _, handle := range []uint64{context, other} {
		r.host.Must("zeContextDestroy", handle)
	}
	assert.Equal(t, r.Software.Calls("zeEventPoolCreate"), r.Software.Calls("zeEventPoolDestroy")+1, "what was made in their contexts is gone")
}

func TestSetStreamRefusesWhatIsNone(t *testing.T) {
	r := open(t, nil, 0)
	stream := r.Driver.Stream()
	context, other := r.host.context(), r.host.context()
	list := r.host.list(context, true)
	regular := r.host.AskLast("zeCommandListCreate", context, r.host.device, r.host.desc(0xf))
	for name, wrong := range map[string]struct{ context, list uint64 }{
		"no list":              {context, 0xdead0},
		"no context":           {0xdead0, 0},
		"no immediate list":    {context, regular},
		"of another context":   {other, list},
		"none, no context":     {0, 0xdead0},
		"a context for a list": {0, context},
	} {
		err := r.Driver.SetStream(wrong.context, wrong.list)
		var failed *gomem.DriverError
		require.ErrorAs(t, err, &failed, name)
		if wrong.list != 0 {
			assert.ErrorIs(t, err, gomem.ErrInvalidHandle, name)
		}
		assert.Equal(t, stream, r.Driver.Stream())
		a := r.Allocate(100)
		r.Write(a, soft.Noise(100, 1))
		assert.Equal(t, soft.Noise(100, 1), r.Read(a, 100), "nothing changed")
		r.Free(a, 100)
	}
	r.host.Must("zeCommandListDestroy", list)
	r.host.Must("zeCommandListDestroy", regular)
	for _, handle := range []uint64{context, other} {
		r.host.Must("zeContextDestroy", handle)
	}
}

// TestLoaderThatCannotWaitForAList: a host's list is refused, and says what is needed; its context can be used.
func TestLoaderThatCannotWaitForAList(t *testing.T) {
	hide := hiding(func(s dl.Symbol) bool { return s.Name == "zeCommandListHostSynchronize" })
	for _, load := range []func() *levelzero.Library{
		func() *levelzero.Library {
			library, err := levelzero.Load(hide, []dl.Candidate{{Name: soft.Library(t, soft.LevelZero)}})
			require.NoError(t, err)
			return library
		},
		func() *levelzero.Library { // a new loader, an old driver
			library, software := library(t)
			require.NoError(t, software.Set("api_version", version(5)))
			return library
		},
	} {
		library := load()
		driver, err := library.Open("sim:0", 0)
		require.NoError(t, err)
		r := newRig(t, driver, library.Software(), 0)
		context := r.host.context()
		list := r.host.list(context, false)
		assert.ErrorContains(t, driver.SetStream(context, list), "from version 1.6 of Level Zero on")
		require.NoError(t, driver.SetStream(context, 0))
		assert.Zero(t, driver.Stream(), "a queue")
		a := r.Allocate(100)
		assert.ErrorContains(t, driver.Join(list, 0), "from version 1.6 of Level Zero on")
		r.Write(a, soft.Noise(100, 1))
		assert.Equal(t, soft.Noise(100, 1), r.Read(a, 100))
		r.Free(a, 100)
		require.NoError(t, driver.Close())
		r.host.Must("zeCommandListDestroy", list)
		r.host.Must("zeContextDestroy", context)
		library.Software().Reset()
	}
}

// TestJoin: what is queued on one list is done before what another list gets afterwards.
func TestJoin(t *testing.T) {
	r := open(t, settings{"delay_us": 3000}, 0)
	context := r.host.context()
	require.NoError(t, r.Driver.SetStream(context, 0))
	a := r.Allocate(soft.BlockBytes)
	list, other := r.host.list(context, true), r.host.list(context, true)
	for i := range 4 {
		r.host.fill(list, a, byte(i), soft.BlockBytes)
	}
	require.NoError(t, r.Driver.Join(list, 0))
	assert.Equal(t, byte(3), r.Read(a, soft.BlockBytes)[0], "our copy waits for the host's work")
	for i := range 4 {
		require.NoError(t, r.Driver.Fill(a, []byte{byte(10 + i)}, soft.BlockBytes))
	}
	require.NoError(t, r.Driver.Join(0, list))
	require.NoError(t, r.Driver.Join(list, list))
	host, pointer := soft.Bytes(t, soft.BlockBytes)
	r.host.Must("zeCommandListAppendMemoryCopy", list, soft.Place(pointer), a, soft.BlockBytes, 0, 0, 0)
	require.NoError(t, r.Driver.Join(list, other))
	assert.Equal(t, byte(13), host[0], "the host's copy waits for our work")
	r.Free(a, soft.BlockBytes)
	require.NoError(t, r.Driver.SetStream(0, 0))
	regular := r.host.AskLast("zeCommandListCreate", context, r.host.device, r.host.desc(0xf))
	for _, none := range []uint64{0xdead0, regular} {
		require.ErrorIs(t, r.Driver.Join(0, none), gomem.ErrInvalidHandle, "told before the host's work is queued")
		require.ErrorIs(t, r.Driver.Join(none, 0), gomem.ErrInvalidHandle)
	}
	for _, handle := range []uint64{list, other, regular} {
		r.host.Must("zeCommandListDestroy", handle)
	}
	r.host.Must("zeContextDestroy", context)
}
