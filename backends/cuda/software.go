package cuda

/*
#include "device.h"
#include <stdlib.h>

typedef struct {
	int (*set)(const char *, long long);
	long long (*get)(const char *);
	int (*fail)(const char *, unsigned long, int);
	unsigned long (*calls)(const char *);
	void (*reset)(void);
} tmc_software;

static int tmc_software_set(tmc_software *s, const char *key, long long value) { return s->set(key, value); }
static long long tmc_software_get(tmc_software *s, const char *key) { return s->get(key); }
static int tmc_software_fail(tmc_software *s, const char *name, unsigned long nth, int code) { return s->fail(name, nth, code); }
static unsigned long tmc_software_calls(tmc_software *s, const char *name) { return s->calls(name); }
static void tmc_software_reset(tmc_software *s) { s->reset(); }
*/
import "C"

import (
	"fmt"
	"math"
	"unsafe"
)

// Software is the control of the software driver: a library that stands in for the vendor's, over host memory. It backs the "sim" devices
// and the tests. Its functions have names of their own beside the vendor's. All of it may be used from any thread.
type Software struct{ functions C.tmc_software }

// Software returns the control, or nil where the library is a real driver.
func (l *Library) Software() *Software {
	s := &Software{}
	addresses := (*[5]uintptr)(unsafe.Pointer(&s.functions))
	for i, name := range [...]string{"tmsoft_set", "tmsoft_get", "tmsoft_fail", "tmsoft_calls", "tmsoft_reset"} {
		if addresses[i] = l.file.Lookup(name); addresses[i] == 0 {
			return nil
		}
	}
	return s
}

// Set changes a setting, "capacity" for one. The number of devices and their capacities are read when the driver starts.
func (s *Software) Set(key string, value int64) error {
	name := C.CString(key)
	defer C.free(unsafe.Pointer(name))
	if C.tmc_software_set(&s.functions, name, C.longlong(value)) != 0 {
		return fmt.Errorf("the software driver does not take %s = %d", key, value)
	}
	return nil
}

// Get reads a setting or a figure.
func (s *Software) Get(key string) (int64, error) {
	name := C.CString(key)
	defer C.free(unsafe.Pointer(name))
	value := int64(C.tmc_software_get(&s.functions, name))
	if value == math.MinInt64 {
		return 0, fmt.Errorf("the software driver has no %s", key)
	}
	return value, nil
}

// Fail makes the nth next call of a vendor's function ("*": of any) return code without doing anything; nth 0 takes that back.
func (s *Software) Fail(function string, nth int, code int) error {
	name := C.CString(function)
	defer C.free(unsafe.Pointer(name))
	if C.tmc_software_fail(&s.functions, name, C.ulong(nth), C.int(code)) != 0 {
		return fmt.Errorf("the software driver has no function %s", function)
	}
	return nil
}

// Calls counts the calls of a vendor's function ("*": of all) since the start or the last Reset.
func (s *Software) Calls(function string) int {
	name := C.CString(function)
	defer C.free(unsafe.Pointer(name))
	return int(C.tmc_software_calls(&s.functions, name))
}

// Reset clears faults, counters and the sticky error, and takes the settings back to those of the environment.
func (s *Software) Reset() { C.tmc_software_reset(&s.functions) }
