package metal

import (
	"fmt"
	"math"
	"sync"

	"github.com/tack-memory/tack-memory/gomem"
)

// Library is Metal with its devices. The frameworks stay loaded until the process ends.
type Library struct {
	objects *objects

	mu      sync.Mutex
	devices []Object // guarded by mu: a reference of ours each; nil until they are asked for
}

// New makes a library over frameworks; Load makes one over those of macOS. It calls no function of Metal yet.
func New(frameworks Frameworks) *Library { return &Library{objects: newObjects(frameworks)} }

// Path is Metal's file.
func (l *Library) Path() string { return l.objects.Path() }

// VersionText is the version of macOS, "14.5"; "" where it cannot be told.
func (l *Library) VersionText() string { return l.objects.Version() }

// Missing says what does not work here, whatever the device.
func (l *Library) Missing() []string { return l.objects.Missing() }

// Count is the number of devices. None is not an error, and is not remembered: macOS may show one later.
func (l *Library) Count() (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listLocked()
	return len(l.devices), nil
}

// listLocked fills devices: the system's default device, then the others in Metal's order. What was found once keeps its place until the
// process ends, since a device's number is its name here.
func (l *Library) listLocked() {
	if len(l.devices) > 0 {
		return
	}
	o := l.objects
	o.pooled(func() {
		if first := o.CreateSystemDefaultDevice(); first != 0 {
			l.devices = append(l.devices, first)
		}
		all := o.CopyAllDevices()
		for i := range o.send(all, methodCount) {
			found := o.sendObject(all, methodObjectAtIndex, i)
			if len(l.devices) > 0 && o.sameDevice(l.devices[0], found) {
				continue
			}
			o.retain(found)
			l.devices = append(l.devices, found)
		}
		o.release(all)
	})
}

// sameDevice reports whether two objects stand for one device.
func (o *objects) sameDevice(a, b Object) bool {
	if a == b {
		return true
	}
	return o.has(a, methodRegistryID) && o.has(b, methodRegistryID) && o.send(a, methodRegistryID) == o.send(b, methodRegistryID)
}

// deviceLocked returns the device of an ordinal, still the library's.
func (l *Library) deviceLocked(device string, ordinal int) (Object, error) {
	l.listLocked()
	if ordinal < 0 || ordinal >= len(l.devices) {
		return 0, fmt.Errorf("%s: Metal shows %d devices", device, len(l.devices))
	}
	return l.devices[ordinal], nil
}

// Close gives the devices back. Drivers that are open keep theirs; the library can be used again.
func (l *Library) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, found := range l.devices {
		l.objects.release(found)
	}
	l.devices = nil
}

// Answer is yes, no, or not known.
type Answer uint8

// Untold is the answer where this macOS has no such question.
const (
	Untold Answer = iota
	No
	Yes
)

// Facts are the properties of one device.
type Facts struct {
	Name       string   // the vendor's name of the product
	RegistryID uint64   // the system's number of the device, the same in each process until it restarts; 0 where it cannot be told
	Total      int64    // bytes that the device may use without becoming slow, or gomem.Unknown
	MaxBuffer  int64    // bytes of the longest buffer, or gomem.Unknown
	Unified    Answer   // its memory is the host's
	Missing    []string // what cannot be told, and the macOS that tells it
}

// Facts asks for a device's properties.
func (l *Library) Facts(device string, ordinal int) (Facts, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	object, err := l.deviceLocked(device, ordinal)
	if err != nil {
		return Facts{}, err
	}
	return l.objects.facts(object), nil
}

func (o *objects) facts(object Object) (facts Facts) {
	ask := func(m method) bool {
		if o.has(object, m) {
			return true
		}
		facts.Missing = append(facts.Missing, fmt.Sprintf("%s (macOS %s has it: %s)", methods[m].feature, methods[m].since, methods[m].name))
		return false
	}
	o.pooled(func() {
		facts.Name = o.text(o.sendObject(object, methodName))
		if ask(methodRegistryID) {
			facts.RegistryID = uint64(o.send(object, methodRegistryID))
		}
		facts.Total, facts.MaxBuffer = gomem.Unknown, gomem.Unknown
		if ask(methodRecommendedMaxWorkingSetSize) {
			facts.Total = positive(o.send(object, methodRecommendedMaxWorkingSetSize))
		}
		ask(methodCurrentAllocatedSize) // Driver.Memory reads it
		if ask(methodMaxBufferLength) {
			facts.MaxBuffer = positive(o.send(object, methodMaxBufferLength))
		}
		if ask(methodHasUnifiedMemory) {
			facts.Unified = No
			if o.sendFlag(object, methodHasUnifiedMemory) {
				facts.Unified = Yes
			}
		}
	})
	return facts
}

// positive is a limit in bytes. A device of 0 bytes is one that does not tell (paravirtual devices of virtual machines).
func positive(value uintptr) int64 {
	if value == 0 {
		return gomem.Unknown
	}
	return int64(min(uint64(value), math.MaxInt64))
}
