package fast

import (
	"sync/atomic"
	"time"

	"github.com/tack-memory/tack-memory/bindings/internal/engine"
)

// Where a device has no frees in stream order, what was freed waits until somebody sees that the device is done with it. Mostly that is the next call, or
// the drainer a millisecond after the last one. Where the device takes longer, and no call comes any more, the reaper looks: after firstReap, then
// ever more seldom, for a device may compute for hours. It ends when nothing waits any more.
const (
	firstReap = time.Millisecond
	lastReap  = time.Second
)

// reaping is true while the reaper is there.
var reaping atomic.Bool

// reapNow gives back what can be given back, and leaves the rest to the reaper.
func reapNow() {
	if reapAll() && reaping.CompareAndSwap(false, true) { // model: reap.begin
		go reap()
	}
}

// reap is the reaper.
func reap() {
	defer report()
	reapUntilNothingWaits()
	reapNow() // model: reap.again; what was left to the reaper since its last look has started no other
}

// reapUntilNothingWaits ends the reaper's turn, also by a panic: the next call that leaves something waiting starts another reaper.
func reapUntilNothingWaits() {
	defer reaping.Store(false) // model: reap.end
	time.Sleep(firstReap)
	for delay := 2 * firstReap; reapAll(); delay = min(2*delay, lastReap) {
		time.Sleep(delay)
	}
}

// reapAll looks at all devices, and reports whether it is worth while to look again.
func reapAll() (waits bool) {
	inBackground(func() {
		for _, d := range engine.Devices() {
			waits = d.Reap() || waits
		}
	})
	return waits
}
