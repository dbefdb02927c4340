package engine

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/tack-memory/tack-memory/backends/cuda"
	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/hip"
	"github.com/tack-memory/tack-memory/backends/levelzero"
)

// The simulated kinds: each is a vendor's backend over the software driver with that vendor's ABI. The first is listed where simulated devices
// were configured, each where it was used, and not even loaded before: nobody measures a simulation by accident.
var (
	simKind    = newSimKind()
	simHIPKind = newSimHIPKind()

	simLevelZeroKind = newSimLevelZeroKind()
)

func newSimKind() *kind {
	k := newOrderedKind("sim", func() (*cuda.Library, error) { return loadSim("cuda", cuda.Load) })
	k.listed = func() bool { return sim.capacities != nil || sim.asked["cuda"] }
	return k
}

func newSimHIPKind() *kind {
	k := newOrderedKind("sim-hip", func() (*hip.Library, error) { return loadSim("hip", hip.Load) })
	k.listed = func() bool { return sim.asked["hip"] }
	return k
}

func newSimLevelZeroKind() *kind {
	k := newLevelZeroKind("sim-level_zero", func() (*levelzero.Library, error) { return loadSim("levelzero", levelzero.Load) })
	k.listed = func() bool { return sim.asked["levelzero"] }
	return k
}

// sim is what the software drivers are going to be; guarded by opening.
var sim struct {
	folder     string
	capacities []uint64
	asked      map[string]bool // by ABI: a device was named, whether or not it could be had
	loaded     map[string]bool // by ABI
}

// defaultSimCapacity is the one simulated device of a process that says nothing else.
const defaultSimCapacity = 2 << 30

// SetSimFolder names the folder with the files of the software drivers.
func SetSimFolder(path string) {
	opening.Lock()
	defer opening.Unlock()
	sim.folder = path
}

// ConfigureSim says how many simulated devices there are, and how large; the same for each vendor. It must come before the first use of one.
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
	if len(sim.loaded) > 0 {
		return errors.New("the simulated devices are in use already; configure them before the first use")
	}
	sim.capacities = capacities
	return nil
}

// loadSim loads the software driver of one ABI through its vendor's backend, and sets it up.
func loadSim[L library](abi string, load func(dl.Loader, []dl.Candidate) (L, error)) (found L, err error) {
	if sim.asked == nil {
		sim.asked, sim.loaded = make(map[string]bool), make(map[string]bool)
	}
	sim.asked[abi] = true
	if sim.folder == "" {
		return found, errors.New("where the software drivers are was not said (SetSimFolder)")
	}
	file := filepath.Join(sim.folder, "libtack_memory_sim"+abi+".so")
	found, err = load(dl.System, []dl.Candidate{{Name: file}})
	if err != nil {
		return found, err
	}
	controls := found.Software()
	if controls == nil {
		return found, fmt.Errorf("%s is not the software driver", file)
	}
	capacities := sim.capacities
	if capacities == nil {
		capacities = []uint64{defaultSimCapacity}
	}
	// Before the driver starts; that is at the first question for its devices.
	if err := controls.Set("devices", int64(len(capacities))); err != nil {
		return found, err
	}
	for i, capacity := range capacities {
		if err := controls.Set(fmt.Sprintf("capacity.%d", i), int64(capacity)); err != nil {
			return found, err
		}
	}
	sim.loaded[abi] = true
	return found, nil
}
