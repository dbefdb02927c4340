package levelzero_test

import (
	"encoding/binary"
	"testing"

	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// framework is a host framework that uses the loader by itself, beside us: it has a context, and makes lists and memory in it.
type framework struct {
	*soft.Host
	t      testing.TB
	driver uint64
	device uint64
}

// newFramework finds the device of an ordinal, where the loader has one driver.
func newFramework(t testing.TB, ordinal int) *framework {
	t.Helper()
	f := &framework{Host: soft.NewHost(t, soft.Library(t, soft.LevelZero)), t: t}
	f.Must("zeInit", 0)
	f.driver = f.handles("zeDriverGet")[0]
	f.device = f.handles("zeDeviceGet", f.driver)[ordinal]
	return f
}

// handles calls a function whose last two arguments are a count and an array of handles.
func (f *framework) handles(function string, arguments ...uint64) []uint64 {
	f.t.Helper()
	const most = 16
	count, place := soft.Bytes(f.t, 4)
	array, list := soft.Bytes(f.t, most*8)
	binary.NativeEndian.PutUint32(count, most)
	f.Must(function, append(arguments, soft.Place(place), soft.Place(list))...)
	handles := make([]uint64, binary.NativeEndian.Uint32(count))
	for i := range handles {
		handles[i] = binary.NativeEndian.Uint64(array[8*i:])
	}
	return handles
}

// desc is a structure of the interface: its type, nothing chained, and numbers of 32 bits.
func (f *framework) desc(kind uint32, fields ...uint32) uint64 {
	f.t.Helper()
	bytes, place := soft.Bytes(f.t, 16+4*len(fields)+8)
	binary.NativeEndian.PutUint32(bytes, kind)
	for i, field := range fields {
		binary.NativeEndian.PutUint32(bytes[16+4*i:], field)
	}
	return soft.Place(place)
}

func (f *framework) context() uint64 {
	f.t.Helper()
	return f.AskLast("zeContextCreate", f.driver, f.desc(0xd))
}

// list makes an immediate list; in order, or not.
func (f *framework) list(context uint64, inOrder bool) uint64 {
	f.t.Helper()
	const asynchronous = 2
	flags := uint32(0)
	if inOrder {
		flags = 2
	}
	return f.AskLast("zeCommandListCreateImmediate", context, f.device, f.desc(0xe, 0, 0, flags, asynchronous, 0))
}

// memory allocates as a host does.
func (f *framework) memory(context, nbytes uint64) uint64 {
	f.t.Helper()
	return f.AskLast("zeMemAllocDevice", context, f.desc(0x15), nbytes, 0, f.device)
}

// fill queues a fill with a byte.
func (f *framework) fill(list, address uint64, value byte, nbytes uint64) {
	f.t.Helper()
	pattern, place := soft.Bytes(f.t, 1)
	pattern[0] = value
	f.Must("zeCommandListAppendMemoryFill", list, address, soft.Place(place), 1, nbytes, 0, 0, 0)
}

// wait waits for a list.
func (f *framework) wait(list uint64) {
	f.t.Helper()
	f.Must("zeCommandListHostSynchronize", list, ^uint64(0))
}
