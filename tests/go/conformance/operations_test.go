package conformance

import (
	"errors"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// operation is one call of the core on the world's target. It keeps the world's account of contents true, also when it fails.
type operation struct {
	name    string
	first   func(b *bench) error // before there is a world; nil: nothing
	prepare func(w *world)       // without faults; nil: nothing to prepare
	run     func(w *world) error
	after   func(b *bench) error // when all is dropped; nil: nothing
	others  bool                 // it moves the target without anybody having named it, so that the program may drop it meanwhile
}

// allocated takes a new buffer into the account.
func (w *world) allocated(index uint32, err error, n int) error {
	if err == nil {
		w.contents[index] = make([]byte, n)
	}
	return err
}

// wrote takes a write into the account. Where it failed, its bytes may be there or not.
func (w *world) wrote(offset int, bytes []byte, err error) error {
	doubt, doubtful := w.unsure[w.target]
	written := span{offset, offset + len(bytes)}
	switch {
	case err != nil && doubtful:
		w.unsure[w.target] = span{min(doubt.from, written.from), max(doubt.to, written.to)}
	case err != nil:
		w.unsure[w.target] = written
	default:
		copy(w.contents[w.target][offset:], bytes)
		if doubtful && written.from <= doubt.from && written.to >= doubt.to {
			delete(w.unsure, w.target)
		}
	}
	return err
}

func (w *world) filled(pattern []byte) error {
	const from, n = 100, 5000
	bytes := make([]byte, n)
	for i := range bytes {
		bytes[i] = pattern[i%len(pattern)]
	}
	return w.wrote(from, bytes, w.device.Fill(w.target, from, pattern, n, gomem.Wait{}))
}

// settled waits until what was freed is back: what an operation finds does not depend on how far the device is.
func settled(w *world) { require.NoError(w.t, w.device.Synchronize()) }

// fillDevice makes the device so full that the next allocation of `size` needs the ladder.
func fillDevice(w *world) {
	settled(w)
	for {
		info, err := w.device.Info(true)
		require.NoError(w.t, err)
		if info.Driver.Free+info.Driver.Cached < size {
			return
		}
		index, err := w.device.Allocate(size, gomem.AllocateOptions{Unmovable: true, Zero: true})
		require.NoError(w.t, err)
		w.contents[index] = make([]byte, size)
	}
}

// budgetOfNow sets a budget that the next allocation passes.
func budgetOfNow(w *world) {
	info, err := w.device.Info(false)
	require.NoError(w.t, err)
	_, _, err = w.device.SetBudget(info.InUse, false, gomem.Wait{})
	require.NoError(w.t, err)
}

var zeroed = gomem.AllocateOptions{Zero: true}

func allocateMore(w *world) error {
	index, err := w.device.Allocate(size, zeroed)
	return w.allocated(index, err, size)
}

var operations = []operation{
	{name: "Allocate", run: func(w *world) error {
		index, err := w.device.Allocate(100, zeroed)
		return w.allocated(index, err, 100)
	}},
	{name: "Allocate over the budget", prepare: budgetOfNow, run: allocateMore, others: true},
	{name: "Allocate on a full device", prepare: fillDevice, run: allocateMore, others: true},
	{name: "Allocate what cannot be", run: func(w *world) error {
		_, err := w.device.Allocate(2*capacity, zeroed)
		var memory *gomem.MemoryError
		if err == nil {
			return errors.New("more than the device has was allocated")
		}
		if errors.As(err, &memory) {
			return nil
		}
		return err
	}},
	{name: "MakeResident", run: func(w *world) error { return w.device.MakeResident(w.target, gomem.Wait{}) }},
	{name: "Admit", run: func(w *world) error {
		indexes := []uint32{w.target, w.spilled, w.target}
		err := w.device.Admit(indexes, gomem.Wait{})
		if err == nil {
			w.device.Discharge(indexes)
		}
		return err
	}},
	{name: "Hold", run: func(w *world) error {
		hold, err := w.device.Hold(w.target, gomem.HoldScope, 0, gomem.Wait{})
		if err == nil {
			w.device.Release(w.target, hold)
		}
		return err
	}},
	{name: "Spill", run: func(w *world) error { _, err := w.device.Spill(w.target, gomem.Wait{}); return err }},
	{name: "SpillAll", run: func(w *world) error { _, err := w.device.SpillAll(gomem.Wait{}); return err }, others: true},
	{name: "RestoreAll", run: func(w *world) error { return w.device.RestoreAll(gomem.Wait{}) }, others: true},
	{name: "MakeRoom", prepare: settled, run: func(w *world) error { _, err := w.device.MakeRoom(2*size, gomem.AllocateOptions{}); return err }, others: true},
	{name: "SetBudget", run: func(w *world) error { _, _, err := w.device.SetBudget(1, false, gomem.Wait{}); return err }, others: true},
	{name: "CopyToHost", run: func(w *world) error {
		_, pointer := soft.Bytes(w.t, size)
		return w.device.CopyToHost(w.target, 0, pointer, size, gomem.Wait{})
	}},
	{name: "CopyFromHost", run: func(w *world) error {
		host, pointer := soft.Bytes(w.t, 1000)
		copy(host, content(1000, 77))
		return w.wrote(500, host, w.device.CopyFromHost(w.target, 500, pointer, 1000, gomem.Wait{}))
	}},
	{name: "Fill with a byte", run: func(w *world) error { return w.filled([]byte{9}) }},
	{name: "Fill with a pattern", run: func(w *world) error { return w.filled([]byte("abcdefg")) }},
	{name: "Copy", run: func(w *world) error {
		source := w.contents[w.spilled]
		return w.wrote(64, source[:size-64], w.device.Copy(w.target, 64, w.spilled, 0, size-64, gomem.Wait{}))
	}},
	{name: "Copy within", run: func(w *world) error {
		source := append([]byte(nil), w.contents[w.target][:size-8]...)
		_, doubtful := w.unsure[w.target]
		err := w.wrote(8, source, w.device.Copy(w.target, 8, w.target, 0, size-8, gomem.Wait{}))
		if doubtful { // what was moved now is what an attempt that failed has left
			w.unsure[w.target] = span{8, size}
		}
		return err
	}},
	{name: "Synchronize", run: func(w *world) error { return w.device.Synchronize() }},
	{name: "Trim", run: func(w *world) error { _, err := w.device.Trim(); return err }},
	{name: "Info", run: func(w *world) error { _, err := w.device.Info(true); return err }},
	{name: "Drop", run: func(w *world) error {
		if w.hold == 0 { // who holds a buffer does not drop it
			w.dropTarget()
		}
		return nil
	}},
	{name: "Free", run: func(w *world) error {
		if w.dropped {
			return nil
		}
		if w.hold != 0 {
			w.device.Release(w.target, w.hold)
			w.hold = 0
		}
		err := w.device.Free(w.target, gomem.Wait{})
		if err == nil {
			w.dropped = true
			delete(w.contents, w.target)
		}
		return err
	}},
	{name: "Adopt", prepare: func(w *world) { w.foreign = w.host.allocate(size) }, run: func(w *world) error {
		token, err := w.device.Reserve(size, gomem.AllocateOptions{})
		if err != nil {
			return err
		}
		index, err := w.device.Adopt(w.foreign, size, gomem.AdoptOptions{How: w.plain, Token: token})
		if err == nil {
			w.foreign = 0
			w.contents[index], w.unsure[index] = make([]byte, size), span{0, size}
		}
		return err
	}},
	// The first change of the stream destroys the events that were made so far; done before, the number of events is the same in each run.
	{name: "SetStream", first: toHostsContext, run: func(w *world) error { return toHostsContext(w.bench) }},
	// All others begin in the host's context, since memory that a host allocates in it can be adopted only while it is set.
	{name: "SetStream back to our own", first: throughBothContexts, run: func(w *world) error { return toOurContext(w.bench) }, after: toHostsContext},
	// The buffers lie in the host's context here, and what is made now in ours.
	{name: "Allocate beside another context", first: throughBothContexts, prepare: leaveContext, run: func(w *world) error {
		index, err := w.device.Allocate(100, zeroed)
		return w.allocated(index, err, 100)
	}, after: toHostsContext},
	{name: "SpillAll out of another context", first: throughBothContexts, prepare: leaveContext, run: func(w *world) error {
		_, err := w.device.SpillAll(gomem.Wait{})
		return err
	}, after: toHostsContext, others: true},
	{name: "RestoreAll beside another context", first: throughBothContexts, prepare: leaveContext, run: func(w *world) error {
		return w.device.RestoreAll(gomem.Wait{})
	}, after: toHostsContext, others: true},
}

func toHostsContext(b *bench) error { return b.device.SetStream(b.host.context(), 0) }

// throughBothContexts has both made before an operation that changes between them, so that each run of it makes the same calls.
func throughBothContexts(b *bench) error {
	if err := toOurContext(b); err != nil {
		return err
	}
	return toHostsContext(b)
}

func toOurContext(b *bench) error { return b.device.SetStream(0, 0) }

func leaveContext(w *world) { require.NoError(w.t, toOurContext(w.bench)) }
