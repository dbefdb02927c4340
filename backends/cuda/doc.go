// Package cuda is NVIDIA's driver library for package ordered, which makes gomem's Driver of it. It needs that library and nothing else: no
// toolkit, no header of the vendor, no binding.
//
//	symbols.def   the functions of the library that are called; the only list
//	abi.h         types and numbers of the driver's interface
//	api.h         the table of the library's functions, from symbols.def
//	adapter.c     the library as package ordered wants it: functions of a line or two
//	library.c     questions that need no context, and what the driver's codes mean
//	cuda.go       where the library is looked for, and what package ordered must know of it
//	symbols.go    the list as Go sees it
package cuda
