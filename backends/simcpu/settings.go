package simcpu

import (
	"fmt"
	"strings"

	"github.com/tack-memory/tack-memory/gomem"
)

// Mode is what becomes of the addresses of freed memory.
type Mode uint8

// The modes; see the package's comment.
const (
	Fresh Mode = iota // never used again
	Reuse             // used again at once
)

var modeNames = [...]string{"fresh", "reuse"}

// String is the name that ParseMode takes.
func (m Mode) String() string { return modeNames[m] }

// ParseMode is the mode of a name.
func ParseMode(name string) (Mode, error) {
	for mode, known := range modeNames {
		if name == known {
			return Mode(mode), nil
		}
	}
	return Fresh, fmt.Errorf("there is no address mode %q; there are %s", name, strings.Join(modeNames[:], " and "))
}

// Settings are what the device is like.
type Settings struct {
	// Capacity is the most bytes that live buffers may have: their sizes, as they were asked for, without what rounding to pages adds. gomem.Unknown: as
	// much as the system gives.
	Capacity int64
	Mode     Mode
}

// Check says what is wrong with settings; nil: nothing.
func (s Settings) Check() error {
	if s.Capacity != gomem.Unknown && s.Capacity <= 0 {
		return fmt.Errorf("a device cannot have a capacity of %d bytes", s.Capacity)
	}
	if int(s.Mode) >= len(modeNames) {
		return fmt.Errorf("there is no address mode %d", s.Mode)
	}
	return nil
}

// String is what a report says of the device.
func (s Settings) String() string {
	if s.Mode == Reuse {
		return "addresses are reused at once: a stale pointer reads what is there now"
	}
	return "addresses are never used again: a stale pointer crashes"
}
