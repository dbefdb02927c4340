package metal

import (
	"runtime"
	"unsafe"

	"github.com/tack-memory/tack-memory/backends/common"
)

// Object is an Objective-C object; 0 is nil. Who owns a reference to it stands where it is got: methods whose names begin with "new", "copy"
// or "create" give one to the caller, all others lend theirs until the autorelease pool ends.
type Object uintptr

// Selector is a method's name as the runtime knows it.
type Selector uintptr

// Frameworks is what this package uses of the Objective-C runtime and of Metal. All of it may be called from any thread.
type Frameworks interface {
	// Selector returns the selector of a method's name.
	Selector(name string) Selector
	// Send calls a method of an object. Arguments and result are integers, pointers and objects. A result of type BOOL is in the low byte: the
	// rest is whatever was there. A message to nil returns 0; one to an object that has no such method ends the process.
	Send(receiver Object, method Selector, arguments ...uintptr) uintptr
	// PushPool opens an autorelease pool on this thread, PopPool ends it, on the same thread.
	PushPool() (pool uintptr)
	PopPool(pool uintptr)
	// CreateSystemDefaultDevice is MTLCreateSystemDefaultDevice: a reference of the caller's own, or nil.
	CreateSystemDefaultDevice() Object
	// CopyAllDevices is MTLCopyAllDevices: an array, a reference of the caller's own; nil also where the system has no such function.
	CopyAllDevices() Object
	// Path is Metal's file, Version the version of macOS, "14.5" (each "" where it cannot be told). Missing says what does not work here.
	Path() string
	Version() string
	Missing() []string
}

// objects calls methods by their numbers in the table.
type objects struct {
	Frameworks
	selectors [methodsTotal]Selector
}

func newObjects(frameworks Frameworks) *objects {
	o := &objects{Frameworks: frameworks}
	for m := range o.selectors {
		o.selectors[m] = frameworks.Selector(methods[m].name)
	}
	return o
}

func (o *objects) send(receiver Object, m method, arguments ...uintptr) uintptr {
	return o.Send(receiver, o.selectors[m], arguments...)
}

func (o *objects) sendObject(receiver Object, m method, arguments ...uintptr) Object {
	return Object(o.send(receiver, m, arguments...))
}

// sendFlag calls a method that returns a BOOL.
func (o *objects) sendFlag(receiver Object, m method, arguments ...uintptr) bool {
	return o.send(receiver, m, arguments...)&0xff != 0
}

// has reports whether an object has a method. Every method that some macOS lacks is asked for first.
func (o *objects) has(receiver Object, m method) bool {
	return o.sendFlag(receiver, methodRespondsToSelector, uintptr(o.selectors[m]))
}

func (o *objects) retain(receiver Object)  { o.send(receiver, methodRetain) }
func (o *objects) release(receiver Object) { o.send(receiver, methodRelease) }

// text is an NSString's contents. The bytes that it lends live only as long as the pool, so they are copied.
func (o *objects) text(receiver Object) string {
	address := o.send(receiver, methodUTF8String)
	if address == 0 {
		return ""
	}
	start := common.Pointer(uint64(address))
	length := 0
	for *(*byte)(unsafe.Add(start, length)) != 0 {
		length++
	}
	return string(unsafe.Slice((*byte)(start), length))
}

// pooled runs work inside an autorelease pool: methods that lend objects leave them there, and without a pool each would stay for ever. A
// pool belongs to its thread, and a goroutine may be moved to another between two calls.
func (o *objects) pooled(work func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pool := o.PushPool()
	defer o.PopPool(pool)
	work()
}
