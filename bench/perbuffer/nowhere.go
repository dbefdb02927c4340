package main

import (
	"unsafe"

	"github.com/tack-memory/tack-memory/gomem"
)

// nowhere is a driver without memory: its addresses are numbers that nobody reads, and it remembers nothing, so that whatever memory a buffer costs is
// the core's.
type nowhere struct{ next uint64 }

const total = 1 << 44

func (n *nowhere) Name() string { return "nowhere:0" }
func (n *nowhere) Allocate(nbytes uint64) (uint64, error) {
	n.next += (nbytes + 511) &^ 511
	return 1<<40 + n.next, nil
}
func (n *nowhere) Free(gomem.Block) error                       { return nil }
func (n *nowhere) CanFree(gomem.How) bool                       { return true }
func (n *nowhere) CopyOut(unsafe.Pointer, uint64, uint64) error { return nil }
func (n *nowhere) CopyIn(uint64, unsafe.Pointer, uint64) error  { return nil }
func (n *nowhere) CopyWithin(uint64, uint64, uint64) error      { return nil }
func (n *nowhere) Fill(uint64, []byte, uint64) error            { return nil }
func (n *nowhere) Synchronize() error                           { return nil }
func (n *nowhere) Trim() (uint64, error)                        { return 0, nil }
func (n *nowhere) PendingFree() uint64                          { return 0 }
func (n *nowhere) Stream() uint64                               { return 0 }
func (n *nowhere) SetStream(uint64, uint64) error               { return nil }
func (n *nowhere) Join(uint64, uint64) error                    { return nil }
func (n *nowhere) Close() error                                 { return nil }
func (n *nowhere) Memory() (gomem.DriverMemory, error) {
	return gomem.DriverMemory{Free: total, Total: total, Cached: 0, Allocated: gomem.Unknown, LargestFree: gomem.Unknown}, nil
}
