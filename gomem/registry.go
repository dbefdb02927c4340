package gomem

import (
	"errors"
	"sync"
	"sync/atomic"
	"unsafe"
)

// slabRecords is how many records one slab holds: 4096 x 64 B = 256 KiB, so that a device with a few buffers costs little.
const slabRecords = 4096

// cold is what only the slow lane needs to know of a buffer; it lies in Go's heap and holds no pointer, so the collector does not scan
// it. It is kept small: at a million buffers each byte is a megabyte.
//
// Guarded by the device's moving lock, or the buffer is still building; except book, entered, pending, label and origin (Books.Lock).
type cold struct {
	host      HostBlock // the host copy; Address 0: none
	entered   uint64    // Books.Sequence when its bytes came last into the counter that they are in
	label     uint32    // Intern
	origin    uint32    // Intern
	reason    uint32    // Intern: why it is unmovable
	looked    uint32    // number of the last choice of victims that looked at it (victims.choice)
	how       How       // which call frees the device memory
	book      book      // which counter holds its bytes
	device    bool      // there is device memory at Record.Address
	pending   bool      // its bytes are in Books.PendingFree
	unmovable bool      // never a victim; constant
	hosts     bool      // how is HowHost: never given to the driver; constant
	parked    bool      // holds or exports keep it, and choices of victims pass it over until they have ended (parking)
}

type slab struct {
	records *[slabRecords]Record // mapped outside Go's heap
	cold    [slabRecords]cold
	trips   atomic.Pointer[trips] // nil: no buffer of it was ever spilled
}

// registry finds a buffer by its index. It keeps nobody alive: a buffer's owner drops it, and its record is used again with a higher
// generation. Reading a record needs no lock; slabs are never given back while the device is open.
type registry struct {
	slabs  atomic.Pointer[[]*slab] // grows by copying, under mu
	used   atomic.Uint32           // all indexes ever used are below; raised under mu
	device uint32

	mu     sync.Mutex // rank: rankRegistry; guards all below, and growth
	free   []uint32   // indexes of records in state Free
	sealed bool       // no record is given out any more
}

func (g *registry) record(index uint32) *Record {
	return &(*g.slabs.Load())[index/slabRecords].records[index%slabRecords]
}

func (g *registry) cold(index uint32) *cold {
	return &(*g.slabs.Load())[index/slabRecords].cold[index%slabRecords]
}

func (g *registry) lock() {
	g.mu.Lock()
	acquired(rankRegistry)
}

func (g *registry) unlock() {
	released(rankRegistry)
	g.mu.Unlock()
}

// take returns a record in state Building, with its cold half set.
func (g *registry) take(half cold) (*Record, *cold, error) {
	g.lock()
	defer g.unlock()
	if g.sealed {
		return nil, nil, errClosed
	}
	if len(g.free) == 0 {
		if err := g.growLocked(); err != nil {
			return nil, nil, err
		}
	}
	index := g.free[len(g.free)-1]
	g.free = g.free[:len(g.free)-1]
	if index >= g.used.Load() {
		g.used.Store(index + 1)
	}
	r, c := g.record(index), g.cold(index)
	*c = half
	if !r.transition(Free, Building) {
		panic("gomem: a record on the free list is in use")
	}
	return r, c, nil
}

func (g *registry) growLocked() error {
	memory, err := mapSlab(slabRecords * unsafe.Sizeof(Record{}))
	if err != nil {
		return &HostMemoryError{Requested: slabRecords * int64(unsafe.Sizeof(Record{})), Limit: Unknown, Used: Unknown, Available: Unknown, Cause: err}
	}
	s := &slab{records: (*[slabRecords]Record)(memory)}
	old := g.slabs.Load()
	var slabs []*slab
	if old != nil {
		slabs = append(slabs, *old...)
	}
	first := uint32(len(slabs)) * slabRecords
	for i := range s.records {
		s.records[i].Index = first + uint32(i)
		s.records[i].Device = g.device
	}
	slabs = append(slabs, s)
	g.slabs.Store(&slabs)
	for i := slabRecords - 1; i >= 0; i-- { // low indexes first: the scan for victims goes up to the highest ever used
		g.free = append(g.free, first+uint32(i))
	}
	return nil
}

// put gives back a record in state Free.
func (g *registry) put(index uint32) {
	g.lock()
	g.free = append(g.free, index)
	g.unlock()
}

// each calls f for every record that is not Free, in order of index, until it returns false. What it sees may change at any time unless
// the caller holds the lock that guards it.
func (g *registry) each(f func(r *Record, c *cold) bool) {
	slabs := g.slabs.Load()
	if slabs == nil {
		return
	}
	for _, s := range *slabs {
		for i := range s.records {
			if r := &s.records[i]; r.state() != Free && !f(r, &s.cold[i]) {
				return
			}
		}
	}
}

// errClosed is the error of a buffer that is made while its device is closed, or after that.
var errClosed = errors.New("the device is closed")

// seal makes the registry give no record out any more, if none is out: a buffer that is being built has one before it is counted as alive. unseal takes it
// back.
func (g *registry) seal() bool {
	g.lock()
	defer g.unlock()
	g.sealed = true
	g.each(func(*Record, *cold) bool {
		g.sealed = false
		return false
	})
	return g.sealed
}

func (g *registry) unseal() {
	g.lock()
	defer g.unlock()
	g.sealed = false
}

// close unmaps the slabs.
func (g *registry) close() {
	g.lock()
	defer g.unlock()
	if slabs := g.slabs.Load(); slabs != nil {
		for _, s := range *slabs {
			unmapSlab(unsafe.Pointer(s.records), slabRecords*unsafe.Sizeof(Record{}))
		}
	}
	empty := []*slab{}
	g.slabs.Store(&empty)
	g.free = nil
	g.used.Store(0)
}
