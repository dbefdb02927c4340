package dl

// #include <stdlib.h>
import "C"

import "unsafe"

// Environment reads a variable from C's environment. os.Getenv would be wrong here: a Go runtime that lives in a shared library sees
// the variables of the moment the process started, and not what the program (Python's os.environ) has set since.
func Environment(name string) (value string, set bool) {
	key := C.CString(name)
	defer C.free(unsafe.Pointer(key))
	text := C.getenv(key)
	if text == nil {
		return "", false
	}
	return C.GoString(text), true
}
