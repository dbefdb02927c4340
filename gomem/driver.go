package gomem

import (
	"errors"
	"fmt"
	"strconv"
	"time"
	"unsafe"
)

// Driver is one device as the core sees it: a vendor's library (package backends/...) or a fake in memory (tests). All methods may be
// called from any goroutine and OS thread at the same time; a driver that needs a current context sets and restores it inside each
// call. Sizes are bytes. A size of zero never reaches a driver.
//
// Everything that a driver does to device memory takes its place on one stream of the device, in the order of the calls. Host
// pointers are never memory of Go's heap.
type Driver interface {
	// Name is the device's name, "cuda:0".
	Name() string

	// Allocate returns new device memory, usable by work queued on the device's stream from now on; its contents are undefined.
	// The error wraps ErrOutOfMemory when the device is full (retrying after a free can help), and ErrTooLarge when no amount of
	// freeing can (more than the device has).
	Allocate(nbytes uint64) (address uint64, err error)

	// Free gives memory back once all work queued on the device's stream before is done with it, with the call that matches block.How. It does not
	// wait for the device, except where the vendor's call does so and much is to be freed. Where the vendor has no stream-ordered free, the driver keeps a list:
	// PendingFree counts it, Synchronize ends it. After an error the memory counts as gone, except when the error wraps ErrLost.
	Free(block Block) error

	// CanFree reports whether Free knows the counterpart of this call. HowDriver: always.
	CanFree(how How) bool

	// CopyOut copies device memory to the host, after all work queued before; at return the host memory is complete.
	CopyOut(host unsafe.Pointer, address uint64, nbytes uint64) error
	// CopyIn copies host memory to the device; at return the host memory is no longer needed.
	CopyIn(address uint64, host unsafe.Pointer, nbytes uint64) error
	// CopyWithin copies on the device, as memmove does when the ranges overlap. It may return before the copy is done.
	CopyWithin(destination, source uint64, nbytes uint64) error
	// Fill repeats pattern (1, 2, 4, 8 or 16 bytes, or any length up to 16) over nbytes, beginning at address; the last repetition may be cut. It may
	// return before it is done.
	Fill(address uint64, pattern []byte, nbytes uint64) error

	// Synchronize waits for all work of the device's stream and for deferred frees.
	Synchronize() error
	// Trim gives cached memory back to the system and returns how much; call it after Synchronize.
	Trim() (released uint64, err error)
	// Memory asks for the figures. It creates no context on a device that was not used yet.
	Memory() (DriverMemory, error)
	// PendingFree is the bytes given to Free that are not back yet. It only reads memory.
	PendingFree() uint64

	// Stream is the handle of the device's stream (0 where there is none). SetStream makes the host framework's context and stream
	// the device's own from now on: work queued on the old one is waited for first.
	Stream() uint64
	SetStream(context, stream uint64) error
	// Join makes stream `to` wait for what is queued on stream `from` now; 0 is the device's stream.
	Join(from, to uint64) error

	// Close gives back what the driver holds. Buffers must be gone.
	Close() error
}

// Overcommitter is a Driver whose allocations succeed although the device is full: using the memory fails later, or crashes. The core asks it for room
// before each allocation.
type Overcommitter interface {
	Driver
	// Room is how many bytes may still be allocated while `live` bytes of the core's are there: in use (adopted ones too), or not given to Free yet
	// (while Free runs, they may be in both). What was given to Free and is not back, the driver counts itself. The error wraps ErrTooLarge where one allocation
	// of nbytes can never be, whatever is freed. It reads figures and changes nothing.
	Room(live, nbytes uint64) (room uint64, err error)
}

// Watcher is a Driver that can look at streams without queueing anything on them, so that a wait for one can be ended (Ctrl-C), and order be had where streams
// cannot be joined.
type Watcher interface {
	// Passed reports whether the device is done with what was queued on a stream; 0 is the device's own. Where the library can, it waits for that, up to
	// patience; else it does not wait. The error wraps ErrInvalidHandle where the driver does not know the stream.
	Passed(stream uint64, patience time.Duration) (bool, error)
	// Finish waits for all work of the device's context: also on streams that are gone, whose work goes on. It may break captures of the host's.
	Finish() error
	// JoinWaits reports whether Join waits on the host until what is queued has been done, and queues nothing.
	JoinWaits() bool
}

// Examiner is a Driver that can tell what lies at an address. It is asked before memory becomes ours: whether it is a whole block that Free can free. It
// refuses what is none with a *BlockError (Allocation.Refuse), or with an error that wraps ErrInvalidHandle; nothing changes.
type Examiner interface {
	Examine(block Block) error
}

// Adopter is a Driver that is told of memory that becomes ours (Device.Adopt), and ends with Free or Disown. It refuses what it could neither move nor
// free, with an error that wraps ErrInvalidHandle where that is the caller's mistake.
type Adopter interface {
	Adopt(block Block) error
}

// Disowner is a Driver that keeps account of blocks. It is told of one that becomes somebody else's (Device.Disown): whoever has it frees it by the
// vendor's own call, and its address may come back as another block.
type Disowner interface {
	Disown(block Block)
}

// Reaper is a Driver that keeps what was given to Free until the device is done with it (PendingFree). It can look by itself, so that a program that has
// gone idle keeps no memory from others.
type Reaper interface {
	// Reap gives back, without waiting, what the device is done with. waits: some of it still waits, and it is worth while to look again later. What
	// could not be freed stays for Synchronize, which reports it. While the device's stream is captured nothing is given back. It starts no device.
	Reap() (waits bool, err error)
}

// How says which vendor call made a block, and so which one frees it.
type How uint8

// The ways to allocate that adopt accepts. HowDriver is the driver's own way; it fits whatever Driver.Allocate returned.
const (
	HowDriver    How = iota
	HowCUDA          // cuMemAlloc
	HowCUDAAsync     // cuMemAllocAsync
	HowHIP           // hipMalloc
	HowHIPAsync      // hipMallocAsync
	HowLevelZero     // zeMemAllocDevice
	HowHost          // the host framework's own way, which frees it, too: only counted here, so it must be unmovable where memory is spilled. Never reaches a driver's Free
)

var howNames = [...]string{"the driver itself", "cuMemAlloc", "cuMemAllocAsync", "hipMalloc", "hipMallocAsync", "zeMemAllocDevice", "the host framework"}

// String is the vendor's name of the call.
func (h How) String() string {
	if int(h) < len(howNames) {
		return howNames[h]
	}
	return fmt.Sprintf("How(%d)", uint8(h))
}

// Block is device memory on its way back to the driver.
type Block struct {
	Address uint64
	Bytes   uint64
	How     How
}

// Unknown is a figure that the driver does not give.
const Unknown int64 = -1

// DriverMemory is what a driver says of its device; bytes, or Unknown.
type DriverMemory struct {
	Free        int64 // the driver's answer as it is
	Total       int64
	Cached      int64 // what Trim can give back; on Metal, what the host framework keeps
	Allocated   int64 // Metal's currentAllocatedSize
	LargestFree int64
}

// Sentinels that a driver's errors wrap. Any other error is a fault of one call: nothing changed.
var (
	ErrOutOfMemory = errors.New("out of device memory")
	ErrTooLarge    = errors.New("more than the device has")
	ErrLost        = errors.New("the device is lost") // no call can succeed again in this process

	ErrInvalidHandle = errors.New("the driver does not know the handle") // a stream or context that the caller named
)

// DriverError is a vendor call that failed. It wraps one of the sentinels above, or none.
type DriverError struct {
	Device string // "cuda:0"
	Call   string // "cuMemAllocAsync"
	Code   int    // the vendor's number
	Name   string // the vendor's name, "CUDA_ERROR_OUT_OF_MEMORY"; may be empty
	Kind   error  // one of the sentinels above, or nil
}

func (e *DriverError) Error() string {
	name := e.Name
	if name == "" {
		name = "error"
	}
	code := strconv.Itoa(e.Code)
	if e.Code > 0xffff { // a code of bit fields, which its vendor writes so, and so is it looked for
		code = fmt.Sprintf("%#x", e.Code)
	}
	return fmt.Sprintf("%s: %s failed: %s (%s)", e.Device, e.Call, name, code)
}

// Unwrap returns the sentinel, so that errors.Is works.
func (e *DriverError) Unwrap() error { return e.Kind }
