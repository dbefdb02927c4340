package common

import (
	"fmt"
	"sync"
)

// Life is how far a device is: not started, started, closed. Operations share it from Use to Done. What changes the device's contexts and streams has
// it alone: Change and Close. A device starts at its first use, since asking for its figures must make no context.
type Life struct {
	name  string
	start func() error // makes the context and the stream; after an error it is called again

	lock    sync.RWMutex
	started bool
	closing bool // Close was called: nothing works any more, but for another Close where the first one failed
	closed  bool
}

// NewLife is the life of a device that start makes ready for use.
func NewLife(name string, start func() error) *Life { return &Life{name: name, start: start} }

// Use begins an operation, which Done ends after success. The device has been started.
func (l *Life) Use() error {
	if l.Shared() {
		return nil
	}
	if err := l.begin(); err != nil {
		return err
	}
	if !l.Shared() { // closed in between
		return l.closedError()
	}
	return nil
}

// Shared is Use for what has nothing to do on a device that was not started; false: it was not, and there is nothing to end.
func (l *Life) Shared() bool {
	l.lock.RLock()
	if l.started {
		return true
	}
	l.lock.RUnlock()
	return false
}

// Look begins an operation that needs no start, and works on a closed device.
func (l *Life) Look() { l.lock.RLock() }

// Done ends an operation.
func (l *Life) Done() { l.lock.RUnlock() }

func (l *Life) begin() error {
	return l.Change(func() error {
		if l.started {
			return nil
		}
		return l.start()
	})
}

// Change does what starts a device or changes what it stands on, alone. After success the device has been started.
func (l *Life) Change(change func() error) error {
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.closing {
		return l.closedError()
	}
	if err := change(); err != nil {
		return err
	}
	l.started = true
	return nil
}

// Close ends the device. Where end fails it can be called again, and goes on where it failed.
func (l *Life) Close(end func() error) error {
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.closed {
		return nil
	}
	l.closing, l.started = true, false
	if err := end(); err != nil {
		return fmt.Errorf("closing: %w", err)
	}
	l.closed = true
	return nil
}

func (l *Life) closedError() error { return fmt.Errorf("%s: %w", l.name, ErrClosed) }
