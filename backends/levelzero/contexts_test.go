package levelzero_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/levelzero"
	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// TestAnotherHostsContext: as long as memory of any kind lies in one context of a host's, another one is refused, says what is in the way, and
// nothing changes. Then it is taken.
func TestAnotherHostsContext(t *testing.T) {
	theirs := func(r *rig, context uint64) gomem.Block {
		block := gomem.Block{Address: r.host.memory(context, 5000), Bytes: 5000, How: gomem.HowLevelZero}
		require.NoError(t, r.Driver.Adopt(block))
		return block
	}
	free := func(r *rig, block gomem.Block) { require.NoError(t, r.Driver.Free(block)) }
	for name, kind := range map[string]struct {
		make func(r *rig, context uint64) gomem.Block
		end  func(r *rig, context uint64, block gomem.Block)
	}{
		"ours":             {func(r *rig, _ uint64) gomem.Block { return gomem.Block{Address: r.Allocate(5000), Bytes: 5000} }, func(r *rig, _ uint64, b gomem.Block) { free(r, b) }},
		"adopted":          {theirs, func(r *rig, _ uint64, b gomem.Block) { free(r, b) }},
		"ours, given away": {func(r *rig, _ uint64) gomem.Block { return gomem.Block{Address: r.Allocate(5000), Bytes: 5000} }, giveAway},
		"given back":       {theirs, giveAway},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mode := range hostModes {
				r := open(t, mode, 0)
				first, second := r.host.context(), r.host.context()
				own := r.Allocate(100)
				require.NoError(t, r.Driver.SetStream(first, 0))
				block := kind.make(r, first)
				for _, between := range []bool{false, true} { // the host's context is left, and its memory is still there
					if between {
						require.NoError(t, r.Driver.SetStream(0, 0))
					}
					err := r.Driver.SetStream(second, 0)
					var refused *levelzero.ContextError
					require.ErrorAs(t, err, &refused)
					assert.EqualValues(t, 1, refused.Blocks)
					assert.ErrorContains(t, err, "another Level Zero context of a host framework is in use: 1 blocks of memory lie in it")
					r.Write(block.Address, soft.Noise(5000, 3))
					assert.Equal(t, soft.Noise(5000, 3), r.Read(block.Address, 5000), "nothing changed")
				}
				kind.end(r, first, block)
				require.NoError(t, r.Driver.SetStream(second, 0))
				r.host.Must("zeContextDestroy", first) // nothing asks it any more
				last := theirs(r, second)
				r.Write(last.Address, soft.Noise(5000, 4))
				assert.Equal(t, soft.Noise(5000, 4), r.Read(last.Address, 5000))
				free(r, last)
				r.Free(own, 100)
				require.NoError(t, r.Driver.SetStream(0, 0))
				r.host.Must("zeContextDestroy", second)
			}
		})
	}
}

// giveAway makes a block the host's, which frees it with its own context.
func giveAway(r *rig, context uint64, block gomem.Block) {
	r.T.Helper()
	r.Driver.Disown(block)
	require.NoError(r.T, r.Driver.Synchronize())
	r.host.Must("zeMemFree", context, block.Address)
}

// TestMemoryOfAnUnknownContextIsNotAdopted: it could neither be moved nor freed.
func TestMemoryOfAnUnknownContextIsNotAdopted(t *testing.T) {
	r := open(t, nil, 0)
	known, unknown := r.host.context(), r.host.context()
	lost := gomem.Block{Address: r.host.memory(unknown, 100), Bytes: 100, How: gomem.HowLevelZero}
	refused := func() {
		t.Helper()
		err := r.Driver.Adopt(lost)
		require.ErrorIs(t, err, gomem.ErrInvalidHandle)
		assert.ErrorContains(t, err, "is no device memory of a context that this device was told of")
	}
	refused() // there is our own context only
	require.NoError(t, r.Driver.SetStream(known, 0))
	refused()
	require.NoError(t, r.Driver.SetStream(0, 0))
	refused()

	device, err := gomem.NewDevice(r.Driver, gomem.Options{Movable: true, Pool: gomem.NewHostPool(), Check: true})
	require.NoError(t, err)
	_, err = device.Adopt(lost.Address, lost.Bytes, gomem.AdoptOptions{How: gomem.HowLevelZero})
	var how *gomem.HowError
	require.ErrorAs(t, err, &how, "the caller's mistake")
	assert.ErrorContains(t, err, "sim:0 cannot adopt this memory of zeMemAllocDevice")

	require.NoError(t, r.Driver.SetStream(unknown, 0)) // nothing was counted
	index, err := device.Adopt(lost.Address, lost.Bytes, gomem.AdoptOptions{How: gomem.HowLevelZero})
	require.NoError(t, err)
	var kept *levelzero.ContextError
	require.ErrorAs(t, device.SetStream(known, 0), &kept)
	device.Drop(index)
	require.NoError(t, device.Synchronize())
	require.NoError(t, device.SetStream(known, 0))
	require.NoError(t, device.SetStream(0, 0))
	r.host.Must("zeContextDestroy", known)
	r.host.Must("zeContextDestroy", unknown)
}
