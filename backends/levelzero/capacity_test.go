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
	calls := r.software.Calls("zeMemAllocDevice")
	_, err := r.driver.Allocate(nbytes)
	require.ErrorIs(t, err, gomem.ErrOutOfMemory)
	assert.False(t, errors.Is(err, gomem.ErrTooLarge))
	var full *levelzero.CapacityError
	require.ErrorAs(t, err, &full)
	assert.Equal(t, "sim:0", full.Device)
	assert.Equal(t, nbytes, full.Requested)
	assert.EqualValues(t, capacity, full.Total)
	assert.Equal(t, calls, r.software.Calls("zeMemAllocDevice"))
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
					blocks = append(blocks, r.allocate(part))
				}
				full := requireFull(t, r, 11<<20)
				assert.EqualValues(t, 6*part, full.Held)
				assert.Zero(t, full.Pending)
				rest := uint64(capacity - 6*part)
				if r.driver.Facts().Free == levelzero.SourceNone {
					assert.Equal(t, gomem.Unknown, full.Others)
					assert.ErrorContains(t, full, "not known")
					rest -= capacity / 16 // which the driver may need
				} else {
					assert.Zero(t, full.Others)
				}
				requireFull(t, r, rest+1)
				r.free(r.allocate(rest), rest) // there is that much

				// A block that is freed while the device works on it makes no room until that is known to be done.
				require.NoError(t, r.driver.Synchronize())
				require.NoError(t, r.software.Set("delay_us", 100_000))
				require.NoError(t, r.driver.Fill(blocks[0], []byte{1}, part))
				r.free(blocks[0], part)
				full = requireFull(t, r, rest+1)
				assert.EqualValues(t, 5*part, full.Held)
				assert.EqualValues(t, part, full.Pending)
				room, err := r.driver.Room(5*part, 1)
				require.NoError(t, err)
				assert.LessOrEqual(t, room, rest)
				require.NoError(t, r.software.Set("delay_us", 0))
				require.NoError(t, r.driver.Synchronize())
				blocks[0] = r.allocate(part)
				requireFull(t, r, rest+1)
				for _, block := range blocks {
					r.free(block, part)
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
			require.NoError(t, r.software.Set("taken", 4<<20)) // others are there, too
			const part = 50 << 20
			for range 30 {
				a := r.allocate(part)
				require.NoError(t, r.driver.Fill(a, []byte{1}, part/100))
				requireFull(t, r, part)
				r.free(a, part)
				require.NoError(t, r.driver.Synchronize())
			}
		})
	}
}

// TestOthersCount: what other processes take, and give back, by any figure that tells.
func TestOthersCount(t *testing.T) {
	for _, figure := range figures[:2] {
		t.Run(figure.String(), func(t *testing.T) {
			r := open(t, figure, 0)
			a := r.allocate(10 << 20)
			require.NoError(t, r.software.Set("taken", 30<<20))
			full := requireFull(t, r, 25<<20)
			assert.EqualValues(t, 30<<20, full.Others)
			assert.EqualValues(t, 10<<20, full.Held)
			room, err := r.driver.Room(10<<20, 1)
			require.NoError(t, err)
			assert.EqualValues(t, 24<<20, room)
			b := r.allocate(24 << 20)
			require.NoError(t, r.software.Set("taken", 0))
			c := r.allocate(30 << 20)
			requireFull(t, r, 1<<20)
			r.free(a, 10<<20)
			r.free(b, 24<<20)
			r.free(c, 30<<20)
		})
	}
}

// TestAdoptedMemoryCounts: the core tells how much of ours is there, since the driver does not see what a host allocates.
func TestAdoptedMemoryCounts(t *testing.T) {
	for _, figure := range figures {
		t.Run(figure.String(), func(t *testing.T) {
			r := open(t, figure, 0)
			context := r.host.context()
			require.NoError(t, r.driver.SetStream(context, 0))
			a := r.allocate(10 << 20)
			adopted := r.host.memory(context, 40<<20)
			whole := int64(capacity)
			if r.driver.Facts().Free == levelzero.SourceNone {
				whole -= capacity / 16
			}
			room, err := r.driver.Room(50<<20, 1)
			require.NoError(t, err)
			assert.EqualValues(t, whole-50<<20, room)
			require.NoError(t, r.driver.Free(gomem.Block{Address: adopted, Bytes: 40 << 20, How: gomem.HowLevelZero}))
			require.NoError(t, r.driver.Synchronize())
			room, err = r.driver.Room(10<<20, 1)
			require.NoError(t, err)
			assert.EqualValues(t, whole-10<<20, room)
			r.free(a, 10<<20)
			require.NoError(t, r.driver.SetStream(0, 0))
			r.host.Must("zeContextDestroy", context)
		})
	}
}

// TestTooLarge: what can never be, whatever is freed. The newest drivers lift the limit, older ones by the experimental form of that.
func TestTooLarge(t *testing.T) {
	for _, mode := range []settings{{"relaxed": 0}, {"relaxed": 1}, {"relaxed": 1, "api_version": version(13)}} {
		t.Run(mode.String(), func(t *testing.T) {
			r := open(t, merged(mode, settings{"max_alloc": 8 << 20}), 0)
			assert.EqualValues(t, 8<<20, r.driver.Facts().Largest)
			_, tooLarge := r.driver.Room(0, 9<<20)
			address, err := r.driver.Allocate(9 << 20)
			if mode["relaxed"] == 1 {
				require.NoError(t, err)
				require.NoError(t, tooLarge)
				r.free(address, 9<<20)
			} else {
				require.ErrorIs(t, err, gomem.ErrTooLarge)
				require.ErrorIs(t, tooLarge, gomem.ErrTooLarge, "before the core spills anything for it")
				assert.NotErrorIs(t, err, gomem.ErrOutOfMemory)
				var failed *gomem.DriverError
				require.ErrorAs(t, err, &failed)
				assert.Equal(t, unsupportedSize, failed.Code)
			}
			_, err = r.driver.Allocate(capacity + 1)
			require.ErrorIs(t, err, gomem.ErrTooLarge)
			_, err = r.driver.Room(0, capacity+1)
			require.ErrorIs(t, err, gomem.ErrTooLarge)
			r.free(r.allocate(8<<20), 8<<20)
		})
	}
}

// TestSmallBlocksCountAsPages: a block takes whole pages of the driver, so many small ones take more than their bytes.
func TestSmallBlocksCountAsPages(t *testing.T) {
	r := open(t, settings{"sysman": 0, "usablemem": 0}, 0)
	const page = 4096 // the software driver's
	var blocks []uint64
	for range 10 {
		blocks = append(blocks, r.allocate(1))
	}
	room, err := r.driver.Room(10, 1)
	require.NoError(t, err)
	const whole = capacity - capacity/16
	assert.EqualValues(t, whole-10*page, room)
	assert.GreaterOrEqual(t, capacity-int64(room), r.figure("reserved"))
	for _, block := range blocks {
		r.free(block, 1)
	}
	require.NoError(t, r.driver.Synchronize())
	room, err = r.driver.Room(0, 1)
	require.NoError(t, err)
	assert.EqualValues(t, whole, room)
	_, err = r.driver.Allocate(whole + 1)
	assert.ErrorIs(t, err, gomem.ErrTooLarge)
}

// TestOneReadingServesRoomAndAllocate: the core asks for room before each allocation.
func TestOneReadingServesRoomAndAllocate(t *testing.T) {
	r := open(t, nil, 0)
	r.free(r.allocate(1), 1)
	before := r.software.Calls("zesMemoryGetState")
	_, err := r.driver.Room(0, 1)
	require.NoError(t, err)
	r.free(r.allocate(1), 1)
	assert.Equal(t, 1, r.software.Calls("zesMemoryGetState")-before)
	r.free(r.allocate(1), 1)
	assert.Equal(t, 2, r.software.Calls("zesMemoryGetState")-before)
}

// TestThreadsTogetherNeverPassTheDevice: figures are read while other threads allocate and free, and the driver would give everybody more.
func TestThreadsTogetherNeverPassTheDevice(t *testing.T) {
	const part, others = 4 << 20, 10 << 20
	r := open(t, nil, 0)
	require.NoError(t, r.software.Set("taken", others))
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			var mine []uint64
			for range 100 {
				address, err := r.driver.Allocate(part)
				if err == nil {
					mine = append(mine, address)
				} else {
					assert.ErrorIs(t, err, gomem.ErrOutOfMemory)
					assert.NoError(t, r.driver.Synchronize())
				}
				used, err := r.software.Get("reserved.0")
				assert.NoError(t, err)
				assert.LessOrEqual(t, used, int64(capacity-others))
				if len(mine) > 3 || err != nil && len(mine) > 0 {
					assert.NoError(t, r.driver.Free(gomem.Block{Address: mine[0], Bytes: part}))
					mine = mine[1:]
				}
			}
			for _, address := range mine {
				assert.NoError(t, r.driver.Free(gomem.Block{Address: address, Bytes: part}))
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
			require.NoError(t, r.driver.SetStream(context, 0))
			before, err := r.driver.Room(0, 1)
			require.NoError(t, err)
			for range 8 { // more than the device has, together
				a := r.allocate(20 << 20)
				r.driver.Disown(gomem.Block{Address: a, Bytes: 20 << 20})
				r.host.Must("zeMemFree", context, a)
			}
			after, err := r.driver.Room(0, 1)
			require.NoError(t, err)
			assert.Equal(t, before, after)
			require.NoError(t, r.driver.SetStream(0, 0))
		})
	}
}
