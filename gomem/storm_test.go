package gomem_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// garbageOwner owns a buffer. It is too large for the allocator to put several of them into one piece of memory, where each would keep the others
// alive.
type garbageOwner struct {
	index uint32
	_     [64]byte
}

// The storm: 16 goroutines run the model's operations on one small device, with queued work, deferred frees and random delays, while garbage whose
// finalizers allocate is collected all the time. It must end in time, every byte must be right, and nothing may be left.
func TestStorm(t *testing.T) {
	length, limit := 30*time.Second, 120*time.Second
	if testing.Short() {
		length = 10 * time.Second
	}
	seed := *modelSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	c := modelCase{Name: "storm", Seed: seed, Budget: 120 * kib, Host: -1, Check: false,
		Driver: fakedriver.Options{Capacity: 160 * kib, Asynchronous: true, DeferFrees: true, Pool: true, Jitter: 20 * time.Microsecond, Seed: seed}}
	w, err := newModelWorld(c, true)
	require.NoError(t, err)
	w.device.SetMaxWait(limit)

	end := time.Now().Add(length)
	var operations, finalizers atomic.Int64
	var storm sync.WaitGroup
	failures := make(chan error, 32)
	workers := make([]*modelWorker, 16)
	for n := range workers {
		workers[n] = &modelWorker{modelWorld: w, tokens: map[uint64]uint64{}}
		storm.Go(func() {
			defer workers[n].releaseAll() // others may wait for the holds
			random := rand.New(rand.NewPCG(seed, uint64(n)))
			for time.Now().Before(end) {
				ops := randomOps(random, 50)
				if err := workers[n].run(ops); err != nil {
					failures <- fmt.Errorf("worker %d: %w", n, err)
					return
				}
				operations.Add(int64(len(ops)))
			}
		})
	}
	// Reference cycles of the host's language: objects that own a buffer, die at a moment that nobody chose, and allocate as they do.
	var garbage sync.WaitGroup
	storm.Go(func() {
		for time.Now().Before(end) {
			for range 20 {
				index, err := w.device.Allocate(2*kib, gomem.AllocateOptions{})
				if err != nil {
					continue
				}
				garbage.Add(1)
				runtime.SetFinalizer(&garbageOwner{index: index}, func(o *garbageOwner) {
					defer garbage.Done()
					w.device.Drop(o.index)
					if index, err := w.device.Allocate(kib, gomem.AllocateOptions{}); err == nil {
						w.device.Drop(index)
					}
					finalizers.Add(1)
				})
			}
			runtime.GC()
			time.Sleep(time.Millisecond)
		}
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		storm.Wait()
		for range 100 { // what the last collection did not find
			runtime.GC()
			time.Sleep(time.Millisecond)
		}
		garbage.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(limit):
		buffer := make([]byte, 1<<20)
		t.Fatalf("the storm does not end:\n%s", buffer[:runtime.Stack(buffer, true)])
	}
	close(failures)
	var all []error
	for err := range failures {
		all = append(all, err)
	}
	require.NoError(t, errors.Join(all...))
	require.NoError(t, w.device.Check())
	for _, worker := range workers {
		require.NoError(t, worker.end())
	}
	require.NoError(t, w.close())
	t.Logf("%d operations, %d finalizers", operations.Load(), finalizers.Load())
	require.Positive(t, finalizers.Load())
}
