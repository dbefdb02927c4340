package gomem

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"
)

// Holder is what one origin holds: buffers with the same label and origin.
type Holder struct {
	Label, Origin string
	Stack         []string // the frames of the origin, the innermost first; nil where it is a line
	Device        string
	Bytes         int64 // Resident + Spilled
	Resident      int64
	Spilled       int64
	Count         int64
	Holds         string // what keeps them on the device, one reason each
}

type holderKey struct{ label, origin uint32 }

// Report is what holds the memory of a device at one moment: Holders' Resident add up to Info.InUse, their Spilled to Info.Spilled, and Unspillable to no more
// than Info.InUse, whatever others allocate and let go of meanwhile.
type Report struct {
	Info        Info
	Holders     []Holder
	Unspillable map[string]int64 // bytes on the device that cannot be moved, by reason. A buffer with several counts once, under the one that lasts longest

	Nanoseconds int64        // the moment, since 1970
	Origins     Origins      // what was recorded then
	AtPeak      *PeakHolders // what was live when Info.Peak was reached; nil: not known, since origins were off then or have been since
	Spills      []Spill      // why buffers were spilled while origins were on, the costliest first
	SpillsLost  int64        // spills while origins were off
	Thrashing   *Thrashing   // arrays that take turns; nil: none do
}

// Report tells what holds the device's memory, and asks the driver for its figures. It waits for a spill or restore that is under way, and keeps nobody from allocating.
// It fails on a broken device, and where the driver does.
func (d *Device) Report() (report Report, err error) {
	defer d.guard(&err)
	err = d.whileNothingMoves(func() (err error) {
		report = d.reportLocked(reportAll)
		report.Info, err = d.infoOf(report.Info.Books, true)
		return err
	})
	return report, err
}

// Holders groups the live buffers by label and origin, the largest group first, as they are at one moment. limit 0: all. See Report.
func (d *Device) Holders(limit int) (holders []Holder, err error) {
	defer d.guard(&err)
	err = d.whileNothingMoves(func() error {
		holders = firstHolders(d.reportLocked(reportHolders).Holders, limit)
		return nil
	})
	return holders, err
}

// Unspillable says how many bytes on the device cannot be moved now, by reason. See Report.
func (d *Device) Unspillable() (bytes map[string]int64, err error) {
	defer d.guard(&err)
	err = d.whileNothingMoves(func() error {
		bytes = d.reportLocked(reportHolders).Unspillable
		return nil
	})
	return bytes, err
}

func firstHolders(holders []Holder, limit int) []Holder {
	if limit > 0 && len(holders) > limit {
		return holders[:limit]
	}
	return holders
}

// reportParts says what of a report is wanted.
type reportParts uint8

const (
	reportHolders reportParts = iota // Info.Books, Holders, Unspillable
	reportLines                      // the same; stacks that begin at one line are one holder
	reportAll
)

// reportLocked makes a report but for the driver's figures. It needs the moving lock: with it, nothing is spilled or restored, and no record is freed and used again
// while it is looked at.
func (d *Device) reportLocked(parts reportParts) (report Report) {
	l, b := &d.ended, d.books
	l.lock()
	defer l.unlock()
	var room []spillGroup
	if parts == reportAll && d.spills.groups != nil {
		room = make([]spillGroup, 0, len(d.spills.places)+len(spillCauseNames))
	}
	b.lock()
	report.Info.Books = b.copyLocked()
	l.beginReadingLocked(b, b.Sequence)
	l.reporting = true
	now, peak := d.spills.clock(), d.peakLocked()
	report.Nanoseconds, report.Origins, report.SpillsLost = time.Now().UnixNano(), d.origins, d.spills.lost
	var spills []spillGroup
	if parts == reportAll {
		spills = d.spills.copyLocked(room)
	}
	b.unlock()
	defer func() {
		b.lock()
		l.reporting = false
		b.unlock()
		l.endReading(b)
	}()
	groups := holderGroups{device: d.name, byLine: parts == reportLines}
	reasons := map[holderKey]map[string]bool{}
	report.Unspillable = map[string]int64{}
	turns := turns{now: now}
	held := d.holds.all()
	d.eachLiveAt(l.moment, true, func(s *stay, goesOn bool) {
		groups.add(s)
		var holds []HoldInfo
		isHeld := false
		if goesOn { // nothing holds what was let go of
			holds, isHeld = d.whyHeld(s.index, held)
		}
		key := groups.keyOf(s)
		for _, hold := range holds {
			if reasons[key] == nil {
				reasons[key] = map[string]bool{}
			}
			reasons[key][hold.Name()] = true
		}
		switch {
		case s.spilled || s.bytes == 0:
		case !d.movable:
			report.Unspillable["device memory is host memory"] += s.bytes
		case len(holds) > 0:
			report.Unspillable[holds[0].Name()] += s.bytes
		case isHeld:
			report.Unspillable["host access"] += s.bytes
		}
		if parts == reportAll {
			turns.add(s, d.registry.tripOf(d.registry.record(s.index)))
		}
	})
	for key, names := range reasons {
		groups.byKey[key].Holds = strings.Join(slices.Sorted(maps.Keys(names)), ", ")
	}
	report.Holders = groups.sorted()
	if parts == reportAll {
		report.AtPeak = d.peakHolders(peak)
		report.Spills = d.spills.told(spills, now)
		report.Thrashing = turns.told()
	}
	return report
}

// whyHeld tells whether a buffer cannot be moved now, and why; a copy by the host has no reason of its own.
func (d *Device) whyHeld(index uint32, held map[uint32][]holdEntry) (holds []HoldInfo, isHeld bool) {
	if !d.registry.cold(index).unmovable && !d.registry.record(index).held() {
		return nil, false
	}
	return d.explain(index, held[index]), true
}

func sortHolders(holders []Holder) {
	sort.Slice(holders, func(i, j int) bool {
		a, b := &holders[i], &holders[j]
		if a.Bytes != b.Bytes {
			return a.Bytes > b.Bytes
		}
		return cmp.Or(cmp.Compare(a.Label, b.Label), cmp.Compare(a.Origin, b.Origin), slices.Compare(a.Stack, b.Stack)) < 0
	})
}

// memoryError is memoryErrorLocked for who does not hold the moving lock; on a broken device it is that error instead.
func (d *Device) memoryError(reason string, requested int64, cause error) error {
	return d.whileNothingMoves(func() error { return d.memoryErrorLocked(reason, requested, cause) })
}

// memoryErrorLocked describes why a request does not fit, with figures of one moment.
func (d *Device) memoryErrorLocked(reason string, requested int64, cause error) *MemoryError {
	report := d.reportLocked(reportLines)
	b, holders := &report.Info.Books, firstHolders(report.Holders, 10)
	e := &MemoryError{Device: d.name, Requested: requested, InUse: b.InUse, Spilled: b.Spilled, Budget: b.Budget, Cached: Unknown, DeviceFree: Unknown,
		DeviceTotal: Unknown, LargestFree: Unknown, Reason: reason, Unspillable: report.Unspillable, Holders: holders, Cause: cause}
	if memory, err := d.driver.Memory(); err == nil { // without the driver's figures the error still says the rest
		e.Cached, e.DeviceFree, e.DeviceTotal, e.LargestFree = memory.Cached, memory.Free, memory.Total, memory.LargestFree
	}
	return e
}

// SetLabel names a buffer for reports.
func (d *Device) SetLabel(index, label uint32) {
	defer d.guard(nil)
	c := d.registry.cold(index)
	d.books.lock()
	c.label = label
	d.books.unlock()
}

// Label is the buffer's label, an Intern number.
func (d *Device) Label(index uint32) uint32 {
	d.books.lock()
	defer d.books.unlock()
	return d.registry.cold(index).label
}

// Origin is where the buffer was made, an Intern number.
func (d *Device) Origin(index uint32) uint32 {
	d.books.lock()
	defer d.books.unlock()
	return d.registry.cold(index).origin
}
