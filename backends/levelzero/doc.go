// Package levelzero turns Intel's Level Zero loader into gomem's Driver. It needs that library and nothing else: no toolkit, no header of
// the vendor, no binding.
//
//	symbols.def   the functions of the loader that are called; the only list
//	abi.h         types and numbers of the interface
//	device.h      one device in C: each operation of the Driver is one C function
//	library.c     which devices there are, and what they are
//	figure.c      how much memory is free: Sysman, or the driver's own figure
//	device.c      a device's start, its change to a host's context and list, its end
//	stream.c      the two ways to queue work in order
//	memory.c      allocation, the rule that keeps it within the device, deferred frees
//	copy.c        copies and fills
//	symbols.go    the list as Go sees it
//	library.go    loading, devices and their properties
//	driver.go     the Driver
//	errors.go     the vendor's codes and what they mean to the core
//
// What is different here from CUDA and HIP:
//
// Order. There are no streams; a command list is one if it is immediate and in order. Where the driver does not know that, a queue of lists
// with barriers does the same. A host framework's list is never appended to, since two threads must not do that at once: after SetStream,
// work goes on a list of our own in the host's context, after the host's list was waited for, and is waited for before the call returns. So
// the order is that of the calls, and a host needs no lock for us.
//
// Frees. None is ordered by a stream. A block that is freed waits until a place in our stream that was marked behind its last use has passed;
// then the driver gets it, with the policy that defers the free where it has one. Until then, and until the figure of free memory shows it
// where there is one, no allocation counts on it.
//
// Capacity. The driver promises more memory than there is, without an error. What may be promised is decided in memory.c.
//
// Contexts. Memory belongs to the context it was allocated in, and is freed in it. A host's context must outlive what was allocated while
// it was set.
package levelzero
