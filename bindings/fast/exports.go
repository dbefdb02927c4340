// Package fast is the fast lane: the CPython extension module _fast, in C, and the functions by which C enters Go.
//
// C reads and writes the memory that it shares with package gomem (tm_shared.h) and enters Go only for what may allocate, move, free or
// wait. It enters without Python's GIL, and Go never takes the GIL and never calls Python. The build links the package into the
// shared object by a blank import beside the generated control plane.
package fast

/*
#cgo CFLAGS: -I${SRCDIR}/../events -I${SRCDIR}/../../python/tack_memory/include
#cgo CFLAGS: -fvisibility=hidden -Wall -Wextra -Wno-unused-parameter -Wno-cast-function-type -Wno-missing-field-initializers
#include <stdlib.h>
#include "fast.h"
#include "events.h"
*/
import "C"

import (
	"sync"
	"unsafe"

	"github.com/tack-memory/tack-memory/gomem"
)

// tmPerform carries out one call on the calling thread.
//
//export tmPerform
func tmPerform(c *C.tm_call) {
	perform(c, nil)
}

// tasks are the calls that run on goroutines now. C names a task by its address, which is valid until tm_task_finish.
var tasks sync.Map // *C.tm_task -> *gomem.Cancel

// tmStart carries out one call on a goroutine of its own and returns at once; tm_task_finish tells the thread that waits for it. Both
// pointers are C memory that lives until then.
//
//export tmStart
func tmStart(task *C.tm_task, c *C.tm_call) {
	cancel := new(gomem.Cancel)
	tasks.Store(task, cancel)
	go func() {
		perform(c, cancel)
		tasks.Delete(task)
		C.tm_task_finish(task)
	}()
}

// tmCancel makes a task end soon. The thread that started it goes on waiting for its end.
//
//export tmCancel
func tmCancel(task *C.tm_task) {
	if cancel, running := tasks.Load(task); running {
		cancel.(*gomem.Cancel).Cancel()
	}
}

// tmTell has the events of all devices written into a ring in C's memory, which stays where it is.
//
//export tmTell
func tmTell(ring *C.tm_event_ring) { gomem.Tell((*gomem.ToldRing)(unsafe.Pointer(ring))) }

// tmPlainCounts is 1 where launches may count by plain stores under the GIL.
//
//export tmPlainCounts
func tmPlainCounts() C.int {
	if gomem.PlainCounts() {
		return 1
	}
	return 0
}
