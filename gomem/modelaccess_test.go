package gomem_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

func (w *modelWorker) launch(op modelOp, wait gomem.Wait) error {
	var buffers []*modelBuffer
	var indexes []uint32
	for n := range 1 + op.A%4 {
		if b := w.pick(op.B>>(16*n)&0xffff, true); b != nil {
			buffers = append(buffers, b) // perhaps twice
			indexes = append(indexes, b.index)
		}
	}
	if len(buffers) == 0 {
		return nil
	}
	w.use(buffers...)
	unique := slices.Compact(slices.SortedFunc(slices.Values(buffers), func(x, y *modelBuffer) int { return int(x.index) - int(y.index) }))
	addresses, err := w.lane.enter(indexes, wait)
	if err != nil {
		if wait.Cancel != nil && errors.Is(err, gomem.ErrCancelled) {
			return nil
		}
		var nbytes int64
		for _, b := range unique {
			nbytes += int64(len(b.data))
		}
		return w.refused(err, nbytes, buffers...)
	}
	for _, b := range unique {
		w.used[b] = true
		if len(b.data) == 0 {
			continue
		}
		memory := w.driver.Bytes(addresses[slices.Index(indexes, b.index)], uint64(len(b.data)))
		step := byte(op.C)
		w.driver.Run(func() {
			for i := range memory {
				memory[i] += step + byte(i)
			}
		})
		for i := range b.data {
			b.data[i] += step + byte(i)
		}
	}
	w.lane.leave(indexes)
	return nil
}

func (w *modelWorker) read(b *modelBuffer, offset, nbytes uint64, wait gomem.Wait) error {
	got := make([]byte, nbytes+1)
	err := w.device.CopyToHost(b.index, offset, unsafe.Pointer(&got[0]), nbytes, wait)
	if err != nil {
		if wait.Cancel != nil && errors.Is(err, gomem.ErrCancelled) {
			return nil
		}
		return w.refused(err, 0)
	}
	w.used[b] = w.used[b] || nbytes > 0
	if want := b.data[offset : offset+nbytes]; !bytes.Equal(want, got[:nbytes]) {
		i := 0
		for want[i] == got[i] {
			i++
		}
		return fmt.Errorf("buffer %d (%v): byte %d of [%d, %d) is %#x, not %#x", b.index, w.state(b), i, offset, offset+nbytes, got[i], want[i])
	}
	if got[nbytes] != 0 {
		return errors.New("a read wrote past its end")
	}
	return nil
}

func (w *modelWorker) write(b *modelBuffer, offset, nbytes uint64, first byte, wait gomem.Wait) error {
	data := make([]byte, nbytes+1)
	for i := range data {
		data[i] = first ^ byte(i*7)
	}
	err := w.device.CopyFromHost(b.index, offset, unsafe.Pointer(&data[0]), nbytes, wait)
	if err != nil {
		if wait.Cancel != nil && errors.Is(err, gomem.ErrCancelled) {
			return nil
		}
		if err := w.refused(err, 0); err != nil {
			return err
		}
		return w.contentsAfterFailure(b)
	}
	w.used[b] = nbytes > 0
	copy(b.data[offset:], data[:nbytes])
	return nil
}

// contentsAfterFailure makes the model agree with a buffer whose new contents could not be written: the caller has an error and has to write
// again. The buffer must be readable.
func (w *modelWorker) contentsAfterFailure(b *modelBuffer) error {
	for _, method := range fakedriver.Methods {
		w.driver.Fail(method, 0, nil)
	}
	if len(b.data) == 0 {
		return nil
	}
	return w.device.CopyToHost(b.index, 0, unsafe.Pointer(&b.data[0]), uint64(len(b.data)), gomem.Wait{})
}

func (w *modelWorker) fill(b *modelBuffer, offset, nbytes, random uint64) error {
	pattern := make([]byte, 1+random%16)
	for i := range pattern {
		pattern[i] = byte(random >> (i % 8 * 8))
	}
	if err := w.device.Fill(b.index, offset, pattern, nbytes, w.wait()); err != nil {
		return w.refused(err, 0)
	}
	w.used[b] = nbytes > 0
	for i := range nbytes {
		b.data[offset+i] = pattern[i%uint64(len(pattern))]
	}
	return nil
}

func (w *modelWorker) copy(to *modelBuffer, offset uint64, from *modelBuffer, random uint64) error {
	fromOffset := random % (uint64(len(from.data)) + 1)
	nbytes := random >> 40 % (min(uint64(len(to.data))-offset, uint64(len(from.data))-fromOffset) + 1)
	if err := w.device.Copy(to.index, offset, from.index, fromOffset, nbytes, w.wait()); err != nil {
		need := int64(len(to.data))
		if from != to {
			need += int64(len(from.data))
		}
		var memory *gomem.MemoryError
		if errors.As(err, &memory) && memory.Reason == gomem.ReasonHost && w.isSpilled(to) && w.isSpilled(from) {
			need = 0 // it needed no room on the device: what was lent had to become memory of its own before it was written to
		}
		return w.refused(err, need, to, from)
	}
	w.used[to], w.used[from] = nbytes > 0, nbytes > 0
	copy(to.data[offset:offset+nbytes], from.data[fromOffset:fromOffset+nbytes])
	return nil
}

func (w *modelWorker) isSpilled(b *modelBuffer) bool {
	state, _ := gomem.StateOf(atomic.LoadUint32(&w.device.Record(b.index).Word))
	return state == gomem.Spilled
}

func (w *modelWorker) hold(op modelOp) error {
	b := w.pick(op.A, true)
	if b == nil || len(w.holds) >= 3 {
		return nil
	}
	w.use(b)
	kind, reason := gomem.HoldScope, "texture"
	if op.Kind == "export" {
		kind, reason = gomem.HoldExport, "dlpack"
	}
	id, err := w.device.Hold(b.index, kind, gomem.Intern(reason), w.wait())
	if err != nil {
		return w.refused(err, int64(len(b.data)), b)
	}
	w.used[b] = true
	w.holds = append(w.holds, modelHold{b, id, kind})
	count := 0
	for _, info := range w.device.Holds(b.index) {
		if info.Kind == kind && info.Reason == reason {
			count = info.Count
		}
	}
	want := 0
	for _, h := range w.holds {
		if h.buffer == b && h.kind == kind {
			want++
		}
	}
	if count < want || w.single && count != want {
		return fmt.Errorf("%d holds %q are listed, not %d", count, reason, want)
	}
	return nil
}

func (w *modelWorker) release(n int) {
	h := w.holds[n]
	w.holds = slices.Delete(w.holds, n, n+1)
	w.device.Release(h.buffer.index, h.id)
}
