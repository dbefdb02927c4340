package fast

/*
#include "fast.h"
*/
import "C"

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/tack-memory/tack-memory/bindings/internal/engine"
)

// drainDelay is how long dropped memory may lie about when nobody allocates: an allocation drains first, whatever this says. Waking a
// goroutine costs some microseconds, so a program that drops all the time pays for it once in a millisecond.
const drainDelay = time.Millisecond

// draining is true while a drainer is on its way.
var draining atomic.Bool

// tmLetGo is the end of a Buffer (tp_dealloc). It is the one way into Go that is taken with the GIL: it counts and puts the buffer on a list,
// and waits for nothing, not even for a driver, so a destructor never gives the GIL away. The drainer frees what is on the list.
//
//export tmLetGo
func tmLetGo(device, index C.uint32_t) {
	defer func() {
		if r := recover(); r != nil { // a panic here would end the process; a destructor has nobody to raise to
			fmt.Fprintf(os.Stderr, "tack_memory: panic in the Go core: %v\n", r)
		}
	}()
	engine.At(uint32(device)).LetGo(uint32(index))
	if !draining.Load() && draining.CompareAndSwap(false, true) {
		go drain()
	}
}

// drain gives back what was dropped on all devices, a little later. What is dropped after the flag is down wakes another drainer.
func drain() {
	time.Sleep(drainDelay)
	draining.Store(false)
	drainAll()
}

func drainAll() {
	for index := uint32(0); ; index++ {
		d := engine.At(index)
		if d == nil {
			return
		}
		d.Drain()
	}
}
