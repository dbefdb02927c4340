package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// hostAllocator stands beside the vendor's functions as one that can fail.
const hostAllocator = "the host allocator"

// when the program lets go of the target.
type dropping struct {
	name  string
	state gomem.State // the first time that it is seen in this state; gomem.Free: never
}

var droppings = []dropping{
	{name: "kept", state: gomem.Free},
	{name: "dropped while spilling", state: gomem.Spilling},
	{name: "dropped while restoring", state: gomem.Restoring},
}

// fault is one call that fails.
type fault struct {
	function string
	nth      int
	code     int // the vendor's
}

// scenario is an operation that begins in a state.
type scenario struct {
	flavour   string
	operation operation
	state     int
	dropping  dropping
}

func (s scenario) String() string {
	return fmt.Sprintf("%s/%s/%s/%s", s.flavour, s.operation.name, states[s.state].name, s.dropping.name)
}

// seen collects in which states which function failed.
type seen map[string]map[string]int

func (s seen) note(states []string, function string) {
	for _, state := range states {
		if s[state] == nil {
			s[state] = map[string]int{}
		}
		s[state][function]++
	}
}

// TestMatrix is the matrix: see the package's comment. Every call of every function fails, on every flavour.
func TestMatrix(t *testing.T) {
	struck := newStruck()
	forEach(t, func(t *testing.T, f flavour) {
		covered, cases := seen{}, 0
		b := newBench(t, f)
		for state := range states {
			for _, operation := range operations {
				for _, dropping := range droppings {
					s := scenario{f.name, operation, state, dropping}
					if dropping.state != gomem.Free && (!operation.others || states[state].name == "held") {
						continue
					}
					cases += b.strikeEach(t, s, covered)
				}
			}
		}
		b.close(t)
		report(t, covered, cases)
		for _, state := range []string{"building", "resident", "spilling", "spilled", "restoring", "spilling and dropped", "restoring and dropped"} {
			assert.GreaterOrEqual(t, len(covered[state]), f.fewest, "functions that failed while a buffer was %s", state)
		}
		assert.Greater(t, cases, 500)
		for _, functions := range covered {
			for function := range functions {
				struck.note(f, function)
			}
		}
		struck.done(f)
	})
	struck.requireAll(t, func(c callers) []string { return c.notOfTheCore })
}

// strikeEach runs a scenario once for each call that it makes and each way in which that can fail.
func (b *bench) strikeEach(t *testing.T, s scenario, covered seen) (cases int) {
	t.Helper()
	for function, times := range b.trace(t, s) { // none where the target is never in the state in which it was to be dropped
		for nth := 1; nth <= times; nth++ {
			for _, code := range b.codesOf(function, nth) {
				b.untilReached(t, s, function, nth, func() bool { return b.strike(t, s, fault{function, nth, code}, covered) })
				cases++
				if t.Failed() {
					t.Fatalf("%v: call %d of %s failed with %#x", s, nth, function, code)
				}
			}
		}
	}
	return cases
}

// untilReached repeats a case in which the call that was to fail was not made: whether an event has happened already, and so what an operation
// still has to do, depends on how far the device is. What an earlier case let go of may also have been freed while the operation was traced: then the call
// was none of the operation's, and not each trace that is taken now has it.
func (b *bench) untilReached(t *testing.T, s scenario, function string, nth int, strike func() (reached bool)) {
	t.Helper()
	const tries = 20 // on a busy machine the device is often further than it was in the trace
	for range tries {
		if strike() || slices.Contains(b.history, function) {
			return
		}
	}
	for range tries {
		if b.trace(t, s)[function] < nth {
			return
		}
	}
	t.Fatalf("%v: call %d of %s, that was to fail, was not made, and is made whenever nothing fails", s, nth, function)
}

// codesOf is what a function is made to fail with: a code that says nothing to the core, and, for its first call, a full device.
func (b *bench) codesOf(function string, nth int) []int {
	switch {
	case function == hostAllocator:
		return []int{0}
	case nth == 1:
		return []int{b.codes.other, b.codes.full}
	}
	return []int{b.codes.other}
}

func report(t *testing.T, covered seen, cases int) {
	t.Helper()
	t.Logf("%d faults", cases)
	for state, functions := range covered {
		names := make([]string, 0, len(functions))
		for function, n := range functions {
			names = append(names, fmt.Sprintf("%s %d", function, n))
		}
		slices.Sort(names)
		t.Logf("%s: %s", state, strings.Join(names, ", "))
	}
}

// begin sets the scene.
func (b *bench) begin(t *testing.T, s scenario) *world {
	t.Helper()
	if s.operation.first != nil {
		require.NoError(t, s.operation.first(b))
	}
	w := newWorld(t, b, s.state)
	if s.operation.prepare != nil {
		s.operation.prepare(w)
	}
	return w
}

// trace runs a scenario without a fault and counts the calls that it makes. nil: the target was never in the state for its dropping.
func (b *bench) trace(t *testing.T, s scenario) map[string]int {
	t.Helper()
	w := b.begin(t, s)
	before := map[string]int{}
	for _, name := range b.calls {
		before[name] = b.software.Calls(name)
	}
	var gets atomic.Int64
	b.pool.SetFault(func(uint64) error { gets.Add(1); return nil })
	b.driver.observe = func() { w.dropIn(s.dropping.state) }
	require.NoError(t, s.operation.run(w), "%v, without a fault", s)
	b.driver.observe = nil
	b.pool.SetFault(nil)
	calls := map[string]int{}
	for _, name := range b.calls {
		if n := b.software.Calls(name) - before[name]; n > 0 {
			calls[name] = n
		}
	}
	if n := int(gets.Load()); n > 0 {
		calls[hostAllocator] = n
	}
	if s.dropping.state != gomem.Free && !w.dropped {
		calls = nil
	}
	w.checkBooks()
	w.checkContents()
	b.end(t, s, w)
	return calls
}

// end clears the scene.
func (b *bench) end(t *testing.T, s scenario, w *world) {
	t.Helper()
	w.clear()
	if s.operation.after != nil {
		require.NoError(t, s.operation.after(b))
	}
}

// dropIn lets go of the target when it is in a state.
func (w *world) dropIn(state gomem.State) {
	if state == gomem.Free || w.dropped {
		return
	}
	if now, _ := gomem.StateOf(atomic.LoadUint32(&w.device.Record(w.target).Word)); now == state {
		w.dropTarget()
	}
}

// statesNow is the states in which buffers are, in words.
func (w *world) statesNow() (names []string) {
	for index := range uint32(64) {
		state, dropped := gomem.StateOf(atomic.LoadUint32(&w.device.Record(index).Word))
		if state == gomem.Free {
			continue
		}
		name := state.String()
		if dropped {
			name += " and dropped"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// strike runs a scenario with one fault and sees that nothing is lost.
func (b *bench) strike(t *testing.T, s scenario, f fault, covered seen) (hit bool) {
	t.Helper()
	w := b.begin(t, s)
	before := 0
	var gets atomic.Int64
	if f.function == hostAllocator {
		b.pool.SetFault(func(nbytes uint64) error {
			if int(gets.Add(1)) != f.nth {
				return nil
			}
			return &gomem.HostMemoryError{Requested: int64(nbytes), Limit: gomem.Unknown, Used: gomem.Unknown, Available: gomem.Unknown}
		})
	} else {
		before = b.software.Calls(f.function)
		require.NoError(t, b.software.Fail(f.function, f.nth, f.code))
	}
	reached := func() bool {
		if f.function == hostAllocator {
			return int(gets.Load()) >= f.nth
		}
		return b.software.Calls(f.function)-before >= f.nth
	}
	var at []string
	b.driver.observe = func() {
		w.dropIn(s.dropping.state)
		if !reached() {
			at = w.statesNow()
		}
	}
	err := s.operation.run(w)
	b.driver.observe = nil
	b.pool.SetFault(nil)
	if f.function != hostAllocator {
		require.NoError(t, b.software.Fail(f.function, 0, 0))
	}
	hit = reached()
	if hit {
		covered.note(at, f.function)
	}

	requireTyped(t, err)
	w.checkBooks()
	w.checkContents()
	small, smallErr := b.device.Allocate(64, zeroed)
	require.NoError(t, w.allocated(small, smallErr, 64), "the next smaller request, after %v", err)
	if err != nil {
		require.NoError(t, s.operation.run(w), "the same again, after %v", err)
	}
	w.checkBooks()
	w.checkContents()
	b.end(t, s, w)
	return hit
}

// requireTyped accepts the errors that callers can tell apart.
func requireTyped(t *testing.T, err error) {
	t.Helper()
	var (
		memory *gomem.MemoryError
		host   *gomem.HostMemoryError
		driver *gomem.DriverError
	)
	if err != nil && !errors.As(err, &memory) && !errors.As(err, &host) && !errors.As(err, &driver) {
		t.Fatalf("an error without a type: %v", err)
	}
}

// TestLost makes each function report a state that no call can leave, once for each operation and state. Then everything says so, the
// books stay exact, and nothing pretends that what lay on the device is still there.
func TestLost(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		cases := 0
		b := newBench(t, f)
		for state := range states[:2] {
			for _, operation := range operations {
				s := scenario{f.name, operation, state, droppings[0]}
				for function := range b.trace(t, s) {
					if function != hostAllocator {
						b.untilReached(t, s, function, 1, func() bool { return b.lose(t, s, function) })
						cases++
					}
					if t.Failed() {
						t.Fatalf("%v: %s failed with %#x", s, function, b.codes.lost)
					}
				}
			}
		}
		b.close(t)
		t.Logf("%d devices were lost", cases)
		assert.Greater(t, cases, 100)
	})
}

func (b *bench) lose(t *testing.T, s scenario, function string) (hit bool) {
	t.Helper()
	w := b.begin(t, s)
	before := b.software.Calls(function)
	require.NoError(t, b.software.Fail(function, 1, b.codes.lost))
	err := s.operation.run(w)
	if b.software.Calls(function) == before {
		require.NoError(t, b.software.Fail(function, 0, 0))
		b.end(t, s, w)
		return false
	}
	var lost *gomem.LostError
	if err != nil {
		require.ErrorAs(t, err, &lost)
	}
	require.NoError(t, b.device.Check())
	_, err = b.device.Allocate(64, zeroed)
	require.ErrorAs(t, err, &lost, "%v: the next request after %s failed", s, function)
	_, pointer := soft.Bytes(t, size)
	for index := range w.contents {
		state, _ := gomem.StateOf(atomic.LoadUint32(&b.device.Record(index).Word))
		if err := b.device.CopyToHost(index, 0, pointer, 64, gomem.Wait{}); state == gomem.Spilled {
			require.NoError(t, err, "the host copy of a spilled buffer outlives the device")
		} else {
			require.ErrorAs(t, err, &lost, "what lies on the device cannot be read")
		}
	}
	require.NoError(t, b.device.Check())

	// The process would end here. The software driver forgets what happened, and a new device is opened.
	b.software.Reset()
	b.host.startOver()
	b.renew(t)
	return true
}
