package conformance

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// slow makes each operation of the device take long, so that what does not wait for it comes too early.
var slow = settings{"delay_us": 5000, "quarantine": 1}

// TestFreesAreInOrder: memory is freed while work on it is queued. Nobody gets it before that work is done, and the free does not wait.
func TestFreesAreInOrder(t *testing.T) {
	forEachThatSpills(t, func(t *testing.T, f flavour) {
		for _, quarantine := range []int64{1, 0} { // a freed address is dead, or given out again at once
			if quarantine == 0 && !f.steered() {
				continue
			}
			t.Run(fmt.Sprint("quarantine=", quarantine), func(t *testing.T) {
				r := newRig(t, f, settings{"delay_us": 2000, "quarantine": quarantine})
				const n = 1 << 20
				kept := r.Allocate(n)
				for i := range 8 {
					a := r.Allocate(n)
					require.NoError(t, r.Driver.Fill(a, []byte{byte(i)}, n))
					require.NoError(t, r.Driver.CopyWithin(kept, a, n))
					r.Free(a, n)
					b := r.Allocate(n) // perhaps the same memory
					require.NoError(t, r.Driver.Fill(b, []byte{100}, n))
					r.Free(b, n)
					content := r.Read(kept, n)
					require.Equal(t, [2]byte{byte(i), byte(i)}, [2]byte{content[0], content[n-1]})
				}
				require.NoError(t, r.Driver.Synchronize(), "no write met freed memory")
				assert.Zero(t, r.Driver.PendingFree())
				r.Free(kept, n)
			})
		}
	})
}

// TestTheHostsStreamMayEndAfterTheAdoption: what was queued there comes before what the core does with the memory; from then on nobody asks for the stream.
func TestTheHostsStreamMayEndAfterTheAdoption(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		r := newRig(t, f, slow)
		device, err := gomem.NewDevice(r.Driver, gomem.Options{Movable: true, Pool: gomem.NewHostPool(), Check: true})
		require.NoError(t, err)
		const n = 64 << 10
		host, pointer := soft.Bytes(t, n)
		for _, spilled := range []bool{true, false} {
			stream := r.host.stream()
			a := r.host.allocate(n)
			r.host.fill(a, 7, n, stream)
			index, err := device.Adopt(a, n, gomem.AdoptOptions{How: f.plain, Stream: stream})
			require.NoError(t, err)
			if spilled {
				_, err = device.Spill(index, gomem.Wait{})
				require.NoError(t, err)
			} else {
				require.NoError(t, device.Fill(index, 0, []byte{7}, n, gomem.Wait{}))
			}
			r.host.wait(stream)
			r.host.endStream(stream)
			require.NoError(t, device.CopyToHost(index, 0, pointer, n, gomem.Wait{}))
			assert.Equal(t, [2]byte{7, 7}, [2]byte{host[0], host[n-1]})
			device.Drop(index)
			require.NoError(t, device.Synchronize())
			assert.Zero(t, r.Driver.PendingFree())
			assert.Zero(t, device.Unfreed())
		}
		require.NoError(t, device.Close())
	})
}

// TestFreedMemoryComesBackWithoutAnAllocation: a host that allocates by itself and adopts asks the driver for nothing but frees. Those that the device
// is done with are given back by later ones; where the vendor's free waits for the whole device, when a sixteenth of it waits.
func TestFreedMemoryComesBackWithoutAnAllocation(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		r := newRig(t, f, nil)
		const n = 256 << 10
		most := uint64(r.Memory().Total) / 16
		kept := r.Allocate(1)
		for range 40 {
			a := r.host.allocate(n)
			require.NoError(t, r.Driver.Fill(a, []byte{1}, n))
			require.NoError(t, r.Driver.Free(gomem.Block{Address: a, Bytes: n, How: f.plain}))
			r.Read(kept, 1)                                              // waits for the stream, and so for what the block waits for
			if overcommits, yes := r.Driver.(gomem.Overcommitter); yes { // then the core asks for room before the host allocates
				_, err := overcommits.Room(n, n)
				require.NoError(t, err)
			}
			require.LessOrEqual(t, r.Driver.PendingFree(), most+n)
		}
		r.Free(kept, 1)
	})
}

// TestJoin: what is queued on one stream is done before what another stream gets afterwards.
func TestJoin(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		r := newRig(t, f, slow)
		const n = 64 << 10
		a := r.Allocate(n)
		stream := r.host.stream()
		for i := range 4 {
			r.host.fill(a, byte(i), n, stream)
		}
		require.NoError(t, r.Driver.Join(stream, 0))
		assert.Equal(t, byte(3), r.Read(a, n)[0], "our copy waits for the host's work")
		for i := range 4 {
			require.NoError(t, r.Driver.Fill(a, []byte{byte(10 + i)}, n))
		}
		require.NoError(t, r.Driver.Join(0, stream))
		require.NoError(t, r.Driver.Join(stream, stream))
		r.host.fill(a, 77, 1, stream)
		r.host.wait(stream)
		content := r.Read(a, n)
		assert.Equal(t, [2]byte{77, 13}, [2]byte{content[0], content[1]}, "the host's fill waits for our work")
		r.host.endStream(stream)
		r.Free(a, n)
	})
}

// TestHostsStream: after SetStream, our work is queued on the host's stream, in order with the host's own.
func TestHostsStream(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		r := newRig(t, f, slow)
		const n = 64 << 10
		a := r.Allocate(n)
		require.NoError(t, r.Driver.Fill(a, []byte{1}, n))
		stream := r.host.stream()
		require.NoError(t, r.Driver.SetStream(r.host.context(), stream))
		assert.Equal(t, stream, r.Driver.Stream())
		r.host.fill(a, 9, n, stream)
		assert.Equal(t, byte(9), r.Read(a, n)[n-1], "a copy out comes after what the host has queued")
		b := r.Allocate(100)
		r.host.fill(b, 3, 100, stream)
		r.Free(b, 100)
		r.Free(a, n)
		require.NoError(t, r.Driver.SetStream(0, 0))
		r.host.endStream(stream)
	})
}

// TestSpillHasTheLaunchsResult: a spill right after a launch, whose work the device has not begun, takes what the launch writes, and the memory is not
// given away under it. The kernel is the host's, queued on the device's stream.
func TestSpillHasTheLaunchsResult(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		r := newRig(t, f, settings{"delay_us": 3000, "pageable": 1, "quarantine": 1})
		pool := gomem.NewHostPool()
		device, err := gomem.NewDevice(r.Driver, gomem.Options{Movable: true, Pool: pool, Check: true})
		require.NoError(t, err)
		const n = 1 << 20
		stream := r.host.stream()
		require.NoError(t, device.SetStream(r.host.context(), stream))
		var indexes []uint32
		for range 3 {
			index, err := device.Allocate(n, gomem.AllocateOptions{Zero: true})
			require.NoError(t, err)
			indexes = append(indexes, index)
		}
		host, pointer := soft.Bytes(t, n)
		for round := range 3 {
			require.NoError(t, device.Admit(indexes, gomem.Wait{}))
			for i, index := range indexes {
				r.host.fill(device.Record(index).Address, byte(10*round+i), n, stream)
			}
			device.Discharge(indexes)
			freed, err := device.SpillAll(gomem.Wait{})
			require.NoError(t, err)
			assert.EqualValues(t, 3*n, freed)
			for i, index := range indexes {
				require.NoError(t, device.CopyToHost(index, 0, pointer, n, gomem.Wait{}))
				require.Equal(t, [2]byte{byte(10*round + i), byte(10*round + i)}, [2]byte{host[0], host[n-1]})
			}
		}
		for _, index := range indexes {
			device.Drop(index)
		}
		require.NoError(t, device.Synchronize())
		require.NoError(t, device.SetStream(0, 0))
		r.host.endStream(stream)
		require.NoError(t, device.Close())
	})
}
