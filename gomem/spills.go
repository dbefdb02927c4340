package gomem

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"
)

// Why buffers were spilled: for each place of a program whose buffers went to host memory, what pushed them out, how often, and how long they stayed there. Recorded
// where a spill is committed (commitSpillLocked), while origins are on; the cause comes down in Wait.why from whoever needed the room.
//
// Spills are counted in groups: by the label and origin of the buffer, the cause, and the label and origin of what came in. There are at most maxSpillGroups; the
// spills of all later ones are added up in one more for each cause. What a group counts changes with the books, under their lock, so a report has both of one moment. A buffer
// in host memory remembers its group in its trip, so that its way back, or its end there, is counted where its way out was.

// SpillCause is what made a buffer go to host memory.
type SpillCause uint8

const (
	// SpillAsked: the program asked for it (Spill, SpillAll).
	SpillAsked SpillCause = iota
	// SpillForBudget: something that came to the device, or had come, needed room under the budget.
	SpillForBudget
	// SpillForDevice: the driver had no memory left for something that came to the device.
	SpillForDevice
	// SpillBudgetLowered: SetBudget set a budget below what was in use.
	SpillBudgetLowered
)

var spillCauseNames = [...]string{"asked", "budget", "device", "budget lowered"}

func (c SpillCause) String() string {
	if int(c) >= len(spillCauseNames) {
		return "unknown"
	}
	return spillCauseNames[c]
}

// need is what a call needs room for.
type need struct {
	cause  SpillCause
	label  uint32 // Intern: of the buffer that is made
	coming *cold  // the buffer that comes back, whose label counts; nil: none does
	nbytes int64  // of both; 0: no size was asked for
}

// needs says what the call needs room for from here on.
func (w Wait) needs(label uint32, nbytes int64) Wait {
	w.why = need{label: label, nbytes: nbytes}
	return w
}

// brings says that the call needs room for a buffer that comes back.
func (w Wait) brings(c *cold, nbytes int64) Wait {
	w.why = need{coming: c, nbytes: nbytes}
	return w
}

func (w Wait) because(cause SpillCause) Wait {
	w.why.cause = cause
	return w
}

// maxSpillGroups bounds what is kept: 1024 groups are 120 KiB, of programs whose buffers are spilled. Labels may be made up as a program goes.
const maxSpillGroups = 1024

// spillOthers is the origin of what has no group of its own. There is one for each cause, behind the other groups.
const spillOthers = "(others)"

// spillKey tells groups apart. Numbers are Intern's.
type spillKey struct {
	label, origin     uint32
	byLabel, byOrigin uint32
	cause             SpillCause
}

// spillGroup counts the spills of one key.
type spillGroup struct {
	key             spillKey
	bytes, largest  int64
	count, restores int64
	byBytes         int64 // of the last spill's need
	last            int64 // when the last spill was: nanoseconds since 1970
	out             int64 // buffers of it that are in host memory now
	outTime         int64 // nanoseconds that its buffers were there up to `at`, added up over the buffers
	at              int64 // spills.clock when out changed last
	overflow        bool  // outTime has reached the end of its range and stays there
}

// spillGroups has room for all groups, those of the others last, by cause.
type spillGroups [maxSpillGroups + len(spillCauseNames)]spillGroup

// spillLog has the groups of one device. The groups' counters, and lost, are guarded by the books' lock; all else by the moving lock.
type spillLog struct {
	clock  func() int64        // nanoseconds, never back
	places map[spillKey]uint16 // 1 + index in groups
	groups *spillGroups        // nil: none yet
	lost   int64               // spills while origins were off
}

// sinceStart is a clock that never goes back.
func sinceStart() func() int64 {
	start := time.Now()
	return func() int64 { return int64(time.Since(start)) }
}

// spillPlaceLocked finds the group of a spill that is about to be committed, or makes it; 0: origins are off. The moving lock is held. It comes before the commit, since
// nothing is allocated under the books' lock; where origins are switched just in between, the spill counts as if that had come after it.
func (d *Device) spillPlaceLocked(c *cold, w Wait) (place uint16) {
	l, b := &d.spills, d.books
	b.lock()
	on := d.origins != OriginsOff
	key := spillKey{label: c.label, origin: c.origin, byLabel: w.why.label, byOrigin: w.Asker, cause: w.why.cause}
	if w.why.coming != nil {
		key.byLabel = w.why.coming.label
	}
	b.unlock()
	if !on {
		return 0
	}
	if l.groups == nil {
		l.groups, l.places = new(spillGroups), map[spillKey]uint16{}
	}
	if place = l.places[key]; place != 0 {
		return place
	}
	if len(l.places) == maxSpillGroups {
		return maxSpillGroups + 1 + uint16(key.cause)
	}
	place = uint16(len(l.places)) + 1
	l.groups[place-1].key = key // nobody looks at it yet
	l.places[key] = place
	return place
}

// spilledLocked counts a spill that is being committed, in the group of spillPlaceLocked. The moving lock and the books' are held.
func (d *Device) spilledLocked(r *Record, t *trip, place uint16, began int64, w Wait) {
	l := &d.spills
	now, wall := l.clock(), time.Now().UnixNano()
	t.pushedOut(began, now, wall, w.why.cause)
	if t.place = place; place == 0 {
		l.lost++
		return
	}
	n, g := int64(r.Size), &l.groups[place-1]
	g.changeOut(now, 1)
	g.bytes += n
	g.largest = max(g.largest, n)
	g.count++
	g.byBytes, g.last = w.why.nbytes, wall
}

// cameBackLocked ends a buffer's time in host memory: it is on the device again, or was let go of. The books' lock is held.
func (d *Device) cameBackLocked(t *trip, restored bool) {
	if t == nil || t.place == 0 {
		return
	}
	g := &d.spills.groups[t.place-1]
	t.place = 0
	g.changeOut(d.spills.clock(), -1)
	if restored {
		g.restores++
	}
}

// changeOut counts a buffer that goes out, or one that is out no more.
func (g *spillGroup) changeOut(now, change int64) {
	g.outTime, g.overflow = g.outUntil(now)
	g.out += change
	g.at = now
}

// outUntil is the time that the group's buffers were in host memory up to now. A million buffers reach the end of the range in two hours and a half, and stay there.
func (g *spillGroup) outUntil(now int64) (nanoseconds int64, overflow bool) {
	high, low := bits.Mul64(uint64(g.out), uint64(now-g.at))
	sum, carry := bits.Add64(low, uint64(g.outTime), 0)
	if g.overflow || high != 0 || carry != 0 || sum > math.MaxInt64 {
		return math.MaxInt64, true
	}
	return int64(sum), false
}

// Spill is why buffers of one place went to host memory: how often one cause pushed them out.
type Spill struct {
	Label, Origin string   // of the buffers; "(others)" is the origin of all that have no group of their own, by cause
	Stack         []string // the frames of the origin; nil where it is a line
	Bytes         int64    // moved out, in all
	Largest       int64    // bytes of the largest of these buffers
	Count         int64    // spills
	Restores      int64    // of these, how many have come back
	Out           int64    // nanoseconds that the buffers were in host memory, added up; those that are there now included
	StillOut      int64    // buffers that are there now
	Cause         string   // a SpillCause
	ByLabel       string   // of the buffer that came in, if it has one
	ByOrigin      string   // the line that needed the room, or asked for the spill
	ByStack       []string
	ByBytes       int64 // what the last spill was to make room for; 0: no size was asked for
	Last          int64 // of the last spill: nanoseconds since 1970
}

// copyLocked copies the groups into a slice with room for them: at most 120 KiB, some 10 us. The moving lock and the books' are held.
func (l *spillLog) copyLocked(into []spillGroup) []spillGroup {
	if l.groups == nil {
		return nil
	}
	into = append(into, l.groups[:len(l.places)]...)
	if len(l.places) == maxSpillGroups {
		into = append(into, l.groups[maxSpillGroups:]...)
	}
	return into
}

// told makes reports of copied groups, the costliest first: by bytes, for that is what was waited for. now is the moment of the copy.
func (l *spillLog) told(groups []spillGroup, now int64) []Spill {
	spills := make([]Spill, 0, len(groups))
	for i := range groups {
		g := &groups[i]
		if g.count == 0 {
			continue // its spill was not committed
		}
		out, _ := g.outUntil(now)
		s := Spill{Bytes: g.bytes, Largest: g.largest, Count: g.count, Restores: g.restores, Out: out, StillOut: g.out, ByBytes: g.byBytes, Last: g.last}
		if i >= maxSpillGroups {
			s.Origin, s.ByBytes, s.Cause = spillOthers, 0, SpillCause(i-maxSpillGroups).String()
		} else {
			k := &g.key
			s.Label, s.Origin, s.Stack = Text(k.label), OriginText(k.origin), OriginStack(k.origin)
			s.Cause = k.cause.String()
			s.ByLabel, s.ByOrigin, s.ByStack = Text(k.byLabel), OriginText(k.byOrigin), OriginStack(k.byOrigin)
		}
		spills = append(spills, s)
	}
	slices.SortStableFunc(spills, func(a, b Spill) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Out, a.Out), cmp.Compare(a.Label, b.Label), cmp.Compare(a.Origin, b.Origin))
	})
	return spills
}
