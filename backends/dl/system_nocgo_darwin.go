//go:build !cgo

package dl

import (
	"errors"
	"os"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

// System is the dynamic linker of this process, without cgo: so that what concerns macOS alone can be built on any machine.
var System Loader = system{}

type system struct{}

const (
	onlyLoaded = 0x10        // RTLD_NOLOAD of macOS
	anywhere   = ^uintptr(1) // RTLD_DEFAULT of macOS: whatever is loaded
)

// The linker keeps its message per thread and purego fetches it in a second call, so both must be made on one thread.

func (system) Open(candidate Candidate) (Handle, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	mode := purego.RTLD_NOW | purego.RTLD_LOCAL
	if candidate.OnlyLoaded {
		mode |= onlyLoaded
	}
	handle, err := purego.Dlopen(candidate.Name, mode)
	if err != nil && err.Error() == "" {
		err = errors.New("the dynamic linker gave no reason")
	}
	return Handle(handle), err
}

func (system) Lookup(library Handle, symbol string) uintptr {
	address, err := purego.Dlsym(uintptr(library), symbol)
	if err != nil {
		return 0 // it has none of that name, which is an answer
	}
	return address
}

// symbolInfo is the linker's Dl_info.
type symbolInfo struct {
	file   *byte
	base   uintptr
	symbol *byte
	start  uintptr
}

func (system) File(address uintptr) string {
	dladdr, err := purego.Dlsym(anywhere, "dladdr")
	if err != nil {
		return ""
	}
	info := new(symbolInfo)
	found, _, _ := purego.SyscallN(dladdr, address, uintptr(unsafe.Pointer(info)))
	runtime.KeepAlive(info)
	if int32(found) == 0 || info.file == nil {
		return ""
	}
	length := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(info.file), length)) != 0 {
		length++
	}
	return string(unsafe.Slice(info.file, length))
}

func (system) Close(library Handle) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlclose(uintptr(library))
}

// Environment reads a variable. Without cgo there is no Go inside another program, so Go's copy of the environment is the process's own.
func Environment(name string) (value string, set bool) { return os.LookupEnv(name) }
