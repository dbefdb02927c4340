package levelzero_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/levelzero"
	"github.com/tack-memory/tack-memory/gomem"
)

// figures are the ways to know, or not to know, what others use.
var figures = []settings{{"usablemem": 0}, {"sysman": 0}, {"sysman": 0, "usablemem": 0}}

// requireFull sees that an allocation is refused by the rule, without the driver being asked: it would say yes.
func requireFull(t *testing.T, r *rig, nbytes uint64) *levelzero.CapacityError {
	t.Helper()
	calls := r.Software.Calls("zeMemAllocDevice")
	_, err := r.Driver.Allocate(nbytes)
	require.ErrorIs(t, err, gomem.ErrOutOfMemory)
	assert.False(t, errors.Is(err, gomem.ErrTooLarge))
	var full *levelzero.CapacityError
	require.ErrorAs(t, err, &full)
	assert.Equal(t, "sim:0", full.Device)
	assert.Equal(t, nbytes, full.Requested)
	assert.EqualValues(t, capacity, full.Total)
	assert.Equal(t, calls, r.Software.Calls("zeMemAllocDevice"))
	return full
}

// TestNothingIsPromisedTwice: the software driver gives more than it has, as the real one does. What lies on the device, with what was freed
// and is not known to be back, never passes its size.
func TestNothingIsPromisedTwice(t *testing.T) {
	for _, figure := range figures {
		for _, mode := range modes {
			t.Run(figure.String()+"/"+mode.String(), func(t *testing.T) {
				r := open(t, merged(figure, mode), 0)
				const part = 9 << 20
				var blocks []uint64
				for range 6 {
					blocks = append(blocks, r.Allocate(part))
				}
				full := requireFull(t, r, 11<<20)
				assert.EqualValues(t, 6*part, full.Held)
				assert.Zero(t, full.Pending)
				rest := uint64(capacity - 6*part)
				if r.Driver.Facts().Free == levelzero.SourceNone {
					assert.Equal(t, gomem.Unknown, full.Others)
					assert.ErrorContains(t, full, "not known")
					rest -= capacity / 16 // which the driver may need
				} else {
					assert.Zero(t, full.Others)
				}
				requireFull(t, r, rest+1)
				r.Free(r.Allocate(rest), rest) // there is that much

				// A block that is freed while the device works on it makes no room until that is known to be done.
				require.NoError(t, r.Driver.Synchronize())
				require.NoError(t, r.Software.Set("delay_us", 100_000))
				require.NoError(t, r.Driver.Fill(blocks[0], []byte{1}, part))
				r.Free(blocks[0], part)
				full = requireFull(t, r, rest+1)
				assert.EqualValues(t, 5*part, full.Held)
				assert.EqualValues(t, part, full.Pending)
				room, err := r.Driver.Room(5*part, 1)
				require.NoError(t, err)
				assert.LessOrEqual(t, room, rest)
				require.NoError(t, r.Software.Set("delay_us", 0))
				require.NoError(t, r.Driver.Synchronize())
				blocks[0] = r.Allocate(part)
				requireFull(t, r, rest+1)
				for _, block := range blocks {
					r.Free(block, part)
				}
			})
		}
	}
}

func merged(all ...settings) settings {
	sum := settings{}
	for _, s := range all {
		for key, value := range s {
			sum[key] = value
		}
	}
	return sum
}

// TestRoomIsTheSameAfterASpill: after a free and a wait there is as much room as before, also where the driver frees a little later, or an
// allocation after a spill would need another spill.
func TestRoomIsTheSameAfterASpill(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			r := open(t, mode, 0)
			require.NoError(t, r.Software.Set("taken", 4<<20)) // others are there, too
			const part = 50 << 20
			for range 30 {
				a := r.Allocate(part)
				require.NoError(t, r.Driver.Fill(a, []byte{1}, part/100))
				requireFull(t, r, part)
				r.Free(a, part)
				require.NoError(t, r.Driver.Synchronize())
			}
		})
	}
}

// TestOthersCount: what other processes take, and give back, by any figure that tells.
func TestOthersCount(t *testing.T) {
	for _, figure := range figures[:2] {
		t.Run(figure.String(), func(t *testing.T) {
			r := open(t, figure, 0)
			a := r.Allocate(10 << 20)
			require.NoError(t, r.Software.Set("taken", 30<<20))
			full := requireFull(t, r, 25<<20)
			assert.EqualValues(t, 30<<20, full.Others)
			assert.EqualValues(t, 10<<20, full.Held)
			room, err := r.Driver.Room(10<<20, 1)
			require.NoError(t, err)
			assert.EqualValues(t, 24<<20, room)
			b := r.Allocate(24 << 20)
			require.NoError(t, r.Software.Set("taken", 0))
			c := r.Allocate(30 << 20)
			requireFull(t, r, 1<<20)
			r.Free(a, 10<<20)
			r.Free(b, 24<<20)
			r.Free(c, 30<<20)
		})
	}
}

// TestAdoptedMemoryCounts: the core tells how much of ours is there, since the driver does not see what a host allocates.
func TestAdoptedMemoryCounts(t *testing.T) {
	for _, figure := range figures {
		t.Run(figure.String(), func(t *testing.T) {
			r := open(t, figure, 0)
			context := r.host.context()
			require.NoError(t, r.Driver.SetStream(context, 0))
			a := r.Allocate(10 << 20)
			adopted := r.host.memory(context, 40<<20)
			whole := int64(capacity)
			if r.Driver.Facts().Free == levelzero.SourceNone {
				whole -= capacity / 16
			}
			room, err := r.Driver.Room(50<<20, 1)
			require.NoError(t, err)
			assert.EqualValues(t, whole-50<<20, room)
			require.NoError(t, r.Driver.Free(gomem.Block{Address: adopted, Bytes: 40 << 20, How: gomem.HowLevelZero}))
			require.NoError(t, r.Driver.Synchronize())
			room, err = r.Driver.Room(10<<20, 1)
			require.NoError(t, err)
			assert.EqualValues(t, whole-10<<20, room)
			r.Free(a, 10<<20)
			require.NoError(t, r.Driver.SetStream(0, 0))
			r.host.Must("zeContextDestroy", context)
		})
	}
}

// TestTooLarge: what can never be, whatever is freed. The newest drivers lift the limit, older ones by the experimental form of that.
func TestTooLarge(t *testing.T) {
	for _, mode := range []settings{{"relaxed": 0}, {"relaxed": 1}, {"relaxed": 1, "api_version": version(13)}} {
		t.Run(mode.String(), func(t *testing.T) {
			r := open(t, merged(mode, settings{"max_alloc": 8 << 20}), 0)
			assert.EqualValues(t, 8<<20, r.Driver.Facts().Largest)
			_, tooLarge := r.Driver.Room(0, 9<<20)
			address, err := r.Driver.Allocate(9 << 20)
			if mode["relaxed"] == 1 {
				require.NoError(t, err)
				require.NoError(t, tooLarge)
				r.Free(address, 9<<20)
			} else {
				require.ErrorIs(t, err, gomem.ErrTooLarge)
				require.ErrorIs(t, tooLarge, gomem.ErrTooLarge, "before the core spills anything for it")
				assert.NotErrorIs(t, err, gomem.ErrOutOfMemory)
				var failed *gomem.DriverError
				require.ErrorAs(t, err, &failed)
				assert.Equal(t, unsupportedSize, failed.Code)
			}
			_, err = r.Driver.Allocate(capacity + 1)
			require.ErrorIs(t, err, gomem.ErrTooLarge)
			_, err = r.Driver.Room(0, capacity+1)
			require.ErrorIs(t, err, gomem.ErrTooLarge)
			r.Free(r.Allocate(8<<20), 8<<20)
		})
	}
}

// TestSmallBlocksCountAsPages: a block takes whole pages of the driver, so many small ones take more than their bytes.
func TestSmallBlocksCountAsPages(t *testing.T) {
	r := open(t, settings{"sysman": 0, "usablemem": 0}, 0)
	const page = 4096 // the software driver's
	var blocks []uint64
	for range 10 {
		blocks = append(blocks, r.Allocate(1))
	}
	room, err := r.Driver.Room(10, 1)
	require.NoError(t, err)
	const whole = capacity - capacity/16
	assert.EqualValues(t, whole-10*page, room)
	assert.GreaterOrEqual(t, capacity-int64(room), r.Figure("reserved"))
	for _, block := range blocks {
		r.Free(block, 1)
	}
	require.NoError(t, r.Driver.Synchronize())
	room, err = r.Driver.Room(0, 1)
	require.NoError(t, err)
	assert.EqualValues(t, whole, room)
	_, err = r.Driver.Allocate(whole + 1)
	assert.ErrorIs(t, err, gomem.ErrTooLarge)
}

// TestOneReadingServesRoomAndAllocate: the core asks for room before each allocation.
func TestOneReadingServesRoomAndAllocate(t *testing.T) {
	r := open(t, nil, 0)
	r.Free(r.Allocate(1), 1)
	before := r.Software.Calls("zesMemoryGetState")
	_, err := r.Driver.Room(0, 1)
	require.NoError(t, err)
	r.Free(r.Allocate(1), 1)
	assert.Equal(t, 1, r.Software.Calls("zesMemoryGetState")-before)
	r.Free(r.Allocate(1), 1)
	assert.Equal(t, 2, r.Software.Calls("zesMemoryGetState")-before)
}

// TestThreadsTogetherNeverPassTheDevice: figures are read while other threads allocate and free, and the driver would give everybody more.
func TestThreadsTogetherNeverPassTheDevice(t *testing.T) {
	const part, others = 4 << 20, 10 << 20
	r := open(t, nil, 0)
	require.NoError(t, r.Software.Set("taken", others))
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			var mine []uint64
			for range 100 {
				address, err := r.Driver.Allocate(part)
				if err == nil {
					mine = append(mine, address)
				} else {
					assert.ErrorIs(t, err, gomem.ErrOutOfMemory)
					assert.NoError(t, r.Driver.Synchronize())
				}
				used, err := r.Software.Get("reserved.0")
				assert.NoError(t, err)
				assert.LessOrEqual(t, used, int64(capacity-others))
				if len(mine) > 3 || err != nil && len(mine) > 0 {
					assert.NoError(t, r.Driver.Free(gomem.Block{Address: mine[0], Bytes: part}))
					mine = mine[1:]
				}
			}
			for _, address := range mine {
				assert.NoError(t, r.Driver.Free(gomem.Block{Address: address, Bytes: part}))
			}
		})
	}
	group.Wait()
}

// TestDisownedMemoryIsNoLongerOurs: its room comes back when whoever has it frees it.
func TestDisownedMemoryIsNoLongerOurs(t *testing.T) {
	for _, figure := range figures {
		t.Run(figure.String(), func(t *testing.T) {
			r := open(t, figure, 0)
			context := r.host.context()
			require.NoError(t, r.Driver.SetStream(context, 0))
			before, err := r.Driver.Room(0, 1)
			require.NoError(t, err)
			for range 8 { // more than the device has, together
				a := r.Allocate(20 << 20)
				r.Driver.Disown(gomem.Block{Address: a, Bytes: 20 << 20})
				r.host.Must("zeMemFree", context, a)
			}
			after, err := r.Driver.Room(0, 1)
			require.NoError(t, err)
			assert.Equal(t, before, after)
			require.NoError(t, r.Driver.SetStream(0, 0))
		})
	}
}
