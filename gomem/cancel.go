package gomem

import (
	"sync"
	"sync/atomic"
)

// Cancel ends long work from outside (Ctrl-C). The zero value is ready for use; a nil *Cancel is never cancelled. It is used for
// one call and not reset.
type Cancel struct {
	flag atomic.Bool

	mu   sync.Mutex    // guards done; held for nothing but making and closing it
	done chan struct{} // made when somebody waits for it
}

// Cancel makes the operations that got c end soon, with ErrCancelled. It may be called from any goroutine and more than once.
func (c *Cancel) Cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flag.Swap(true) {
		return
	}
	if c.done != nil {
		close(c.done)
	}
}

// cancelled reports whether Cancel was called: one load.
func (c *Cancel) cancelled() bool { return c != nil && c.flag.Load() }

// err is ErrCancelled after Cancel was called, else nil.
func (c *Cancel) err() error {
	if c.cancelled() {
		return ErrCancelled
	}
	return nil
}

// Done is closed by Cancel; it is nil, and so blocks for ever in a select, where there is nothing to cancel.
func (c *Cancel) Done() <-chan struct{} {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.flag.Load() {
			close(c.done)
		}
	}
	return c.done
}

// Wait says how a call may wait, and what ends it.
type Wait struct {
	// Cancel ends the call; nil: nothing does.
	Cancel *Cancel
	// Ask says that the call must not wait for what is queued on the device's stream: where it would, it returns ErrStillRuns, and the caller asks again
	// from where it can be ended.
	Ask bool
	// Nested says that the calling thread has launches or holds open already. Such a call never waits for those of others, who may
	// be waiting for this thread's: it fails instead.
	Nested bool
	// Help says that the caller can collect garbage and empty the host framework's caches: where that may make the room that is missing,
	// the call returns ErrRelieve, and the caller asks again with Helped set. Helped: that was done for this request, do not ask again.
	Help, Helped bool
	// Late says that the caller keeps launches of which nobody but itself can find out that they are over: before the call waits for launches, it returns
	// ErrLate.
	Late bool
	// Cause is who is told to have caused what happens (tell.go).
	Cause Cause
	// Asker is the line that asks (Intern), for reports of why buffers were spilled; 0: not known. Of an allocation it is its origin.
	Asker uint32

	// Progress is where the call counts what it moves; nil: nobody asks.
	Progress *Progress

	why    need // what it needs room for
	moving move // what its copies belong to
}

// Cancelled reports whether Cancel was called; false for nil.
func (c *Cancel) Cancelled() bool { return c.cancelled() }
