package gomem

import (
	"slices"
	"sync"
	"sync/atomic"
)

// fifoLock is a mutual exclusion lock whose waiters are served in the order they came and can give up. sync.Mutex has neither
// property: a waiting Ctrl-C would have to wait for another thread's spill of gigabytes, and the turnstile of launches (model:
// launch.ticket) must be first come, first served. Uncontended: one compare-and-swap to lock, one to unlock.
type fifoLock struct {
	state atomic.Int32 // 0 free, 1 held and nobody waits, 2 held and somebody may wait
	mu    sync.Mutex
	queue []chan struct{} // guarded by mu; who unlocks hands the lock to the first
	rank  rank

	stopped <-chan struct{} // closed when whoever has the lock will never let go of it (broken.go); nil: that does not happen
}

func (l *fifoLock) tryLock() bool {
	if l.state.CompareAndSwap(0, 1) {
		acquired(l.rank)
		return true
	}
	return false
}

// lock waits for the lock; false when cancelled, or stopped, while waiting.
func (l *fifoLock) lock(cancel *Cancel) bool {
	if l.tryLock() {
		return true
	}
	l.mu.Lock()
	if l.state.Swap(2) == 0 { // it was freed meanwhile, and is ours
		l.mu.Unlock()
		acquired(l.rank)
		return true
	}
	turn := make(chan struct{}, 1)
	l.queue = append(l.queue, turn)
	l.mu.Unlock()
	select {
	case <-turn:
		acquired(l.rank)
		return true
	case <-cancel.Done():
	case <-l.stopped:
	}
	l.mu.Lock()
	for i, other := range l.queue {
		if other == turn {
			l.queue = slices.Delete(l.queue, i, i+1)
			l.mu.Unlock()
			return false
		}
	}
	l.mu.Unlock()
	<-turn // handed to us while we gave up: pass it on
	acquired(l.rank)
	l.unlock()
	return false
}

func (l *fifoLock) unlock() {
	released(l.rank)
	if l.state.CompareAndSwap(1, 0) {
		return
	}
	l.mu.Lock()
	if len(l.queue) == 0 {
		l.state.Store(0)
		l.mu.Unlock()
		return
	}
	next := l.queue[0]
	l.queue = slices.Delete(l.queue, 0, 1) // which leaves no channel behind the end
	l.mu.Unlock()
	next <- struct{}{} // the state stays 2: the lock never was free in between
}
