package fast

/*
#include "fast.h"
*/
import "C"

import (
	"sync/atomic"
	"unsafe"

	"github.com/tack-memory/tack-memory/bindings/internal/engine"
	"github.com/tack-memory/tack-memory/bindings/internal/wire"
	"github.com/tack-memory/tack-memory/gomem"
)

// perform carries out one call of the C lane (enum tm_op in fast.h). Everything comes and goes in the call's own fields: the way is hot
// enough that nothing may be allocated in Go for a plain allocation or a drop.
func perform(c *C.tm_call, cancel *gomem.Cancel) {
	defer rescue(c)
	c.code, c.notices = C.TM_OK, 0
	var err error
	switch d := device(c); c.op {
	case C.TM_OP_OPEN, C.TM_OP_INTERN, C.TM_OP_TRIM_HOST, C.TM_OP_NOTICES:
		err = performGlobal(c)
	case C.TM_OP_ALLOCATE:
		var index uint32
		if index, err = d.Allocate(uint64(c.nbytes), allocateOptions(c, cancel)); err == nil {
			giveRecord(c, d, index)
		}
	case C.TM_OP_RECEIVE:
		var index uint32
		frame := c.token
		giveBack := func() { C.tm_frame_give_back(frame) }
		if index, err = d.Receive(c.memory, uint64(c.nbytes), giveBack, allocateOptions(c, cancel)); err == nil {
			giveRecord(c, d, index)
			c.token = 0
		}
	case C.TM_OP_DRAIN:
		d.Drain()
	case C.TM_OP_DROP:
		d.Drop(uint32(c.index))
	case C.TM_OP_FREE:
		err = d.Free(uint32(c.index), wait(c, cancel))
	case C.TM_OP_MAKE_RESIDENT:
		if err = d.MakeResident(uint32(c.index), wait(c, cancel)); err == nil {
			giveAddress(c, d)
		}
	case C.TM_OP_ADMIT:
		err = d.Admit(indexes(c), wait(c, cancel))
	case C.TM_OP_DISCHARGE:
		d.Discharge(indexes(c))
	case C.TM_OP_ENDED:
		d.Ended()
	case C.TM_OP_HOLD:
		kind := gomem.HoldScope
		if c.flags&C.TM_EXPORT != 0 {
			kind = gomem.HoldExport
		}
		var hold uint64
		if hold, err = d.Hold(uint32(c.index), kind, uint32(c.reason), wait(c, cancel)); err == nil {
			c.token = C.uint64_t(hold)
			giveAddress(c, d)
		}
	case C.TM_OP_RELEASE:
		d.Release(uint32(c.index), uint64(c.token))
	case C.TM_OP_HOLDS:
		holds := map[string]int{}
		for _, h := range d.Holds(uint32(c.index)) {
			holds[h.Name()] += h.Count
		}
		c.text = C.CString(wire.JSON(holds))
	case C.TM_OP_SET_LABEL:
		d.SetLabel(uint32(c.index), uint32(c.label))
	case C.TM_OP_INFO:
		err = giveInfo(c, d)
	case C.TM_OP_AT_PEAK, C.TM_OP_CLOSE_PEAK:
		performPeak(c, d)
	case C.TM_OP_COPY_TO_HOST, C.TM_OP_COPY_FROM_HOST, C.TM_OP_FILL, C.TM_OP_COPY, C.TM_OP_RAW_TO_HOST, C.TM_OP_RAW_FROM_HOST,
		C.TM_OP_RAW_FILL, C.TM_OP_RAW_COPY:
		err = performAccess(c, d, wait(c, cancel))
	case C.TM_OP_RESERVE, C.TM_OP_UNRESERVE, C.TM_OP_RESERVE_TO_ADOPT, C.TM_OP_ADOPT, C.TM_OP_DISOWN, C.TM_OP_FIND:
		err = performAdoption(c, d, cancel)
	default:
		err = performDevice(c, d, cancel)
	}
	if err != nil {
		fail(c, err)
	}
	if d := device(c); d != nil {
		if d.FreesWait() {
			drainer.Wake()
		}
		d.TellOverBudget()
	}
	if gomem.Noticed() {
		c.notices = 1
	}
}

// performGlobal carries out what concerns no open device.
func performGlobal(c *C.tm_call) error {
	switch c.op {
	case C.TM_OP_OPEN:
		index, err := engine.Open(text(c), int(c.offset))
		if err != nil {
			return err
		}
		d := engine.At(index)
		c.device = C.uint32_t(index)
		c.record = C.uint64_t(uintptr(unsafe.Pointer(d.Books())))
		name := unsafe.Slice((*byte)(unsafe.Pointer(&c.name[0])), len(c.name))
		name[copy(name[:len(name)-1], d.Name())] = 0
	case C.TM_OP_INTERN:
		if c.origin != 0 {
			c.label = C.uint32_t(gomem.InternStack(text(c), uint32(c.origin)))
		} else {
			c.label = C.uint32_t(gomem.Intern(text(c)))
		}
	case C.TM_OP_TRIM_HOST:
		drainAll() // dropped buffers may have host copies
		c.result = C.int64_t(engine.Pool().Trim())
	case C.TM_OP_NOTICES:
		c.text = C.CString(wire.JSON(wire.TakeNotices()))
	}
	return nil
}

// performDevice carries out what concerns a device as a whole.
func performDevice(c *C.tm_call, d *gomem.Device, cancel *gomem.Cancel) (err error) {
	switch c.op {
	case C.TM_OP_SPILL:
		var freed uint64
		freed, err = d.Spill(uint32(c.index), wait(c, cancel))
		c.result = C.int64_t(freed)
	case C.TM_OP_SPILL_ALL:
		var freed uint64
		freed, err = d.SpillAll(wait(c, cancel))
		c.result = C.int64_t(freed)
	case C.TM_OP_SPILL_TO_BUDGET:
		var freed uint64
		freed, err = d.SpillToBudget(wait(c, cancel))
		c.result = C.int64_t(freed)
	case C.TM_OP_RESTORE_ALL:
		err = d.RestoreAll(wait(c, cancel))
	case C.TM_OP_MAKE_ROOM:
		var freed uint64
		freed, err = d.MakeRoom(uint64(c.nbytes), allocateOptions(c, cancel))
		c.result = C.int64_t(freed)
	case C.TM_OP_SET_BUDGET:
		var before int64
		var strictBefore bool
		before, strictBefore, err = d.SetBudget(int64(c.result), c.flags&C.TM_STRICT != 0, wait(c, cancel))
		c.result = C.int64_t(before)
		c.flags &^= C.TM_STRICT
		if strictBefore {
			c.flags |= C.TM_STRICT
		}
	case C.TM_OP_SYNCHRONIZE:
		err = d.Synchronize()
	case C.TM_OP_TRIM:
		var released uint64
		released, err = d.Trim()
		c.result = C.int64_t(released)
	case C.TM_OP_STREAM:
		var stream uint64
		stream, err = d.Stream()
		c.stream = C.uint64_t(stream)
	case C.TM_OP_SET_STREAM:
		err = d.SetStream(uint64(c.context), uint64(c.stream))
	case C.TM_OP_JOIN:
		err = d.Join(uint64(c.stream), uint64(c.token), wait(c, cancel))
	case C.TM_OP_FOLLOW:
		var over bool
		if over, err = d.Follow(uint64(c.stream), c.flags&C.TM_PATIENT != 0, wait(c, cancel)); over {
			c.result = 1
		}
	}
	return err
}

// performAccess carries out the host's reads and writes, and copies on the device.
func performAccess(c *C.tm_call, d *gomem.Device, w gomem.Wait) error {
	index, offset, nbytes := uint32(c.index), uint64(c.offset), uint64(c.nbytes)
	pattern := unsafe.Slice((*byte)(unsafe.Pointer(&c.pattern[0])), int(c.pattern_bytes))
	switch c.op {
	case C.TM_OP_COPY_TO_HOST:
		return d.CopyToHost(index, offset, c.memory, nbytes, w)
	case C.TM_OP_COPY_FROM_HOST:
		return d.CopyFromHost(index, offset, c.memory, nbytes, w)
	case C.TM_OP_FILL:
		return d.Fill(index, offset, pattern, nbytes, w)
	case C.TM_OP_COPY:
		return d.Copy(index, offset, uint32(c.other), uint64(c.other_offset), nbytes, w)
	case C.TM_OP_RAW_TO_HOST:
		return d.ForeignToHost(c.memory, uint64(c.address), nbytes, w)
	case C.TM_OP_RAW_FROM_HOST:
		return d.ForeignFromHost(uint64(c.address), c.memory, nbytes, w)
	case C.TM_OP_RAW_FILL:
		return d.ForeignFill(uint64(c.address), pattern, nbytes, w)
	default:
		return d.ForeignCopy(uint64(c.address), uint64(c.other_offset), nbytes)
	}
}

// performPeak tells what was live at the peak of a watched scope.
func performPeak(c *C.tm_call, d *gomem.Device) {
	peak := (*C.tm_peak)(c.memory)
	scope := (*gomem.Scope)(unsafe.Pointer(&peak.scope))
	if c.op == C.TM_OP_CLOSE_PEAK {
		d.CloseScopeAtPeak(scope, func(holders []gomem.Holder) { peak.at_peak = C.CString(wire.JSON(wire.Holders(holders))) })
		return
	}
	if holders, open := d.AtPeak(scope); open {
		c.text = C.CString(wire.JSON(wire.Holders(holders)))
	}
}

// performAdoption carries out what concerns memory that a host framework allocates by itself.
func performAdoption(c *C.tm_call, d *gomem.Device, cancel *gomem.Cancel) error {
	switch c.op {
	case C.TM_OP_RESERVE:
		token, err := d.Reserve(uint64(c.nbytes), allocateOptions(c, cancel))
		c.token = C.uint64_t(token)
		return err
	case C.TM_OP_UNRESERVE:
		d.Unreserve(uint64(c.token))
		return nil
	case C.TM_OP_RESERVE_TO_ADOPT:
		token, err := d.ReserveToAdopt(uint64(c.address), uint64(c.nbytes), gomem.How(c.how), allocateOptions(c, cancel))
		c.token = C.uint64_t(token)
		return err
	case C.TM_OP_ADOPT:
		index, err := d.Adopt(uint64(c.address), uint64(c.nbytes), gomem.AdoptOptions{Wait: wait(c, cancel), How: gomem.How(c.how), Stream: uint64(c.stream),
			Token: uint64(c.token), Unmovable: c.flags&C.TM_UNMOVABLE != 0, Reason: uint32(c.reason), Label: uint32(c.label), Origin: uint32(c.origin)})
		if err == nil {
			giveRecord(c, d, index)
		}
		return err
	case C.TM_OP_DISOWN:
		gate := (*uint32)(unsafe.Pointer(&c.gate))
		pass := func() bool { return atomic.CompareAndSwapUint32(gate, C.TM_GATE_OPEN, C.TM_GATE_PASSED) } // model: gate.pass
		address, err := d.DisownIf(uint32(c.index), wait(c, cancel), pass)
		c.address = C.uint64_t(address)
		return err
	default:
		index, offset, found := d.Find(uint64(c.address), uint64(c.nbytes))
		c.index, c.offset, c.result = C.uint32_t(index), C.uint64_t(offset), 0
		if !found {
			return foreign(d, uint64(c.address), uint64(c.nbytes))
		}
		c.result = 1
		return nil
	}
}

// C and Go see the same struct: neither length may be below zero.
var (
	_ [unsafe.Sizeof(gomem.Progress{}) - unsafe.Sizeof(C.tm_progress{})]struct{}
	_ [unsafe.Sizeof(C.tm_progress{}) - unsafe.Sizeof(gomem.Progress{})]struct{}
)

func device(c *C.tm_call) *gomem.Device { return engine.At(uint32(c.device)) }

// wait is how the call may wait. C can always help: it collects garbage and empties the host's caches.
func wait(c *C.tm_call, cancel *gomem.Cancel) gomem.Wait {
	return gomem.Wait{Cancel: cancel, Ask: c.flags&C.TM_ASK != 0, Nested: c.flags&C.TM_NESTED != 0, Late: c.flags&C.TM_HAS_LATE != 0, Help: true, Helped: c.flags&C.TM_RELIEVED != 0,
		Cause: gomem.Cause(c.cause), Asker: uint32(c.origin), Progress: (*gomem.Progress)(unsafe.Pointer(c.progress))}
}

func allocateOptions(c *C.tm_call, cancel *gomem.Cancel) gomem.AllocateOptions {
	return gomem.AllocateOptions{
		Wait:      wait(c, cancel),
		Zero:      c.flags&C.TM_ZERO != 0,
		Unmovable: c.flags&C.TM_UNMOVABLE != 0,
		Reason:    uint32(c.reason),
		Label:     uint32(c.label),
		Origin:    uint32(c.origin),
		Collected: c.flags&C.TM_COLLECTED != 0,
		Relieved:  c.flags&C.TM_RELIEVED != 0,
		HasHelper: true,
	}
}

// giveRecord tells C of a new buffer. The address of the record crosses as a number: in race builds it lies in Go's heap, where the
// registry keeps it alive and in place.
func giveRecord(c *C.tm_call, d *gomem.Device, index uint32) {
	r := d.Record(index)
	c.index, c.address = C.uint32_t(index), C.uint64_t(r.Address)
	c.record = C.uint64_t(uintptr(unsafe.Pointer(r)))
}

// giveAddress tells C where a buffer lies that was just made resident. Without a hold it may have moved again.
func giveAddress(c *C.tm_call, d *gomem.Device) {
	c.address = C.uint64_t(d.Record(uint32(c.index)).Address)
}

// indexes are the buffers of a launch, in C's memory.
func indexes(c *C.tm_call) []uint32 { return unsafe.Slice((*uint32)(c.memory), int(c.nbytes)) }

// text is a text of C's, not ended by NUL; the string is a copy.
func text(c *C.tm_call) string { return C.GoStringN((*C.char)(c.memory), C.int(c.nbytes)) }

func giveInfo(c *C.tm_call, d *gomem.Device) error {
	d.Drain() // so that what was just dropped shows in the driver's figures
	info, err := d.Info(true)
	if err != nil {
		return err
	}
	*(*C.tm_info)(c.memory) = C.tm_info{
		in_use: C.int64_t(info.InUse), peak: C.int64_t(info.Peak), spilled: C.int64_t(info.Spilled), reserved: C.int64_t(info.Reserved),
		pending_free: C.int64_t(info.PendingFree + info.DriverPending), budget: C.int64_t(info.Budget),
		over_budget_count: C.int64_t(info.OverBudgetCount), spill_count: C.int64_t(info.SpillCount), restore_count: C.int64_t(info.RestoreCount),
		spilled_bytes: C.int64_t(info.SpilledBytes), restored_bytes: C.int64_t(info.RestoredBytes), received_bytes: C.int64_t(info.ReceivedBytes), strict: C.int64_t(info.Strict),
		device_free: C.int64_t(info.Driver.Free), device_total: C.int64_t(info.Driver.Total), cached: C.int64_t(info.Driver.Cached),
		driver_allocated: C.int64_t(info.Driver.Allocated), host_bytes: C.int64_t(info.HostCopies + info.HostPooled),
	}
	return nil
}
