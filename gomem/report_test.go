package gomem_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// A report's holders and its figures are of one moment, while others allocate and let go of buffers on the device and in host memory.
func TestAReportIsOfOneMoment(t *testing.T) {
	b := open(t, fakedriver.Options{})
	var stop atomic.Bool
	var workers sync.WaitGroup
	for worker := range 4 {
		workers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 3))
			label := gomem.Intern(fmt.Sprintf("worker %d", worker))
			for !stop.Load() {
				var mine []uint32
				for range 40 {
					index, err := b.Allocate(1+random.Uint64N(4096), gomem.AllocateOptions{Label: label})
					if err != nil {
						t.Error(err)
						return
					}
					if random.IntN(3) == 0 {
						if _, err := b.Spill(index, gomem.Wait{}); err != nil {
							t.Error(err)
						}
					}
					mine = append(mine, index)
				}
				for _, index := range mine {
					b.LetGo(index)
				}
				b.Drain()
			}
		})
	}
	for range 400 {
		report, err := b.Report()
		require.NoError(t, err)
		var resident, spilled, count, unspillable int64
		for _, h := range report.Holders {
			require.Equal(t, h.Bytes, h.Resident+h.Spilled)
			resident, spilled, count = resident+h.Resident, spilled+h.Spilled, count+h.Count
		}
		require.Equal(t, report.Info.InUse, resident)
		require.Equal(t, report.Info.Spilled, spilled)
		require.Equal(t, report.Info.Live, count)
		for _, n := range report.Unspillable {
			unspillable += n
		}
		require.LessOrEqual(t, unspillable, report.Info.InUse)
	}
	stop.Store(true)
	workers.Wait()
}

// Buffers that are let go of while a report looks at the records are in it where they were at its moment, on the device and in host memory.
func TestAReportHasWhatIsLetGoOfMeanwhile(t *testing.T) {
	const many = 20000
	b := open(t, fakedriver.Options{})
	for _, spilled := range []bool{false, true} {
		var made []uint32
		for range many {
			made = append(made, b.labelled(16, "let go of", ""))
			if spilled {
				_, err := b.Spill(made[len(made)-1], gomem.Wait{})
				require.NoError(t, err)
			}
		}
		begin, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			<-begin
			for at := range made { // from the end: the records that a report comes to last
				b.LetGo(made[many-1-at])
				if at%100 == 0 {
					runtime.Gosched()
				}
			}
		}()
		close(begin)
		for live := int64(many); live > 0; {
			report, err := b.Report()
			require.NoError(t, err)
			live = report.Info.Live
			var resident, held int64
			for _, h := range report.Holders {
				resident, held = resident+h.Resident, held+h.Spilled
			}
			require.Equal(t, report.Info.InUse, resident)
			require.Equal(t, report.Info.Spilled, held)
		}
		<-done
	}
}

// What an error tells is of one moment as well, and a report keeps nothing back when it is done.
func TestWhatAReportNotesIsForgotten(t *testing.T) {
	b := open(t, fakedriver.Options{})
	index := b.allocate(4 * kib)
	_, err := b.Spill(index, gomem.Wait{})
	require.NoError(t, err)
	require.Len(t, b.holders(0), 1)
	sequence := b.info().Sequence
	b.drop(index)
	require.Equal(t, sequence, b.info().Sequence, "nobody notes what leaves host memory while no report is made")
	require.Empty(t, b.holders(0))
}
