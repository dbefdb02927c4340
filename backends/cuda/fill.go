package cuda

// #include "device.h"
import "C"

import (
	"encoding/binary"
	"fmt"
)

// maxPattern is the longest pattern that Fill repeats.
const maxPattern = 16

// Fill repeats a pattern of 1 to 16 bytes. Patterns of 1, 2 and 4 bytes are the driver's own memset; others are written once by small
// memsets and then doubled by copies on the device. It does not wait.
func (d *Driver) Fill(address uint64, pattern []byte, nbytes uint64) error {
	if len(pattern) == 0 || len(pattern) > maxPattern {
		return fmt.Errorf("%s: a pattern has 1 to %d bytes, not %d", d.name, maxPattern, len(pattern))
	}
	if err := d.use(); err != nil {
		return err
	}
	defer d.bound.RUnlock()
	var words [maxPattern]byte
	period := copy(words[:], pattern[:smallestPeriod(pattern)])
	low, high := binary.NativeEndian.Uint64(words[:8]), binary.NativeEndian.Uint64(words[8:])
	return d.check(C.tmc_fill(d.device, C.uint64_t(address), C.uint64_t(low), C.uint64_t(high), C.uint32_t(period), C.uint64_t(nbytes)))
}

// smallestPeriod is the length of the shortest pattern that repeats to the same: eight zeros are one zero, which one memset writes.
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
