package gomem

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Level says how grave a notice is.
type Level uint8

// The levels, as those of Python's logging and of log/slog.
const (
	LevelInfo Level = iota + 1
	LevelWarning
	LevelError
)

// String is the level's name in Python's module logging.
func (l Level) String() string {
	switch l {
	case LevelError:
		return "ERROR"
	case LevelInfo:
		return "INFO"
	}
	return "WARNING"
}

// Notice is something that nobody's call can be told of: an error with no call to return it from.
type Notice struct {
	Time  time.Time
	Level Level
	Text  string
}

// maxNotices bounds what is kept for a reader that does not come. The first ones say what went wrong; the rest are mostly its consequences.
const maxNotices = 64

// Notices keeps notices until somebody takes them. The core does no I/O and cannot call Python, so its notices wait here for the caller's next way
// into the core, which hands them to Python's logger. The zero value is ready for use. All methods may be called from any goroutine.
type Notices struct {
	waiting atomic.Bool

	mu      sync.Mutex // guards all below; held over appending and nothing else
	list    []Notice
	dropped int // notices that had no room since the last Take
}

// noticed: some Notices of this process may have something.
var noticed atomic.Bool

// Noticed reports whether any Notices of this process may have something to take: one load, for who asks after each call.
func Noticed() bool { return noticed.Load() }

// ForgetNoticed makes Noticed false until something is added. Call it before taking from all there are.
func ForgetNoticed() { noticed.Store(false) }

// add keeps a notice, or counts it where too many wait already.
func (n *Notices) add(level Level, format string, arguments ...any) {
	notice := Notice{Time: time.Now(), Level: level, Text: fmt.Sprintf(format, arguments...)}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.list) < maxNotices {
		n.list = append(n.list, notice)
	} else {
		n.dropped++
	}
	n.waiting.Store(true)
	noticed.Store(true)
}

// Add keeps a notice of the level for who takes them next.
func (n *Notices) Add(level Level, text string) { n.add(level, "%s", text) }

// Waiting reports whether there is something to take: one load.
func (n *Notices) Waiting() bool { return n.waiting.Load() }

// Take returns what was kept, oldest first, and forgets it. Where some had no room, the last one says how many.
func (n *Notices) Take() []Notice {
	n.mu.Lock()
	defer n.mu.Unlock()
	taken := n.list
	if n.dropped > 0 {
		taken = append(taken, Notice{Time: time.Now(), Level: LevelWarning, Text: fmt.Sprintf("%d more messages were dropped: nobody took the %d before them",
			n.dropped, maxNotices)})
	}
	n.list, n.dropped = nil, 0
	n.waiting.Store(false)
	return taken
}
