// Package faults runs the core over the CUDA backend and makes each call of the vendor's library, and of the host allocator, fail once in
// every state that a buffer can be in. It has tests only.
//
// The matrix is generated: every operation of gomem.Device (operations_test.go), begun with the buffer in every state that lasts
// (states in world_test.go), is run once without a fault to see which of the vendor's functions it calls, and how often; then once for each of
// these calls with that call failing. A buffer is in the states that do not last (building, spilling, restoring, and dropped in each of
// them) while an operation runs; a probe between the core and the backend tells in which states the faults fell, and a test demands that
// all of them occur.
package faults
