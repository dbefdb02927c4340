package gomem_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// A panic inside a call, in the driver or in the core, breaks the device: that call and every later one return a *BrokenError at once, whoever waits
// is woken, counters can be read, and other devices go on.

// refusals is every call on a device that can refuse.
var refusals = map[string]func(w *faultWorld) error{
	"Allocate":     func(w *faultWorld) error { _, err := w.Allocate(1, gomem.AllocateOptions{}); return err },
	"Allocate 0":   func(w *faultWorld) error { _, err := w.Allocate(0, gomem.AllocateOptions{}); return err },
	"Allocate all": func(w *faultWorld) error { _, err := w.Allocate(1<<63, gomem.AllocateOptions{}); return err },
	"MakeRoom":     func(w *faultWorld) error { _, err := w.MakeRoom(1, gomem.AllocateOptions{}); return err },
	"Reserve":      func(w *faultWorld) error { _, err := w.Reserve(1, gomem.AllocateOptions{}); return err },
	"Adopt": func(w *faultWorld) error {
		_, err := w.Adopt(1<<40, 8, gomem.AdoptOptions{How: gomem.HowCUDA, Stream: 3})
		return err
	},
	"Disown":       func(w *faultWorld) error { _, err := w.Disown(w.first, gomem.Wait{}); return err },
	"Overlapping":  func(w *faultWorld) error { return w.Overlapping(1<<40, 8) },
	"Admit":        func(w *faultWorld) error { return w.Admit([]uint32{w.second, w.spilled}, gomem.Wait{}) },
	"MakeResident": func(w *faultWorld) error { return w.MakeResident(w.second, gomem.Wait{}) },
	"Hold": func(w *faultWorld) error {
		_, err := w.Hold(w.second, gomem.HoldScope, 0, gomem.Wait{})
		return err
	},
	"CopyToHost": func(w *faultWorld) error {
		var got byte
		return w.CopyToHost(w.second, 0, unsafe.Pointer(&got), 1, gomem.Wait{})
	},
	"CopyToHost, spilled": func(w *faultWorld) error {
		var got byte
		return w.CopyToHost(w.spilled, 0, unsafe.Pointer(&got), 1, gomem.Wait{})
	},
	"CopyFromHost": func(w *faultWorld) error {
		var given byte
		return w.CopyFromHost(w.second, 0, unsafe.Pointer(&given), 1, gomem.Wait{})
	},
	"Fill":        func(w *faultWorld) error { return w.Fill(w.second, 0, []byte{1}, 1, gomem.Wait{}) },
	"Copy":        func(w *faultWorld) error { return w.Copy(w.second, 0, w.third, 0, 1, gomem.Wait{}) },
	"Free":        func(w *faultWorld) error { return w.Free(w.second, gomem.Wait{}) },
	"Spill":       func(w *faultWorld) error { _, err := w.Spill(w.second, gomem.Wait{}); return err },
	"SpillAll":    func(w *faultWorld) error { _, err := w.SpillAll(gomem.Wait{}); return err },
	"RestoreAll":  func(w *faultWorld) error { return w.RestoreAll(gomem.Wait{}) },
	"SetBudget":   func(w *faultWorld) error { _, _, err := w.SetBudget(1, true, gomem.Wait{}); return err },
	"Synchronize": func(w *faultWorld) error { return w.Synchronize() },
	"Trim":        func(w *faultWorld) error { _, err := w.Trim(); return err },
	"Stream":      func(w *faultWorld) error { _, err := w.Stream(); return err },
	"SetStream":   func(w *faultWorld) error { return w.SetStream(0, 0) },
	"Join":        func(w *faultWorld) error { return w.Join(3, 0, gomem.Wait{}) },
	"ForeignToHost": func(w *faultWorld) error {
		var got byte
		return w.ForeignToHost(unsafe.Pointer(&got), 1<<40, 1, gomem.Wait{})
	},
	"ForeignFromHost": func(w *faultWorld) error {
		var given byte
		return w.ForeignFromHost(1<<40, unsafe.Pointer(&given), 1, gomem.Wait{})
	},
	"ForeignFill": func(w *faultWorld) error { return w.ForeignFill(1<<40, []byte{1}, 1, gomem.Wait{}) },
	"ForeignCopy": func(w *faultWorld) error { return w.ForeignCopy(1<<40, 1<<41, 1) },
	"Holders":     func(w *faultWorld) error { _, err := w.Holders(0); return err },
	"Unspillable": func(w *faultWorld) error { _, err := w.Unspillable(); return err },
	"Check":       func(w *faultWorld) error { return w.Check() },
	"Close":       func(w *faultWorld) error { return w.Close() },
}

// isBroken checks everything that holds of a device from the panic on. where is what the panic said.
func (w *faultWorld) isBroken(where, name string) {
	w.t.Helper()
	w.broken = true
	before := w.info() // can be read
	for call, refuse := range refusals {
		err := refuse(w)
		var broken *gomem.BrokenError
		require.ErrorAs(w.t, err, &broken, "%s: %s", name, call)
		require.Equal(w.t, "fake:0", broken.Device)
		require.Contains(w.t, broken.Panic, where, name)
		require.Contains(w.t, broken.Stack, "gomem")
	}
	info, err := w.Info(true)
	require.NoError(w.t, err, name)
	require.Equal(w.t, before.Books, info.Books, "%s: a refused call changed the books", name)
	require.Equal(w.t, gomem.Unknown, info.Driver.Free)
	// The ends of what was begun do not wait either, and the books go on falling.
	w.Release(w.held, w.hold)
	w.Release(w.exported, w.export)
	w.lane.leave([]uint32{w.launched})
	w.Discharge(nil)
	w.Ended()
	w.LetGo(w.third)
	w.Drop(w.exported)
	w.Drain()
	_, _, _ = w.Find(1<<40, 1)
	_ = w.Holds(w.second)
	after := w.info()
	require.Equal(w.t, before.Live-2, after.Live, name)
	require.Equal(w.t, before.InUse+before.Spilled-8*unit-2-2*unit-2, after.InUse+after.Spilled, name)
	require.Empty(w.t, w.driver.Late(), "%s: the driver was called after it had panicked", name)
}

// Each call that each operation makes into the driver or the host pool panics once.
func TestPanicBreaksTheDevice(t *testing.T) {
	options := fakedriver.Options{Capacity: 48 * unit, DeferFrees: true}
	operations := append(faultOps[:len(faultOps):len(faultOps)],
		struct {
			name  string
			again bool
			run   func(w *faultWorld) (func(), error)
		}{"join", true, func(w *faultWorld) (func(), error) { return nil, w.Join(3, 0, gomem.Wait{}) }})
	for _, op := range operations {
		w := newFaultWorld(t, options)
		hosts, before := 0, map[string]int{}
		w.pool.SetFault(func(uint64) error { hosts++; return nil })
		for _, method := range fakedriver.Methods {
			before[method] = w.driver.Calls(method)
		}
		_, _ = op.run(w)
		calls := map[string]int{hostFault: hosts}
		for _, method := range fakedriver.Methods {
			calls[method] = w.driver.Calls(method) - before[method]
		}
		for method, n := range calls {
			if op.name == "disown spilled" && method == fakedriver.Free {
				continue // that is the memory's new owner
			}
			for nth := 1; nth <= n; nth++ {
				name := fmt.Sprintf("%s; call %d of %s panics", op.name, nth, method)
				w := newFaultWorld(t, options)
				where := "a mistake in " + method
				if method == hostFault {
					left := nth
					w.pool.SetFault(func(uint64) error {
						if left--; left == 0 {
							panic(where)
						}
						return nil
					})
				} else {
					w.driver.Panic(method, nth)
				}
				soon(t, name, func() {
					_, err := op.run(w)
					var broken *gomem.BrokenError
					// A free belongs to the call that happens to do it, whose own work may be done; and this operation does not look at its last copy.
					quiet := method == fakedriver.Free || method == fakedriver.CopyOut && strings.HasPrefix(op.name, "allocate")
					require.True(t, errors.As(err, &broken) || err == nil && quiet, "%s: %v", name, err)
					w.isBroken(where, name)
				})
				notices := faults(w.Notices().Take())
				require.Len(t, notices, 1, name)
				require.Equal(t, gomem.LevelError, notices[0].Level)
				require.Contains(t, notices[0].Text, where)
				w.pool.SetFault(nil)
			}
		}
	}
}

// Whoever waits, for either lock or for launches to end, is turned away, and other devices of the process go on.
func TestPanicWakesWhoeverWaits(t *testing.T) {
	for _, waitFor := range []string{"the moving lock", "the turnstile", "launches"} {
		w := newFaultWorld(t, fakedriver.Options{Capacity: 48 * unit})
		w.broken = true
		other := open(t, fakedriver.Options{}, func(o *gomem.Options) { o.Pool = w.pool })
		mine := other.allocate(unit)

		// A spill that stands in the driver, with the moving lock, until it panics.
		entered, panicNow := make(chan struct{}), make(chan struct{})
		var all sync.WaitGroup
		failed := make(chan error, 32)
		begin := func(call func() error) {
			all.Go(func() { failed <- call() })
		}
		if waitFor != "launches" {
			w.pool.SetFault(func(uint64) error {
				close(entered)
				<-panicNow
				panic("a mistake in between")
			})
			begin(func() error { _, err := w.Spill(w.second, gomem.Wait{}); return err })
			<-entered
		}
		switch waitFor {
		case "the moving lock":
			for _, call := range []string{"Synchronize", "Free", "SpillAll", "Holders", "CopyToHost, spilled", "SetStream", "Check"} {
				begin(func() error { return refusals[call](w) })
			}
		case "the turnstile":
			for range 3 {
				begin(func() error { return w.MakeResident(w.spilled, gomem.Wait{}) })
			}
			for w.Waiters() < 2 {
				time.Sleep(time.Millisecond)
			}
		case "launches": // for the hold on w.held, which does not end
			_, err := w.SpillAll(nested)
			require.NoError(t, err)
			begin(func() error {
				_, err := w.Allocate(44*unit, gomem.AllocateOptions{})
				return err
			})
			for !w.Waiting() {
				time.Sleep(time.Millisecond)
			}
			w.driver.Panic(fakedriver.Join, 1)
			begin(func() error { return w.Join(3, 0, gomem.Wait{}) })
		}
		time.Sleep(5 * time.Millisecond) // so that most of them do wait; whoever does not is refused all the same
		close(panicNow)
		soon(t, "calls that waited for "+waitFor, all.Wait)
		close(failed)
		for err := range failed {
			var broken *gomem.BrokenError
			require.ErrorAs(t, err, &broken, waitFor)
			require.Contains(t, err.Error(), "a mistake in")
		}
		w.pool.SetFault(nil)
		_, err := other.Spill(mine, gomem.Wait{})
		require.NoError(t, err)
		other.has(mine, uint64(mine))
		other.drop(mine)
	}
}

// A mistake that the core finds itself: books that do not add up, in builds or programs that verify them after every operation.
func TestWrongBooksBreakTheDevice(t *testing.T) {
	w := newFaultWorld(t, fakedriver.Options{Capacity: 48 * unit})
	w.SetCheck(true)
	w.Books().SpillCount++
	_, err := w.Spill(w.first, nested)
	require.NoError(t, err, "a count that nothing can be compared with")
	w.Books().Spilled++
	_, err = w.Spill(w.second, nested)
	var broken *gomem.BrokenError
	require.ErrorAs(t, err, &broken)
	require.Contains(t, broken.Panic, "spilled")
	w.isBroken("spilled", "wrong books")
}

// The error says what happened, where, and what to do.
func TestBrokenErrorSaysWhatToDo(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.broken = true
	b.driver.Panic(fakedriver.Trim, 1)
	_, err := b.Trim()
	for _, said := range []string{"fake:0 refuses all calls from now on", "a mistake in Trim", "fakedriver.(*Device).called", "start a new one", "report this"} {
		require.ErrorContains(t, err, said)
	}
	require.NotContains(t, err.Error(), "\n")
	_, again := b.Trim()
	require.Equal(t, err, again, "the first panic is what every later call tells of")
	require.True(t, b.Notices().Waiting())
}
