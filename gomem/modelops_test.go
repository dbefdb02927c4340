package gomem_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// perform runs one operation on the core and on the model.
func (w *modelWorker) perform(op modelOp) error {
	most := 20
	if !w.single {
		most = 10
	}
	switch op.Kind {
	case "allocate":
		if len(w.buffers) >= most {
			return w.drop(op.B)
		}
		return w.allocate(op, w.wait())
	case "drop":
		return w.drop(op.A)
	case "free":
		return w.free(op.A)
	case "launch":
		return w.launch(op, w.wait())
	case "hold", "export":
		return w.hold(op)
	case "release":
		if len(w.holds) > 0 {
			w.release(int(op.A % uint64(len(w.holds))))
		}
		return nil
	case "spillall":
		_, err := w.device.SpillAll(gomem.Wait{})
		return w.refusedOrNil(err, 0)
	case "restoreall":
		return w.restoreAll(gomem.Wait{})
	case "budget":
		return w.budget(op)
	case "resetpeak":
		w.device.ResetPeak()
		if w.single {
			info, _ := w.device.Info(false)
			w.peak = info.InUse
		}
		return nil
	case "open":
		w.openScope()
		return nil
	case "close":
		if len(w.scopes) > 0 {
			return w.closeScope(int(op.A % uint64(len(w.scopes))))
		}
		return nil
	case "reserve":
		return w.reserve(op)
	case "adopt":
		if len(w.buffers) < most {
			return w.adopt(op)
		}
		return nil
	case "disown":
		return w.disown(op.A)
	case "makeroom":
		return w.makeRoom(op)
	case "trim":
		_, err := w.device.Trim()
		return w.refusedOrNil(err, 0)
	case "fault":
		w.fault(op)
		return nil
	case "report":
		return w.report()
	case "cancelled":
		return w.cancelled(op)
	}
	return w.performOn(op)
}

// performOn runs an operation on one buffer, or two.
func (w *modelWorker) performOn(op modelOp) error {
	b := w.pick(op.A, true)
	if b == nil {
		return nil
	}
	size := uint64(len(b.data))
	offset := op.B % (size + 1)
	nbytes := op.C % (size - offset + 1)
	switch op.Kind {
	case "read":
		w.use(b)
		return w.read(b, offset, nbytes, w.wait())
	case "write":
		w.use(b)
		return w.write(b, offset, nbytes, byte(op.C>>32), w.wait())
	case "fill":
		w.use(b)
		return w.fill(b, offset, nbytes, op.C)
	case "copy":
		from := w.pick(op.C>>20, true)
		w.use(b, from)
		return w.copy(b, offset, from, op.C)
	case "pointer", "restore":
		w.use(b)
		err := w.device.MakeResident(b.index, w.wait())
		w.used[b] = err == nil
		return w.refusedOrNil(err, int64(size), b)
	case "spill":
		w.use(b)
		freed, err := w.device.Spill(b.index, gomem.Wait{})
		if err == nil && w.single && freed != 0 && (w.keeps(b) || freed != size) {
			return fmt.Errorf("spilling a buffer of %d bytes (kept: %v) freed %d", size, w.keeps(b), freed)
		}
		return w.refusedOrNil(err, 0)
	case "find":
		return w.find(b, offset, nbytes)
	case "label":
		w.device.SetLabel(b.index, gomem.Intern(fmt.Sprint("label ", op.B%5)))
		return nil
	}
	return fmt.Errorf("no operation %q", op.Kind)
}

func (w *modelWorker) refusedOrNil(err error, nbytes int64, buffers ...*modelBuffer) error {
	if err == nil {
		return nil
	}
	return w.refused(err, nbytes, buffers...)
}

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
		return w.refused(err, need, to, from)
	}
	w.used[to], w.used[from] = nbytes > 0, nbytes > 0
	copy(to.data[offset:offset+nbytes], from.data[fromOffset:fromOffset+nbytes])
	return nil
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

func (w *modelWorker) restoreAll(wait gomem.Wait) error {
	err := w.device.RestoreAll(wait)
	if err == nil || wait.Cancel != nil && errors.Is(err, gomem.ErrCancelled) {
		for _, b := range w.buffers {
			w.touched[b] = w.touched[b] || w.single
		}
		return nil
	}
	if w.single {
		for _, b := range w.buffers {
			w.touched[b] = true
		}
		return w.refused(err, w.total(), w.buffers...)
	}
	return w.refused(err, 0)
}

func (w *modelWorker) budget(op modelOp) error {
	budget := int64(op.A % (80 << 10))
	if w.c.Budget < 0 || op.B%5 == 0 {
		budget = -1
	}
	strict := w.single && op.B%3 == 0
	before, _ := w.device.Info(false)
	previous, previousStrict, err := w.device.SetBudget(budget, strict, gomem.Wait{})
	if w.single && (previous != before.Budget || previousStrict != (before.Strict != 0)) {
		return fmt.Errorf("the budget before was %d (strict: %v), not %d", before.Budget, before.Strict != 0, previous)
	}
	return w.refusedOrNil(err, 0)
}

func (w *modelWorker) openScope() {
	if len(w.scopes) >= 4 {
		return
	}
	s := &modelScope{born: w.births, footprint: w.total()}
	w.device.OpenScope(&s.scope)
	s.peak = s.scope.Start
	w.scopes = append(w.scopes, s)
}

func (w *modelWorker) closeScope(n int) error {
	s := w.scopes[n]
	w.scopes = slices.Delete(w.scopes, n, n+1)
	before, _ := w.device.Info(false)
	w.device.CloseScope(&s.scope)
	got := &s.scope
	if got.Peak < got.Start || got.Peak < got.End || got.Footprint < got.Peak || got.Own > got.Footprint {
		return fmt.Errorf("a peak scope contradicts itself: %+v", got)
	}
	if !w.single {
		return nil
	}
	if got.Own != s.own || got.OwnNow != s.ownNow || got.Footprint != s.footprint || got.End != before.InUse {
		return fmt.Errorf("a peak scope is %+v; its own is %d (now %d), its footprint %d", got, s.own, s.ownNow, s.footprint)
	}
	if got.Peak != s.peak && !((w.c.Faults || s.loose) && got.Peak > s.peak) {
		return fmt.Errorf("a peak scope is %+v; in_use went up to %d", got, s.peak)
	}
	for _, outer := range w.scopes[:n] { // opened before, still open
		if outer.scope.Peak < got.Peak {
			return fmt.Errorf("an inner scope's peak is %d, the outer one's %d", got.Peak, outer.scope.Peak)
		}
	}
	return nil
}

func (w *modelWorker) reserve(op modelOp) error {
	if len(w.tokens) >= 2 {
		for token := range w.tokens {
			w.device.Unreserve(token)
			delete(w.tokens, token)
		}
		return nil
	}
	n := modelSize(op.A)
	token, err := w.device.Reserve(n, gomem.AllocateOptions{Wait: w.wait()})
	if err != nil {
		return w.refused(err, int64(n))
	}
	w.tokens[token] = n
	return nil
}

// adopt allocates as a host framework does, and gives the memory to the device.
func (w *modelWorker) adopt(op modelOp) error {
	n := modelSize(op.A) + 1
	if overlapped := w.pick(op.B, false); overlapped != nil && op.C%4 == 0 {
		return w.adoptOverlapping(overlapped)
	}
	address, err := w.driver.Allocate(n)
	if errors.Is(err, gomem.ErrOutOfMemory) {
		if _, err := w.device.MakeRoom(n, gomem.AllocateOptions{Wait: w.wait()}); err != nil {
			return w.refused(err, int64(n))
		}
		address, err = w.driver.Allocate(n)
	}
	if err != nil {
		return nil // the host has no room, which is not our matter
	}
	b := &modelBuffer{data: make([]byte, n)}
	memory := w.driver.Bytes(address, n)
	for i := range b.data {
		b.data[i] = byte(op.C) + byte(i)
		memory[i] = b.data[i]
	}
	o := gomem.AdoptOptions{Wait: w.wait(), How: gomem.HowCUDAAsync, Stream: 7}
	for token := range w.tokens {
		o.Token = token
		delete(w.tokens, token)
		break
	}
	if b.index, err = w.device.Adopt(address, n, o); err != nil {
		if freeErr := w.driver.Free(gomem.Block{Address: address, Bytes: n}); freeErr != nil {
			return freeErr
		}
		return w.refused(err, int64(n))
	}
	w.born(b)
	return nil
}

func (w *modelWorker) adoptOverlapping(b *modelBuffer) error {
	r := w.device.Record(b.index)
	if w.state(b) != gomem.Resident || len(b.data) == 0 || !w.single {
		return nil
	}
	_, err := w.device.Adopt(r.Address+uint64(len(b.data))-1, 100, gomem.AdoptOptions{How: gomem.HowCUDA, Wait: w.wait()})
	var overlap *gomem.OverlapError
	if errors.As(err, &overlap) {
		if overlap.OtherAddress != r.Address || overlap.OtherBytes != r.Size {
			return fmt.Errorf("the wrong buffer is overlapped: %w", err)
		}
		return nil
	}
	if err == nil {
		return errors.New("memory of a buffer was adopted once more")
	}
	return w.refused(err, 100)
}

func (w *modelWorker) disown(random uint64) error {
	b := w.pick(random, false)
	if b == nil || len(b.data) == 0 {
		return nil
	}
	w.touched[b] = true
	address, err := w.device.Disown(b.index, w.wait())
	var busy *gomem.BusyError
	if errors.As(err, &busy) && w.held(b) {
		return nil
	}
	if err != nil {
		return w.refused(err, int64(len(b.data)), b)
	}
	if w.held(b) {
		return errors.New("disowned while held")
	}
	w.died(b)
	for _, method := range fakedriver.Methods {
		w.driver.Fail(method, 0, nil)
	}
	got := make([]byte, len(b.data))
	if err := w.driver.CopyOut(unsafe.Pointer(&got[0]), address, uint64(len(got))); err != nil {
		return err
	}
	if !bytes.Equal(got, b.data) {
		return errors.New("a disowned buffer has other contents")
	}
	return w.driver.Free(gomem.Block{Address: address, Bytes: uint64(len(b.data))})
}

func (w *modelWorker) makeRoom(op modelOp) error {
	n := modelSize(op.A) + 1
	freed, err := w.device.MakeRoom(n, gomem.AllocateOptions{Wait: w.wait()})
	if err != nil {
		return w.refused(err, int64(n))
	}
	if w.single && freed < n {
		for _, b := range w.buffers {
			if w.state(b) == gomem.Resident && !w.keeps(b) {
				return fmt.Errorf("only %d of %d bytes were made free, and a buffer of %d could have gone", freed, n, len(b.data))
			}
		}
	}
	return nil
}

func (w *modelWorker) find(b *modelBuffer, offset, nbytes uint64) error {
	if !w.single || len(b.data) == 0 {
		return nil
	}
	r := w.device.Record(b.index)
	if offset == r.Size {
		offset--
		nbytes = min(nbytes, 1)
	}
	index, at, found := w.device.Find(r.Address+offset, nbytes)
	if w.state(b) == gomem.Resident {
		if !found || index != b.index || at != offset {
			return fmt.Errorf("buffer %d at %#x: offset %d is found %v in buffer %d at offset %d", b.index, r.Address, offset, found, index, at)
		}
	} else if found && index == b.index {
		return errors.New("a spilled buffer is found on the device")
	}
	return nil
}

func (w *modelWorker) fault(op modelOp) {
	if !w.c.Faults {
		return
	}
	methods := []string{fakedriver.Allocate, fakedriver.CopyOut, fakedriver.CopyIn, fakedriver.CopyWithin, fakedriver.Fill, fakedriver.Synchronize,
		fakedriver.Trim, fakedriver.Memory, "host"}
	method := methods[op.A%uint64(len(methods))]
	if method == "host" {
		left := op.B % 3
		w.pool.SetFault(func(uint64) error {
			if left--; left == 0 {
				return &gomem.HostMemoryError{Cause: errModelHost}
			}
			return nil
		})
		return
	}
	var kind error
	if method == fakedriver.Allocate && op.C%2 == 0 {
		kind = gomem.ErrOutOfMemory
	}
	w.driver.Fail(method, 1+int(op.B%4), w.driver.Error(method, kind))
}

func (w *modelWorker) report() error {
	holders := w.device.Holders(0)
	var count, nbytes int64
	for _, h := range holders {
		if h.Bytes != h.Resident+h.Spilled || h.Count <= 0 {
			return fmt.Errorf("a holder contradicts itself: %+v", h)
		}
		count += h.Count
		nbytes += h.Bytes
	}
	if w.single && (count != int64(len(w.buffers)) || nbytes != w.total()) {
		return fmt.Errorf("the holders have %d bytes in %d buffers: %+v", nbytes, count, holders)
	}
	for reason, n := range w.device.Unspillable() {
		if reason == "" || n <= 0 {
			return fmt.Errorf("%d bytes cannot move because of %q", n, reason)
		}
	}
	return nil
}

// cancelled runs an operation whose Cancel was called before: it does everything or nothing.
func (w *modelWorker) cancelled(op modelOp) error {
	wait := w.wait()
	wait.Cancel = new(gomem.Cancel)
	wait.Cancel.Cancel()
	for _, s := range w.scopes {
		s.loose = true
	}
	b := w.pick(op.A, true)
	if b == nil {
		return nil
	}
	ignore := func(err error) error {
		if errors.Is(err, gomem.ErrCancelled) {
			return nil
		}
		return w.refusedOrNil(err, int64(len(b.data)), b)
	}
	switch op.B % 8 {
	case 0:
		w.use(b)
		return w.read(b, 0, uint64(len(b.data)), wait)
	case 1:
		w.use(b)
		return w.write(b, 0, uint64(len(b.data)), byte(op.C), wait)
	case 2:
		w.use(b)
		_, err := w.device.Spill(b.index, wait)
		return ignore(err)
	case 3:
		w.use(b)
		return ignore(w.device.MakeResident(b.index, wait))
	case 4:
		return w.restoreAll(wait)
	case 5:
		return w.launch(op, wait)
	case 6:
		return w.allocate(op, wait)
	}
	_, err := w.device.SpillAll(wait)
	return ignore(err)
}
