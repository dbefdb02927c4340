// Package mac is a Mac to test on: the Objective-C runtime and Metal's objects, as far as package metal may rely on them, on any system.
package mac

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tack-memory/tack-memory/backends/metal"
)

// Machine is one Mac. It reports what would crash a real process, or leak in one, as an error of the test: a message to an object that is gone, a
// method that the object does not have, an object lent where no autorelease pool is in place, a pool that ends on another thread or out of
// order, a reference too many or too few.
type Machine struct {
	// What a test may change while no call is under way.
	Default *GPU     // what MTLCreateSystemDefaultDevice gives; nil: none
	Listed  []*GPU   // what MTLCopyAllDevices gives
	NoList  bool     // there is no MTLCopyAllDevices
	Lacks   []string // what Missing says
	Asked   int      // calls of MTLCreateSystemDefaultDevice

	t       testing.TB
	version int // of macOS, 1015 for 10.15: decides which methods there are

	mu        sync.Mutex
	selectors []string // a Selector is a place here, plus selectorBase
	objects   map[metal.Object]*object
	lastID    metal.Object
	gpus      []*GPU          // all that were made
	pools     map[int][]*pool // by thread, the innermost last
	memory    map[uintptr][]byte
}

const selectorBase = 0x5e1e_0000

// body is a method: it gets the message's arguments.
type body func(arguments []uintptr) uintptr

// object is one Objective-C object.
type object struct {
	id      metal.Object
	class   string
	retains int // references; 0: it is gone
	methods map[string]body
	gone    func() // runs once, when the last reference goes, with the machine locked
}

type pool struct {
	number uintptr
	lent   []*object
}

// New makes a machine with a version of macOS, 1015 for 10.15. At the end of the test everything on it must have been given back.
func New(t testing.TB, version int) *Machine {
	m := &Machine{t: t, version: version, objects: map[metal.Object]*object{}, lastID: 0x6000_0000, pools: map[int][]*pool{}, memory: map[uintptr][]byte{}}
	t.Cleanup(m.verify)
	return m
}

// verify says what is left at the end of a test: the system keeps one reference to each device, and nobody else keeps anything.
func (m *Machine) verify() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for thread, pools := range m.pools {
		if len(pools) > 0 {
			m.t.Errorf("%d autorelease pools were left open on thread %d", len(pools), thread)
		}
	}
	for _, o := range m.objects {
		systems := 0
		if slices.ContainsFunc(m.gpus, func(g *GPU) bool { return g.object == o }) {
			systems = 1
		}
		if o.retains != systems {
			m.t.Errorf("%d references to a %s are left, and %d belong to the system", o.retains, o.class, systems)
		}
	}
	if len(m.memory) > 0 {
		m.t.Errorf("%d pieces of memory are left", len(m.memory))
	}
}

func (m *Machine) make(class string, methods map[string]body, gone func()) *object {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastID += 0x40
	o := &object{id: m.lastID, class: class, retains: 1, methods: methods, gone: gone}
	m.objects[o.id] = o
	return o
}

// lend gives an object that was just made to this thread's pool.
func (m *Machine) lend(o *object) metal.Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	pools := m.pools[thread()]
	if len(pools) == 0 {
		m.t.Errorf("a %s was lent with no autorelease pool in place: it leaks", o.class)
		return o.id
	}
	inner := pools[len(pools)-1]
	inner.lent = append(inner.lent, o)
	return o.id
}

func (m *Machine) dropLocked(o *object) {
	if o.retains == 0 {
		m.t.Errorf("a %s was released once too often", o.class)
		return
	}
	if o.retains--; o.retains == 0 && o.gone != nil {
		o.gone()
	}
}

// flag is a BOOL in a register: only its low byte has a meaning.
func flag(value bool) uintptr {
	if value {
		return 0xdead_be00 | 1
	}
	return 0xdead_be00
}

// ---- metal.Frameworks

var _ metal.Frameworks = (*Machine)(nil)

// Selector registers a method's name.
func (m *Machine) Selector(name string) metal.Selector {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.Index(m.selectors, name)
	if i < 0 {
		i = len(m.selectors)
		m.selectors = append(m.selectors, name)
	}
	return metal.Selector(selectorBase + i)
}

// Send sends a message to an object.
func (m *Machine) Send(receiver metal.Object, selector metal.Selector, arguments ...uintptr) uintptr {
	if receiver == 0 {
		return 0
	}
	return m.send(receiver, selector, arguments)
}

func (m *Machine) send(receiver metal.Object, selector metal.Selector, arguments []uintptr) uintptr {
	m.mu.Lock()
	if selector < selectorBase || int(selector-selectorBase) >= len(m.selectors) {
		m.mu.Unlock()
		m.t.Errorf("%#x is no selector", uintptr(selector))
		return 0
	}
	name := m.selectors[selector-selectorBase]
	o := m.objects[receiver]
	if o == nil || o.retains == 0 {
		m.mu.Unlock()
		m.t.Errorf("%s was sent to an object that is gone", name)
		return 0
	}
	defer m.mu.Unlock()
	switch name {
	case "retain":
		o.retains++
		return uintptr(receiver)
	case "release":
		m.dropLocked(o)
		return 0
	case "respondsToSelector:":
		asked := m.selectors[arguments[0]-selectorBase]
		_, there := o.methods[asked]
		return flag(there)
	}
	run, there := o.methods[name]
	if !there {
		m.t.Errorf("-[%s %s]: unrecognized selector", o.class, name)
		return 0
	}
	m.mu.Unlock() // a method may wait, and sends messages itself
	defer m.mu.Lock()
	return run(arguments)
}

// PushPool opens an autorelease pool on this thread.
func (m *Machine) PushPool() uintptr {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := &pool{}
	p.number = uintptr(unsafe.Pointer(p))
	m.pools[thread()] = append(m.pools[thread()], p)
	return p.number
}

// PopPool ends this thread's innermost pool.
func (m *Machine) PopPool(number uintptr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pools := m.pools[thread()]
	if len(pools) == 0 || pools[len(pools)-1].number != number {
		m.t.Errorf("an autorelease pool ended on another thread, or before one inside it")
		return
	}
	for _, o := range pools[len(pools)-1].lent {
		m.dropLocked(o)
	}
	m.pools[thread()] = pools[:len(pools)-1]
}

// CreateSystemDefaultDevice gives a reference to Default.
func (m *Machine) CreateSystemDefaultDevice() metal.Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Asked++
	if m.Default == nil {
		return 0
	}
	m.Default.retains++
	return m.Default.id
}

// CopyAllDevices gives an array of Listed.
func (m *Machine) CopyAllDevices() metal.Object {
	if m.NoList {
		return 0
	}
	var elements []*object
	for _, g := range m.Listed {
		elements = append(elements, g.object)
	}
	return m.array(elements).id
}

// Path is where Metal is said to be.
func (m *Machine) Path() string { return "/System/Metal" }

// Version is the version of macOS as a text.
func (m *Machine) Version() string { return VersionText(m.version) }

// Missing is Lacks.
func (m *Machine) Missing() []string { return m.Lacks }

// VersionText turns 1015 into "10.15".
func VersionText(version int) string { return fmt.Sprintf("%d.%d", version/100, version%100) }

// ---- Foundation

// array is an NSArray, a reference of the caller's: it keeps what is in it.
func (m *Machine) array(elements []*object) *object {
	m.mu.Lock()
	for _, element := range elements {
		element.retains++
	}
	m.mu.Unlock()
	return m.make("NSArray", map[string]body{
		"count": func([]uintptr) uintptr { return uintptr(len(elements)) },
		"objectAtIndex:": func(arguments []uintptr) uintptr {
			if arguments[0] >= uintptr(len(elements)) {
				m.t.Errorf("NSRangeException: %d is beyond %d elements", arguments[0], len(elements))
				return 0
			}
			return uintptr(elements[arguments[0]].id)
		},
	}, func() {
		for _, element := range elements {
			m.dropLocked(element)
		}
	})
}

// text is an NSString, lent. Its bytes go with it.
func (m *Machine) text(text string) metal.Object {
	address := m.mapMemory(len(text) + 1)
	copy(Bytes(uint64(address), uint64(len(text))), text)
	return m.lend(m.make("NSString", map[string]body{"UTF8String": func([]uintptr) uintptr { return address }}, func() { m.unmapLocked(address) }))
}

// Bytes is memory that is none of Go's. Not inlined: the compiler of Go 1.26 breaks on a copy between two addresses that it knows to be numbers.
//
//go:noinline
func Bytes(address, nbytes uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(nil), address)), nbytes)
}

// mapMemory is memory that faults once it is gone.
func (m *Machine) mapMemory(nbytes int) uintptr {
	memory, err := unix.Mmap(-1, 0, nbytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		m.t.Fatalf("mapping %d bytes: %v", nbytes, err)
	}
	address := uintptr(unsafe.Pointer(&memory[0]))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.memory[address] = memory
	return address
}

func (m *Machine) unmapLocked(address uintptr) {
	if err := unix.Munmap(m.memory[address]); err != nil {
		m.t.Errorf("unmapping %#x: %v", address, err)
	}
	delete(m.memory, address)
}

// ID is what the object is called by.
func (o *object) ID() metal.Object { return o.id }

// References is how many there are to the object.
func (o *object) References() int { return o.retains }
