package common

import (
	"encoding/binary"
	"fmt"
)

// MaxPattern is the longest pattern that a Driver's Fill repeats.
const MaxPattern = 16

// Pattern is a pattern of Fill in the shortest form that repeats to the same, as C takes it: the bytes of two numbers, one after the other.
type Pattern struct {
	Low, High uint64
	Period    uint32 // bytes of the pattern; the rest is 0
}

// NewPattern shortens a pattern: eight zeros are one zero, which one memset writes. The error says that it is empty or too long.
func NewPattern(device string, bytes []byte) (Pattern, error) {
	if len(bytes) == 0 || len(bytes) > MaxPattern {
		return Pattern{}, fmt.Errorf("%s: a pattern has 1 to %d bytes, not %d", device, MaxPattern, len(bytes))
	}
	var words [MaxPattern]byte
	period := copy(words[:], bytes[:smallestPeriod(bytes)])
	return Pattern{binary.NativeEndian.Uint64(words[:8]), binary.NativeEndian.Uint64(words[8:]), uint32(period)}, nil
}

func smallestPeriod(pattern []byte) int {
	for period := 1; period < len(pattern); period++ {
		if len(pattern)%period != 0 {
			continue
		}
		same := true
		for i := period; i < len(pattern) && same; i++ {
			same = pattern[i] == pattern[i-period]
		}
		if same {
			return period
		}
	}
	return len(pattern)
}
