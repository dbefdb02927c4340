// Package conformance is the suite that every backend passes, over its vendor's software driver: written once against gomem.Driver and
// gomem.Device, and run for each flavour of device (flavours_test.go). It has tests only.
//
// A new backend is a folder under backends/, a file vendor_<abi>_test.go here that says how a host framework uses that vendor's library, and one line
// for each flavour. Backends whose memory is counted and never spilled are flavours, too (counted_test.go): they pass what does not spill. So is one
// that spills over no library (own_test.go): it passes what needs neither a host framework beside it nor calls that fail.
//
// TestReal runs what needs no control over the library on devices of the vendors' own libraries: TACK_MEMORY_TEST_DEVICES="cuda:0,hip:0" names
// them (real_test.go). `make test-gpu` does so with all that it finds.
//
//	driver_test.go      one operation of gomem.Driver after the other
//	calls_test.go       each call of the vendor's library that an operation makes fails once
//	order_test.go       order on the device: frees, spills after a launch, other streams
//	ladder_test.go      what is tried, in which order, when the device is full
//	books_test.go       the figures, and what is left when everything is gone
//	neighbours_test.go  two devices; memory that others take and give back
//	visible_test.go     devices that the vendor's variable hides
//	matrix_test.go      gomem over the backend: each call fails once in every state that a buffer can be in
//	struck_test.go      which functions a test of faults must have made fail
//
// The matrix is generated: every operation of gomem.Device (operations_test.go), begun with the buffer in every state that lasts
// (states in world_test.go), is run once without a fault to see which of the vendor's functions it calls, and how often; then once for each of
// these calls with that call failing. A buffer is in the states that do not last (building, spilling, restoring, and dropped in each of
// them) while an operation runs; a probe between the core and the backend tells in which states the faults fell, and a test demands that
// all of them occur.
package conformance
