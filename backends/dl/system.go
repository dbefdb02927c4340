package dl

/*
#cgo linux LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// dlerror belongs to the thread, and a goroutine may be on another thread by its next call into C: the text is read here.
// RTLD_LOCAL: a driver's names must not answer look-ups of others. RTLD_NOW: a broken library fails here and not in a call.
static uintptr_t tmdl_open(const char *name, int only_loaded, char *text, size_t room) {
	dlerror();
	void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | (only_loaded ? RTLD_NOLOAD : 0));
	if (!handle) {
		const char *why = dlerror();  // glibc gives none where RTLD_NOLOAD finds nothing
		snprintf(text, room, "%s", why ? why : only_loaded ? "not loaded in this process" : "the dynamic linker gave no reason");
	}
	return (uintptr_t)handle;
}

static int tmdl_close(uintptr_t handle, char *text, size_t room) {
	dlerror();
	int failed = dlclose((void *)handle);
	if (failed) {
		const char *why = dlerror();
		snprintf(text, room, "%s", why ? why : "the dynamic linker gave no reason");
	}
	return failed;
}

static uintptr_t tmdl_lookup(uintptr_t handle, const char *name) { return (uintptr_t)dlsym((void *)handle, name); }

static const char *tmdl_file(uintptr_t address) {
	Dl_info info;
	return dladdr((void *)address, &info) ? info.dli_fname : NULL;
}
*/
import "C"

import (
	"errors"
	"unsafe"
)

// System is the dynamic linker of this process.
var System Loader = system{}

type system struct{}

// textBytes is room for the linker's message; it names a file and a reason, and longer ones are cut.
const textBytes = 1024

func (system) Open(candidate Candidate) (Handle, error) {
	name := C.CString(candidate.Name)
	defer C.free(unsafe.Pointer(name))
	var text [textBytes]C.char
	only := C.int(0)
	if candidate.OnlyLoaded {
		only = 1
	}
	handle := C.tmdl_open(name, only, &text[0], textBytes)
	if handle == 0 {
		return 0, errors.New(C.GoString(&text[0]))
	}
	return Handle(handle), nil
}

func (system) Lookup(library Handle, symbol string) uintptr {
	name := C.CString(symbol)
	defer C.free(unsafe.Pointer(name))
	return uintptr(C.tmdl_lookup(C.uintptr_t(library), name))
}

func (system) File(address uintptr) string {
	name := C.tmdl_file(C.uintptr_t(address))
	if name == nil {
		return ""
	}
	return C.GoString(name)
}

func (system) Close(library Handle) error {
	var text [textBytes]C.char
	if C.tmdl_close(C.uintptr_t(library), &text[0], textBytes) != 0 {
		return errors.New(C.GoString(&text[0]))
	}
	return nil
}
