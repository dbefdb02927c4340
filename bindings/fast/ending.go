package fast

import "C"

import (
	"sync"
	"sync/atomic"
	"time"
)

// ended is true from the end of Python on. Then the process's exit handlers run, the vendors' libraries take themselves down, and a call into one that is
// half gone may crash. What is left then is the system's to take back.
var ended atomic.Bool

// givingBack is held while memory is given back in the background.
var givingBack sync.Mutex

// patience is how long the end of Python waits for a call into a driver that is under way in the background. One that takes longer hangs.
const patience = 100 * time.Millisecond

// inBackground calls a function that gives memory back in the background; not once Python has ended.
func inBackground(giveBack func()) {
	givingBack.Lock()
	defer givingBack.Unlock()
	if !ended.Load() {
		giveBack()
	}
}

// tmEnded is called when Python has ended, by its last thread.
//
//export tmEnded
func tmEnded() {
	ended.Store(true)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if givingBack.TryLock() {
			givingBack.Unlock()
			return
		}
	}
}
