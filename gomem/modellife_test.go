package gomem_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/tack-memory/tack-memory/gomem"
)

func modelSize(random uint64) uint64 {
	switch random % 20 {
	case 0:
		return 0
	case 1, 2, 3, 4:
		return random >> 8 % 64
	case 5, 6, 7:
		return random >> 8 % (12 << 10)
	}
	return random >> 8 % (4 << 10)
}

func (w *modelWorker) allocate(op modelOp, wait gomem.Wait) error {
	n := modelSize(op.A)
	o := gomem.AllocateOptions{Wait: wait, Zero: op.B%2 == 0, Unmovable: op.B%16 == 1, Reason: gomem.Intern("test"), Origin: gomem.Intern(fmt.Sprint("line ", op.B%7))}
	index, err := w.device.Allocate(n, o)
	if err != nil {
		if wait.Cancel != nil && errors.Is(err, gomem.ErrCancelled) {
			return nil
		}
		return w.refused(err, int64(n))
	}
	b := &modelBuffer{index: index, data: make([]byte, n), unmovable: o.Unmovable}
	w.born(b)
	if o.Zero {
		return w.read(b, 0, n, gomem.Wait{})
	}
	return w.write(b, 0, n, byte(op.C), gomem.Wait{})
}

// receive makes a buffer of contents in memory that is lent. Nobody writes to it, and once it is given back nobody looks at it.
func (w *modelWorker) receive(op modelOp) error {
	n := modelSize(op.A)
	if n == 0 {
		return nil
	}
	b := &modelBuffer{data: contents(n, op.B)}
	frame := bytes.Clone(b.data)
	was := bytes.Clone(b.data)
	giveBack := func() {
		if !bytes.Equal(frame, was) {
			panic("somebody wrote to memory that was lent")
		}
		for i := range frame {
			frame[i] ^= 0xa5
		}
	}
	index, err := w.device.Receive(unsafe.Pointer(&frame[0]), n, giveBack, gomem.AllocateOptions{Origin: gomem.Intern(fmt.Sprint("line ", op.B%7))})
	if err != nil {
		return w.refused(err, int64(n))
	}
	b.index = index
	w.born(b)
	if w.single && !w.isSpilled(b) {
		return fmt.Errorf("buffer %d was received, and is not in host memory", index)
	}
	return nil
}

// born adds a buffer to the model.
func (w *modelWorker) born(b *modelBuffer) {
	b.born = w.births
	w.births++
	w.buffers = append(w.buffers, b)
	w.touched[b] = true
	for _, s := range w.scopes {
		s.ownNow += int64(len(b.data))
		s.own = max(s.own, s.ownNow)
		s.footprint = max(s.footprint, w.total())
	}
}

// died takes a buffer out of the model.
func (w *modelWorker) died(b *modelBuffer) {
	b.gone = true
	w.buffers = slices.DeleteFunc(w.buffers, func(other *modelBuffer) bool { return other == b })
	for _, s := range w.scopes {
		if b.born >= s.born {
			s.ownNow -= int64(len(b.data))
		}
	}
}

func (w *modelWorker) total() (nbytes int64) {
	for _, b := range w.buffers {
		nbytes += int64(len(b.data))
	}
	return nbytes
}

func (w *modelWorker) held(b *modelBuffer) bool {
	return slices.ContainsFunc(w.holds, func(h modelHold) bool { return h.buffer == b })
}

// drop lets go of a buffer, as the end of the last reference does: nobody holds it then.
func (w *modelWorker) drop(random uint64) error {
	b := w.pick(random, false)
	if b == nil || w.held(b) {
		return nil
	}
	w.device.Drop(b.index)
	w.died(b)
	return nil
}

func (w *modelWorker) free(random uint64) error {
	b := w.pick(random, false)
	if b == nil {
		return nil
	}
	err := w.device.Free(b.index, gomem.Wait{})
	var busy *gomem.BusyError
	switch {
	case w.held(b) && errors.As(err, &busy):
		return nil
	case w.held(b):
		return fmt.Errorf("freed while held: %v", err)
	case err != nil:
		return fmt.Errorf("not freed: %w", err)
	}
	w.died(b)
	return nil
}
