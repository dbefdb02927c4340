// Package ordered turns a library in the style of CUDA's into gomem's Driver: devices with streams that order everything, memory pools whose
// frees take their place on a stream (or none, then a list of frees that wait), events, asynchronous copies, and a current context or device
// per thread. A vendor's backend over it (cuda, hip) has the vendor's prototypes, numbers and adapters, and nothing else.
//
//	vendor.h      what the library must be able to do, as a table of C functions that the backend fills
//	vendor.go     what else a backend says of its library
//	device.h      one device in C: each operation of the Driver is one C function, which sets the context and puts the caller's back
//	device.c      its start, its change to a host's context and stream, its end
//	memory.c      allocation, frees, figures
//	pending.c     the list of blocks whose free waits
//	cache.h       blocks kept for reuse where a free waits for the whole device
//	copy.c        copies, fills, order between streams
//	library.go    loading, devices and their properties
//	driver.go     the Driver; copy.go: its copies and fills
//	errors.go     what the vendor's codes mean to the core
//
// Stream order. Everything is queued on one stream of the device: one of our own, or, after SetStream, the host framework's. Where the
// device has memory pools, memory comes from a pool of our own and is freed in stream order. Elsewhere a block that is freed waits on a
// list until the stream has passed it, and is then given back, or kept for reuse where giving back is slow.
package ordered
