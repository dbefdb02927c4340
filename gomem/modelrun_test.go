package gomem_test

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// modelWorld is one run: the device, and the model of it.
type modelWorld struct {
	c      modelCase
	driver *fakedriver.Device
	pool   *gomem.HostPool
	device *gomem.Device
	lane   *lane
	shared []*modelBuffer // used by all workers, under each buffer's lock; there from beginning to end
}

// modelBuffer is what the model knows of a buffer.
type modelBuffer struct {
	lock      sync.Mutex // shared buffers: held over each operation
	index     uint32
	data      []byte
	unmovable bool
	born      int  // single worker: number of the birth, to tell a scope's own buffers
	gone      bool // of a private buffer that was dropped
}

// modelHold is an open hold or export of a worker.
type modelHold struct {
	buffer *modelBuffer
	id     uint64
	kind   gomem.HoldKind
}

// modelScope is an open peak scope, with what the model expects of it.
type modelScope struct {
	scope       gomem.Scope
	born        int // births before it
	ownNow, own int64
	footprint   int64
	peak        int64 // from the events
	loose       bool  // a cancelled restore may have had device memory for a moment: the peak may be higher
}

// modelWorker runs one list of operations.
type modelWorker struct {
	*modelWorld
	single  bool
	buffers []*modelBuffer
	holds   []modelHold
	scopes  []*modelScope
	tokens  map[uint64]uint64 // open reservations
	births  int
	peak    int64 // single worker: the device's expected peak
	touched map[*modelBuffer]bool
	used    map[*modelBuffer]bool // by the operation under way, for certain
	refusal bool                  // the operation under way was refused
	steps   int
}

// newModelWorld opens a device for a case. shared: with buffers that all workers use.
func newModelWorld(c modelCase, shared bool) (w *modelWorld, err error) {
	w = &modelWorld{c: c, pool: gomem.NewHostPool()}
	w.pool.SetLimit(c.Host)
	options := c.Driver
	options.Seed = c.Seed
	w.driver = fakedriver.New(options)
	w.device, err = gomem.NewDevice(w.driver, gomem.Options{Movable: true, Pool: w.pool, Check: c.Check, MaxWait: 20 * time.Second})
	if err != nil {
		return nil, err
	}
	w.device.SetOrigins(gomem.Origins(c.Seed % 3))
	w.lane = &lane{device: w.device}
	if c.Budget >= 0 {
		if _, _, err := w.device.SetBudget(c.Budget, false, gomem.Wait{}); err != nil {
			return nil, err
		}
	}
	for i := range 4 {
		if !shared {
			break
		}
		b := &modelBuffer{data: make([]byte, 500<<i)}
		if b.index, err = w.device.Allocate(uint64(len(b.data)), gomem.AllocateOptions{Zero: true}); err != nil {
			return nil, err
		}
		w.shared = append(w.shared, b)
	}
	return w, nil
}

// runModel runs a case and returns the first difference between core and model; a panic is one.
func runModel(c modelCase) error {
	w, err := newModelWorld(c, len(c.Workers) > 1)
	if err != nil {
		return err
	}
	failures := make([]error, len(c.Workers))
	workers := make([]*modelWorker, len(c.Workers))
	var running sync.WaitGroup
	for n, ops := range c.Workers {
		workers[n] = &modelWorker{modelWorld: w, single: len(c.Workers) == 1, tokens: map[uint64]uint64{}}
		running.Go(func() {
			failures[n] = workers[n].run(ops)
			workers[n].releaseAll() // others may wait for the holds
		})
	}
	running.Wait()
	if err := errors.Join(failures...); err != nil {
		return err
	}
	// All is quiet now.
	for _, method := range fakedriver.Methods {
		w.driver.Fail(method, 0, nil)
	}
	w.pool.SetFault(nil)
	if err := w.device.Check(); err != nil {
		return err
	}
	for _, worker := range workers {
		if err := worker.end(); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
	}
	return w.close()
}

// close drops what is left and expects that nothing remains anywhere.
func (w *modelWorld) close() error {
	for _, b := range w.shared {
		w.device.Drop(b.index)
	}
	if err := w.device.Synchronize(); err != nil {
		return err
	}
	info, err := w.device.Info(false)
	if err != nil {
		return err
	}
	if info.InUse != 0 || info.Spilled != 0 || info.Reserved != 0 || info.PendingFree != 0 || info.Live != 0 || info.HostCopies != 0 || info.DriverPending != 0 {
		return fmt.Errorf("all buffers are dropped, and the books show %+v", info)
	}
	if blocks, nbytes := w.driver.Live(); blocks != 0 {
		return fmt.Errorf("all buffers are dropped, and %d blocks of %d bytes are on the device", blocks, nbytes)
	}
	return w.device.Close()
}

func (w *modelWorker) run(ops []modelOp) (err error) {
	at := 0
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("operation %d (%v): panic: %v\n%s", at, ops[at], p, debug.Stack())
		}
	}()
	for at = range ops {
		if err := w.step(ops[at]); err != nil {
			return fmt.Errorf("operation %d (%v): %w", at, ops[at], err)
		}
	}
	return nil
}

// step runs one operation and compares.
func (w *modelWorker) step(op modelOp) error {
	w.steps++
	w.refusal = false
	w.touched, w.used = map[*modelBuffer]bool{}, map[*modelBuffer]bool{}
	if !w.single {
		err := w.perform(op)
		w.unlockShared()
		return err
	}
	before := w.look()
	w.device.RecordEvents(256)
	if err := w.perform(op); err != nil {
		return err
	}
	return w.compare(op, before)
}

// end releases and checks what a worker has left.
func (w *modelWorker) end() error {
	w.releaseAll()
	for token := range w.tokens {
		w.device.Unreserve(token)
	}
	for len(w.scopes) > 0 {
		if err := w.closeScope(0); err != nil {
			return err
		}
	}
	w.touched, w.used = map[*modelBuffer]bool{}, map[*modelBuffer]bool{}
	for _, b := range slices.Concat(w.buffers, w.shared) {
		if err := w.contents(b); err != nil {
			return err
		}
	}
	w.unlockShared()
	for _, b := range w.buffers {
		w.device.Drop(b.index)
	}
	return nil
}

func (w *modelWorker) releaseAll() {
	for len(w.holds) > 0 {
		w.release(len(w.holds) - 1)
	}
}

// pick chooses a buffer; nil: there is none. Who has a hold open takes no shared one: it would wait for its lock while the one who has that waits for the
// hold to end.
func (w *modelWorker) pick(random uint64, sharedToo bool) *modelBuffer {
	all := w.buffers
	if sharedToo && len(w.holds) == 0 {
		all = slices.Concat(w.buffers, w.shared)
	}
	if len(all) == 0 {
		return nil
	}
	return all[random%uint64(len(all))]
}

// use locks the shared ones among the buffers of an operation, in order, so that workers do not wait for each other in a circle, and notes that the
// operation uses them.
func (w *modelWorker) use(buffers ...*modelBuffer) {
	for _, s := range w.shared {
		if slices.Contains(buffers, s) && !w.touched[s] {
			s.lock.Lock()
			w.touched[s] = true
		}
	}
	for _, b := range buffers {
		w.touched[b] = true
	}
}

func (w *modelWorker) unlockShared() {
	for _, s := range w.shared {
		if w.touched[s] {
			s.lock.Unlock()
			delete(w.touched, s)
		}
	}
}

// wait says how calls of this worker may wait: with holds open, not for others.
func (w *modelWorker) wait() gomem.Wait { return gomem.Wait{Nested: len(w.holds) > 0} }

// kept is how many bytes on the device cannot move, apart from these buffers.
func (w *modelWorker) kept(except ...*modelBuffer) (nbytes int64) {
	for _, b := range w.buffers {
		if !slices.Contains(except, b) && w.keeps(b) && w.state(b) == gomem.Resident {
			nbytes += int64(len(b.data))
		}
	}
	return nbytes
}

// keeps reports whether the model expects that a buffer cannot be spilled.
func (w *modelWorker) keeps(b *modelBuffer) bool {
	return b.unmovable || len(b.data) == 0 || slices.ContainsFunc(w.holds, func(h modelHold) bool { return h.buffer == b })
}

func (w *modelWorker) state(b *modelBuffer) gomem.State {
	state, _ := gomem.StateOf(atomic.LoadUint32(&w.device.Record(b.index).Word))
	return state
}

// refused checks the error of a call that needs nbytes of the device for these buffers; 0: it only spills. It returns nil when the core may fail like this now.
func (w *modelWorker) refused(err error, nbytes int64, buffers ...*modelBuffer) error {
	w.refusal = true
	if w.c.Faults {
		var driver *gomem.DriverError
		var memory *gomem.MemoryError
		if errors.As(err, &driver) || errors.As(err, &memory) || errors.Is(err, errModelHost) {
			return nil
		}
	}
	var memory *gomem.MemoryError
	if !errors.As(err, &memory) {
		return fmt.Errorf("unexpected error: %w", err)
	}
	if memory.Error() == "" || memory.Device == "" {
		return fmt.Errorf("an empty error: %+v", memory)
	}
	if !w.single {
		return nil // what others keep at this moment is not known here
	}
	info, _ := w.device.Info(false)
	kept := w.kept(buffers...) + nbytes
	capacity := int64(w.c.Driver.Capacity)
	switch memory.Reason {
	case gomem.ReasonTooLarge:
		if capacity > 0 && nbytes > capacity || info.Strict != 0 && nbytes > info.Budget {
			return nil
		}
	case gomem.ReasonBudget:
		if info.Strict != 0 && kept+info.Reserved > info.Budget {
			return nil
		}
	case gomem.ReasonDevice:
		if capacity > 0 && kept > capacity {
			return nil
		}
	case gomem.ReasonHost: // a soft budget gives way to what has no place in host memory: then only the device refuses what needs memory of it
		full := capacity > 0 && info.InUse+info.Reserved+info.PendingFree+nbytes > capacity
		if w.c.Host >= 0 && (info.Strict != 0 || full || nbytes == 0) {
			return nil
		}
	}
	return fmt.Errorf("refused although only %d of %d bytes cannot move: %w", kept-nbytes, capacity, err)
}

var errModelHost = errors.New("host memory made to fail")

// contents compares a buffer with the model.
func (w *modelWorker) contents(b *modelBuffer) error {
	w.use(b)
	return w.read(b, 0, uint64(len(b.data)), gomem.Wait{})
}
