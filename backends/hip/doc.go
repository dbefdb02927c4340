// Package hip is AMD's HIP runtime library for package ordered, which makes gomem's Driver of it. It needs that library and nothing else: no
// ROCm toolkit, no header of the vendor, no binding.
//
//	symbols.def   the functions of the library that are called; the only list
//	abi.h         types and numbers of the runtime's interface
//	api.h         the table of the library's functions, from symbols.def, and how each of them is called
//	adapter.c     the library as package ordered wants it: functions of a line or two
//	library.c     questions that need no device, and what the runtime's codes mean
//	hip.go        where the library is looked for, and what package ordered must know of it
//	symbols.go    the list as Go sees it
//
// What differs from CUDA: the thread has a current device and no context, so a host framework hands over a stream only; the runtime
// remembers the last error of each thread for hipGetLastError, which is the host's and must not be ours; hipFree waits for the whole device,
// so where there are no pools dropped blocks are kept for reuse.
package hip
