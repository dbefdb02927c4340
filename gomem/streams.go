package gomem

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Streams: the device's own, and those of others that work is ordered with.

// StreamError says that a stream that the caller named is none of this device's.
type StreamError struct {
	Device string
	Stream uint64
	Cause  error // the driver's
}

func (e *StreamError) Error() string {
	return fmt.Sprintf("stream %#x is not a stream of %s that work can be ordered with: %v", e.Stream, e.Device, e.Cause)
}

// Unwrap returns the driver's error.
func (e *StreamError) Unwrap() error { return e.Cause }

// Join makes stream `to` wait for what is queued on stream `from` now; 0 is the device's own stream. Where the driver's join waits on the host, w can end
// the wait. Errors: *StreamError where the driver does not know the other stream, ErrCancelled, ErrStillRuns (only with w.Ask), *LostError, and the driver's.
func (d *Device) Join(from, to uint64, w Wait) (err error) {
	defer d.guard(&err)
	if err := d.unusable(); err != nil {
		return err
	}
	if watcher, watches := d.driver.(Watcher); watches && watcher.JoinWaits() {
		if from == to || max(from, to) == d.driver.Stream() {
			return nil
		}
		if err := d.reach(watcher, from, w); err != nil {
			return err
		}
	}
	return d.joinFault(d.driver.Join(from, to), max(from, to))
}

// UnnamedStream stands for a stream that the calling thread has no name for: the per-thread default stream of another thread.
const UnnamedStream = ^uint64(0)

// Follow is the end of a launch whose work is queued on another stream: what the device does from now on comes after it (model: launch.leave). Only where
// `over` is true may the buffers of the launch be moved or freed; they must stay held otherwise, for its work may still use them.
//
// Streams are joined. Where that fails, the host waits for that stream; where the driver does not know it any more, for the whole context: the work of a
// stream that was destroyed goes on. What failed first is the error, also where the wait has made it good. Without `patient` nothing is waited for: the error
// is ErrStillRuns then, and the caller asks again. w ends the waits. On a device that is broken or lost nothing runs and nothing moves any more.
//
// Of UnnamedStream nothing can be asked: it is the whole context that is waited for.
func (d *Device) Follow(stream uint64, patient bool, w Wait) (over bool, err error) {
	over = true // by a panic as well
	defer d.guard(&err)
	if err := d.unusable(); err != nil {
		return true, err
	}
	watcher, watches := d.driver.(Watcher)
	if stream == UnnamedStream {
		if !watches || !patient {
			return false, ErrStillRuns
		}
		err = d.finish(watcher, w)
		return err == nil || d.unusable() != nil, err
	}
	if !watches || !watcher.JoinWaits() {
		if err = d.joinFault(d.driver.Join(stream, 0), stream); err == nil || d.unusable() != nil {
			return true, err
		}
		if !watches {
			return false, err
		}
	} else if stream == 0 || stream == d.driver.Stream() {
		return true, nil
	}
	passed, waitErr := false, error(nil)
	if patient {
		waitErr = d.awaitPassed(watcher, stream, w, false)
		passed = waitErr == nil
	} else if passed, waitErr = watcher.Passed(stream, 0); !passed && waitErr == nil {
		return false, ErrStillRuns
	}
	waitErr = d.joinFault(waitErr, stream)
	switch {
	case passed || d.unusable() != nil:
		return true, cmp.Or(err, waitErr)
	case !patient:
		return false, ErrStillRuns // a fault may be of this call only: the patient one tries again
	case errors.Is(waitErr, ErrCancelled):
		return false, waitErr
	case !errors.Is(waitErr, ErrInvalidHandle):
		return false, cmp.Or(err, waitErr)
	}
	switch finishErr := d.finish(watcher, w); {
	case errors.Is(finishErr, ErrCancelled):
		return false, finishErr
	case finishErr != nil:
		return d.unusable() != nil, errors.Join(cmp.Or(err, waitErr), finishErr)
	}
	return true, cmp.Or(err, waitErr)
}

// finish waits for all work of the device's context, or until w ends the wait. No driver has a call for it that can be ended: then a goroutine stays in the call
// until the device is done.
func (d *Device) finish(watcher Watcher, w Wait) error {
	if w.Cancel == nil {
		return d.driverFault(watcher.Finish())
	}
	done := make(chan error, 1)
	go func() {
		var err error
		defer func() { done <- err }()
		defer d.guard(&err)
		err = d.driverFault(watcher.Finish())
	}()
	select {
	case err := <-done:
		return err
	case <-w.Cancel.Done():
		return ErrCancelled
	}
}

// reachStream is called before what waits for the device's stream in a call of the driver's that nothing can end. A call that can be ended waits here for what
// is queued, and one that only asks (Wait.Ask) is told with ErrStillRuns that it would have to wait. Any other fault of the stream is for the operation itself
// to meet.
func (d *Device) reachStream(w Wait) error {
	if watcher, watches := d.driver.(Watcher); watches {
		return d.reach(watcher, 0, w)
	}
	return nil
}

func (d *Device) reach(watcher Watcher, stream uint64, w Wait) error {
	switch {
	case w.Cancel != nil:
		if err := d.awaitPassed(watcher, stream, w, true); errors.Is(err, ErrCancelled) || isBroken(err) {
			return err
		}
	case w.Ask:
		if passed, err := watcher.Passed(stream, 0); err == nil && !passed {
			return ErrStillRuns
		}
	}
	return nil
}

// awaitPassed waits until the device is done with what is queued on a stream (0: its own), or w ends it. A stream that others go on feeding may never be seen
// idle: with mayGiveUp, where buffers are used meanwhile, it waits for a moment only, and the caller's own wait in the driver, which has its place in the queue,
// does the rest.
func (d *Device) awaitPassed(watcher Watcher, stream uint64, w Wait, mayGiveUp bool) error {
	const longest, fed = 20 * time.Millisecond, 50 * time.Millisecond
	clock, start := atomic.LoadUint64(&d.books.Clock), time.Now()
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, longest) {
		began := time.Now()
		if passed, err := watcher.Passed(stream, pause); passed || err != nil {
			return err
		}
		if w.Cancel.cancelled() {
			return ErrCancelled
		}
		if mayGiveUp && time.Since(start) > fed && atomic.LoadUint64(&d.books.Clock) != clock {
			return nil
		}
		if rest := pause - time.Since(began); rest > 0 { // a driver that cannot wait for a limited time
			select {
			case <-time.After(rest):
			case <-w.Cancel.Done():
			case <-d.stopped:
				return d.notHad()
			}
		}
	}
}

// joinFault makes the error of the driver's Join ours; stream is the one that is not the device's own.
func (d *Device) joinFault(err error, stream uint64) error {
	if errors.Is(err, ErrInvalidHandle) {
		return &StreamError{Device: d.name, Stream: stream, Cause: err}
	}
	return d.driverFault(err)
}

// Stream is the handle of the stream on which the device's memory is moved and freed; 0 where there is none.
func (d *Device) Stream() (stream uint64, err error) {
	defer d.guard(&err)
	if err := d.refusal(); err != nil {
		return 0, err
	}
	return d.driver.Stream(), nil
}

// SetStream makes a host framework's context and stream the device's own.
func (d *Device) SetStream(context, stream uint64) (err error) {
	defer d.guard(&err)
	return d.whileNothingMoves(func() error { return d.driverFault(d.driver.SetStream(context, stream)) })
}
