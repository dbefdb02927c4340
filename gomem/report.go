package gomem

import (
	"sort"
	"strings"
)

// Holder is what one origin holds: buffers with the same label and origin.
type Holder struct {
	Label, Origin string
	Device        string
	Bytes         int64 // Resident + Spilled
	Resident      int64
	Spilled       int64
	Count         int64
	Holds         string // what keeps them on the device, one reason each
}

type holderKey struct{ label, origin uint32 }

// Holders groups the live buffers by label and origin, the largest group first. It is a copy, made while others go on: a buffer that moves
// meanwhile is counted once, on one side or the other. It waits for a spill or restore that is under way. limit 0: all. It fails on a broken device
// only.
func (d *Device) Holders(limit int) (holders []Holder, err error) {
	defer d.guard(&err)
	err = d.whileNothingMoves(func() error {
		holders = d.holdersLocked(limit)
		return nil
	})
	return holders, err
}

// holdersLocked needs the moving lock: with it, no record is freed and used again while it is read.
func (d *Device) holdersLocked(limit int) []Holder {
	groups := map[holderKey]*Holder{}
	reasons := map[holderKey]map[string]bool{}
	held := d.holds.all()
	d.registry.each(func(r *Record, c *cold) bool {
		state, dropped := StateOf(r.word())
		if dropped || state == Building || state == Free {
			return true
		}
		d.books.lock()
		k := holderKey{c.label, c.origin}
		d.books.unlock()
		h := groups[k]
		if h == nil {
			h = &Holder{Label: Text(k.label), Origin: Text(k.origin), Device: d.name}
			groups[k], reasons[k] = h, map[string]bool{}
		}
		h.Count++
		h.Bytes += int64(r.Size)
		if state == Spilled || state == Restoring {
			h.Spilled += int64(r.Size)
		} else {
			h.Resident += int64(r.Size)
		}
		if c.unmovable || r.held() {
			for _, info := range d.explain(r.Index, held[r.Index]) {
				reasons[k][info.Name()] = true
			}
		}
		return true
	})
	holders := make([]Holder, 0, len(groups))
	for k, h := range groups {
		list := make([]string, 0, len(reasons[k]))
		for reason := range reasons[k] {
			list = append(list, reason)
		}
		sort.Strings(list)
		h.Holds = strings.Join(list, ", ")
		holders = append(holders, *h)
	}
	sortHolders(holders)
	if limit > 0 && len(holders) > limit {
		holders = holders[:limit]
	}
	return holders
}

func sortHolders(holders []Holder) {
	sort.Slice(holders, func(i, j int) bool {
		a, b := &holders[i], &holders[j]
		if a.Bytes != b.Bytes {
			return a.Bytes > b.Bytes
		}
		return a.Label < b.Label || a.Label == b.Label && a.Origin < b.Origin
	})
}

// Unspillable says how many bytes on the device cannot be moved now, by reason. A buffer with several reasons counts once, under the one that
// lasts longest, so the sum is at most what is in use. It waits for a spill or restore that is under way. It fails on a broken device only.
func (d *Device) Unspillable() (bytes map[string]int64, err error) {
	defer d.guard(&err)
	err = d.whileNothingMoves(func() error {
		bytes = d.unspillableLocked()
		return nil
	})
	return bytes, err
}

func (d *Device) unspillableLocked() map[string]int64 {
	bytes := map[string]int64{}
	held := d.holds.all()
	d.registry.each(func(r *Record, c *cold) bool {
		if state, dropped := StateOf(r.word()); dropped || state != Resident && state != Spilling || r.Size == 0 {
			return true
		}
		if !d.movable {
			bytes["device memory is host memory"] += int64(r.Size)
			return true
		}
		if c.unmovable || r.held() {
			if holds := d.explain(r.Index, held[r.Index]); len(holds) > 0 {
				bytes[holds[0].Name()] += int64(r.Size)
			} else {
				bytes["host access"] += int64(r.Size)
			}
		}
		return true
	})
	return bytes
}

// memoryError is memoryErrorLocked for who does not hold the moving lock; on a broken device it is that error instead.
func (d *Device) memoryError(reason string, requested int64, cause error) error {
	return d.whileNothingMoves(func() error { return d.memoryErrorLocked(reason, requested, cause) })
}

// memoryErrorLocked describes why a request does not fit, with figures of one moment.
func (d *Device) memoryErrorLocked(reason string, requested int64, cause error) *MemoryError {
	d.books.lock()
	b := d.books.copyLocked()
	d.books.unlock()
	e := &MemoryError{Device: d.name, Requested: requested, InUse: b.InUse, Spilled: b.Spilled, Budget: b.Budget, Cached: Unknown, DeviceFree: Unknown,
		DeviceTotal: Unknown, LargestFree: Unknown, Reason: reason, Unspillable: d.unspillableLocked(), Holders: d.holdersLocked(10), Cause: cause}
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
