// Package later does work in the background, a little after it was asked for: asked for many times meanwhile, it is done once.
package later

import (
	"sync/atomic"
	"time"
)

// Job is work that Wake asks for. Its fields are constant.
type Job struct {
	Delay time.Duration

	// Do is called on a goroutine of its own, Delay after the Wake that began it. It calls begun once it no longer waits for anything but the work itself,
	// and before it looks at what there is to do: a Wake after that begins another one. So however long the work takes, one goroutine at most waits to do it.
	Do func(begun func())

	waits atomic.Bool // one is on its way that has not begun
}

// Wake has the work done soon, after this. It waits for nothing.
func (j *Job) Wake() {
	if !j.waits.Load() && j.waits.CompareAndSwap(false, true) {
		go func() {
			time.Sleep(j.Delay)
			j.Do(func() { j.waits.Store(false) })
		}()
	}
}
