package gomem

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// BenchmarkVictimChoice measures what choosing one victim costs, and nothing else: no bytes move. Each victim goes through the states of a spill and
// comes back, as the newest, some choices later, so that the number of live buffers stays the same. Between two choices some buffers are used; that is not
// in the time. Run it with -benchtime=1x: each benchmark makes as many choices as it needs for the passes to be amortised.
//
//	none     nothing is used in between
//	set      the same hundredth of the buffers is used again and again: a program's working set
//	random   another hundredth each time
//	all      every buffer: the worst case, one pass over all records a choice
func BenchmarkVictimChoice(b *testing.B) {
	for _, pattern := range []string{"none", "set", "random", "all"} {
		for _, n := range []int{100, 1000, 10_000, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/%d", pattern, n), func(b *testing.B) { benchmarkVictimChoice(b, pattern, n) })
		}
	}
}

func benchmarkVictimChoice(b *testing.B, pattern string, n int) {
	d, err := NewDevice(&nowhere{}, Options{Movable: true})
	if err != nil {
		b.Fatal(err)
	}
	records := make([]*Record, n)
	for i := range records {
		index, err := d.Allocate(4096, AllocateOptions{})
		if err != nil {
			b.Fatal(err)
		}
		records[i] = d.Record(index)
	}
	// A use as the C lane counts it, by plain stores: nobody else is here.
	use := func(r *Record) {
		d.books.Clock++
		r.LastUse = d.books.Clock
	}
	runtime.LockOSThread() // for processorTime
	defer runtime.UnlockOSThread()
	random := rand.New(rand.NewPCG(1, uint64(n)))
	random.Shuffle(n, func(i, j int) { records[i], records[j] = records[j], records[i] })
	for _, r := range records {
		use(r)
	}

	some := n / 100
	useSome := map[string]func(){
		"none": func() {},
		"set": func() {
			for _, r := range records[:some] {
				use(r)
			}
		},
		"random": func() {
			for range some {
				use(records[random.IntN(n)])
			}
		},
		"all": func() {
			for _, r := range records {
				use(r)
			}
		},
	}[pattern]
	choices := max(4000, n/16) // two batches at least, each of which serves many choices
	switch pattern {
	case "random":
		choices = 4000 // a batch is used up by the uses: some hundred choices
	case "all":
		choices = max(20, min(1000, 20_000_000/n)) // a pass each
	}

	const away = 16 // choices until a victim comes back
	var spilled [away]*Record
	ordinary, withPass := make([]time.Duration, 0, choices), []time.Duration(nil)
	d.moving.lock(nil)
	for i := range choices {
		useSome()
		passes, processor := d.victims.passes, processorTime()
		began := time.Now()
		r, ok := d.nextVictimLocked()
		d.doneChoosingLocked()
		took := time.Since(began)
		if d.victims.passes == passes {
			ordinary = append(ordinary, took)
		} else {
			withPass = append(withPass, processorTime()-processor)
		}
		if !ok || !r.transition(Resident, Spilling) || !r.transition(Spilling, Spilled) {
			b.Fatal("there must be a victim")
		}
		if back := spilled[i%away]; back != nil {
			if !back.transition(Spilled, Restoring) || !back.transition(Restoring, Resident) {
				b.Fatal("what was spilled must be able to come back")
			}
			use(back)
		}
		spilled[i%away] = r
	}
	d.moving.unlock()
	perChoice := undisturbed(ordinary, withPass)/float64(choices) - clockOverhead()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(perChoice, "ns/choice")
	b.ReportMetric(perChoice/float64(n), "ns/choice/buffer")
	b.ReportMetric(float64(choices)/float64(max(len(withPass), 1)), "choices/pass")
}

// BenchmarkAllocateAboveBudgetWithoutHostMemory is an allocation that passes a soft budget because host memory has no place for any of so many buffers.
func BenchmarkAllocateAboveBudgetWithoutHostMemory(b *testing.B) {
	for _, n := range []int{4000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			pool := NewHostPool()
			pool.SetLimit(1000)
			d, err := NewDevice(&nowhere{}, Options{Movable: true, Pool: pool})
			if err != nil {
				b.Fatal(err)
			}
			allocate := func() uint32 {
				index, err := d.Allocate(4096, AllocateOptions{})
				if err != nil {
					b.Fatal(err)
				}
				return index
			}
			for range n {
				allocate()
			}
			if _, _, err := d.SetBudget(0, false, Wait{}); err == nil {
				b.Fatal("there must be no place for them")
			}
			for b.Loop() {
				d.Drop(allocate())
			}
		})
	}
}

// processorTime is what the calling thread has used of a processor. It costs far more than time.Now, but other programs do not count.
func processorTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// undisturbed is the nanoseconds that all choices took together, without what other programs took away: a choice without a pass is far too short to be
// interrupted often, so the longest hundredth of them counts as the others do; and every pass, which is measured in processor time, counts as the
// middle one.
func undisturbed(ordinary, withPass []time.Duration) float64 {
	var total float64
	if len(ordinary) > 0 {
		slices.Sort(ordinary)
		kept := ordinary[:len(ordinary)-len(ordinary)/100]
		var sum time.Duration
		for _, took := range kept {
			sum += took
		}
		total += float64(sum.Nanoseconds()) * float64(len(ordinary)) / float64(len(kept))
	}
	if len(withPass) > 0 {
		slices.Sort(withPass)
		total += float64(withPass[len(withPass)/2].Nanoseconds()) * float64(len(withPass))
	}
	return total
}

// clockOverhead is what a pair of readings of the clock takes, nanoseconds.
func clockOverhead() float64 {
	pairs := make([]time.Duration, 20_000)
	for i := range pairs {
		began := time.Now()
		pairs[i] = time.Since(began)
	}
	return undisturbed(pairs, nil) / float64(len(pairs))
}

// nowhere is a driver without memory: its addresses are numbers that nobody reads.
type nowhere struct{ next uint64 }

func (n *nowhere) Name() string { return "nowhere:0" }
func (n *nowhere) Allocate(nbytes uint64) (uint64, error) {
	n.next += (nbytes + 511) &^ 511
	return 1<<40 + n.next, nil
}
func (n *nowhere) Free(Block) error                             { return nil }
func (n *nowhere) CanFree(How) bool                             { return true }
func (n *nowhere) CopyOut(unsafe.Pointer, uint64, uint64) error { return nil }
func (n *nowhere) CopyIn(uint64, unsafe.Pointer, uint64) error  { return nil }
func (n *nowhere) CopyWithin(uint64, uint64, uint64) error      { return nil }
func (n *nowhere) Fill(uint64, []byte, uint64) error            { return nil }
func (n *nowhere) Synchronize() error                           { return nil }
func (n *nowhere) Trim() (uint64, error)                        { return 0, nil }
func (n *nowhere) PendingFree() uint64                          { return 0 }
func (n *nowhere) Stream() uint64                               { return 0 }
func (n *nowhere) SetStream(uint64, uint64) error               { return nil }
func (n *nowhere) Join(uint64, uint64) error                    { return nil }
func (n *nowhere) Close() error                                 { return nil }
func (n *nowhere) Memory() (DriverMemory, error) {
	return DriverMemory{Free: 1 << 44, Total: 1 << 44, Allocated: Unknown, LargestFree: Unknown}, nil
}
