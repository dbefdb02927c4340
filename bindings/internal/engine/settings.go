package engine

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/tack-memory/tack-memory/backends/dl"
)

// The switches of the environment that concern the engine. Python reads them, too, in all their forms ("16 GiB"), and says what it read
// through the functions below before it opens a device; a program without Python gets them from the environment, a limit in plain bytes.
const (
	checkVariable     = "TACK_MEMORY_CHECK"
	hostLimitVariable = "TACK_MEMORY_HOST_LIMIT"
	poolsVariable     = "TACK_MEMORY_POOLS"
)

var (
	checking     atomic.Bool          // verify the books after every operation
	checkingSet  atomic.Bool          // SetCheck was called
	hostLimitSet atomic.Bool          // SetHostLimit was called
	poolsSet     atomic.Pointer[bool] // what SetPools said; nil: it was not called
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

// SetPools says whether devices that are opened from now on use memory pools, where they have them (cuda, hip).
func SetPools(on bool) { poolsSet.Store(&on) }

// poolsAllowed is what SetPools said, else the environment.
func poolsAllowed() (bool, error) {
	if set := poolsSet.Load(); set != nil {
		return *set, nil
	}
	on, set, err := isOn(poolsVariable)
	return on || !set, err
}

// isOn reads a variable that is on or off, in the words that Python's side knows (python/tack_memory/_settings.py); an empty one counts as not set.
func isOn(variable string) (on, set bool, err error) {
	text, _ := dl.Environment(variable)
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "":
		return false, false, nil
	case "1", "true", "yes", "on":
		return true, true, nil
	case "0", "false", "no", "off":
		return false, true, nil
	}
	return false, true, fmt.Errorf("%s=%s: must be 1, true, yes, on (it is on) or 0, false, no, off (it is off)", variable, text)
}

// applyEnvironment takes the switches that nobody has set otherwise. opening is held.
func applyEnvironment() error {
	if !checkingSet.Load() {
		on, set, err := isOn(checkVariable)
		if err != nil {
			return err
		}
		if set {
			SetCheck(on)
		}
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
