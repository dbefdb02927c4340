package conformance

import (
	"golang.org/x/sys/unix"

	"github.com/tack-memory/tack-memory/backends/simcpu"
	"github.com/tack-memory/tack-memory/gomem"
)

// simCPUFresh and simCPUReuse are the device for a host framework's CPU backend, in both of its address modes.
var (
	simCPUFresh = newSimCPU(simcpu.Fresh)
	simCPUReuse = newSimCPU(simcpu.Reuse)
)

func newSimCPU(mode simcpu.Mode) vendor {
	return vendor{own: func() library { return simCPULibrary{mode: mode} }, codes: codes{full: int(unix.ENOMEM)}}
}

type simCPULibrary struct {
	noLibrary
	mode simcpu.Mode
}

func (simCPULibrary) Path() string        { return "" }
func (simCPULibrary) Count() (int, error) { return 2, nil } // the tests open more than a process has

func (l simCPULibrary) OpenDriver(name string, _ int) (gomem.Driver, error) {
	return simcpu.Open(name, simcpu.Settings{Capacity: rigCapacity, Mode: l.mode})
}
