package gomem_test

import (
	"fmt"

	"github.com/tack-memory/tack-memory/gomem"
)

// wholeReport makes a report, which must agree with itself, and switches origins now and then.
func (w *modelWorker) wholeReport(op modelOp) error {
	if op.B%8 == 0 {
		w.device.SetOrigins(gomem.Origins(op.A % 3))
	}
	r, err := w.device.Report()
	if err != nil {
		return nil //nolint:nilerr // the driver may fail, where the case has faults
	}
	onDevice, onHost := sumsOf(r.Holders)
	if onDevice != r.Info.InUse || onHost != r.Info.Spilled {
		return fmt.Errorf("a report's holders have %d and %d bytes, its figures are %d and %d", onDevice, onHost, r.Info.InUse, r.Info.Spilled)
	}
	if p := r.AtPeak; p != nil {
		if onDevice, onHost = sumsOf(p.Holders); onDevice != p.Bytes || onHost != p.Spilled || p.Bytes != r.Info.Peak {
			return fmt.Errorf("at the peak of %d, holders have %d and %d bytes: %+v", r.Info.Peak, onDevice, onHost, p)
		}
	}
	var count, out int64
	for _, s := range r.Spills {
		count, out = count+s.Count, out+s.StillOut
		if s.Out < 0 || s.StillOut < 0 || s.Restores+s.StillOut > s.Count {
			return fmt.Errorf("a group of spills contradicts itself: %+v", s)
		}
	}
	if count+r.SpillsLost != r.Info.SpillCount {
		return fmt.Errorf("%d spills are in groups and %d in none, of %d", count, r.SpillsLost, r.Info.SpillCount)
	}
	if r.Info.Spilled == 0 && out != 0 {
		return fmt.Errorf("%d buffers are said to be in host memory, and nothing is", out)
	}
	return nil
}

func sumsOf(holders []gomem.Holder) (onDevice, onHost int64) {
	for _, h := range holders {
		onDevice, onHost = onDevice+h.Resident, onHost+h.Spilled
	}
	return onDevice, onHost
}
