package metal_test

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/mac"
)

// TestHostAccessComesAfterCommittedWork: the host framework has committed kernels that write; each operation finds them done.
func TestHostAccessComesAfterCommittedWork(t *testing.T) {
	_, g, d := one(t)
	q := g.NewQueue()
	defer q.Release()
	a, b := allocate(t, d, 100), allocate(t, d, 100)
	require.NoError(t, d.SetStream(uint64(g.ID()), uint64(q.ID())))
	assert.Equal(t, uint64(q.ID()), d.Stream())
	other := g.NewQueue()
	defer other.Release()
	host := unsafe.Pointer(&mac.Bytes(b, 100)[50])

	for name, operation := range map[string]func() error{
		"copy out":    func() error { return d.CopyOut(host, a, 10) },
		"copy in":     func() error { return d.CopyIn(a, host, 10) },
		"copy within": func() error { return d.CopyWithin(b, a, 10) },
		"fill":        func() error { return d.Fill(a, []byte{1}, 10) },
		"synchronize": d.Synchronize,
		"join":        func() error { return d.Join(0, uint64(other.ID())) },
	} {
		clear(mac.Bytes(a, 100))
		clear(mac.Bytes(b, 100))
		ran := false
		q.Work(func() {
			ran = true
			mac.Bytes(a, 100)[3] = 42
		})
		require.NoError(t, operation(), name)
		assert.True(t, ran, name)
		switch name {
		case "copy out":
			assert.EqualValues(t, 42, mac.Bytes(b, 100)[53])
		case "copy in":
			assert.Zero(t, mac.Bytes(a, 100)[3], "the copy comes last")
		case "copy within":
			assert.EqualValues(t, 42, mac.Bytes(b, 100)[3])
		case "fill":
			assert.EqualValues(t, 1, mac.Bytes(a, 100)[3])
		}
	}
	waits := q.Waits
	require.NoError(t, d.Join(uint64(q.ID()), 0), "a queue is in order with itself")
	require.NoError(t, d.Join(uint64(q.ID()), uint64(q.ID())))
	assert.Equal(t, waits, q.Waits)
	for _, address := range []uint64{a, b} {
		require.NoError(t, d.Free(gomem.Block{Address: address, Bytes: 100}))
	}
	assert.Equal(t, waits, q.Waits, "a free waits for nothing: command buffers keep what they use")
}

func TestChangingTheQueue(t *testing.T) {
	_, g, d := one(t)
	assert.Zero(t, d.Stream())
	require.NoError(t, d.Synchronize(), "without a queue there is nothing to wait for")
	first, second := g.NewQueue(), g.NewQueue()
	require.NoError(t, d.SetStream(0, uint64(first.ID())))
	require.NoError(t, d.SetStream(0, uint64(first.ID())))
	assert.Equal(t, 2, first.References(), "the host framework's reference and one of ours, however often it is set")
	ran := false
	first.Work(func() { ran = true })
	require.NoError(t, d.SetStream(0, uint64(second.ID())))
	assert.True(t, ran, "work on the old queue is waited for")
	assert.Equal(t, 1, first.References())
	first.Release()
	require.NoError(t, d.SetStream(0, 0))
	assert.Equal(t, 1, second.References())
	second.Release()
}

func TestQueuesThatAreNone(t *testing.T) {
	_, g, d := one(t)
	q := g.NewQueue()
	defer q.Release()
	require.NoError(t, d.SetStream(0, uint64(q.ID())))
	other := g.NewQueue()
	defer other.Release()
	for text, err := range map[string]error{
		"is no MTLCommandQueue":         d.SetStream(0, uint64(g.ID())),
		"is no MTLCommandQueue: ":       d.Join(uint64(g.ID()), 0),
		"Metal has no contexts, give 0": d.SetStream(0x1234, uint64(other.ID())),
	} {
		assert.ErrorContains(t, err, text)
		assert.ErrorIs(t, err, gomem.ErrInvalidHandle)
	}
	assert.Equal(t, uint64(q.ID()), d.Stream(), "after an error nothing changed")
	assert.Equal(t, 1, other.References())
}

func TestFailedCommandBuffers(t *testing.T) {
	_, g, d := one(t)
	q := g.NewQueue()
	defer q.Release()
	require.NoError(t, d.SetStream(0, uint64(q.ID())))
	a := allocate(t, d, 10)
	for _, c := range []struct {
		code int
		kind error
		text string
	}{
		{4, gomem.ErrLost, "metal:0: waitUntilCompleted failed: MTLCommandBufferErrorAccessRevoked (4)"},
		{11, gomem.ErrLost, "metal:0: waitUntilCompleted failed: MTLCommandBufferErrorDeviceRemoved (11)"},
		{2, nil, "metal:0: waitUntilCompleted failed: MTLCommandBufferError (2)"},
	} {
		copy(mac.Bytes(a, 10), "unchanged!")
		q.Fails = c.code
		err := d.Fill(a, []byte{0}, 10)
		assert.EqualError(t, err, c.text)
		assert.Equal(t, "unchanged!", string(mac.Bytes(a, 10)))
		if c.kind != nil {
			assert.ErrorIs(t, err, c.kind)
		} else {
			assert.NotErrorIs(t, err, gomem.ErrLost)
			assert.NotErrorIs(t, err, gomem.ErrOutOfMemory)
		}
		q.Fails = c.code
		assert.EqualError(t, d.SetStream(0, 0), c.text)
		assert.Equal(t, uint64(q.ID()), d.Stream(), "after an error nothing changed")
	}
	q.Exhausted = true
	assert.EqualError(t, d.Synchronize(), "metal:0: commandBuffer failed: nil (0)")
	q.Exhausted = false
	require.NoError(t, d.Free(gomem.Block{Address: a, Bytes: 10}))
}
