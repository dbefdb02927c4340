// Package gomem is the core of tack-memory: it knows how much memory a framework holds on each device, and moves the buffers used
// least recently to host memory and back when a device is full or a budget would be passed.
//
// It is pure Go. It knows neither Python nor a vendor: a device is a [Driver], and what Python sees is built on top in package
// bindings. What Python's fast lane reads without a call (records and books) lies outside Go's heap, see shared.go.
//
// # Locks
//
// In the order in which they may be taken (ranks.go checks it in builds with the tag "invariants"):
//
//	turnstile   one slow launch or allocation at a time may wait for others (admit.go)
//	moving      one a device: whoever moves or frees memory of the device (fifolock.go)
//	stays       one reader at a time of what has left the device since the peaks of watched scopes (stays.go)
//	registry, holds, addresses, pool   short, inside their own files
//	books       leaf lock in shared memory, some nanoseconds (books.go)
//
// Nobody who holds one of them ever needs Python's GIL, runs Python or calls a hook. A driver call may be made under turnstile and
// moving, never under another. An allocation that fits takes neither turnstile nor moving.
//
// # The protocol
//
// How launches, spills, restores, drops, holds and host accesses meet is modelled in gomem/model (Promela). Comments of the form
// "model: spill.barrier" name the model's step that a line implements.
package gomem
