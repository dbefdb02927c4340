package gomem

import (
	"fmt"
	"sort"
	"sync"
	"sync/atomic"
)

// HoldKind says how a hold ends.
type HoldKind uint8

// The kinds of holds, the longest first.
const (
	HoldUnmovable HoldKind = iota // made so; never ends
	HoldExport                    // somebody has its pointer and keeps it as long as they like; nobody waits
	HoldScope                     // a block of code holds it; launches of other threads wait for it
	HoldLaunch                    // launches that run
)

var holdKindNames = [...]string{"unmovable", "export", "hold", "launch"}

// HoldInfo is why a buffer cannot be spilled, and how many times.
type HoldInfo struct {
	Kind   HoldKind
	Reason string
	Count  int
}

// Name is the kind and the reason, as reports print them: "export: dlpack".
func (h HoldInfo) Name() string {
	name := holdKindNames[h.Kind]
	if h.Reason != "" && h.Reason != name {
		name += ": " + h.Reason
	}
	return name
}

// String is the name, and how many times if more than once.
func (h HoldInfo) String() string {
	if h.Count > 1 {
		return fmt.Sprintf("%s (%d times)", h.Name(), h.Count)
	}
	return h.Name()
}

type holdEntry struct {
	index, reason uint32
	kind          HoldKind
}

// holdTable has the open holds and exports of a device. A buffer without any costs nothing here.
type holdTable struct {
	mu     sync.Mutex // rank: rankHolds; guards all below
	last   uint64
	byID   map[uint64]holdEntry
	counts map[uint32]holdCounts // by index of the buffer
	parking
}

// holdCounts is how many holds and exports of one buffer are open.
type holdCounts struct {
	all     uint32
	exports uint32 // of them
}

func (t *holdTable) lock() {
	t.mu.Lock()
	acquired(rankHolds)
}

func (t *holdTable) unlock() {
	released(rankHolds)
	t.mu.Unlock()
}

func (t *holdTable) add(e holdEntry) (id uint64) {
	t.lock()
	defer t.unlock()
	if t.byID == nil {
		t.byID, t.counts = map[uint64]holdEntry{}, map[uint32]holdCounts{}
	}
	t.last++
	t.byID[t.last] = e
	n := t.counts[e.index]
	n.all++
	if e.kind == HoldExport {
		n.exports++
	}
	t.counts[e.index] = n
	return t.last
}

func (t *holdTable) remove(index uint32, id uint64) {
	t.lock()
	defer t.unlock()
	e, ok := t.byID[id]
	if !ok || e.index != index {
		panic(fmt.Sprintf("gomem: hold %d of buffer %d is released, but not held", id, index))
	}
	delete(t.byID, id)
	n := t.counts[index]
	n.all--
	if e.kind == HoldExport {
		n.exports--
	}
	if n.all > 0 {
		t.counts[index] = n
		return
	}
	delete(t.counts, index)
	t.endedLocked(index)
}

func (t *holdTable) exportsOf(index uint32) uint32 {
	t.lock()
	defer t.unlock()
	return t.counts[index].exports
}

// of is the open holds and exports of one buffer.
func (t *holdTable) of(index uint32) (entries []holdEntry) {
	t.lock()
	defer t.unlock()
	for _, e := range t.byID {
		if e.index == index {
			entries = append(entries, e)
		}
	}
	return entries
}

// all is the open holds and exports of every buffer, by its index: for who looks at many buffers.
func (t *holdTable) all() map[uint32][]holdEntry {
	t.lock()
	defer t.unlock()
	byIndex := make(map[uint32][]holdEntry, len(t.byID))
	for _, e := range t.byID {
		byIndex[e.index] = append(byIndex[e.index], e)
	}
	return byIndex
}

// Hold makes a buffer resident and keeps it there until Release is called with the id that it returns. reason is an Intern number. Errors as
// for Admit.
func (d *Device) Hold(index uint32, kind HoldKind, reason uint32, w Wait) (id uint64, err error) {
	defer d.guard(&err)
	if err := d.refusal(); err != nil {
		return 0, err
	}
	r := d.registry.record(index)
	atomic.AddUint32(&r.Pins, 1) // model: hold.pin
	if !r.is(Resident) {
		d.unpin(r) // back off first, or a launch that waits for the pins would wait for us
		one := [1]uint32{index}
		if err := d.Admit(one[:], w); err != nil {
			return 0, err
		}
		atomic.AddUint32(&r.Pins, 1) // admitted, so it cannot move in between
		defer d.discharge(one[:])
	}
	d.use(r)
	return d.holds.add(holdEntry{index, reason, kind}), nil
}

// Release ends a hold. Any goroutine may call it.
func (d *Device) Release(index uint32, id uint64) {
	defer d.guard(nil)
	d.holds.remove(index, id)
	d.unpin(d.registry.record(index))
	d.releases.Add(1) // after the pin is gone: who sees the new number sees that, too (hostIsFullLocked)
}

// Holds says what keeps a buffer where it is: a copy, equal reasons counted together, the longest kind first.
func (d *Device) Holds(index uint32) []HoldInfo { return d.explain(index, d.holds.of(index)) }

// explain adds to the holds and exports of a buffer what else keeps it, and counts equal ones together.
func (d *Device) explain(index uint32, entries []holdEntry) []HoldInfo {
	counts := map[HoldInfo]int{}
	for _, e := range entries {
		counts[HoldInfo{Kind: e.kind, Reason: Text(e.reason)}]++
	}
	r, c := d.registry.record(index), d.registry.cold(index)
	if n := atomic.LoadUint32(&r.Launches) + atomic.LoadUint32(&r.Admitted); n > 0 {
		counts[HoldInfo{Kind: HoldLaunch, Reason: "launch"}] = int(n)
	}
	if c.unmovable {
		counts[HoldInfo{Kind: HoldUnmovable, Reason: Text(c.reason)}] = 1
	}
	infos := make([]HoldInfo, 0, len(counts))
	for info, count := range counts {
		info.Count = count
		infos = append(infos, info)
	}
	sort.Slice(infos, func(i, j int) bool {
		return infos[i].Kind < infos[j].Kind || infos[i].Kind == infos[j].Kind && infos[i].Reason < infos[j].Reason
	})
	return infos
}
