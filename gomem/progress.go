package gomem

import "sync/atomic"

// Progress is how far one call has come with moving memory, for somebody who watches it while it runs: C, whose waiting thread looks at it now and then
// (bindings/fast/progress.c). Bytes. The goroutine that carries the call out is the only one that writes; all fields are read and written atomically, each by itself, so
// a reader may see the bytes of a part before the total that it belongs to was raised, and has to bear with it. A nil *Progress counts nothing.
type Progress struct {
	SpillDone, SpillTotal     uint64
	RestoreDone, RestoreTotal uint64
}

// move is what a copy between device and host is part of.
type move uint8

const (
	moveNone move = iota // of neither: the program's own reads and writes
	moveSpill
	moveRestore
)

// moves says what the copies of this call belong to from here on.
func (w Wait) moves(kind move) Wait {
	w.moving = kind
	return w
}

func (p *Progress) fields(kind move) (done, total *uint64) {
	if kind == moveSpill {
		return &p.SpillDone, &p.SpillTotal
	}
	return &p.RestoreDone, &p.RestoreTotal
}

// expect says that nbytes more, at least, are to be moved from now on. What was expected already is not added a second time: a pass over many buffers says its
// sum first, and then each buffer says its own size.
func (p *Progress) expect(kind move, nbytes uint64) {
	if p == nil {
		return
	}
	done, total := p.fields(kind)
	atomic.StoreUint64(total, max(atomic.LoadUint64(total), atomic.LoadUint64(done)+nbytes))
}

// moved counts a part that was copied.
func (p *Progress) moved(kind move, nbytes uint64) {
	if p == nil || kind == moveNone {
		return
	}
	done, _ := p.fields(kind)
	atomic.AddUint64(done, nbytes)
}
