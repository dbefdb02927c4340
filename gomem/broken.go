package gomem

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
)

// A panic inside a call on a device is a fault of this library or of a driver, and may have left the device half changed: a buffer between two
// states, a lock taken. It must neither end the Python process nor let anybody go on with that device. So it breaks the device:
//
//   - Every method of Device that works on the device begins with a deferred guard, which turns the panic into a *BrokenError.
//   - From then on such methods return that error before they do anything. Other devices go on.
//   - The moving lock is never released by a defer. Where the code under it panics, it stays taken for ever, so nobody sees what it guards, and
//     whoever waits for it, or comes later, is turned away (fifoLock.stopped). All other locks are released by defers: they guard tables that
//     are whole between any two statements, or they are held over nothing that can panic.
//   - The books stay readable, and go on falling when buffers are dropped: Info (without the driver's figures), LetGo, Release, Discharge.

// BrokenError says that an earlier call on the device ended in a panic. No later call can succeed in this process.
type BrokenError struct {
	Device string
	Panic  string // what the code that panicked said
	Stack  string // where it was, for who mends it
}

func (e *BrokenError) Error() string {
	return fmt.Sprintf("%s refuses all calls from now on: one of them ended in an error of tack_memory or of the driver (%s, %s). What the device holds is lost "+
		"to this process: end it and start a new one, and please report this text. Other devices go on, and counters can be read",
		e.Device, e.Panic, e.place())
}

// place is the function that panicked, from the stack.
func (e *BrokenError) place() string {
	_, after, _ := strings.Cut(e.Stack, "\npanic(") // above it are the recovery's own frames
	lines := strings.Split(after, "\n")
	for i := 2; i < len(lines); i += 2 { // a function and its file take turns; first those of panic itself
		function := lines[i]
		if !strings.HasPrefix(function, "runtime.") && !strings.HasPrefix(function, "panic(") && function != "" {
			if open := strings.LastIndex(function, "("); open > 0 {
				function = function[:open] // without the arguments
			}
			return "in " + function
		}
	}
	return "at a place unknown"
}

// guard is deferred first in a method that works on the device, so it runs last: a panic breaks the device and becomes the method's error.
// err is nil in methods that have none.
func (d *Device) guard(err *error) {
	if reason := recover(); reason != nil {
		broken := d.breakDown(reason)
		if err != nil {
			*err = broken
		}
	}
}

// breakDown makes the device refuse all calls, and wakes those who wait. It returns the error of the first panic.
func (d *Device) breakDown(reason any) *BrokenError {
	forgetHeldRanks()
	e := &BrokenError{Device: d.name, Panic: fmt.Sprint(reason), Stack: string(debug.Stack())}
	if d.broken.CompareAndSwap(nil, e) {
		close(d.stopped)
		d.notices.add(LevelError, "%v\n%s", e, e.Stack)
	}
	return d.broken.Load()
}

// refusal is the error of every call on a broken device; nil where it is whole.
func (d *Device) refusal() error {
	if broken := d.broken.Load(); broken != nil {
		return broken
	}
	return nil
}

// unusable is why no device memory can be reached: the device is broken or lost. nil: it can.
func (d *Device) unusable() error {
	if broken := d.broken.Load(); broken != nil {
		return broken
	}
	if lost := d.lost.Load(); lost != nil {
		return lost
	}
	return nil
}

// notHad is why a wait for a lock ended without it.
func (d *Device) notHad() error {
	if broken := d.broken.Load(); broken != nil {
		return broken
	}
	return ErrCancelled
}

// isBroken reports whether the error says that a device is broken.
func isBroken(err error) bool {
	var broken *BrokenError
	return errors.As(err, &broken)
}
