package gomem_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// Devices that share a pool of host memory: what a program has let go of on one of them takes none of it from the others.

// openTwo makes two devices that share a pool with room for one copy of 10 KiB.
func openTwo(t *testing.T, options fakedriver.Options) (b, other *bench) {
	t.Helper()
	b = open(t, options)
	b.pool.SetLimit(10 * kib)
	other = open(t, options, func(o *gomem.Options) { o.Pool, o.Index = b.pool, 1 })
	return b, other
}

// spillAndLetGo leaves a dropped buffer on the list of a device, with a copy that takes all host memory.
func (b *bench) spillAndLetGo() {
	b.t.Helper()
	index := b.allocate(10 * kib)
	_, err := b.Spill(index, gomem.Wait{})
	require.NoError(b.t, err)
	b.LetGo(index)
	require.True(b.t, b.Dropped())
}

func TestCopiesDroppedOnAnotherDeviceAreNotInTheWay(t *testing.T) {
	for name, request := range map[string]func(b *bench, oldest uint32){
		"a strict budget": func(b *bench, _ uint32) {
			b.budget(10*kib, true)
			b.drop(b.allocate(10 * kib))
		},
		"a soft budget": func(b *bench, _ uint32) {
			b.budget(10*kib, false)
			b.drop(b.allocate(10 * kib))
		},
		"spill": func(b *bench, oldest uint32) {
			_, err := b.Spill(oldest, gomem.Wait{})
			require.NoError(b.t, err)
		},
		"spill all": func(b *bench, _ uint32) {
			_, err := b.SpillAll(gomem.Wait{})
			require.NoError(b.t, err)
		},
		"a device that is full": func(b *bench, _ uint32) { b.drop(b.allocate(15 * kib)) },
	} {
		t.Run(name, func(t *testing.T) {
			b, other := openTwo(t, fakedriver.Options{Capacity: 20 * kib})
			oldest := b.allocate(10 * kib)
			other.spillAndLetGo()
			request(b, oldest)
			require.Equal(t, gomem.Spilled, b.state(oldest))
			require.Zero(t, b.info().OverBudgetCount)
			b.has(oldest, uint64(oldest))
			b.drop(oldest)
		})
	}
}

// What is remembered of host memory that is used up ends as well: hostIsFullLocked asks nobody but the pool.
func TestRememberedRefusalEndsWithACopyDroppedOnAnotherDevice(t *testing.T) {
	b, other := openTwo(t, fakedriver.Options{})
	gone := other.allocate(10 * kib)
	_, err := other.Spill(gone, gomem.Wait{})
	require.NoError(t, err)
	b.budget(10*kib, false)
	oldest, next := b.allocate(10*kib), b.allocate(10*kib)
	require.EqualValues(t, 1, b.info().OverBudgetCount)
	other.LetGo(gone)
	last := b.allocate(10 * kib)
	require.Equal(t, gomem.Spilled, b.state(oldest))
	b.has(oldest, uint64(oldest))
	b.drop(oldest, next, last)
}

// A launch is waited for where its buffers will have a place then.
func TestLaunchIsWaitedForWhereAnotherDeviceLetsGoOfItsCopies(t *testing.T) {
	b, other := openTwo(t, fakedriver.Options{Capacity: 20 * kib})
	running := []uint32{b.allocate(10 * kib)}
	_, err := b.lane.enter(running, gomem.Wait{})
	require.NoError(t, err)
	other.spillAndLetGo()
	require.EqualValues(t, 10*kib, b.AwaitedBy(kib, func() {}))
	b.lane.leave(running)
	b.drop(running[0])
}

// Nobody waits for the lock of another device, of whom two could wait for each other.
func TestAnotherDeviceThatMovesMemoryIsNotWaitedFor(t *testing.T) {
	b, other := openTwo(t, fakedriver.Options{})
	index := b.allocate(10 * kib)
	other.spillAndLetGo()
	release := other.HoldMoving()
	var err error
	soon(t, "a spill that host memory has no place for", func() { _, err = b.Spill(index, gomem.Wait{}) })
	var full *gomem.MemoryError
	require.ErrorAs(t, err, &full)
	require.Equal(t, gomem.ReasonHost, full.Reason)
	release() // and whoever lets go of it drains
	_, err = b.Spill(index, gomem.Wait{})
	require.NoError(t, err)
	b.has(index, uint64(index))
	b.drop(index)
}

// slowFrees is a driver whose frees begin and end when the test likes.
type slowFrees struct {
	*fakedriver.Device
	began, goOn chan struct{}
}

func (d *slowFrees) Free(block gomem.Block) error {
	d.began <- struct{}{}
	<-d.goOn
	return d.Device.Free(block)
}

// A drain that is under way on another device is waited for: its list is empty already, and the copies are not back yet.
func TestDrainOfAnotherDeviceThatIsUnderWayIsWaitedFor(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.pool.SetLimit(10 * kib)
	driver := &slowFrees{Device: fakedriver.New(fakedriver.Options{}), began: make(chan struct{}, 9), goOn: make(chan struct{}, 9)}
	other, err := gomem.NewDevice(driver, gomem.Options{Movable: true, Pool: b.pool, Index: 1})
	require.NoError(t, err)
	spilled, err := other.Allocate(10*kib, gomem.AllocateOptions{})
	require.NoError(t, err)
	resident, err := other.Allocate(kib, gomem.AllocateOptions{})
	require.NoError(t, err)
	driver.goOn <- struct{}{}
	_, err = other.Spill(spilled, gomem.Wait{})
	require.NoError(t, err)
	<-driver.began
	other.LetGo(spilled)
	other.LetGo(resident) // is freed first

	var drain sync.WaitGroup
	drain.Go(other.Drain)
	<-driver.began
	require.False(t, other.Dropped())
	index, ended := b.allocate(10*kib), make(chan error, 1)
	go func() {
		_, err := b.Spill(index, gomem.Wait{})
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("ended before the drain: %v", err)
	case <-time.After(20 * time.Millisecond): // where it is too slow to come that far, this finds nothing, and nothing fails
	}
	driver.goOn <- struct{}{}
	soon(t, "a spill", func() { require.NoError(t, <-ended) })
	drain.Wait()
	b.drop(index)
	require.NoError(t, other.Close())
}

// Another device that breaks while it is drained keeps nobody from anything.
func TestAnotherDeviceThatBreaksWhileItIsDrained(t *testing.T) {
	b, other := openTwo(t, fakedriver.Options{})
	other.broken = true
	resident, index := other.allocate(kib), b.allocate(10*kib)
	other.spillAndLetGo()
	other.LetGo(resident) // its free is a call of the driver, and comes first
	other.driver.Panic("Free", 1)
	_, err := b.Spill(index, gomem.Wait{})
	var full *gomem.MemoryError
	require.ErrorAs(t, err, &full, "the copies of a broken device stay")
	require.Error(t, other.Synchronize())
	require.NoError(t, b.Synchronize())
	b.has(index, uint64(index))
	b.drop(index)
}
