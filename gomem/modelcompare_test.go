package gomem_test

import (
	"fmt"
	"slices"

	"github.com/tack-memory/tack-memory/gomem"
)

// modelLook is what can be seen of the device before an operation (one worker).
type modelLook struct {
	info    gomem.Info
	buffers map[*modelBuffer]seenBuffer
}

type seenBuffer struct {
	state   gomem.State
	lastUse uint64
	kept    bool
}

func (w *modelWorker) look() modelLook {
	info, _ := w.device.Info(false)
	l := modelLook{info: info, buffers: make(map[*modelBuffer]seenBuffer, len(w.buffers))}
	for _, b := range w.buffers {
		l.buffers[b] = seenBuffer{w.state(b), w.device.Record(b.index).LastUse, w.keeps(b)}
	}
	return l
}

// compare checks everything that the model knows after an operation.
func (w *modelWorker) compare(op modelOp, before modelLook) error {
	if err := w.device.Check(); err != nil {
		return err
	}
	after := w.look()
	for _, compare := range []func(modelOp, modelLook, modelLook) error{w.compareBooks, w.comparePeaks, w.compareUses, w.compareVictims, w.compareAmount} {
		if err := compare(op, before, after); err != nil {
			return err
		}
	}
	// Contents of what the operation used, and now and then of everything.
	for _, b := range slices.Clone(w.buffers) {
		if w.touched[b] || w.steps%100 == 0 {
			if err := w.contents(b); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *modelWorker) compareBooks(_ modelOp, _, after modelLook) error {
	info := after.info
	var inUse, spilled, reserved int64
	for b, seen := range after.buffers {
		switch seen.state {
		case gomem.Resident:
			inUse += int64(len(b.data))
		case gomem.Spilled:
			spilled += int64(len(b.data))
			if seen.kept {
				return fmt.Errorf("buffer %d is held, and spilled", b.index)
			}
		default:
			return fmt.Errorf("buffer %d is %v while nothing happens", b.index, seen.state)
		}
	}
	for _, n := range w.tokens {
		reserved += int64(n)
	}
	if info.InUse != inUse || info.Spilled != spilled || info.Reserved != reserved || info.PendingFree != 0 || info.Live != int64(len(w.buffers)) {
		return fmt.Errorf("the books show in use %d, spilled %d, reserved %d, pending %d, live %d; it is %d, %d, %d, 0, %d",
			info.InUse, info.Spilled, info.Reserved, info.PendingFree, info.Live, inUse, spilled, reserved, len(w.buffers))
	}
	if _, onDevice := w.driver.Live(); int64(onDevice) != inUse {
		return fmt.Errorf("%d bytes are in use, and %d on the device", inUse, onDevice)
	}
	if info.HostCopies < spilled || (spilled == 0) != (info.HostCopies == 0) {
		return fmt.Errorf("%d bytes are spilled, in %d bytes of host memory", spilled, info.HostCopies)
	}
	return nil
}

// comparePeaks compares with the highest in_use that the events show.
func (w *modelWorker) comparePeaks(op modelOp, _, after modelLook) error {
	events, lost := w.device.Events()
	if lost > 0 {
		return fmt.Errorf("%d events were lost", lost)
	}
	var highest int64
	for _, e := range events {
		if e.Kind == gomem.EventAllocate || e.Kind == gomem.EventRestore || e.Kind == gomem.EventAdopt {
			highest = max(highest, e.InUse)
		}
	}
	w.peak = max(w.peak, highest)
	if (w.c.Faults || op.Kind == "cancelled") && after.info.Peak > w.peak {
		highest = after.info.Peak // a restore that failed had device memory for a moment
		w.peak = highest
	}
	if after.info.Peak != w.peak {
		return fmt.Errorf("the peak is %d; in use went up to %d", after.info.Peak, w.peak)
	}
	for _, s := range w.scopes {
		s.peak = max(s.peak, highest)
	}
	return nil
}

// compareUses: what an operation uses gets a new last use, and nothing else does.
func (w *modelWorker) compareUses(op modelOp, before, after modelLook) error {
	for b, seen := range after.buffers {
		was, known := before.buffers[b]
		if known && !w.touched[b] && seen.lastUse != was.lastUse {
			return fmt.Errorf("buffer %d was not used, and its last use changed", b.index)
		}
		if known && w.used[b] && seen.lastUse <= was.lastUse {
			return fmt.Errorf("buffer %d was used, and its last use is still %d", b.index, was.lastUse)
		}
		if known && seen.lastUse < was.lastUse {
			return fmt.Errorf("buffer %d was used last at %d, and now at %d", b.index, was.lastUse, seen.lastUse)
		}
	}
	return nil
}

// compareVictims: whatever was spilled was used less recently than all that could have been spilled instead. Where host memory can run out, it may
// have refused a copy of another size before.
func (w *modelWorker) compareVictims(op modelOp, before, after modelLook) error {
	if op.Kind == "spill" || op.Kind == "cancelled" {
		return nil
	}
	for victim, was := range before.buffers {
		if now, alive := after.buffers[victim]; !alive || was.state != gomem.Resident || now.state != gomem.Spilled {
			continue
		}
		if was.kept {
			return fmt.Errorf("buffer %d was held, and is spilled", victim.index)
		}
		for other, seen := range before.buffers {
			now, alive := after.buffers[other]
			if (w.c.Host >= 0 || w.c.Faults) && gomem.HostSizeClass(len(other.data)) != gomem.HostSizeClass(len(victim.data)) {
				continue
			}
			if alive && seen.state == gomem.Resident && now.state == gomem.Resident && !seen.kept && !w.touched[other] && seen.lastUse < was.lastUse {
				return fmt.Errorf("buffer %d (last use %d) was spilled before buffer %d (last use %d)", victim.index, was.lastUse, other.index, seen.lastUse)
			}
		}
	}
	return nil
}

// compareAmount: under the budget nothing is spilled; over it, less than what was needed and one buffer for each that needed room; and what ends above
// a budget has nothing left to spill.
func (w *modelWorker) compareAmount(op modelOp, before, after modelLook) error {
	switch op.Kind {
	case "spill", "spillall", "makeroom", "cancelled", "budget", "disown", "adopt":
		return nil
	}
	if w.refusal {
		return nil // what could move was moved before it was refused
	}
	var grown, largest, rooms int64
	for b, seen := range after.buffers {
		was, known := before.buffers[b]
		largest = max(largest, int64(len(b.data)))
		if seen.state == gomem.Resident && (!known || was.state == gomem.Spilled) && len(b.data) > 0 {
			grown += int64(len(b.data))
			rooms++
		}
	}
	if op.Kind == "reserve" { // also one of 0 bytes brings what is over the budget under it
		grown += max(0, after.info.Reserved-before.info.Reserved)
		rooms++
	}
	budget := before.info.Budget
	spilled := after.info.SpilledBytes - before.info.SpilledBytes
	if w.c.Driver.Capacity == 0 && !w.c.Faults && w.c.Host < 0 && after.info.Strict == 0 {
		over := int64(0)
		if budget >= 0 {
			over = max(0, before.info.InUse+before.info.Reserved+grown-budget)
		}
		if over == 0 && spilled > 0 || spilled > 0 && spilled >= over+rooms*largest {
			return fmt.Errorf("%d bytes were spilled; %d were needed", spilled, over)
		}
	}
	if grown > 0 && budget >= 0 && after.info.InUse+after.info.Reserved > budget && !w.c.Faults && w.c.Host < 0 {
		for b, seen := range after.buffers {
			if seen.state == gomem.Resident && !seen.kept && !w.touched[b] {
				return fmt.Errorf("%d bytes are in use over a budget of %d, and buffer %d could have been spilled", after.info.InUse, budget, b.index)
			}
		}
	}
	return nil
}
