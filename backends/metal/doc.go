// Package metal turns Apple's Metal into gomem's Driver, for accounting only: on a Mac the memory of the device is the host's, which the system
// pages by itself, so nothing is ever spilled (open its device with Options.Movable false). It needs macOS and nothing else: no Xcode, no
// Objective-C compiler, and no cgo.
//
//	objc.go               what is used of the Objective-C runtime, as an interface, and objects behind it
//	methods.go            the methods of Metal's objects that are called; the only list, with the version of macOS that has them
//	library.go            devices, their order and their properties
//	driver.go             the Driver: figures, the host framework's pool, and what has nothing to do here
//	buffers.go            memory of our own: an MTLBuffer each
//	queue.go              the host framework's command queue, and waiting for it
//	errors.go             what goes wrong, and what it means to the core
//	frameworks_darwin.go  the interface over the real frameworks
//
// Everything but the last file is plain Go over the interface, and is tested on any system against objects that behave as the real ones do.
//
// What Metal tells and what it does not: device_total is recommendedMaxWorkingSetSize, driver_allocated is currentAllocatedSize (all that this
// process has on the device, the host framework's pool included); how much is free nobody tells, so that is unknown. A figure whose
// method this macOS does not have is unknown, too.
package metal
