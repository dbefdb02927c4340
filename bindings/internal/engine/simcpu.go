package engine

import (
	"errors"
	"fmt"

	"github.com/tack-memory/tack-memory/backends/simcpu"
	"github.com/tack-memory/tack-memory/gomem"
)

// simCPUKind is the device for a host framework's CPU backend to compute on. There is one, after it was set up: nobody measures a simulation by accident.
var simCPUKind = newSimCPUKind()

// simCPU is what that device is going to be, or is; nil: nobody has asked for it. Guarded by opening.
var simCPU *simcpu.Settings

func newSimCPUKind() *kind {
	return &kind{
		name:   "sim-cpu",
		listed: func() bool { return simCPU != nil },
		count: func() (int, error) {
			if simCPU == nil {
				return 0, errors.New(`it comes to be where a framework's CPU backend is to compute on it: tack_memory.install(host, simulate="64 MiB")`)
			}
			return 1, nil
		},
		library: func() Library { return Library{} },
		facts: func(int) (Facts, error) {
			return Facts{Product: "this computer's memory, as a device that spills", Total: simCPU.Capacity, Spills: true, Notes: []string{simCPU.String()}}, nil
		},
		open: func(name string, _ int) (gomem.Driver, bool, error) {
			driver, err := simcpu.Open(name, *simCPU)
			if err != nil {
				return nil, false, err
			}
			return driver, true, nil
		},
	}
}

// SetSimCPU makes the device on which a host framework's CPU backend computes, or makes it another one while nothing is allocated on it. capacity is in
// bytes; gomem.Unknown: as much as the system gives. mode is what becomes of the addresses of freed memory: "fresh" or "reuse".
func SetSimCPU(capacity int64, mode string) error {
	parsed, err := simcpu.ParseMode(mode)
	if err != nil {
		return err
	}
	settings := simcpu.Settings{Capacity: capacity, Mode: parsed}
	if err := settings.Check(); err != nil {
		return err
	}
	opening.Lock()
	defer opening.Unlock()
	if index, open := opened[simCPUKind.deviceName(0)]; open {
		if err := setUpAnew(At(index), settings); err != nil {
			return err
		}
	}
	simCPU = &settings
	return nil
}

func setUpAnew(device *gomem.Device, settings simcpu.Settings) error {
	if err := device.Synchronize(); err != nil { // what was dropped is freed
		return err
	}
	info, err := device.Info(false)
	if err != nil {
		return err
	}
	if info.Spilled > 0 { // what is on the device the driver knows
		return fmt.Errorf("%s: cannot be set up anew while memory is allocated on it (%s spilled); free its buffers first", device.Name(), gomem.SizeText(uint64(info.Spilled)))
	}
	if err := device.Driver().(*simcpu.Driver).SetUp(settings); err != nil {
		return err
	}
	device.TotalChanged()
	return nil
}
