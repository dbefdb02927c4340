package gomem

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"
)

// Errors to compare with errors.Is.
var (
	// ErrCancelled ends an operation whose Cancel was called (Ctrl-C). Every buffer is whole.
	ErrCancelled = errors.New("cancelled")
	// ErrCollect: the budget would spill, and garbage may hold buffers. Collect it (no lock is held) and ask again with Collected.
	ErrCollect = errors.New("collect garbage and ask again")
	// ErrRelieve: the device is full. Collect garbage, empty the host framework's caches, and ask again with Relieved (or Helped).
	ErrRelieve = errors.New("empty the host's caches and ask again")
	// ErrNotNow: the caller did not let DisownIf take its last step. Nothing has changed.
	ErrNotNow = errors.New("not now")
	// ErrStillRuns: this would have to wait for work that is queued on a stream, and was told not to wait. Nothing has changed.
	ErrStillRuns = errors.New("work that is queued on the stream still runs")
	// ErrLate: this would have to wait for launches to end, and some have been left without anybody knowing whether their work is over. Find out (no lock
	// is held), and ask again without Late.
	ErrLate = errors.New("find out which launches are over and ask again")
	// ErrFreed: the buffer was freed.
	ErrFreed = errors.New("the buffer was freed")
)

// The reasons of a MemoryError.
const (
	ReasonBudget   = "budget"    // a strict budget leaves no room
	ReasonDevice   = "device"    // the device has no room
	ReasonHost     = "host"      // no host memory for the copies of what would have to be spilled
	ReasonTooLarge = "too_large" // can never fit; nothing was moved
)

// MemoryError says that a request does not fit and why. Figures are bytes, read as one moment when the error was made; Unknown (-1)
// where there is none. It holds no buffer.
type MemoryError struct {
	Device      string
	Requested   int64
	InUse       int64
	Cached      int64
	Spilled     int64
	Budget      int64
	DeviceFree  int64
	DeviceTotal int64
	LargestFree int64
	Unspillable map[string]int64 // reason -> resident bytes that could not move
	Reason      string
	Holders     []Holder
	Cause       error // the driver's or the host's own error; may be nil
}

func (e *MemoryError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: cannot make room for %d bytes (%s): %d in use, %d spilled", e.Device, e.Requested, e.Reason, e.InUse, e.Spilled)
	if e.Budget >= 0 {
		fmt.Fprintf(&b, ", budget %d", e.Budget)
	}
	if e.DeviceFree >= 0 {
		fmt.Fprintf(&b, ", device free %d", e.DeviceFree)
	}
	reasons := make([]string, 0, len(e.Unspillable))
	for reason := range e.Unspillable {
		reasons = append(reasons, reason)
	}
	sort.Strings(reasons)
	for _, reason := range reasons {
		fmt.Fprintf(&b, ", cannot move %d (%s)", e.Unspillable[reason], reason)
	}
	if e.Cause != nil {
		fmt.Fprintf(&b, ": %v", e.Cause)
	}
	return b.String()
}

// Unwrap returns the driver's or the host's own error.
func (e *MemoryError) Unwrap() error { return e.Cause }

// LostError says that the driver reports a state that no call can leave. The books can still be read.
type LostError struct {
	Device string
	Cause  error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("%s is lost, and with it what it held; start a new process: %v", e.Device, e.Cause)
}

// Unwrap returns the driver's error.
func (e *LostError) Unwrap() error { return e.Cause }

// BusyError says that a buffer cannot be freed now; nothing changed.
type BusyError struct {
	Device string
	Bytes  uint64
	Holds  []HoldInfo
}

func (e *BusyError) Error() string {
	reasons := make([]string, len(e.Holds))
	for i, h := range e.Holds {
		reasons[i] = h.String()
	}
	return fmt.Sprintf("%s: a buffer of %d bytes is in use and cannot be freed now: %s", e.Device, e.Bytes, strings.Join(reasons, ", "))
}

// OverlapError says that memory which somebody else is said to own is, or overlaps, memory that is ours already; nothing changed.
type OverlapError struct {
	Device                   string
	Address, Bytes           uint64
	OtherAddress, OtherBytes uint64
	Freed                    bool // the other is a buffer that was dropped or freed, whose memory has not gone back to the driver yet
}

func (e *OverlapError) Error() string {
	other := "a buffer that is owned already"
	if e.Freed {
		other = "a buffer that was freed, and whose memory is on its way back to the driver"
	}
	return fmt.Sprintf("%s: [%#x, %#x) overlaps %s: [%#x, %#x)", e.Device, e.Address, e.Address+e.Bytes, other, e.OtherAddress, e.OtherAddress+e.OtherBytes)
}

// HowError says that memory given to Adopt was allocated by a call whose counterpart this device does not have, or must not call; nothing changed.
type HowError struct {
	Device string
	How    How
	Cause  error // why the driver refused just this memory; nil: the call says it all
}

func (e *HowError) Unwrap() error { return e.Cause }

func (e *HowError) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("%s cannot adopt this memory of %v: %v", e.Device, e.How, e.Cause)
	}
	if e.How == HowHost {
		return fmt.Sprintf("%s may spill memory, which frees it, and memory that %v frees itself must stay: it can be adopted only as unmovable (movable=False)",
			e.Device, e.How)
	}
	return fmt.Sprintf("%s cannot free memory allocated by %v, so it cannot be adopted", e.Device, e.How)
}

// RangeError says that an access goes past the end of a buffer; nothing was read or written.
type RangeError struct {
	Device              string
	Offset, Bytes, Size uint64
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("%s: bytes [%d, %d) are outside a buffer of %d bytes", e.Device, e.Offset, e.Offset+e.Bytes, e.Size)
}

// WaitError is the Cause of a MemoryError whose launch waited for other launches that did not end.
type WaitError struct {
	Device   string
	Waited   time.Duration
	Launches int // buffers that they still kept
}

func (e *WaitError) Error() string {
	return fmt.Sprintf("%s: waited %v for other launches to end, which still keep %d buffers; does one of them wait for a lock that this thread holds?",
		e.Device, e.Waited.Round(time.Millisecond), e.Launches)
}
