package gomem

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"strings"
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
}

// Report tells what holds the device's memory, and asks the driver for its figures. It waits for a spill or restore that is under way, and keeps nobody from allocating.
// It fails on a broken device, and where the driver does.
func (d *Device) Report() (report Report, err error) {
	defer d.guard(&err)
	err = d.whileNothingMoves(func() (err error) {
		var books Books
		books, report.Holders, report.Unspillable = d.reportLocked(0, false)
		report.Info, err = d.infoOf(books, true)
		return err
	})
	return report, err
}

// Holders groups the live buffers by label and origin, the largest group first, as they are at one moment. limit 0: all. See Report.
func (d *Device) Holders(limit int) (holders []Holder, err error) {
	defer d.guard(&err)
	err = d.whileNothingMoves(func() error {
		_, holders, _ = d.reportLocked(limit, false)
		return nil
	})
	return holders, err
}

// Unspillable says how many bytes on the device cannot be moved now, by reason. See Report.
func (d *Device) Unspillable() (bytes map[string]int64, err error) {
	defer d.guard(&err)
	err = d.whileNothingMoves(func() error {
		_, _, bytes = d.reportLocked(1, true)
		return nil
	})
	return bytes, err
}

// reportLocked needs the moving lock: with it, nothing is spilled or restored, and no record is freed and used again while it is looked at. byLine: stacks that begin
// at one line are one holder.
func (d *Device) reportLocked(limit int, byLine bool) (books Books, holders []Holder, unspillable map[string]int64) {
	l, b := &d.ended, d.books
	l.lock()
	defer l.unlock()
	spilled := new(stayLog)
	b.lock()
	books = b.copyLocked()
	l.beginReadingLocked(b, b.Sequence)
	l.spilled = spilled
	b.unlock()
	defer func() {
		b.lock()
		l.spilled = nil
		b.unlock()
		l.endReading(b)
	}()
	groups := holderGroups{device: d.name, byLine: byLine}
	reasons := map[holderKey]map[string]bool{}
	unspillable = map[string]int64{}
	held := d.holds.all()
	d.eachLiveAt(l.moment, func(s *stay, goesOn bool) {
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
			unspillable["device memory is host memory"] += s.bytes
		case len(holds) > 0:
			unspillable[holds[0].Name()] += s.bytes
		case isHeld:
			unspillable["host access"] += s.bytes
		}
	})
	for key, names := range reasons {
		groups.byKey[key].Holds = strings.Join(slices.Sorted(maps.Keys(names)), ", ")
	}
	holders = groups.sorted()
	if limit > 0 && len(holders) > limit {
		holders = holders[:limit]
	}
	return books, holders, unspillable
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
	b, holders, unspillable := d.reportLocked(10, true)
	e := &MemoryError{Device: d.name, Requested: requested, InUse: b.InUse, Spilled: b.Spilled, Budget: b.Budget, Cached: Unknown, DeviceFree: Unknown,
		DeviceTotal: Unknown, LargestFree: Unknown, Reason: reason, Unspillable: unspillable, Holders: holders, Cause: cause}
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
