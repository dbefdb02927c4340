package gomem_test

import (
	"errors"
	"fmt"

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
		return w.wholeReport(op)
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
	case "receive":
		if len(w.buffers) < most {
			return w.receive(op)
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
	holders, err := w.device.Holders(0)
	if err != nil {
		return err
	}
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
	unspillable, err := w.device.Unspillable()
	if err != nil {
		return err
	}
	for reason, n := range unspillable {
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
	ignore := func(err error, needs int) error {
		if errors.Is(err, gomem.ErrCancelled) {
			return nil
		}
		return w.refusedOrNil(err, int64(needs), b)
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
		return ignore(err, 0)
	case 3:
		w.use(b)
		return ignore(w.device.MakeResident(b.index, wait), len(b.data))
	case 4:
		return w.restoreAll(wait)
	case 5:
		return w.launch(op, wait)
	case 6:
		return w.allocate(op, wait)
	}
	_, err := w.device.SpillAll(wait)
	return ignore(err, 0)
}
