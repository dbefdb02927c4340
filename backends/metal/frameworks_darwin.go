package metal

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"

	"github.com/tack-memory/tack-memory/backends/dl"
)

// Functions of the Objective-C runtime and of Metal, by their places in the tables of symbols.
const (
	objcMsgSend = iota
	selRegisterName
	autoreleasePoolPush
	autoreleasePoolPop
)

const (
	createSystemDefaultDevice = iota
	copyAllDevices
)

// Since is a version of macOS, 1011 for 10.11.
var (
	runtimeSymbols = []dl.Symbol{
		objcMsgSend:         {Name: "objc_msgSend", Since: 1000, Required: true},
		selRegisterName:     {Name: "sel_registerName", Since: 1000, Required: true},
		autoreleasePoolPush: {Name: "objc_autoreleasePoolPush", Since: 1007, Required: true},
		autoreleasePoolPop:  {Name: "objc_autoreleasePoolPop", Since: 1007, Required: true},
	}
	metalSymbols = []dl.Symbol{
		createSystemDefaultDevice: {Name: "MTLCreateSystemDefaultDevice", Since: 1011, Required: true},
		copyAllDevices:            {Name: "MTLCopyAllDevices", Since: 1011, Feature: "devices beside the default one"},
	}
)

// Where the libraries are. Since macOS 11 there need not be a file: the linker has them in its cache.
const (
	runtimeFile      = "/usr/lib/libobjc.A.dylib"
	metalFile        = "/System/Library/Frameworks/Metal.framework/Metal"
	coreGraphicsFile = "/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics"
)

// frameworks is the real thing.
type frameworks struct {
	runtime, metal *dl.Library
	missing        []string
}

// Load opens Metal. It asks for no device yet.
func Load() (*Library, error) {
	var f frameworks
	var err error
	if f.runtime, err = dl.Open(dl.System, []dl.Candidate{{Name: runtimeFile}}, dl.API{Name: "Objective-C", Symbols: runtimeSymbols}); err != nil {
		return nil, fmt.Errorf("the Objective-C runtime: %w", err)
	}
	if f.metal, err = dl.Open(dl.System, []dl.Candidate{{Name: metalFile}}, dl.API{Name: "Metal", Symbols: metalSymbols}); err != nil {
		return nil, errors.Join(fmt.Errorf("Metal: %w", err), f.runtime.Close())
	}
	for _, symbol := range f.metal.Missing() {
		f.missing = append(f.missing, fmt.Sprintf("%s (Metal lacks %s)", symbol.Feature, symbol.Name))
	}
	// A program that draws nothing, such as Python, does not have CoreGraphics loaded, and then macOS has no default device for it.
	if _, err := dl.Open(dl.System, []dl.Candidate{{Name: coreGraphicsFile}}, dl.API{}); err != nil {
		f.missing = append(f.missing, fmt.Sprintf("the system's choice of the default device (CoreGraphics: %v)", err))
	}
	return New(&f), nil
}

// call calls a C function of integers and pointers.
func call(function uintptr, arguments ...uintptr) uintptr {
	result, _, _ := purego.SyscallN(function, arguments...)
	return result
}

func (f *frameworks) Selector(name string) Selector {
	text := append([]byte(name), 0)
	selector := call(f.runtime.Address(selRegisterName), uintptr(unsafe.Pointer(&text[0])))
	runtime.KeepAlive(text) // the runtime has made a copy of it
	return Selector(selector)
}

func (f *frameworks) Send(receiver Object, method Selector, arguments ...uintptr) uintptr {
	all := append([]uintptr{uintptr(receiver), uintptr(method)}, arguments...)
	return call(f.runtime.Address(objcMsgSend), all...)
}

func (f *frameworks) PushPool() uintptr { return call(f.runtime.Address(autoreleasePoolPush)) }

func (f *frameworks) PopPool(pool uintptr) { call(f.runtime.Address(autoreleasePoolPop), pool) }

func (f *frameworks) CreateSystemDefaultDevice() Object {
	return Object(call(f.metal.Address(createSystemDefaultDevice)))
}

func (f *frameworks) CopyAllDevices() Object {
	if f.metal.Address(copyAllDevices) == 0 {
		return 0
	}
	return Object(call(f.metal.Address(copyAllDevices)))
}

func (f *frameworks) Path() string { return f.metal.Path() }

func (f *frameworks) Version() string {
	version, err := unix.Sysctl("kern.osproductversion")
	if err != nil {
		return "" // before macOS 10.13.4 it has another name
	}
	return version
}

func (f *frameworks) Missing() []string { return f.missing }
