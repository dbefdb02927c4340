package engine

import (
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/tack-memory/tack-memory/backends/dl"
)

// The switches of the environment that concern the engine. Python reads them, too, in all their forms ("16 GiB"), and says what it read
// through the functions below before it opens a device; a program without Python gets them from the environment, in plain numbers.
const (
	checkVariable     = "TACK_MEMORY_CHECK"
	hostLimitVariable = "TACK_MEMORY_HOST_LIMIT"
)

var (
	checking     atomic.Bool // verify the books after every operation
	checkingSet  atomic.Bool // SetCheck was called
	hostLimitSet atomic.Bool // SetHostLimit was called
)

// SetCheck makes all devices verify their books after every operation, or ends that. Not while operations are under way.
func SetCheck(on bool) {
	checkingSet.Store(true)
	checking.Store(on)
	for _, device := range Devices() {
		device.SetCheck(on)
	}
}

// SetHostLimit bounds the host memory for copies; -1: the default rule.
func SetHostLimit(bytes int64) {
	hostLimitSet.Store(true)
	Pool().SetLimit(bytes)
}

// applyEnvironment takes the switches that nobody has set otherwise. opening is held.
func applyEnvironment() error {
	if text, set := dl.Environment(checkVariable); set && !checkingSet.Load() {
		on, err := strconv.ParseBool(text)
		if err != nil && text != "" {
			return fmt.Errorf("%s=%s: must be 1 or 0", checkVariable, text)
		}
		SetCheck(on)
	}
	if text, set := dl.Environment(hostLimitVariable); set && text != "" && !hostLimitSet.Load() {
		bytes, err := strconv.ParseInt(text, 10, 64)
		if err != nil || bytes < 0 {
			return fmt.Errorf("%s=%s: must be a number of bytes", hostLimitVariable, text)
		}
		SetHostLimit(bytes)
	}
	return nil
}
