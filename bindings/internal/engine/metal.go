package engine

import (
	"fmt"

	"github.com/tack-memory/tack-memory/backends/metal"
	"github.com/tack-memory/tack-memory/gomem"
)

// metalKind is Apple's GPUs. What they use is the host's memory, which macOS pages, so it is only counted.
var metalKind = newMetalKind(metal.Load)

// newMetalKind makes the kind over the library that load finds. A failure to load is not remembered.
func newMetalKind(load func() (*metal.Library, error)) *kind {
	k := &kind{name: "metal"}
	var library *metal.Library
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
		l := Library{File: library.Path()}
		if version := library.VersionText(); version != "" {
			l.Version = "macOS " + version
		}
		for _, missing := range library.Missing() {
			l.Missing = append(l.Missing, "missing: "+missing)
		}
		return l
	}
	k.facts = func(ordinal int) (Facts, error) {
		facts, err := library.Facts(k.deviceName(ordinal), ordinal)
		if err != nil {
			return Facts{}, err
		}
		return Facts{Product: facts.Name, Total: facts.Total, Notes: metalNotes(facts)}, nil
	}
	k.open = func(name string, ordinal int) (gomem.Driver, bool, error) {
		driver, err := library.Open(name, ordinal)
		if err != nil {
			return nil, false, err
		}
		return driver, false, nil
	}
	return k
}

// metalNotes says for people what is known of a device, and what is not.
func metalNotes(facts metal.Facts) []string {
	var notes []string
	switch facts.Unified {
	case metal.Yes:
		notes = append(notes, "unified memory: the device and the host use the same")
	case metal.No:
		notes = append(notes, "memory of its own; what is allocated here lies in the host's")
	}
	if facts.Total != gomem.Unknown {
		notes = append(notes, "the total is what macOS recommends this process to use on the device; how much is free it does not tell")
	}
	if facts.MaxBuffer != gomem.Unknown {
		notes = append(notes, fmt.Sprintf("one buffer has at most %d bytes", facts.MaxBuffer))
	}
	if facts.RegistryID != 0 {
		notes = append(notes, fmt.Sprintf("registry ID %#x", facts.RegistryID))
	}
	for _, missing := range facts.Missing {
		notes = append(notes, "missing: "+missing)
	}
	return notes
}

// SetHostCache tells what a host framework's own pool keeps on a device, in bytes, for reports to show as cached; gomem.Unknown: it cannot tell.
// The driver of the device knows nothing of such a pool: for CUDA and HIP its memory is in use, and Metal has no pools at all.
func SetHostCache(index uint32, nbytes int64) error {
	device := At(index)
	driver, takes := device.Driver().(interface{ SetHostCache(nbytes int64) error })
	if !takes {
		return fmt.Errorf("%s takes no figure of what a host framework keeps in a pool of its own", device.Name())
	}
	return driver.SetHostCache(nbytes)
}

// MetalBuffer is the MTLBuffer whose contents begin at an address that a Metal device allocated, which kernels are given in place of the
// address. It stays the device's, and ends with the buffer.
func MetalBuffer(index uint32, address uint64) (buffer uint64, err error) {
	device := At(index)
	driver, is := device.Driver().(*metal.Driver)
	if !is {
		return 0, fmt.Errorf("%s is no Metal device: it has no MTLBuffers", device.Name())
	}
	found := driver.Buffer(address)
	if found == 0 {
		return 0, &metal.NotABufferError{Device: device.Name(), Address: address}
	}
	return uint64(found), nil
}
