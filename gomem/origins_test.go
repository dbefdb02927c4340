package gomem_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

func TestADevicesPeakIsKnownWhileOriginsAreOn(t *testing.T) {
	b := open(t, fakedriver.Options{})
	early := b.labelled(4*kib, "early", "e.py:1")
	require.Nil(t, b.report().AtPeak)
	b.SetOrigins(gomem.OriginsLine)
	b.SetOrigins(gomem.OriginsStack) // goes on
	before := time.Now().UnixNano()
	require.Equal(t, &gomem.PeakHolders{Bytes: 4 * kib, Holders: []gomem.Holder{b.holds("early", "e.py:1", 4*kib, 1)}}, untimed(b.report().AtPeak))
	_, err := b.Spill(early, gomem.Wait{})
	require.NoError(t, err)
	high := b.labelled(9*kib, "high", "h.py:1")
	after := time.Now().UnixNano()
	b.drop(high)
	spilled := b.holds("early", "e.py:1", 4*kib, 1)
	spilled.Resident, spilled.Spilled = 0, 4*kib
	want := &gomem.PeakHolders{Bytes: 9 * kib, Spilled: 4 * kib, Holders: []gomem.Holder{b.holds("high", "h.py:1", 9*kib, 1), spilled}}
	report := b.report()
	require.Equal(t, want, untimed(report.AtPeak))
	b.use(early)
	require.NoError(t, b.MakeResident(early, gomem.Wait{}))
	b.drop(early)
	report = b.report()
	require.Equal(t, want, untimed(report.AtPeak), "it stays what it was when all is gone")
	peak, err := b.Report()
	require.NoError(t, err)
	require.True(t, before <= peak.AtPeak.Nanoseconds && peak.AtPeak.Nanoseconds <= after)

	b.ResetPeak()
	require.Equal(t, &gomem.PeakHolders{Holders: []gomem.Holder{}}, untimed(b.report().AtPeak))
	b.drop(b.labelled(kib, "later", ""))
	require.Equal(t, &gomem.PeakHolders{Bytes: kib, Holders: []gomem.Holder{b.holds("later", "", kib, 1)}}, untimed(b.report().AtPeak))
	b.SetOrigins(gomem.OriginsOff)
	require.Zero(t, b.Watched())
	require.Nil(t, b.report().AtPeak)
	b.SetOrigins(gomem.OriginsLine)
	require.Nil(t, b.report().AtPeak, "the peak was before")
	b.drop(b.labelled(kib, "as high", ""))
	require.Equal(t, &gomem.PeakHolders{Bytes: kib, Holders: []gomem.Holder{b.holds("as high", "", kib, 1)}}, untimed(b.report().AtPeak))
}

// untimed is what was live at a peak, without the time.
func untimed(p *gomem.PeakHolders) *gomem.PeakHolders {
	if p == nil {
		return nil
	}
	u := *p
	u.Nanoseconds = 0
	return &u
}

func TestAResetLeavesOthersScopesAlone(t *testing.T) {
	b := open(t, fakedriver.Options{})
	b.SetOrigins(gomem.OriginsLine)
	var outer, inner gomem.Scope
	b.WatchScope(&outer)
	high := b.labelled(8*kib, "high", "")
	b.WatchScope(&inner)
	b.drop(high)
	b.ResetPeak()
	low := b.labelled(kib, "low", "")
	b.drop(low) // its stay contains the peak of the device's own scope only, which is newer than those of scopes that were opened after it
	require.Equal(t, []gomem.Holder{b.holds("low", "", kib, 1)}, b.report().AtPeak.Holders)
	require.Equal(t, []gomem.Holder{b.holds("high", "", 8*kib, 1)}, b.closeAtPeak(&outer))
	require.Equal(t, []gomem.Holder{b.holds("high", "", 8*kib, 1)}, b.closeAtPeak(&inner))
	require.Equal(t, []gomem.Holder{b.holds("low", "", kib, 1)}, b.report().AtPeak.Holders)
}

// What is kept for a device's peak is no more than what was there, however much comes and goes.
func TestWhatIsKeptForAPeakIsBounded(t *testing.T) {
	b := open(t, fakedriver.Options{NoContents: true})
	b.SetOrigins(gomem.OriginsLine)
	var live []uint32
	for range 3000 {
		live = append(live, b.labelled(10, "", ""))
	}
	for n := range 20_000 {
		b.drop(live[n%len(live)])
		index, err := b.Allocate(10, gomem.AllocateOptions{})
		require.NoError(t, err)
		if n%3 == 0 {
			_, err = b.Spill(index, gomem.Wait{})
			require.NoError(t, err)
		}
		live[n%len(live)] = index
	}
	require.LessOrEqual(t, b.KeptStays(), 4*3000)
	require.Equal(t, int64(30_000), b.report().AtPeak.Bytes)
	b.drop(live...)
	b.ResetPeak()
	b.drop(b.labelled(1, "", ""))
}

// peakModel copies the whole table whenever the device's peak rises.
type peakModel struct {
	there                map[uint32]*peakStay // by index, on the device or spilled
	labels, origins      map[uint32]string
	inUse, spilled, peak int64
	known                bool
	at                   []peakStayAt
	atSpilled            int64
}

type peakStay struct {
	label, origin string
	bytes         int64
	spilled       bool
}

type peakStayAt struct {
	*peakStay
	spilledThen bool
}

func (m *peakModel) reach() {
	m.peak, m.known, m.at, m.atSpilled = m.inUse, true, nil, m.spilled
	for _, s := range m.there {
		m.at = append(m.at, peakStayAt{s, s.spilled})
	}
}

func (m *peakModel) follow(events []gomem.Event, on bool) {
	for _, e := range events {
		old := m.there[e.Index]
		begin := func(spilled bool) {
			m.there[e.Index] = &peakStay{m.labels[e.Index], m.origins[e.Index], e.Bytes, spilled}
		}
		switch e.Kind {
		case gomem.EventAllocate:
			begin(false)
		case gomem.EventSpill:
			begin(true)
		case gomem.EventRestore:
			begin(false)
		case gomem.EventFree:
			delete(m.there, e.Index)
		default:
			continue
		}
		m.inUse, m.spilled = e.InUse, e.Spilled
		rises := old == nil || old.spilled
		if e.Kind == gomem.EventFree || e.Kind == gomem.EventSpill || !rises {
			continue
		}
		if m.inUse > m.peak || m.inUse == m.peak && on && !m.known {
			if m.reach(); !on {
				m.known, m.at = false, nil
			}
		}
	}
}

func (m *peakModel) holders(device string) []gomem.Holder {
	groups := map[[2]string]gomem.Holder{}
	for _, s := range m.at {
		key := [2]string{s.label, s.origin}
		h := groups[key]
		h.Label, h.Origin, h.Device = s.label, s.origin, device
		h.Count++
		h.Bytes += s.bytes
		if s.spilledThen {
			h.Spilled += s.bytes
		} else {
			h.Resident += s.bytes
		}
		groups[key] = h
	}
	list := []gomem.Holder{}
	for _, h := range groups {
		list = append(list, h)
	}
	slices.SortFunc(list, func(a, b gomem.Holder) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Label, b.Label), cmp.Compare(a.Origin, b.Origin))
	})
	return list
}

func TestADevicesPeakAgainstAReplayOfAllEvents(t *testing.T) {
	seed := *modelSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d; run it again with -model.seed or GOMEM_MODEL_SEED", seed)
	b := open(t, fakedriver.Options{NoContents: true, Capacity: 40 * kib}, func(o *gomem.Options) { o.Check = true })
	random := rand.New(rand.NewPCG(seed, 3))
	names := []string{"", "one", "two", "three"}
	name := func() string { return names[random.IntN(len(names))] }
	m := &peakModel{there: map[uint32]*peakStay{}, labels: map[uint32]string{}, origins: map[uint32]string{}}
	var live []uint32
	on := false
	told := 0
	for range gomem.Fewer(8000, 2000) {
		require.NoError(t, b.RecordEvents(1000))
		switch op := random.IntN(24); {
		case op < 8:
			label, origin := name(), name()
			index, err := b.Allocate(random.Uint64N(2*kib), gomem.AllocateOptions{Label: gomem.Intern(label), Origin: gomem.Intern(origin)})
			require.NoError(t, err)
			m.labels[index], m.origins[index] = label, origin
			live = append(live, index)
		case op < 14 && len(live) > 0:
			i := random.IntN(len(live))
			b.drop(live[i])
			live = slices.Delete(live, i, i+1)
		case op < 16 && len(live) > 0:
			_, err := b.Spill(live[random.IntN(len(live))], gomem.Wait{})
			require.NoError(t, err)
		case op < 20 && len(live) > 0:
			b.use(live[random.IntN(len(live))])
			require.NoError(t, b.MakeResident(live[random.IntN(len(live))], gomem.Wait{}))
		case op < 21 && len(live) > 0:
			index, label := live[random.IntN(len(live))], name()
			b.SetLabel(index, gomem.Intern(label))
			m.labels[index] = label
			if s := m.there[index]; s != nil {
				s.label = label
			}
		case op < 22 && random.IntN(4) == 0:
			on = !on
			b.SetOrigins(map[bool]gomem.Origins{true: gomem.OriginsLine}[on])
			if !on {
				m.known, m.at = false, nil
			} else if m.inUse == m.peak {
				m.reach()
			}
		case op < 23 && random.IntN(8) == 0:
			b.ResetPeak()
			m.peak = m.inUse
			if m.known = on; on {
				m.reach()
			}
		}
		events, lost := b.Events()
		require.Zero(t, lost)
		m.follow(events, on)
		report := b.report()
		require.Equal(t, m.peak, report.Info.Peak)
		if !m.known {
			require.Nil(t, report.AtPeak, "seed %d", seed)
			continue
		}
		told++
		require.NotNil(t, report.AtPeak, "seed %d", seed)
		require.Equal(t, []int64{m.peak, m.atSpilled}, []int64{report.AtPeak.Bytes, report.AtPeak.Spilled}, "seed %d", seed)
		require.Equal(t, m.holders(b.Name()), report.AtPeak.Holders, "seed %d", seed)
	}
	require.Greater(t, told, 100)
	b.drop(live...)
}
