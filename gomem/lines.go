package gomem

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Lines for the log (Python's logger, level INFO) about what slows a program down and nobody's call is told of: the first spill of a device, a soft budget that is
// passed, and arrays that take turns. Each says the figures and what to do next. They are few, whatever a program does: one for the first spill, and of the others
// one a device and lineEvery. They go the way of all notices, since the core calls nobody.

// lineEvery is how long a device says nothing more of the same kind. A minute: who watches a log sees that it goes on, and the log stays readable.
const lineEvery = int64(time.Minute)

// lines is what a device has said so far.
type lines struct {
	spilled   bool         // the first spill; guarded by the moving lock
	overCount atomic.Int64 // Books.OverBudgetCount when it was looked at last
	overAt    atomic.Int64 // Device.spills.clock from which a budget that is passed may be told of again
	turnsAt   int64        // the same of arrays that take turns; guarded by the moving lock
}

// tellSpilledLocked is called when a buffer has gone to host memory. The moving lock is held, and the books' is not.
func (d *Device) tellSpilledLocked(r *Record, c *cold, w Wait) {
	if !d.lines.spilled {
		d.lines.spilled = true
		d.tellFirstSpill(r, c, w)
	}
	now := d.spills.clock()
	if t := d.registry.tripOf(r); t == nil || !t.thrashes(now) || now < d.lines.turnsAt {
		return
	}
	d.lines.turnsAt = now + lineEvery
	d.books.lock()
	b, turns := d.books.copyLocked(), d.registry.tripOf(r).turns
	d.books.unlock()
	d.notices.add(LevelInfo, "%s: arrays take turns: %s was pushed out for the %s time in a row soon after it came back. So far %d spills and %d restores moved %s "+
		"out and %s back%s. What is used together does not fit: raise the budget, work on less at a time, or keep what is used all the time (hold). "+
		"memory_report(%q) names the arrays", d.name, d.called(c, r.Size), ordinal(turns), b.SpillCount, b.RestoreCount, SizeText(uint64(b.SpilledBytes)),
		SizeText(uint64(b.RestoredBytes)), budgetText(b.Budget), d.name)
}

func (d *Device) tellFirstSpill(r *Record, c *cold, w Wait) {
	d.books.lock()
	b := d.books.copyLocked()
	d.books.unlock()
	why := map[SpillCause]string{
		SpillAsked:         "the program asked for it",
		SpillForBudget:     "what came to the device needed room under the budget",
		SpillForDevice:     "the driver had no memory left",
		SpillBudgetLowered: "the budget was set below what was in use",
	}[w.why.cause]
	next := fmt.Sprintf("memory_report(%q) names what holds the memory; a larger budget, or fewer arrays at a time, avoids spills", d.name)
	if w.why.cause == SpillAsked {
		next = "restore() brings it back ahead of use"
	}
	d.notices.add(LevelInfo, "%s: the first spill: %s went to host memory, because %s. In use %s, spilled %s%s. It comes back when it is used. %s", d.name,
		d.called(c, r.Size), why, SizeText(uint64(b.InUse)), SizeText(uint64(b.Spilled)), budgetText(b.Budget), next)
}

// TellOverBudget adds a line where the device has passed its budget since the last look. One load where it has not. It takes the books' lock, so no lock of
// a higher rank may be held.
func (d *Device) TellOverBudget() {
	count := atomic.LoadInt64(&d.books.OverBudgetCount)
	if count == d.lines.overCount.Load() {
		return
	}
	d.lines.overCount.Store(count)
	now, next := d.spills.clock(), d.lines.overAt.Load()
	if now < next || !d.lines.overAt.CompareAndSwap(next, now+lineEvery) {
		return
	}
	d.books.lock()
	b := d.books.copyLocked()
	d.books.unlock()
	above := "it is within the budget again"
	if over := b.InUse - b.Budget; b.Budget >= 0 && over > 0 {
		above = SizeText(uint64(over)) + " above it now"
	}
	times := "once"
	if count > 1 {
		times = fmt.Sprint(count, " times")
	}
	d.notices.add(LevelInfo, "%s: the budget was passed: in use %s%s; %s. It was passed %s so far. What cannot be spilled (held, exported, or in a launch), and "+
		"one array larger than the budget, may pass a soft budget. memory_report(%q) says what cannot move and why; strict=True makes it an error", d.name,
		SizeText(uint64(b.InUse)), budgetText(b.Budget), above, times, d.name)
}

// called is a buffer for people: its size, and its label where it has one.
func (d *Device) called(c *cold, nbytes uint64) string {
	d.books.lock()
	label := c.label
	d.books.unlock()
	if text := Text(label); text != "" {
		return fmt.Sprintf("%s (%q)", SizeText(nbytes), text)
	}
	return "an array of " + SizeText(nbytes)
}

func budgetText(budget int64) string {
	if budget < 0 {
		return ", no budget"
	}
	return ", budget " + SizeText(uint64(budget))
}

// ordinal is "3rd", "11th", "22nd".
func ordinal(n uint32) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprint(n, suffix)
}
