package mac

import (
	"sync"

	"github.com/tack-memory/tack-memory/backends/metal"
)

// GPU is an MTLDevice of the machine. Tests change and read it while no call is under way.
type GPU struct {
	*object
	machine *Machine

	Product     string
	Number      uint64
	Recommended uint64
	Longest     uint64
	Unified     bool

	// Guarded by the machine's lock.
	Capacity    uint64 // newBufferWithLength returns nil beyond it
	Allocated   uint64 // what currentAllocatedSize says
	MadeBuffers int
	NoContents  bool // buffers have no address
}

// Introduced is the first macOS with a method of MTLDevice: Apple's documentation, not the table of the package.
var Introduced = map[string]int{
	"name": 1011, "newBufferWithLength:options:": 1011, "recommendedMaxWorkingSetSize": 1012, "registryID": 1013,
	"currentAllocatedSize": 1013, "maxBufferLength": 1014, "hasUnifiedMemory": 1015,
}

// NewGPU adds a device to the machine; the first is the default one.
func (m *Machine) NewGPU(product string) *GPU {
	g := &GPU{machine: m, Product: product, Number: uint64(0x1_0000_0400 + len(m.gpus)), Recommended: 1 << 30, Longest: 1 << 28, Unified: true, Capacity: 1 << 40}
	methods := map[string]body{
		"name":                         func([]uintptr) uintptr { return uintptr(m.text(g.Product)) },
		"registryID":                   func([]uintptr) uintptr { return uintptr(g.Number) },
		"recommendedMaxWorkingSetSize": func([]uintptr) uintptr { return uintptr(g.Recommended) },
		"maxBufferLength":              func([]uintptr) uintptr { return uintptr(g.Longest) },
		"hasUnifiedMemory":             func([]uintptr) uintptr { return flag(g.Unified) },
		"currentAllocatedSize": func([]uintptr) uintptr {
			m.mu.Lock()
			defer m.mu.Unlock()
			return uintptr(g.Allocated)
		},
		"newBufferWithLength:options:": func(arguments []uintptr) uintptr { return uintptr(g.NewBuffer(uint64(arguments[0]), arguments[1])) },
	}
	for name := range methods {
		if m.version < Introduced[name] {
			delete(methods, name)
		}
	}
	g.object = m.make("MTLDevice", methods, nil)
	if m.Default == nil {
		m.Default = g
	}
	m.gpus = append(m.gpus, g)
	m.Listed = append(m.Listed, g)
	return g
}

// NewBuffer makes an MTLBuffer, a reference of the caller's.
func (g *GPU) NewBuffer(length uint64, options uintptr) metal.Object {
	m := g.machine
	if length == 0 || m.version >= Introduced["maxBufferLength"] && length > g.Longest {
		m.t.Errorf("Metal's validation ends the process: a buffer of %d bytes", length)
		return 0
	}
	if options != 0 {
		m.t.Errorf("storage mode %#x: its contents have no address, or not the only one", options)
	}
	m.mu.Lock()
	g.MadeBuffers++
	full := length > g.Capacity-g.Allocated
	if !full {
		g.Allocated += length
	}
	m.mu.Unlock()
	if full {
		return 0
	}
	address := m.mapMemory(int(length))
	return m.make("MTLBuffer", map[string]body{"contents": func([]uintptr) uintptr {
		if g.NoContents {
			return 0
		}
		return address
	}}, func() {
		g.Allocated -= length
		m.unmapLocked(address)
	}).id
}

// Queue is an MTLCommandQueue of a host framework. Its command buffers run when somebody waits for one, in the order of commits: whoever does not
// wait sees nothing of them.
type Queue struct {
	*object
	device *GPU

	mu        sync.Mutex
	committed []func()
	Fails     int  // code of the NSError of the next command buffer; 0: none
	Exhausted bool // it gives no command buffer
	Waits     int  // command buffers that were waited for
}

// NewQueue makes a command queue, with one reference: the host framework's.
func (g *GPU) NewQueue() *Queue {
	q := &Queue{device: g}
	q.object = g.machine.make("MTLCommandQueue", map[string]body{
		"device": func([]uintptr) uintptr { return uintptr(g.id) },
		"commandBuffer": func([]uintptr) uintptr {
			if q.Exhausted {
				return 0
			}
			return uintptr(g.machine.lend(q.newCommandBuffer()))
		},
	}, nil)
	return q
}

// Release is the host framework giving its own reference up.
func (q *Queue) Release() { q.device.machine.Send(q.id, q.device.machine.Selector("release")) }

// Work is the host framework committing a command buffer that does something to memory.
func (q *Queue) Work(run func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.committed = append(q.committed, run)
}

func (q *Queue) newCommandBuffer() *object {
	m := q.device.machine
	const notEnqueued, completed, failed = 0, 4, 5
	state, failure := uintptr(notEnqueued), 0
	upTo := -1
	return m.make("MTLCommandBuffer", map[string]body{
		"commit": func([]uintptr) uintptr {
			q.mu.Lock()
			defer q.mu.Unlock()
			upTo = len(q.committed)
			return 0
		},
		"waitUntilCompleted": func([]uintptr) uintptr {
			q.mu.Lock()
			defer q.mu.Unlock()
			if upTo < 0 {
				m.t.Errorf("waiting for a command buffer that was not committed: that never ends")
				return 0
			}
			q.Waits++
			for _, run := range q.committed {
				run()
			}
			q.committed = nil
			if state = completed; q.Fails != 0 {
				state, failure, q.Fails = failed, q.Fails, 0
			}
			return 0
		},
		"status": func([]uintptr) uintptr { return state },
		"error": func([]uintptr) uintptr {
			if failure == 0 {
				return 0
			}
			return uintptr(m.lend(m.make("NSError", map[string]body{"code": func([]uintptr) uintptr { return uintptr(failure) }}, nil)))
		},
	}, nil)
}
