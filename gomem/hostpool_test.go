package gomem

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func content(b HostBlock) []byte { return unsafe.Slice((*byte)(b.Pointer()), b.Bytes) }

func mustGet(t *testing.T, p *HostPool, nbytes uint64) HostBlock {
	t.Helper()
	b, err := p.Get(nbytes)
	require.NoError(t, err)
	return b
}

// requireBalance compares the pool's counters with what its lists hold.
func requireBalance(t *testing.T, p *HostPool) {
	t.Helper()
	p.lock()
	defer p.unlock()
	var pooled int64
	for _, c := range p.chunks {
		pooled += int64(c.idle) * int64(c.size)
		require.Equal(t, c.hasRoom(), c.listed)
		require.Equal(t, c.live == 0, c.inList)
	}
	for _, first := range p.bins {
		for u := first; u != nil; u = u.below {
			pooled += int64(u.mapped)
		}
	}
	require.Equal(t, pooled, p.pooled)
	units := 0
	for u := p.idle.oldest; u != nil; u = u.newer {
		units++
	}
	idle := 0
	for _, c := range p.chunks {
		if c.live == 0 {
			idle++
		}
	}
	for _, first := range p.bins {
		for u := first; u != nil; u = u.below {
			idle++
		}
	}
	require.Equal(t, idle, units)
}

func TestSizeClassesWasteAtMostAQuarter(t *testing.T) {
	last := -1
	for n := uint64(1); n < 1<<40; n += 1 + n/97 {
		class, size := sizeClass(n)
		require.GreaterOrEqual(t, size, n)
		require.Equal(t, size, classSize(class))
		require.Zero(t, size%16)
		require.GreaterOrEqual(t, class, last)
		if n > minBlockBytes {
			require.LessOrEqual(t, size-n, n/4, "%d", n)
			require.Less(t, classSize(class-1), n)
		}
		last = class
	}
	for class := range chunkClasses {
		got, size := sizeClass(classSize(class))
		require.Equal(t, class, got)
		require.Equal(t, classSize(class), size)
	}
	require.EqualValues(t, chunkBlockBytes, classSize(chunkClasses-1))
}

func TestHostPoolBlocksAreDistinctAlignedAndKeepTheirContents(t *testing.T) {
	p := NewHostPool()
	random := rand.New(rand.NewPCG(1, 2))
	type copy struct {
		block HostBlock
		fill  byte
	}
	var live []copy
	var used int64
	for step := range fewerChecked(4000, 1000) {
		if random.IntN(5) < 3 || len(live) == 0 {
			n := uint64(random.Int64N(1 << (1 + random.IntN(21))))
			if random.IntN(200) == 0 {
				n = uint64(random.Int64N(6 << 20))
			}
			b := mustGet(t, p, n)
			require.GreaterOrEqual(t, b.Bytes, n)
			require.Zero(t, b.Address%16)
			if b.Bytes >= hugeBytes {
				require.Zero(t, b.Address%hugeBytes)
			}
			c := copy{b, byte(step)}
			FillMemory(b.Pointer(), []byte{c.fill}, b.Bytes)
			live = append(live, c)
			used += int64(b.Bytes)
		} else {
			i := random.IntN(len(live))
			c := live[i]
			live = slices.Delete(live, i, i+1)
			require.True(t, bytes.Count(content(c.block), []byte{c.fill}) == int(c.block.Bytes), "a block was written through another")
			used -= int64(c.block.Bytes)
			p.Put(c.block)
		}
		gotUsed, _ := p.Bytes()
		require.Equal(t, used, gotUsed)
		if step%500 == 0 {
			requireBalance(t, p)
		}
	}
	for _, c := range live {
		p.Put(c.block)
	}
	requireBalance(t, p)
	_, pooled := p.Bytes()
	require.EqualValues(t, pooled, p.Trim())
	used, pooled = p.Bytes()
	require.Zero(t, used)
	require.Zero(t, pooled)
	require.Empty(t, p.chunks)
}

// Small copies take neither a page nor a mapping each.
func TestHostPoolSmallBlocksShareMappings(t *testing.T) {
	p := NewHostPool()
	blocks := make([]HostBlock, 10_000)
	for i := range blocks {
		blocks[i] = mustGet(t, p, 64)
	}
	require.Len(t, p.chunks, 1)
	used, _ := p.Bytes()
	require.EqualValues(t, 640_000, used)
	for _, b := range blocks {
		p.Put(b)
	}
}

func TestHostPoolUsesWarmBlocksAgain(t *testing.T) {
	p := NewHostPool()
	for _, c := range []struct {
		first, second uint64
		again         bool
	}{
		{8 << 20, 8 << 20, true}, {8 << 20, 7 << 20, true}, {8 << 20, 6 << 20, false}, {8 << 20, 8<<20 + 1, false},
		{100, 110, true}, {100, 60, false}, {100_000, 99_000, true},
	} {
		first := mustGet(t, p, c.first)
		p.Put(first)
		second := mustGet(t, p, c.second)
		require.Equal(t, c.again, first.Address == second.Address, "%+v", c)
		p.Put(second)
		p.Trim()
	}
}

func TestHostPoolLimitIsExact(t *testing.T) {
	for _, limit := range []int64{64, 4096, 1 << 20, 10 << 20} {
		p := NewHostPool()
		p.SetLimit(limit)
		b := mustGet(t, p, uint64(limit))
		_, err := p.Get(1)
		var full *HostMemoryError
		require.ErrorAs(t, err, &full)
		require.Equal(t, HostMemoryError{Requested: 1, Limit: limit, Used: limit, Available: Unknown}, *full)
		p.Put(b)
		p.Put(mustGet(t, p, 1)) // the idle block makes way
		_, err = p.Get(uint64(limit) + 1)
		require.ErrorAs(t, err, &full)
		p.Put(mustGet(t, p, uint64(limit)))
		used, pooled := p.Bytes()
		require.Zero(t, used)
		require.LessOrEqual(t, pooled, limit)
		requireBalance(t, p)
	}
}

// Whatever the sizes, used + pooled stays within the limit, and a request is refused only when giving back all idle memory would not help.
func TestHostPoolGivesIdleMemoryBackBeforeItRefuses(t *testing.T) {
	const limit = 24 << 20
	p := NewHostPool()
	p.SetLimit(limit)
	random := rand.New(rand.NewPCG(5, 5))
	var live []HostBlock
	refused := 0
	for range fewerChecked(20_000, 3000) {
		if random.IntN(2) == 0 && len(live) > 0 {
			i := random.IntN(len(live))
			p.Put(live[i])
			live = slices.Delete(live, i, i+1)
			continue
		}
		// From 64 KiB on, idle blocks can always be given back.
		n := smallBlockBytes + 1 + uint64(random.Int64N(1<<(16+random.IntN(7))))
		b, err := p.Get(n)
		used, pooled := p.Bytes()
		require.LessOrEqual(t, used+pooled, int64(limit))
		if err != nil {
			refused++
			if !raceBuild {
				_, size := sizeClass(n)
				require.Greater(t, used+int64(size), int64(limit))
				require.Zero(t, pooled)
			}
			continue
		}
		live = append(live, b)
	}
	require.NotZero(t, refused)
	requireBalance(t, p)
	for _, b := range live {
		p.Put(b)
	}
}

// The default limit is 80 % of what the host would have left without the pool, and it is not asked each time.
func TestHostPoolDefaultLimit(t *testing.T) {
	var available, asked int64 = 1000 << 20, 0
	now := time.Now()
	p := newHostPool(func() (int64, bool) { asked++; return available, true }, func() time.Time { return now })
	a := mustGet(t, p, 700<<20) // never written: no memory lies behind it
	require.EqualValues(t, 1, asked)
	_, err := p.Get(101 << 20)
	var full *HostMemoryError
	require.ErrorAs(t, err, &full)
	require.EqualValues(t, 1000<<20/100*80, full.Limit)
	require.EqualValues(t, 1000<<20, full.Available)
	require.EqualValues(t, 1, asked)

	now = now.Add(measureFor)
	available = 300 << 20 // the copy was written
	b := mustGet(t, p, 100<<20)
	require.EqualValues(t, 2, asked)
	p.Put(b)

	now = now.Add(measureFor)
	available = 10 << 20 // others took the rest
	_, err = p.Get(100 << 20)
	require.ErrorAs(t, err, &full)
	require.EqualValues(t, 3, asked)
	p.Put(a)

	p.SetLimit(2000 << 20)
	p.Put(mustGet(t, p, 1500<<20))
	require.EqualValues(t, 3, asked)
}

func TestHostPoolWithoutAFigureHasNoLimit(t *testing.T) {
	p := newHostPool(func() (int64, bool) { return 0, false }, time.Now)
	p.Put(mustGet(t, p, 100<<20))
}

func TestHostPoolKeepsABoundedAmountIdle(t *testing.T) {
	p := NewHostPool()
	p.SetLimit(1 << 30) // keeps up to 256 MiB
	var blocks []HostBlock
	for range 20 {
		blocks = append(blocks, mustGet(t, p, 32<<20))
	}
	for _, b := range blocks {
		p.Put(b)
	}
	_, pooled := p.Bytes()
	require.EqualValues(t, 256<<20, pooled)
	again := mustGet(t, p, 32<<20)
	require.Equal(t, blocks[len(blocks)-1].Address, again.Address, "the newest is the warmest")
	p.Put(again)
	requireBalance(t, p)
}

func TestHostPoolRefusesWhatTheSystemRefuses(t *testing.T) {
	p := newHostPool(func() (int64, bool) { return 0, false }, time.Now)
	_, err := p.Get(1 << 60)
	var full *HostMemoryError
	require.ErrorAs(t, err, &full)
	require.ErrorIs(t, err, syscall.ENOMEM)
	_, err = p.Get(math.MaxUint64)
	require.ErrorAs(t, err, &full)
	used, pooled := p.Bytes()
	require.Zero(t, used)
	require.Zero(t, pooled)
	p.Put(mustGet(t, p, 1<<20))
}

func TestHostPoolFault(t *testing.T) {
	p := NewHostPool()
	fault := errors.New("made to fail")
	p.SetFault(func(nbytes uint64) error {
		if nbytes == 100 {
			return fault
		}
		return nil
	})
	_, err := p.Get(100)
	require.ErrorIs(t, err, fault)
	b := mustGet(t, p, 101)
	p.SetFault(nil)
	p.Put(mustGet(t, p, 100))
	p.Put(b)
}

func TestHostPoolRejectsForeignBlocks(t *testing.T) {
	p := NewHostPool()
	small, large := mustGet(t, p, 100), mustGet(t, p, 100_000)
	p.Put(HostBlock{})
	require.Panics(t, func() { p.Put(HostBlock{small.Address + 1, small.Bytes}) })
	require.Panics(t, func() { p.Put(HostBlock{small.Address, 64}) })
	require.Panics(t, func() { p.Put(HostBlock{large.Address + uintptr(large.Bytes), large.Bytes}) })
}

func TestHostPoolIsSafeForConcurrentUse(t *testing.T) {
	p := NewHostPool()
	p.SetLimit(64 << 20)
	var refused atomic.Int64
	var workers sync.WaitGroup
	for w := range 8 {
		workers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 3))
			var live []HostBlock
			for range fewerChecked(2000, 300) {
				if len(live) > 20 || random.IntN(2) == 0 && len(live) > 0 {
					last := len(live) - 1
					for i, c := range content(live[last])[:64] {
						if c != byte(w) {
							t.Errorf("byte %d of a block of worker %d is %d", i, w, c)
						}
					}
					p.Put(live[last])
					live = live[:last]
					continue
				}
				b, err := p.Get(uint64(random.Int64N(1 << (6 + random.IntN(17)))))
				if err != nil {
					refused.Add(1)
					continue
				}
				for i := range content(b)[:64] {
					content(b)[i] = byte(w)
				}
				live = append(live, b)
				if random.IntN(100) == 0 {
					p.Trim()
				}
			}
			for _, b := range live {
				p.Put(b)
			}
		})
	}
	workers.Wait()
	used, _ := p.Bytes()
	require.Zero(t, used)
	requireBalance(t, p)
}

func BenchmarkHostPool(b *testing.B) {
	for _, size := range []struct {
		name   string
		nbytes uint64
	}{{"64B", 64}, {"64KiB", 64 << 10}, {"1MiB", 1 << 20}, {"64MiB", 64 << 20}} {
		b.Run(size.name, func(b *testing.B) {
			p := NewHostPool()
			for b.Loop() {
				block, err := p.Get(size.nbytes)
				if err != nil {
					b.Fatal(err)
				}
				p.Put(block)
			}
		})
	}
}

// A warm block that is larger than what is asked for makes way for one that fits, where the host's memory has shrunk meanwhile.
func TestHostPoolGivesUpAWarmBlockThatIsTooLarge(t *testing.T) {
	const mib = 1 << 20
	now, left := time.Now(), int64(100*mib)
	p := newHostPool(func() (int64, bool) { return left, true }, func() time.Time { return now })
	p.Put(mustGet(t, p, 8*mib))
	now, left = now.Add(2*measureFor), 11*mib/8 // the limit is 7.5 MiB now
	b := mustGet(t, p, 7*mib)
	require.EqualValues(t, 7*mib, b.Bytes)
	requireBalance(t, p)
	used, pooled := p.Bytes()
	require.EqualValues(t, 7*mib, used)
	require.Zero(t, pooled)
	p.Put(b)
}
