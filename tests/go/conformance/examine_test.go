package conformance

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// adopting is a device with a buffer that would be spilled if room were made.
func adopting(t *testing.T, f flavour) (*rig, *gomem.Device, uint32) {
	t.Helper()
	r := newRig(t, f, nil)
	device, err := gomem.NewDevice(r.Driver, gomem.Options{Movable: true, Pool: gomem.NewHostPool(), Check: true})
	require.NoError(t, err)
	mine, err := device.Allocate(100, gomem.AllocateOptions{})
	require.NoError(t, err)
	return r, device, mine
}

// TestOnlyWholeBlocksAreAdopted: what is no block of the vendor's, or only a part of one, or ends beyond it, could not be freed. It is refused at once, in each
// way to adopt: nothing is counted or spilled, and the memory stays its owner's.
func TestOnlyWholeBlocksAreAdopted(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		r, device, mine := adopting(t, f)
		const n = 3 << 20 // so that no vendor's rounding gives more
		block, pinned := r.host.allocate(n), r.host.pin(n)
		_, plain := soft.Bytes(t, n)
		freed := r.host.allocate(n)
		r.host.free(freed)
		_, _, err := device.SetBudget(100, false, gomem.Wait{})
		require.NoError(t, err)
		before, err := device.Info(false)
		require.NoError(t, err)
		for name, c := range map[string]struct {
			address, nbytes uint64
			says            string
		}{
			"host memory":        {soft.Place(plain), n, "memory"},
			"pinned host memory": {pinned, n, "memory"},
			"nothing":            {0x10000, 64, "memory"},
			"a freed block":      {freed, n, "memory"},
			"inside a block":     {block + 4096, 64, "lies inside the block"},
			"its second byte":    {block + 1, n - 1, "lies inside the block"},
			"too large":          {block, 2 * n, "adopt its"},
		} {
			refused := func(err error) {
				t.Helper()
				require.Error(t, err, name)
				assert.ErrorContains(t, err, f.deviceName(r.Ordinal)+" cannot adopt", name)
				assert.ErrorContains(t, err, c.says, name)
				assert.True(t, saysNoBlock(err), name)
				after, err := device.Info(false)
				require.NoError(t, err)
				assert.Equal(t, before, after, name)
			}
			_, err := device.Adopt(c.address, c.nbytes, gomem.AdoptOptions{How: f.plain})
			refused(err)
			_, err = device.ReserveToAdopt(c.address, c.nbytes, f.plain, gomem.AllocateOptions{})
			refused(err)
		}
		for _, adopted := range []uint64{n, n - 100} {
			index, err := device.Adopt(block, adopted, gomem.AdoptOptions{How: f.plain})
			require.NoError(t, err, "what is right still works")
			_, err = device.Spill(index, gomem.Wait{})
			require.NoError(t, err)
			block, err = device.Disown(index, gomem.Wait{})
			require.NoError(t, err)
			require.NoError(t, device.Synchronize())
			r.host.free(block)
			block = r.host.allocate(n)
		}
		r.host.free(block)
		r.host.unpin(pinned)
		device.Drop(mine)
		assert.Zero(t, device.Unfreed())
		require.NoError(t, device.Close())
	})
}

// TestMemoryOfAnotherDeviceIsNotAdopted: it may be ours there, in books that know nothing of this device's. It is refused in each way to adopt, and nothing is
// counted here; on its own device it is adopted.
func TestMemoryOfAnotherDeviceIsNotAdopted(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		l := f.open(t, nil)
		first, second := f.rigOn(t, l, 0), f.rigOn(t, l, 1)
		cores := []*core{coreOn(t, first), coreOn(t, second)}
		for on, r := range []*rig{first, second} {
			here, other := cores[on], cores[1-on]
			ours, theirs := r.Allocate(5000), r.host.allocate(5000)
			blocks := map[string]gomem.Block{"ours": {Address: ours, Bytes: 5000, How: f.plain}, "the host's": {Address: theirs, Bytes: 5000, How: f.plain}}
			if pools, has := r.host.(poolHost); has && f.settings["pools"] == 1 {
				stream := r.host.stream()
				blocks["of a pool"] = gomem.Block{Address: pools.allocateOrdered(5000, stream), Bytes: 5000, How: f.ordered}
				r.host.wait(stream)
				r.host.endStream(stream)
			}
			for name, block := range blocks {
				_, err := other.device.Adopt(block.Address, block.Bytes, gomem.AdoptOptions{How: block.How})
				_, reserved := other.device.ReserveToAdopt(block.Address, block.Bytes, block.How, gomem.AllocateOptions{})
				for _, err := range []error{err, reserved} {
					var refused *gomem.BlockError
					require.ErrorAs(t, err, &refused, name)
					assert.ErrorContains(t, err, f.deviceName(1-on)+" cannot adopt", name)
					assert.ErrorContains(t, err, "it lies on "+f.deviceName(on)+"; adopt it there", name)
				}
				assert.Zero(t, other.info().InUse, name)
				assert.Zero(t, other.info().Reserved, name)
				if name != "ours" {
					index, err := here.device.Adopt(block.Address, block.Bytes, gomem.AdoptOptions{How: block.How})
					require.NoError(t, err, name)
					here.device.Drop(index)
				}
			}
			r.Free(ours, 5000)
		}
		for _, c := range cores {
			c.end()
		}
	})
}

// TestMemoryOfAPoolIsAdopted: each block of a pool is one by itself, wherever it lies in what the pool has from the device, and from the call on that allocates
// it, although its stream has not got there.
func TestMemoryOfAPoolIsAdopted(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		pools, has := newRig(t, f, nil).host.(poolHost)
		if !has {
			t.Skipf("needs memory pools, and %s has none; flavours that have them run it", f.name)
		}
		r, device, mine := adopting(t, f)
		if !r.Driver.CanFree(f.ordered) || f.settings["pools"] == 0 && f.real == nil {
			device.Drop(mine)
			require.NoError(t, device.Close())
			t.Skipf("needs memory pools, and %s has none; flavours that have them run it", f.name)
		}
		stream := r.host.stream()
		busy := r.host.allocate(soft.BlockBytes)
		var indices []uint32
		for range 4 {
			r.host.fill(busy, 1, soft.BlockBytes, stream)
			address := pools.allocateOrdered(5000, stream)
			_, err := device.Adopt(address+512, 64, gomem.AdoptOptions{How: f.ordered, Stream: stream})
			require.ErrorContains(t, err, "lies inside the block")
			index, err := device.Adopt(address, 5000, gomem.AdoptOptions{How: f.ordered, Stream: stream})
			require.NoError(t, err)
			indices = append(indices, index)
		}
		for _, index := range append(indices, mine) {
			device.Drop(index)
		}
		require.NoError(t, device.Synchronize())
		r.host.wait(stream)
		r.host.endStream(stream)
		r.host.free(busy)
		assert.Zero(t, device.Unfreed())
		require.NoError(t, device.Close())
	})
}

// TestOneQuestionAnAdoption: the driver is asked once, also where room was made first.
func TestOneQuestionAnAdoption(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		r, device, mine := adopting(t, f)
		question := map[string]string{soft.CUDA: "cuMemGetAddressRange_v2", soft.HIP: "hipMemGetAddressRange", soft.LevelZero: "zeMemGetAddressRange"}[f.abi]
		for _, ahead := range []bool{false, true} {
			block, asked, token := r.host.allocate(1000), r.Software.Calls(question), uint64(0)
			if ahead {
				var err error
				token, err = device.ReserveToAdopt(block, 1000, f.plain, gomem.AllocateOptions{})
				require.NoError(t, err)
			}
			index, err := device.Adopt(block, 1000, gomem.AdoptOptions{How: f.plain, Token: token})
			require.NoError(t, err)
			assert.Equal(t, 1, r.Software.Calls(question)-asked)
			device.Drop(index)
		}
		device.Drop(mine)
		require.NoError(t, device.Close())
	})
}
