package fast

/*
#include "fast.h"
*/
import "C"

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// givingBack is held while memory is given back in the background.
var givingBack sync.Mutex

// inBackground calls a function that gives memory back in the background; not once Python has ended (tm_ended). Then the process's exit handlers run, the
// vendors' libraries take themselves down, and a call into one that is half gone may crash. What is left then is the system's to take back.
//
// C says it by a variable and not by a call: Python has switched its main thread's signal stack off by then, and a signal of Go's scheduler that met that
// thread inside Go would end the process.
func inBackground(giveBack func()) {
	givingBack.Lock()
	defer givingBack.Unlock()
	if atomic.LoadInt32((*int32)(unsafe.Pointer(&C.tm_ended))) == 0 {
		giveBack()
	}
}
