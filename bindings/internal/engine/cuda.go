package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tack-memory/tack-memory/backends/cuda"
	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/gomem"
)

// cudaKind is NVIDIA's devices.
var cudaKind = newCUDAKind("cuda", func() (*cuda.Library, error) { return cuda.Load(dl.System, cuda.Candidates()) })

// newCUDAKind makes a kind of CUDA's backend over the library that load finds. A failure to load is not remembered.
func newCUDAKind(name string, load func() (*cuda.Library, error)) *kind {
	k := &kind{name: name}
	var library *cuda.Library
	k.count = func() (int, error) {
		if library == nil {
			found, err := load()
			if err != nil {
				return 0, err
			}
			library = found
		}
		return library.Count()
	}
	k.library = func() Library {
		if library == nil {
			return Library{}
		}
		l := Library{File: library.Path(), Version: library.VersionText()}
		if library.Shared() {
			l.File += " (loaded by this process before)"
		}
		if library.Software() != nil {
			return l // it lacks what it was not made to have
		}
		missing := map[string][]string{}
		for _, symbol := range library.Missing() {
			missing[symbol.Feature] = append(missing[symbol.Feature], symbol.Name)
		}
		for feature, symbols := range missing {
			l.Missing = append(l.Missing, fmt.Sprintf("missing: %s (the library lacks %s)", feature, strings.Join(symbols, ", ")))
		}
		slices.Sort(l.Missing)
		return l
	}
	k.facts = func(ordinal int) (Facts, error) {
		facts, err := library.Facts(k.deviceName(ordinal), ordinal)
		if err != nil {
			return Facts{}, err
		}
		var notes []string
		if !facts.Pools {
			notes = append(notes, "no memory pools: frees wait until the device has passed them")
		}
		if facts.Integrated {
			notes = append(notes, "counted, never spilled: its memory is the host's")
		}
		return Facts{Product: facts.Name, UUID: facts.UUID, Total: int64(facts.Total), Pools: facts.Pools, Notes: notes}, nil
	}
	k.open = func(name string, ordinal int) (gomem.Driver, bool, error) {
		driver, err := library.Open(name, ordinal)
		if err != nil {
			return nil, false, err
		}
		return driver, !driver.Facts().Integrated, nil
	}
	return k
}

// simKind is CUDA's backend over the software driver. It is listed where it was configured or used, and not even loaded before: nobody
// measures a simulation by accident.
var simKind = newSimKind()

func newSimKind() *kind {
	k := newCUDAKind("sim", loadSim)
	k.listed = func() bool { return sim.capacities != nil || sim.loaded }
	return k
}

// sim is what the software driver is going to be; guarded by opening.
var sim struct {
	library    string
	capacities []uint64
	loaded     bool
}

// defaultSimCapacity is the one simulated device of a process that says nothing else.
const defaultSimCapacity = 2 << 30

// SetSimLibrary names the file of the software driver.
func SetSimLibrary(path string) {
	opening.Lock()
	defer opening.Unlock()
	sim.library = path
}

// ConfigureSim says how many simulated devices there are, and how large. It must come before the first use of one.
func ConfigureSim(capacities []uint64) error {
	if len(capacities) == 0 {
		return errors.New("at least one simulated device needs a capacity")
	}
	for _, capacity := range capacities {
		if capacity == 0 || capacity > 1<<60 {
			return fmt.Errorf("a simulated device cannot have %d bytes", capacity)
		}
	}
	opening.Lock()
	defer opening.Unlock()
	if sim.loaded {
		return errors.New("the simulated devices are in use already; configure them before the first use")
	}
	sim.capacities = capacities
	return nil
}

func loadSim() (*cuda.Library, error) {
	if sim.library == "" {
		return nil, errors.New("where the software driver is was not said (SetSimLibrary)")
	}
	library, err := cuda.Load(dl.System, []dl.Candidate{{Name: sim.library}})
	if err != nil {
		return nil, err
	}
	software := library.Software()
	if software == nil {
		return nil, fmt.Errorf("%s is not the software driver", sim.library)
	}
	capacities := sim.capacities
	if capacities == nil {
		capacities = []uint64{defaultSimCapacity}
	}
	// Before the driver starts; that is at the first question for its devices.
	if err := software.Set("devices", int64(len(capacities))); err != nil {
		return nil, err
	}
	for i, capacity := range capacities {
		if err := software.Set(fmt.Sprintf("capacity.%d", i), int64(capacity)); err != nil {
			return nil, err
		}
	}
	sim.loaded = true
	return library, nil
}
