package gomem_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

func (b *bench) report() gomem.Report {
	b.t.Helper()
	report, err := b.Report()
	require.NoError(b.t, err)
	return report
}

func (b *bench) spill(index uint32, asker string) {
	b.t.Helper()
	_, err := b.Spill(index, gomem.Wait{Asker: gomem.Intern(asker)})
	require.NoError(b.t, err)
}

func (b *bench) resident(index uint32, asker string) {
	b.t.Helper()
	require.NoError(b.t, b.MakeResident(index, gomem.Wait{Asker: gomem.Intern(asker)}))
}

// fakeClock is moved by the test.
type fakeClock struct{ now atomic.Int64 }

func (b *bench) fakeClock() *fakeClock {
	c := new(fakeClock)
	b.SetSpillClock(c.now.Load)
	return c
}

func (c *fakeClock) pass(d time.Duration) { c.now.Add(int64(d)) }

func TestEachSpillHasACause(t *testing.T) {
	b := open(t, fakedriver.Options{Capacity: 64 * kib})
	b.SetOrigins(gomem.OriginsLine)
	clock := b.fakeClock()
	a := b.labelled(16*kib, "a", "a.py:1")
	one := func() gomem.Spill {
		t.Helper()
		spills := b.report().Spills
		slices.SortFunc(spills, func(x, y gomem.Spill) int { return cmp.Compare(y.Last, x.Last) })
		s := spills[0]
		s.Last, s.Out = 0, 0
		return s
	}
	want := gomem.Spill{Label: "a", Origin: "a.py:1", Bytes: 16 * kib, Largest: 16 * kib, Count: 1, StillOut: 1}
	b.spill(a, "asks.py:3")
	want.Cause, want.ByOrigin = "asked", "asks.py:3"
	require.Equal(t, want, one())
	clock.pass(time.Second)

	b.resident(a, "")
	b.budget(20*kib, false)
	big := b.labelled(10*kib, "big", "big.py:7")
	want.Cause, want.ByOrigin, want.ByLabel, want.ByBytes = "budget", "big.py:7", "big", 10*kib
	require.Equal(t, want, one(), "an allocation needed room under the budget")
	clock.pass(time.Second)

	b.resident(a, "launch.py:9") // 16 KiB and 10 are more than 20
	want = gomem.Spill{Label: "big", Origin: "big.py:7", Bytes: 10 * kib, Largest: 10 * kib, Count: 1, StillOut: 1,
		Cause: "budget", ByLabel: "a", ByOrigin: "launch.py:9", ByBytes: 16 * kib}
	require.Equal(t, want, one(), "a restore did, for the buffer that came back")
	clock.pass(time.Second)

	_, _, err := b.SetBudget(1*kib, false, gomem.Wait{Asker: gomem.Intern("budget.py:2")})
	require.NoError(t, err)
	want = gomem.Spill{Label: "a", Origin: "a.py:1", Bytes: 16 * kib, Largest: 16 * kib, Count: 1, StillOut: 1,
		Cause: "budget lowered", ByOrigin: "budget.py:2", ByBytes: 15 * kib}
	require.Equal(t, want, one())
	clock.pass(time.Second)

	b.budget(-1, false)
	b.resident(a, "")
	full := b.labelled(60*kib, "full", "full.py:5")
	want.Cause, want.ByOrigin, want.ByLabel, want.ByBytes = "device", "full.py:5", "full", 60*kib
	require.Equal(t, want, one(), "the driver had no room")
	clock.pass(time.Second)
	b.drop(full)

	b.resident(a, "")
	b.budget(20*kib, false)
	token, err := b.Reserve(8*kib, gomem.AllocateOptions{Wait: gomem.Wait{Asker: gomem.Intern("reserve.py:6")}})
	require.NoError(t, err)
	want.Cause, want.ByOrigin, want.ByLabel, want.ByBytes = "budget", "reserve.py:6", "", 8*kib
	require.Equal(t, want, one(), "a reservation did")
	clock.pass(time.Second)
	b.Unreserve(token)

	b.budget(-1, false)
	b.resident(a, "")
	_, err = b.MakeRoom(1<<40, gomem.AllocateOptions{Wait: gomem.Wait{Asker: gomem.Intern("room.py:8")}})
	require.NoError(t, err)
	want.Cause, want.ByOrigin, want.ByBytes = "device", "room.py:8", 1<<40
	require.Equal(t, want, one(), "a host's own allocation failed")

	require.Equal(t, int64(0), b.report().SpillsLost)
	b.drop(a, big)
}

func TestTimeInHostMemoryEndsWithTheWayBackOrTheEnd(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.SetOrigins(gomem.OriginsLine)
	clock := b.fakeClock()
	x, y := b.labelled(kib, "x", "l"), b.labelled(3*kib, "x", "l")
	b.spill(x, "s")
	clock.pass(5)
	b.spill(y, "s")
	clock.pass(7)
	told := func() []int64 {
		t.Helper()
		spills := b.report().Spills
		require.Len(t, spills, 1)
		s := spills[0]
		return []int64{s.Bytes, s.Largest, s.Count, s.Restores, s.Out, s.StillOut}
	}
	require.Equal(t, []int64{4 * kib, 3 * kib, 2, 0, 5 + 7 + 7, 2}, told())
	b.resident(x, "r")
	clock.pass(100)
	require.Equal(t, []int64{4 * kib, 3 * kib, 2, 1, 12 + 107, 1}, told())
	b.drop(y)
	clock.pass(1000)
	require.Equal(t, []int64{4 * kib, 3 * kib, 2, 1, 12 + 107, 0}, told())
	b.spill(x, "s")
	b.SetOrigins(gomem.OriginsOff)
	clock.pass(10_000)
	require.Equal(t, []int64{5 * kib, 3 * kib, 3, 1, 12 + 107 + 10_000, 1}, told(), "what is out goes on being counted")
	b.resident(x, "r")
	clock.pass(10_000)
	require.Equal(t, []int64{5 * kib, 3 * kib, 3, 2, 12 + 107 + 10_000, 0}, told())
	b.spill(x, "s")
	b.resident(x, "r")
	require.Equal(t, []int64{5 * kib, 3 * kib, 3, 2, 12 + 107 + 10_000, 0}, told(), "origins are off")
	require.Equal(t, int64(1), b.report().SpillsLost)
	b.drop(x)
}

func TestARestoreThatFailsIsNoWayBack(t *testing.T) {
	for _, drop := range []bool{false, true} {
		b, driver := openMidway(t)
		b.SetOrigins(gomem.OriginsLine)
		clock := b.fakeClock()
		x := b.labelled(kib, "x", "l")
		b.spill(x, "s")
		clock.pass(10)
		driver.onCopyIn = func() error { return errors.New("no copy") }
		require.Error(t, b.MakeResident(x, gomem.Wait{}))
		driver.onCopyIn = nil
		clock.pass(10)
		s := b.report().Spills[0]
		require.Equal(t, []int64{20, 1, 0}, []int64{s.Out, s.StillOut, s.Restores})
		if !drop {
			b.resident(x, "r")
			s = b.report().Spills[0]
			require.Equal(t, []int64{20, 0, 1}, []int64{s.Out, s.StillOut, s.Restores})
		}
		b.drop(x)
	}
}

func TestWhereNothingIsSpilledNothingIsKept(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.SetOrigins(gomem.OriginsStack)
	for range 100 {
		b.drop(b.labelled(kib, "x", "l"))
	}
	require.False(t, b.SpillNotes())
	report := b.report()
	require.Empty(t, report.Spills)
	require.Nil(t, report.Thrashing)
	require.False(t, b.SpillNotes())
	x := b.labelled(kib, "x", "l")
	b.spill(x, "s")
	require.True(t, b.SpillNotes())
	b.drop(x)
}

func TestGroupsOfSpillsAreBounded(t *testing.T) {
	b := open(t, fakedriver.Options{NoContents: true})
	b.SetOrigins(gomem.OriginsLine)
	clock := b.fakeClock()
	const more = 50
	for n := range gomem.MaxSpillGroups + more {
		index := b.labelled(uint64(n+1), fmt.Sprint("bounded ", n), "l")
		b.spill(index, "s")
		clock.pass(1)
		b.drop(index)
	}
	lowered := b.labelled(kib, "bounded, too", "l")
	b.budget(0, false)
	b.drop(lowered)
	b.budget(-1, false)
	spills := b.report().Spills
	require.True(t, slices.ContainsFunc(spills, func(s gomem.Spill) bool {
		return s.Origin == "(others)" && s.Cause == "budget lowered" && s.Bytes == kib
	}))
	require.Len(t, spills, gomem.MaxSpillGroups+2)
	var others gomem.Spill
	var bytes, count, out int64
	for _, s := range spills {
		bytes, count, out = bytes+s.Bytes, count+s.Count, out+s.Out
		if s.Origin == "(others)" && s.Cause == "asked" {
			others = s
		}
	}
	const n = int64(gomem.MaxSpillGroups + more)
	bytes, count = bytes-kib, count-1 // of the other cause
	require.Equal(t, []int64{n * (n + 1) / 2, n, n}, []int64{bytes, count, out})
	require.Equal(t, []any{int64(more), int64(more), n, "", "", int64(0)},
		[]any{others.Count, others.Out, others.Largest, others.Label, others.ByOrigin, others.ByBytes})
	index := b.labelled(kib, "bounded 7", "l")
	b.spill(index, "s")
	require.True(t, slices.ContainsFunc(b.report().Spills, func(s gomem.Spill) bool { return s.Label == "bounded 7" && s.Count == 2 }), "known ones go on")
	b.drop(index)
}

func TestTimeInHostMemoryHasAnEndOfItsRange(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.SetOrigins(gomem.OriginsLine)
	clock := b.fakeClock()
	x, y := b.labelled(kib, "x", "l"), b.labelled(kib, "x", "l")
	b.spill(x, "s")
	b.spill(y, "s")
	clock.pass(1 << 62)
	require.Equal(t, int64(1<<63-1), b.report().Spills[0].Out)
	b.drop(x)
	clock.pass(1)
	require.Equal(t, int64(1<<63-1), b.report().Spills[0].Out)
	b.drop(y)
}

func TestStacksOfSpillsAreTold(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.SetOrigins(gomem.OriginsStack)
	stack := gomem.InternStack("s.py:1 f\ns.py:2 g", gomem.Intern("s.py:1"))
	by := gomem.InternStack("b.py:1 f\nb.py:2 g", gomem.Intern("b.py:1"))
	index, err := b.Allocate(kib, gomem.AllocateOptions{Origin: stack})
	require.NoError(t, err)
	_, err = b.Spill(index, gomem.Wait{Asker: by})
	require.NoError(t, err)
	report := b.report()
	s := report.Spills[0]
	require.Equal(t, []string{"s.py:1 f", "s.py:2 g"}, s.Stack)
	require.Equal(t, []string{"b.py:1 f", "b.py:2 g"}, s.ByStack)
	require.Equal(t, []string{"s.py:1", "b.py:1"}, []string{s.Origin, s.ByOrigin})
	require.Equal(t, []string{"s.py:1 f", "s.py:2 g"}, report.Holders[0].Stack)
	require.Equal(t, "s.py:1", report.Holders[0].Origin)
	b.drop(index)
}

// ---- the plain oracle

// history is all that happened to one buffer, as plain notes.
type history struct {
	label, origin string
	bytes         int64
	ways          []way
	gone          bool
}

type way struct {
	out   bool
	at    int64
	cause [3]string // kind, label, origin
	by    int64
	known bool // origins were on
	group [2]string
}

type spillOracle struct {
	live map[uint32]*history
	all  []*history
	now  int64
	// what the operation under way is
	on    bool
	cause func(restored uint32) (cause [3]string, by int64)
}

// follow notes events of one operation.
func (o *spillOracle) follow(events []gomem.Event, restored uint32) {
	for _, e := range events {
		h := o.live[e.Index]
		switch e.Kind {
		case gomem.EventSpill:
			cause, by := o.cause(restored)
			h.ways = append(h.ways, way{out: true, at: o.now, cause: cause, by: by, known: o.on, group: [2]string{h.label, h.origin}})
		case gomem.EventRestore:
			h.ways = append(h.ways, way{at: o.now})
		case gomem.EventFree:
			h.gone = true
			if n := len(h.ways); n > 0 && h.ways[n-1].out {
				h.ways = append(h.ways, way{at: o.now, cause: [3]string{"gone"}})
			}
			delete(o.live, e.Index)
		}
	}
}

type oracleKey struct {
	group [2]string
	cause [3]string
}

func (o *spillOracle) spills() (list []gomem.Spill, lost int64) {
	groups, lastAt := map[oracleKey]gomem.Spill{}, map[oracleKey]int64{}
	for _, h := range o.all {
		for i, w := range h.ways {
			if !w.out {
				continue
			}
			if !w.known {
				lost++
				continue
			}
			key := oracleKey{w.group, w.cause}
			s := groups[key]
			s.Label, s.Origin = w.group[0], w.group[1]
			s.Cause, s.ByLabel, s.ByOrigin = w.cause[0], w.cause[1], w.cause[2]
			s.Bytes += h.bytes
			s.Largest = max(s.Largest, h.bytes)
			s.Count++
			end := o.now
			if i+1 < len(h.ways) {
				end = h.ways[i+1].at
				if h.ways[i+1].cause[0] != "gone" {
					s.Restores++
				}
			} else {
				s.StillOut++
			}
			s.Out += end - w.at
			if w.at >= lastAt[key] {
				lastAt[key], s.ByBytes = w.at, w.by
			}
			groups[key] = s
		}
	}
	return slices.Collect(maps.Values(groups)), lost
}

// thrashing is the rule again, said of a whole history.
func (o *spillOracle) thrashing() (spills, bytes, rounds int64) {
	for _, h := range o.live {
		turns, last, restored := int64(0), int64(0), int64(-1)
		out := false
		for _, w := range h.ways {
			if out = w.out; !out {
				restored = w.at
				continue
			}
			if kind := w.cause[0]; kind == "asked" || kind == "budget lowered" {
				continue
			}
			if restored >= 0 && w.at-restored <= int64(time.Second) {
				turns++
				last = w.at
			} else {
				turns = 0
			}
		}
		if turns >= 3 && o.now-last <= int64(time.Minute) {
			back := turns
			if !out {
				back++
			}
			spills, bytes, rounds = spills+turns, bytes+h.bytes*(turns+back), max(rounds, turns)
		}
	}
	return spills, bytes, rounds
}

// Random work, one operation after the other at times that the test makes, against notes of all that happened.
func TestSpillsAgainstNotesOfAllThatHappened(t *testing.T) {
	seed := *modelSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d; run it again with -model.seed or GOMEM_MODEL_SEED", seed)
	for n, kind := range []string{"budget", "device"} {
		options := fakedriver.Options{NoContents: true}
		if kind == "device" {
			options.Capacity = 14 * kib
		}
		b := open(t, options, func(o *gomem.Options) { o.Check = true })
		clock := b.fakeClock()
		random := rand.New(rand.NewPCG(seed, uint64(n)))
		names := []string{"", "one", "two", "three"}
		name := func() string { return names[random.IntN(len(names))] }
		o := &spillOracle{live: map[uint32]*history{}}
		thrashed, lostAll := 0, int64(0)
		if kind == "budget" {
			b.budget(14*kib, false)
		}
		for range gomem.Fewer(3000, 1500) {
			clock.pass(time.Duration(random.Int64N(int64([]time.Duration{time.Millisecond, 600 * time.Millisecond, 30 * time.Second}[max(random.IntN(40)-37, 0)]))))
			o.now = clock.now.Load()
			require.NoError(t, b.RecordEvents(1000))
			live := slices.Sorted(maps.Keys(o.live))
			pick := func() uint32 { return live[random.IntN(len(live))] }
			restored := uint32(0)
			asker := name()
			wait := gomem.Wait{Asker: gomem.Intern(asker)}
			switch op := random.IntN(20); {
			case op < 4 && len(live) < 25:
				h := &history{label: name(), origin: name(), bytes: random.Int64N(3 * kib)}
				o.cause = func(uint32) ([3]string, int64) { return [3]string{kind, h.label, h.origin}, h.bytes }
				index, err := b.Allocate(uint64(h.bytes), gomem.AllocateOptions{Label: gomem.Intern(h.label), Origin: gomem.Intern(h.origin)})
				require.NoError(t, err)
				events, lost := b.Events()
				require.Zero(t, lost)
				o.follow(events[:len(events)-1], 0) // the last one is its own
				o.live[index] = h
				o.all = append(o.all, h)
				require.NoError(t, b.RecordEvents(1000))
			case op < 6 && len(live) > 0:
				b.drop(pick())
			case op < 7 && len(live) > 0:
				o.cause = func(uint32) ([3]string, int64) { return [3]string{"asked", "", asker}, 0 }
				_, err := b.Spill(pick(), wait)
				require.NoError(t, err)
			case op < 16 && len(live) > 0:
				restored = live[random.IntN(min(len(live), 12))] // some are used more than others
				o.cause = func(restored uint32) ([3]string, int64) {
					return [3]string{kind, o.live[restored].label, asker}, o.live[restored].bytes
				}
				require.NoError(t, b.MakeResident(restored, wait))
			case op < 17 && len(live) > 0:
				index, label := pick(), name()
				b.SetLabel(index, gomem.Intern(label))
				o.live[index].label = label
			case op < 18 && kind == "budget":
				budget := 8*kib + random.Int64N(10*kib)
				over := b.info().InUse - budget
				o.cause = func(uint32) ([3]string, int64) { return [3]string{"budget lowered", "", asker}, over }
				_, _, err := b.SetBudget(budget, false, wait)
				require.NoError(t, err)
			case op == 19:
				o.on = random.IntN(4) > 0
				b.SetOrigins(map[bool]gomem.Origins{true: gomem.OriginsLine}[o.on])
			}
			events, lost := b.Events()
			require.Zero(t, lost)
			o.follow(events, restored)

			report := b.report()
			want, wantLost := o.spills()
			require.Equal(t, wantLost, report.SpillsLost, "seed %d", seed)
			got := report.Spills
			for i := range got {
				require.LessOrEqual(t, got[i].Last, report.Nanoseconds)
				got[i].Last = 0 // by another clock
			}
			for _, list := range [][]gomem.Spill{got, want} {
				slices.SortFunc(list, func(a, b gomem.Spill) int {
					return cmp.Or(cmp.Compare(a.Label, b.Label), cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.ByLabel, b.ByLabel),
						cmp.Compare(a.ByOrigin, b.ByOrigin))
				})
			}
			require.Equal(t, append([]gomem.Spill{}, want...), append([]gomem.Spill{}, got...), "seed %d", seed)
			lostAll = wantLost
			spills, bytes, rounds := o.thrashing()
			if th := report.Thrashing; spills == 0 {
				require.Nil(t, th, "seed %d", seed)
			} else {
				thrashed++
				var sum int64
				for _, h := range th.Holders {
					sum += h.Spills
				}
				require.Equal(t, []int64{spills, bytes, rounds}, []int64{sum, th.Bytes, th.Rounds}, "seed %d", seed)
			}
		}
		t.Logf("%s: %d lost, thrashing in %d reports", kind, lostAll, thrashed)
		require.Positive(t, lostAll)
		require.Positive(t, thrashed)
		b.drop(slices.Collect(maps.Keys(o.live))...)
	}
}

// ---- while many race

// While many allocate, free, spill and restore, each report's groups add up to the figures of its own moment.
func TestReportsOfSpillsWhileManyRace(t *testing.T) {
	b := open(t, fakedriver.Options{NoContents: true, Capacity: 400 * kib})
	b.SetOrigins(gomem.OriginsLine)
	b.budget(300*kib, false)
	var stop atomic.Bool
	var workers sync.WaitGroup
	for n := range uint64(4) {
		workers.Go(func() {
			random := rand.New(rand.NewPCG(9, n))
			var live []uint32
			defer func() { b.drop(live...) }()
			for !stop.Load() {
				switch op := random.IntN(8); {
				case op < 3 && len(live) < 60:
					index, err := b.Allocate(random.Uint64N(4*kib), gomem.AllocateOptions{Label: gomem.Intern(fmt.Sprint(random.IntN(5))), Origin: gomem.Intern(fmt.Sprint("l", random.IntN(5)))})
					if err == nil {
						live = append(live, index)
					}
				case op < 5 && len(live) > 0:
					i := random.IntN(len(live))
					b.LetGo(live[i])
					live = slices.Delete(live, i, i+1)
				case op < 6 && len(live) > 0:
					_, _ = b.Spill(live[random.IntN(len(live))], gomem.Wait{Asker: gomem.Intern("asked")})
				case len(live) > 0:
					_ = b.MakeResident(live[random.IntN(len(live))], gomem.Wait{Asker: gomem.Intern("restored")})
				}
				if random.IntN(1000) == 0 {
					b.ResetPeak()
				}
			}
		})
	}
	known := 0
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		report := b.report()
		var count, bytes, restores, out int64
		for _, s := range report.Spills {
			count, bytes, restores, out = count+s.Count, bytes+s.Bytes, restores+s.Restores, out+s.StillOut
			require.GreaterOrEqual(t, s.Out, int64(0))
			require.LessOrEqual(t, s.Restores+s.StillOut, s.Count)
		}
		info := report.Info
		require.Equal(t, []int64{info.SpillCount, info.SpilledBytes, info.RestoreCount}, []int64{count + report.SpillsLost, bytes, restores})
		var spilled, spilledCount int64
		for _, h := range report.Holders {
			spilled += h.Spilled
			if h.Spilled > 0 {
				spilledCount++
			}
		}
		require.Equal(t, info.Spilled, spilled)
		require.GreaterOrEqual(t, out, spilledCount)
		require.Equal(t, gomem.OriginsLine, report.Origins)
		known += checkPeak(t, report)
	}
	require.Positive(t, known)
	stop.Store(true)
	workers.Wait()
	require.Equal(t, int64(0), b.report().SpillsLost)
}

// checkPeak checks what a report tells of its device's peak: 1 if it does.
func checkPeak(t *testing.T, report gomem.Report) int {
	t.Helper()
	p := report.AtPeak
	if p == nil {
		return 0
	}
	var resident, spilled, all int64
	for _, h := range p.Holders {
		resident, spilled, all = resident+h.Resident, spilled+h.Spilled, all+h.Bytes
	}
	require.Equal(t, []int64{report.Info.Peak, p.Bytes, p.Spilled, p.Bytes + p.Spilled}, []int64{p.Bytes, resident, spilled, all})
	require.LessOrEqual(t, p.Nanoseconds, report.Nanoseconds)
	return 1
}
