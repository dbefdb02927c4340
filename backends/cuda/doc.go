// Package cuda turns NVIDIA's driver library into gomem's Driver. It needs that library and nothing else: no toolkit, no header of the
// vendor, no binding.
//
//	symbols.def   the functions of the library that are called; the only list
//	abi.h         types and numbers of the driver's interface
//	device.h      one device in C: each operation of the Driver is one C function, which sets the context and puts the caller's back
//	symbols.go    the list as Go sees it
//	library.go    loading, devices and their properties
//	driver.go     the Driver
//	errors.go     the vendor's codes and what they mean to the core
//	software.go   the software driver that stands in for the library (the "sim" devices), and its controls
//
// Stream order. Everything is queued on one stream of the device: one of our own, or, after SetStream, the host framework's. Where the
// device has memory pools (CUDA 11.2 and newer), memory comes from a pool of our own and is freed in stream order. Elsewhere a block that
// is freed waits on a list until the stream has passed it.
package cuda
