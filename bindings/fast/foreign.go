package fast

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tack-memory/tack-memory/bindings/internal/engine"
	"github.com/tack-memory/tack-memory/bindings/internal/wire"
	"github.com/tack-memory/tack-memory/gomem"
)

// foreign is an error where memory that is said to be somebody else's, on this device, is ours in part, or is ours on another device of its kind: it would be
// stale as soon as the buffer there moves. Devices of one kind share their addresses; those of two kinds need not, so no others are asked.
func foreign(d *gomem.Device, address, nbytes uint64) error {
	if err := d.Overlapping(address, nbytes); err != nil {
		return err
	}
	kind, _, _ := strings.Cut(d.Name(), ":")
	for _, other := range engine.Devices() {
		if of, _, _ := strings.Cut(other.Name(), ":"); other == d || of != kind {
			continue
		}
		var overlap *gomem.OverlapError
		if errors.As(other.Overlapping(address, nbytes), &overlap) {
			return wire.ValueError{Text: fmt.Sprintf("[%#x, %#x) is not on %s: it shares bytes with memory of ours that lies on %s, [%#x, %#x); wrap it there, or take a view "+
				"of its buffer (Buffer.view)", address, address+nbytes, d.Name(), other.Name(), overlap.OtherAddress, overlap.OtherAddress+overlap.OtherBytes)}
		}
	}
	return nil
}
