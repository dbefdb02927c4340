package later

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// While one is at work for long, whatever is asked for is the work of one other, however often it is asked for, and that one is done.
func TestOneAtMostWaits(t *testing.T) {
	var lock sync.Mutex // as whoever does the work has it
	var started, done atomic.Int32
	atWork, goOn := make(chan struct{}, 1), make(chan struct{})
	job := &Job{Do: func(begun func()) {
		started.Add(1)
		lock.Lock()
		defer lock.Unlock()
		begun()
		atWork <- struct{}{}
		<-goOn
		done.Add(1)
	}}
	job.Wake()
	<-atWork
	for range 200 {
		job.Wake()
		time.Sleep(100 * time.Microsecond) // so that each could start
	}
	require.LessOrEqual(t, started.Load(), int32(2))
	close(goOn)
	<-atWork // what was asked for while the first was at work
	require.Eventually(t, func() bool { return done.Load() == 2 }, time.Minute, time.Millisecond)
	job.Wake()
	<-atWork
	require.Eventually(t, func() bool { return done.Load() == 3 }, time.Minute, time.Millisecond)
}
