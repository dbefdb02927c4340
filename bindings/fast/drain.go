package fast

/*
#include "fast.h"
*/
import "C"

import (
	"time"

	"github.com/tack-memory/tack-memory/bindings/internal/engine"
	"github.com/tack-memory/tack-memory/bindings/internal/later"
	"github.com/tack-memory/tack-memory/bindings/internal/wire"
	"github.com/tack-memory/tack-memory/gomem"
)

// drainDelay is how long dropped memory may lie about when nobody allocates: an allocation drains first, whatever this says. Waking a
// goroutine costs some microseconds, so a program that drops all the time pays for it once in a millisecond.
const drainDelay = time.Millisecond

// drainer gives back what was dropped on all devices, a little later. Its turn begins when it has what inBackground waits for: one drain may take long, where a
// driver's free waits.
var drainer = later.Job{Delay: drainDelay, Do: func(begun func()) {
	defer report()
	inBackground(func() {
		begun()
		drainAll()
	})
	reapNow()
}}

// tmLetGo is the end of a Buffer (tp_dealloc). It and tmSetOrigins are the ways into Go that are taken with the GIL: it counts and puts the buffer on a list,
// and waits for nothing, not even for a driver, so a destructor never gives the GIL away. The drainer frees what is on the list. A panic would end the
// process; LetGo makes one break the device.
//
//export tmLetGo
func tmLetGo(device, index, cause C.uint32_t) {
	engine.At(uint32(device)).LetGoFor(uint32(index), gomem.Cause(cause))
	drainer.Wake()
}

// tmSetOrigins tells the core what is recorded of origins from now on (enum tm_origins). As tmLetGo it is called with the GIL, so that the switch and its word to Go are
// one step, and takes no lock but the books' and one that is held for no longer.
//
//export tmSetOrigins
func tmSetOrigins(mode C.uint32_t) {
	defer report()
	engine.SetOrigins(gomem.Origins(mode))
}

// drainAll gives back what was dropped on all devices.
func drainAll() {
	for index := uint32(0); ; index++ {
		d := engine.At(index)
		if d == nil {
			return
		}
		d.Drain()
	}
}

// report is deferred where a panic would end the process and there is no call to fail. (In a call on a device it breaks the device, and does not come
// here.)
func report() {
	if r := recover(); r != nil {
		wire.General.Add(gomem.LevelError, wire.Panic(r).Error())
	}
}

// notices is where something is noted that has to do with a device.
func notices(device uint32) *gomem.Notices {
	if d := engine.At(device); d != nil {
		return d.Notices()
	}
	return &wire.General
}
