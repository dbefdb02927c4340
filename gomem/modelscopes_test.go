package gomem_test

import (
	"fmt"
	"slices"

	"github.com/tack-memory/tack-memory/gomem"
)

func (w *modelWorker) openScope() {
	if len(w.scopes) >= 4 {
		return
	}
	s := &modelScope{born: w.births, footprint: w.total()}
	if w.births%4 == 0 {
		w.device.OpenScope(&s.scope)
	} else {
		w.device.WatchScope(&s.scope)
	}
	s.peak = s.scope.Start
	w.scopes = append(w.scopes, s)
}

func (w *modelWorker) closeScope(n int) error {
	s := w.scopes[n]
	w.scopes = slices.Delete(w.scopes, n, n+1)
	before, _ := w.device.Info(false)
	got, atPeak := &s.scope, int64(-1)
	if got.Watched == 0 {
		w.device.CloseScope(got)
	} else {
		w.device.CloseScopeAtPeak(got, func(holders []gomem.Holder) { atPeak = bytesOf(holders) })
	}
	if got.Watched != 0 && atPeak != got.Peak {
		return fmt.Errorf("what was live at a scope's peak has %d bytes: %+v", atPeak, got)
	}
	if got.Peak < got.Start || got.Peak < got.End || got.Footprint < got.Peak || got.Own > got.Footprint {
		return fmt.Errorf("a peak scope contradicts itself: %+v", got)
	}
	if !w.single {
		return nil
	}
	if got.Own != s.own || got.OwnNow != s.ownNow || got.Footprint != s.footprint || got.End != before.InUse {
		return fmt.Errorf("a peak scope is %+v; its own is %d (now %d), its footprint %d", got, s.own, s.ownNow, s.footprint)
	}
	if got.Peak != s.peak && !((w.c.Faults || s.loose) && got.Peak > s.peak) {
		return fmt.Errorf("a peak scope is %+v; in_use went up to %d", got, s.peak)
	}
	for _, outer := range w.scopes[:n] { // opened before, still open
		if outer.scope.Peak < got.Peak {
			return fmt.Errorf("an inner scope's peak is %d, the outer one's %d", got.Peak, outer.scope.Peak)
		}
	}
	return nil
}
