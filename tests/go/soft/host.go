package soft

/*
#include <stdint.h>
#include <stdlib.h>

// Every parameter of the drivers' functions is an integer or a pointer, and each is passed in a register or slot of its own.
static uint32_t tms_call(uintptr_t function, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h) {
	return ((uint32_t (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t))function)(a, b, c, d, e, f, g, h);
}

// The answer is written to C's stack.
typedef struct { uint32_t code; uint64_t value; } tms_answer;
static tms_answer tms_ask(uintptr_t function, int place, uint64_t *arguments) {
	tms_answer answer = { 0, 0 };
	uint64_t *a = arguments;
	a[place] = (uint64_t)(uintptr_t)&answer.value;
	answer.code = tms_call(function, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);
	return answer;
}
*/
import "C"

import (
	"testing"
	"unsafe"

	"github.com/tack-memory/tack-memory/backends/dl"
)

// Host is a framework that uses a driver by itself, in the same process as we do: it calls the vendor's functions by name.
type Host struct {
	t       testing.TB
	library *dl.Library
}

// mostArguments is how many arguments a function can have.
const mostArguments = 8

// NewHost opens the library once more, as another user of it in this process would.
func NewHost(t testing.TB, file string) *Host {
	t.Helper()
	library, err := dl.Open(dl.System, []dl.Candidate{{Name: file}}, dl.API{})
	if err != nil {
		t.Fatal(err)
	}
	return &Host{t, library}
}

func (h *Host) address(function string) C.uintptr_t {
	h.t.Helper()
	address := h.library.Lookup(function)
	if address == 0 {
		h.t.Fatalf("the software driver has no %s", function)
	}
	return C.uintptr_t(address)
}

// Call calls a function and returns its code.
func (h *Host) Call(function string, arguments ...uint64) int {
	h.t.Helper()
	var a [mostArguments]C.uint64_t
	for i, argument := range arguments {
		a[i] = C.uint64_t(argument)
	}
	return int(C.tms_call(h.address(function), a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]))
}

// Must is Call for what has to work.
func (h *Host) Must(function string, arguments ...uint64) {
	h.t.Helper()
	if code := h.Call(function, arguments...); code != 0 {
		h.t.Fatalf("%s: %#x", function, code)
	}
}

// Ask calls a function whose first argument is where the answer goes.
func (h *Host) Ask(function string, arguments ...uint64) uint64 {
	h.t.Helper()
	return h.ask(function, 0, append([]uint64{0}, arguments...))
}

// AskLast calls a function whose last argument is where the answer goes.
func (h *Host) AskLast(function string, arguments ...uint64) uint64 {
	h.t.Helper()
	return h.ask(function, len(arguments), append(arguments, 0))
}

func (h *Host) ask(function string, place int, arguments []uint64) uint64 {
	h.t.Helper()
	var a [mostArguments]C.uint64_t
	for i, argument := range arguments {
		a[i] = C.uint64_t(argument)
	}
	answer := C.tms_ask(h.address(function), C.int(place), &a[0])
	if answer.code != 0 {
		h.t.Fatalf("%s: %#x", function, int(answer.code))
	}
	return uint64(answer.value)
}

// Bytes is host memory outside Go's heap, as drivers get it, until the test ends.
func Bytes(t testing.TB, n int) ([]byte, unsafe.Pointer) {
	t.Helper()
	memory := C.calloc(1, C.size_t(max(n, 1)))
	if memory == nil {
		t.Fatal("no host memory")
	}
	t.Cleanup(func() { C.free(memory) })
	return unsafe.Slice((*byte)(memory), n), memory
}

// Place is a number for C's memory, as arguments of Call.
func Place(pointer unsafe.Pointer) uint64 { return uint64(uintptr(pointer)) }
