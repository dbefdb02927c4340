// Package bindings is the control plane of tack_memory: devices, reports, settings, events. gopy turns its functions into a Python
// module. Nothing hot goes through it: a call costs some 0.3 us, a string a little more. All functions may be called from any thread at
// the same time; Python's lock is released around each.
//
// Results that are not single values are JSON texts. Errors reach Python as RuntimeError with a text of "tm1:" and JSON (failure.go), which
// tack_memory turns into the exception that is meant.
package bindings

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tack-memory/tack-memory/bindings/internal/engine"
	"github.com/tack-memory/tack-memory/bindings/internal/wire"
	"github.com/tack-memory/tack-memory/gomem"
)

// version is set by the linker when the extension is built.
var version = "0+unknown"

// Version returns the version of the native part.
func Version() string { return version }

// SetSimFolder names the folder with the files of the software drivers, which the "sim" devices run on.
func SetSimFolder(path string) (err error) {
	defer rescue(&err)
	engine.SetSimFolder(path)
	return nil
}

// ConfigureSim says how many simulated devices there are and how large each is: bytes, separated by commas ("268435456,67108864"). It
// fails when one is in use already. Without it there is one of 2 GiB.
func ConfigureSim(capacities string) (err error) {
	defer rescue(&err)
	var sizes []uint64
	for part := range strings.SplitSeq(capacities, ",") {
		size, err := strconv.ParseUint(strings.TrimSpace(part), 10, 63)
		if err != nil {
			return failure(wire.ValueError{Text: fmt.Sprintf("capacities of simulated devices are bytes separated by commas, not %q", capacities)})
		}
		sizes = append(sizes, size)
	}
	if err := engine.ConfigureSim(sizes); err != nil {
		return failure(wire.ValueError{Text: err.Error()})
	}
	return nil
}

// SetSimCPU makes the device "sim-cpu:0", on which a host framework's CPU backend computes, or makes it another one while nothing is allocated on it.
// capacity is in bytes, -1: as much as the system gives. mode is what becomes of the addresses of freed memory: "fresh" (never used again) or
// "reuse" (at once).
func SetSimCPU(capacity int64, mode string) (err error) {
	defer rescue(&err)
	if err := engine.SetSimCPU(capacity, mode); err != nil {
		return failure(wire.ValueError{Text: err.Error()})
	}
	return nil
}

// Devices lists the devices of all kinds as JSON: a list of {name, kind, ordinal, usable, library, version, total, pools, why, product, uuid,
// notes}. A kind that cannot be used has one entry, with the reason in why. A total of null is unknown. It loads the vendors' libraries,
// and makes no context on a device.
func Devices() (json string, err error) {
	defer rescue(&err)
	return toJSON(engine.Describe())
}

// Report says what holds a device's memory, as JSON: {device, info, holders, unspillable, host_pool, time_ns, origins, at_peak, spills, spills_lost, thrashing}; all but
// host_pool, which is of all devices, are of one moment (gomem.Report). at_peak is null where it is not known what was live at the peak, thrashing where no arrays take
// turns (gomem/trips.go has the rule); spills are those while origins were on. It asks the driver for its figures and waits for a spill or restore that is under way.
func Report(index int64) (json string, err error) {
	defer rescue(&err)
	device, err := deviceAt(index)
	if err != nil {
		return "", failure(err)
	}
	told, err := device.Report()
	if err != nil {
		return "", failure(err)
	}
	return toJSON(reportOf(device.Name(), told))
}

// Holders lists what holds a device's memory as JSON, grouped by label and origin, the largest first: {label, origin, stack, device, bytes,
// resident, spilled, count, holds}. At most limit groups; 0: all.
func Holders(index int64, limit int64) (json string, err error) {
	defer rescue(&err)
	device, err := deviceAt(index)
	if err != nil {
		return "", failure(err)
	}
	if limit < 0 {
		return "", failure(wire.ValueError{Text: fmt.Sprintf("limit must not be negative, and is %d", limit)})
	}
	holders, err := device.Holders(int(limit))
	if err != nil {
		return "", failure(err)
	}
	return toJSON(wire.Holders(holders))
}

// RecordEvents keeps the newest events of a device from now on, at most capacity; 0 ends that.
func RecordEvents(index int64, capacity int64) (err error) {
	defer rescue(&err)
	device, err := deviceAt(index)
	if err != nil {
		return failure(err)
	}
	if capacity < 0 || capacity > 1<<26 {
		return failure(wire.ValueError{Text: fmt.Sprintf("capacity must be between 0 and 2**26 events, and is %d", capacity)})
	}
	if err := device.RecordEvents(int(capacity)); err != nil {
		return failure(err)
	}
	return nil
}

// Events returns the recorded events of a device as JSON: {events: [{ns, kind, index, bytes, in_use, spilled, budget, elapsed}], lost}, oldest
// first. lost is how many were overwritten. A budget of -1 is none; ns counts from 1970.
func Events(index int64) (json string, err error) {
	defer rescue(&err)
	device, err := deviceAt(index)
	if err != nil {
		return "", failure(err)
	}
	return toJSON(eventsOf(device.Events()))
}

// EventCount says how many events of a device were recorded since RecordEvents, those that were overwritten included.
func EventCount(index int64) (count int64, err error) {
	defer rescue(&err)
	device, err := deviceAt(index)
	if err != nil {
		return 0, failure(err)
	}
	return device.EventCount(), nil
}

// OriginText returns the text of an origin's number, as events have it: its line; "" for none.
func OriginText(number int64) (text string, err error) {
	defer rescue(&err)
	if number < 0 || number > math.MaxUint32 {
		return "", failure(wire.ValueError{Text: fmt.Sprintf("%d is no number of an origin", number)})
	}
	return gomem.OriginText(uint32(number)), nil
}

// SetMaxWait sets how long a launch waits for other launches of a device that make no progress; 0: the default.
func SetMaxWait(index int64, milliseconds int64) (err error) {
	defer rescue(&err)
	device, err := deviceAt(index)
	if err != nil {
		return failure(err)
	}
	if milliseconds < 0 || milliseconds > int64(24*time.Hour/time.Millisecond) {
		return failure(wire.ValueError{Text: fmt.Sprintf("a wait must be between 0 and a day, and is %d ms", milliseconds)})
	}
	device.SetMaxWait(time.Duration(milliseconds) * time.Millisecond)
	return nil
}

// SetHostLimit bounds the host memory that copies of spilled buffers take, in bytes; -1: 80 % of what is available.
func SetHostLimit(bytes int64) (err error) {
	defer rescue(&err)
	if bytes < -1 {
		return failure(wire.ValueError{Text: fmt.Sprintf("a limit must not be negative (-1: the default rule), and is %d", bytes)})
	}
	engine.SetHostLimit(bytes)
	return nil
}

// HostPool returns the host memory of spilled copies as JSON: {used, pooled}, bytes, of all devices.
func HostPool() (json string, err error) {
	defer rescue(&err)
	return toJSON(hostPool())
}

// SetCheck makes every device verify its books after each operation, or ends that. Not while operations are under way.
func SetCheck(on bool) (err error) {
	defer rescue(&err)
	engine.SetCheck(on)
	return nil
}

// SetPools says whether devices that are opened from now on use memory pools, where they have them (cuda, hip).
func SetPools(on bool) (err error) {
	defer rescue(&err)
	engine.SetPools(on)
	return nil
}

// Check verifies the books of a device against its buffers. The error names what does not agree.
func Check(index int64) (err error) {
	defer rescue(&err)
	device, err := deviceAt(index)
	if err != nil {
		return failure(err)
	}
	if err := device.Check(); err != nil {
		return failure(err)
	}
	return nil
}

func deviceAt(index int64) (*gomem.Device, error) {
	if index >= 0 && index < 1<<31 {
		if device := engine.At(uint32(index)); device != nil {
			return device, nil
		}
	}
	return nil, wire.ValueError{Text: fmt.Sprintf("no open device has the index %d; open ones: %s", index, strings.Join(engine.Names(), ", "))}
}
