package engine

import (
	"slices"
	"strconv"

	"github.com/tack-memory/tack-memory/gomem"
)

// kind is one kind of device. Its functions may load the vendor's library; none makes a context on a device. They are called with
// opening held.
type kind struct {
	name string
	// single: there is one device, which bears the kind's name.
	single bool
	// listed: whether reports speak of this kind now; nil: always.
	listed func() bool
	// count is how many devices there are. The error says why none can be used.
	count func() (int, error)
	// facts describes one device.
	facts func(ordinal int) (Facts, error)
	// library describes what was loaded, as far as it was.
	library func() Library
	// open makes the driver, and says whether its memory can be spilled.
	open func(name string, ordinal int) (driver gomem.Driver, movable bool, err error)
}

// kinds is all of them, in the order of reports.
var kinds = []*kind{cudaKind, hipKind, levelZeroKind, metalKind, cpuKind, simKind, simHIPKind, simLevelZeroKind, simCPUKind}

// Library is a vendor's library as it was found.
type Library struct {
	File    string   // "" where none was loaded
	Version string   // the vendor's; "" where it cannot be told
	Missing []string // what does not work because this library is too old
}

// Facts are what reports say of a device.
type Facts struct {
	Product string // the vendor's name of it
	UUID    string // "" where there is none
	Total   int64  // bytes, or gomem.Unknown
	Pools   bool   // memory is freed in stream order
	Spills  bool   // its memory can be spilled; else it is only counted
	Notes   []string
}

// Description is one device, or one kind whose devices cannot be used (then Why says so, and Name is the kind's).
type Description struct {
	Name    string   `json:"name"`
	Kind    string   `json:"kind"`
	Ordinal int      `json:"ordinal"`
	Usable  bool     `json:"usable"`
	Library string   `json:"library"`
	Version string   `json:"version"`
	Total   *int64   `json:"total"` // null: unknown
	Pools   bool     `json:"pools"`
	Spills  bool     `json:"spills"`
	Why     string   `json:"why"`
	Product string   `json:"product"`
	UUID    string   `json:"uuid"`
	Notes   []string `json:"notes"`
}

func (k *kind) deviceName(ordinal int) string {
	if k.single && ordinal == 0 {
		return k.name
	}
	return k.name + ":" + strconv.Itoa(ordinal)
}

func kindNamed(name string) *kind {
	for _, k := range kinds {
		if k.name == name {
			return k
		}
	}
	return nil
}

// Describe lists the devices of all kinds, and for each kind without a usable device why there is none.
func Describe() []Description {
	opening.Lock()
	defer opening.Unlock()
	return describeAll()
}

func describeAll() []Description {
	var all []Description
	for _, k := range kinds {
		if k.listed == nil || k.listed() {
			all = append(all, k.describe()...)
		}
	}
	return all
}

func (k *kind) describe() []Description {
	count, err := k.count()
	library := k.library()
	base := Description{Name: k.name, Kind: k.name, Library: library.File, Version: library.Version}
	if err != nil || count == 0 {
		base.Why = "the library reports no device"
		if err != nil {
			base.Why = err.Error()
		}
		base.Notes = []string{}
		return []Description{base}
	}
	described := make([]Description, count)
	for ordinal := range described {
		d := base
		d.Name, d.Ordinal = k.deviceName(ordinal), ordinal
		d.Notes = slices.Clone(library.Missing)
		if facts, err := k.facts(ordinal); err != nil {
			d.Why = err.Error()
		} else {
			d.Usable, d.Pools, d.Spills, d.Product, d.UUID = true, facts.Pools, facts.Spills, facts.Product, facts.UUID
			if facts.Total != gomem.Unknown {
				d.Total = &facts.Total
			}
			d.Notes = append(d.Notes, facts.Notes...)
		}
		if d.Notes == nil {
			d.Notes = []string{}
		}
		described[ordinal] = d
	}
	return described
}

// usableNames lists the devices that can be opened, but for those that exist only when named. opening is held.
func usableNames() []string {
	var names []string
	for _, d := range describeAll() {
		if d.Usable {
			names = append(names, d.Name)
		}
	}
	return names
}
