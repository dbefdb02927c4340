package ordered

import (
	"unsafe"

	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/gomem"
)

// Vendor is what a backend tells of its vendor's library. It never changes.
type Vendor struct {
	Name string // "CUDA", in texts
	Kind string // "cuda": what errors name before a device is open

	Functions   unsafe.Pointer // the adapters, a C tmo_vendor (vendor.h)
	Symbols     []dl.Symbol    // the functions of the library; the adapters get their addresses as a C array in this order
	PoolSymbols []int          // those without which there are no memory pools
	PoolsCaveat string         // what is known to go wrong with the vendor's pools, for people; "": nothing

	VersionText func(version int) string // the library's version for people
	Advice      map[int]string           // what to do about a code with which the library does not start

	Plain, Ordered                    gomem.How // the vendor's two ways to allocate, as a host framework uses them
	AllocateCall, AllocateOrderedCall string    // the functions that Allocate calls, without pools and with
	FullCode                          int       // the vendor's error of a device that is full
	FullName                          string
}
