package gomem

import "unsafe"

// This file is the Go half of the memory that Go and C both read and write. bindings/fast/tm_shared.h is the C half; a test in
// bindings/fast compares sizes, offsets and values. Nothing here lies in Go's heap (except in race builds, where the race
// detector has to see it): see slab_mmap.go and slab_race.go.

// State is where a buffer's true copy is. It is kept in the low byte of Record.Word.
type State uint32

// The states of a buffer. The zero State is the state of a record that nobody uses. transition (state.go) is the only function that
// changes a state, and its table is the only list of legal changes.
const (
	Free      State = iota // no buffer lives in the record
	Building               // reserved; device memory is being made ready; invisible to spilling
	Resident               // the true copy is on the device
	Spilling               // the true copy is on the device; a host copy is being made, or a victim is marked for a waiting launch
	Spilled                // the true copy is the host copy; no device memory
	Restoring              // the true copy is the host copy; a device copy is being made
)

// Dropped is the bit of Record.Word that says: the program has let go of the buffer. It is set once, in any state but Free, and
// together with the fall of the books (logical free). The state under it still tells the drain which copies exist.
const Dropped = 0x100

// stateMask selects the State in Record.Word.
const stateMask = 0xff

// noAddress is Record.Address of a dropped buffer whose device memory is not ours any more.
const noAddress = 0

// Record is what the fast lane needs to know of one buffer: one cache line. Its address is stable while its device is open.
//
// Who writes what: Word by compare-and-swap only, under the device's moving lock except for Dropped and Building -> Resident.
// Address and Size before the word becomes Resident (released by the compare-and-swap); Address once more after Dropped (noAddress). LastUse by anybody who uses the buffer, plain
// stores (so the clock's ticks can be lost and it can go back: Books.tick). Launches by holders of the GIL only, plain stores (see DESIGN "launch holds without
// atomics"); where the kernel has no membarrier, and in free-threaded builds, by atomic adds. Admitted and Pins by atomic adds.
type Record struct {
	Word       uint32 // State | Dropped
	Generation uint32 // raised by each free; compared before a remembered candidate is used
	Address    uint64 // device address; valid while Resident or Spilling, and in Restoring once the driver has given memory
	Size       uint64 // bytes, as requested; constant from Building to Free
	LastUse    uint64 // Books.Clock at the last use
	Launches   uint32 // launch passes that hold this buffer through the fast lane
	Admitted   uint32 // launches that hold it through the slow path
	Pins       uint32 // holds, exports, host accesses under way
	Index      uint32 // its own index in the device's registry; constant
	Sequence   uint64 // Books.Sequence when it was allocated: tells a peak scope whether the buffer is its own
	Next       uint32 // link in the drop list: index + 1, or 0 at the end
	Device     uint32 // Books.Device of its device; constant
}

// Books are the counters of one device. Everything below Lock is guarded by it, except where it says otherwise. Sizes are bytes.
// No counter is ever negative. A budget of -1 means: none.
type Books struct {
	Lock   uint32 // leaf lock: 0 free, 1 taken; held for nanoseconds, never across anything that can block (lockBooks)
	Device uint32 // index of the device in this process; constant
	Clock  uint64 // ticks at each use; written without the lock, by C without atomic adds: see tick
	Drops  uint32 // head of the drop list: record index + 1, or 0; compare-and-swap, not under Lock
	Strict uint32 // 1: what cannot be spilled may not pass the budget

	InUse       int64 // resident and spilling buffers, and restoring ones from the driver's success on
	Peak        int64 // highest InUse since the last reset
	Spilled     int64 // spilled buffers, and restoring ones before the driver's success
	Reserved    int64 // building and restoring bytes before the driver's success, and reservations of hosts
	PendingFree int64 // dropped by the program, not yet given back to the driver
	Budget      int64 // -1: none

	OverBudgetCount int64 // rises of InUse that ended above the budget
	SpillCount      int64
	RestoreCount    int64
	SpilledBytes    int64 // total ever spilled
	RestoredBytes   int64 // total ever restored
	ReceivedBytes   int64 // total of buffers that began in host memory (Receive)
	FreedSpilled    int64 // total dropped or freed while spilled: SpilledBytes + ReceivedBytes - RestoredBytes - FreedSpilled == Spilled
	AllocateCount   int64 // buffers ever made
	FreeCount       int64 // buffers ever dropped or freed

	Sequence uint64         // changes of InUse so far, and ends of stays in host memory that somebody tells of: names a moment (stays.go)
	Scopes   unsafe.Pointer // *Scope: head of the list of open peak scopes

	Waiting uint32 // not 0: a call waits for launches to end, so whoever ends one calls Device.Ended; atomic, not under Lock
	Watched uint32 // open scopes with Watched set, and who reads what was live at one's peak: not 0: ended stays are kept (stays.go)
}

// Scope is one open peak scope on one device: it lies in memory of whoever opened it (C memory for Python's scopes; Go's heap for
// tests, which then keep it alive). Linked into Books.Scopes while open. Guarded by Books.Lock; frozen after it is closed.
type Scope struct {
	Next, Prev unsafe.Pointer // *Scope
	Books      unsafe.Pointer // *Books of its device while open; nil before it is opened and after it is closed
	Sequence   uint64         // Books.Sequence when it was opened: buffers with a higher Sequence are its own

	Start         int64 // InUse at the opening
	Peak          int64 // highest InUse while open
	Footprint     int64 // highest InUse + Spilled while open
	OwnNow        int64 // bytes allocated inside and alive now (resident or spilled)
	Own           int64 // highest OwnNow
	SpilledBytes  int64 // at the opening: Books.SpilledBytes; after the closing: bytes spilled in between
	RestoredBytes int64 // the same for restores
	End           int64 // InUse at the closing

	Moment  uint64 // Books.Sequence when Peak was reached for the first time
	Watched uint32 // 1: what was live at that moment can be told (Device.AtPeak)
	Whole   uint32 // 1: the device's own (origins.go): it begins anew when the device's peak is reset. The fields below are for this one only

	When        int64 // when Peak was reached: nanoseconds since 1970
	SpilledThen int64 // Books.Spilled at that moment
}
