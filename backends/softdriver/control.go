// Package softdriver controls the software drivers: libraries that stand in for a vendor's, over host memory. Their sources, in C, are in the
// folders below; see README.md.
package softdriver

/*
#include <stdlib.h>

typedef struct {
	int (*set)(const char *, long long);
	long long (*get)(const char *);
	int (*fail)(const char *, unsigned long, int);
	unsigned long (*calls)(const char *);
	void (*reset)(void);
} tms_control;

static int tms_control_set(tms_control *s, const char *key, long long value) { return s->set(key, value); }
static long long tms_control_get(tms_control *s, const char *key) { return s->get(key); }
static int tms_control_fail(tms_control *s, const char *name, unsigned long nth, int code) { return s->fail(name, nth, code); }
static unsigned long tms_control_calls(tms_control *s, const char *name) { return s->calls(name); }
static void tms_control_reset(tms_control *s) { s->reset(); }
*/
import "C"

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/tack-memory/tack-memory/backends/dl"
)

// Control is the control of one software driver. Such a library backs the "sim" devices and the tests. Its controls have names of their own
// beside the vendor's functions. All of it may be used from any thread.
type Control struct{ functions C.tms_control }

// Of returns a library's control, or nil where the library is a real driver.
func Of(library *dl.Library) *Control {
	c := &Control{}
	addresses := (*[5]uintptr)(unsafe.Pointer(&c.functions))
	for i, name := range [...]string{"tmsoft_set", "tmsoft_get", "tmsoft_fail", "tmsoft_calls", "tmsoft_reset"} {
		if addresses[i] = library.Lookup(name); addresses[i] == 0 {
			return nil
		}
	}
	return c
}

// Set changes a setting, "capacity" for one. The number of devices and their capacities are read when the driver starts.
func (c *Control) Set(key string, value int64) error {
	name := C.CString(key)
	defer C.free(unsafe.Pointer(name))
	if C.tms_control_set(&c.functions, name, C.longlong(value)) != 0 {
		return fmt.Errorf("the software driver does not take %s = %d", key, value)
	}
	return nil
}

// Get reads a setting or a figure.
func (c *Control) Get(key string) (int64, error) {
	name := C.CString(key)
	defer C.free(unsafe.Pointer(name))
	value := int64(C.tms_control_get(&c.functions, name))
	if value == math.MinInt64 {
		return 0, fmt.Errorf("the software driver has no %s", key)
	}
	return value, nil
}

// Fail makes the nth next call of a vendor's function ("*": of any) return code without doing anything; nth 0 takes that back.
func (c *Control) Fail(function string, nth int, code int) error {
	name := C.CString(function)
	defer C.free(unsafe.Pointer(name))
	if C.tms_control_fail(&c.functions, name, C.ulong(nth), C.int(code)) != 0 {
		return fmt.Errorf("the software driver has no function %s", function)
	}
	return nil
}

// Calls counts the calls of a vendor's function ("*": of all) since the start or the last Reset.
func (c *Control) Calls(function string) int {
	name := C.CString(function)
	defer C.free(unsafe.Pointer(name))
	return int(C.tms_control_calls(&c.functions, name))
}

// Reset clears faults, counters and the sticky error, and takes the settings back to those of the environment.
func (c *Control) Reset() { C.tms_control_reset(&c.functions) }
