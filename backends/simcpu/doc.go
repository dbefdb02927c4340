// Package simcpu is a device for a host framework's CPU backend to compute on: a gomem.Driver over ordinary host memory that can be spilled. The host
// reads and writes it at its device address, and every operation is done when it returns. It shows the mistakes that spilling makes possible:
//
//   - Fresh addresses: spilled and freed memory is unmapped, and its addresses are never used again in this process. A stale pointer crashes instead of
//     computing wrong numbers.
//   - Reused addresses: memory that was freed is overwritten and handed out again at once, as real pools do. Stale pointers, and caches keyed by
//     pointer, show as wrong numbers.
//
// There is one such device in a process, "sim-cpu:0", and it exists only after somebody has asked for it.
package simcpu
