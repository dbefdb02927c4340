// Package layout says how C lays out the memory that it shares with Go, so that a test can compare the two halves: tests cannot use cgo
// themselves, and package fast needs Python to link.
package layout

/*
#cgo CFLAGS: -I${SRCDIR}/../../../events -I${SRCDIR}/../../../../python/tack_memory/include
#include <stddef.h>
#include "../../tm_shared.h"
#include "events.h"

// One field: the name that Go gives it, its place and its size.
typedef struct {
	const char *name;
	size_t offset, size;
} tm_field;

#define FIELD(type, member, go) {go, offsetof(type, member), sizeof(((type *)0)->member)}

static const tm_field tm_record_fields[] = {
	FIELD(tm_record, word, "Word"), FIELD(tm_record, generation, "Generation"), FIELD(tm_record, address, "Address"),
	FIELD(tm_record, size, "Size"), FIELD(tm_record, last_use, "LastUse"), FIELD(tm_record, launches, "Launches"),
	FIELD(tm_record, admitted, "Admitted"), FIELD(tm_record, pins, "Pins"), FIELD(tm_record, index, "Index"),
	FIELD(tm_record, sequence, "Sequence"), FIELD(tm_record, next, "Next"), FIELD(tm_record, device, "Device"),
};
static const tm_field tm_books_fields[] = {
	FIELD(tm_books, lock, "Lock"), FIELD(tm_books, device, "Device"), FIELD(tm_books, clock, "Clock"), FIELD(tm_books, drops, "Drops"),
	FIELD(tm_books, strict, "Strict"), FIELD(tm_books, in_use, "InUse"), FIELD(tm_books, peak, "Peak"), FIELD(tm_books, spilled, "Spilled"),
	FIELD(tm_books, reserved, "Reserved"), FIELD(tm_books, pending_free, "PendingFree"), FIELD(tm_books, budget, "Budget"),
	FIELD(tm_books, over_budget_count, "OverBudgetCount"), FIELD(tm_books, spill_count, "SpillCount"),
	FIELD(tm_books, restore_count, "RestoreCount"), FIELD(tm_books, spilled_bytes, "SpilledBytes"),
	FIELD(tm_books, restored_bytes, "RestoredBytes"), FIELD(tm_books, received_bytes, "ReceivedBytes"), FIELD(tm_books, freed_spilled, "FreedSpilled"),
	FIELD(tm_books, allocate_count, "AllocateCount"), FIELD(tm_books, free_count, "FreeCount"), FIELD(tm_books, sequence, "Sequence"),
	FIELD(tm_books, scopes, "Scopes"), FIELD(tm_books, waiting, "Waiting"), FIELD(tm_books, watched, "Watched"),
};
static const tm_field tm_scope_fields[] = {
	FIELD(tm_scope, next, "Next"), FIELD(tm_scope, prev, "Prev"), FIELD(tm_scope, books, "Books"), FIELD(tm_scope, sequence, "Sequence"),
	FIELD(tm_scope, start, "Start"), FIELD(tm_scope, peak, "Peak"), FIELD(tm_scope, footprint, "Footprint"),
	FIELD(tm_scope, own_now, "OwnNow"), FIELD(tm_scope, own, "Own"), FIELD(tm_scope, spilled_bytes, "SpilledBytes"),
	FIELD(tm_scope, restored_bytes, "RestoredBytes"), FIELD(tm_scope, end, "End"), FIELD(tm_scope, moment, "Moment"),
	FIELD(tm_scope, watched, "Watched"), FIELD(tm_scope, whole, "Whole"), FIELD(tm_scope, when, "When"),
	FIELD(tm_scope, spilled_then, "SpilledThen"),
};
static const tm_field tack_event_fields[] = {
	FIELD(tack_event, size, "Length"), FIELD(tack_event, kind, "Kind"), FIELD(tack_event, domain, "Domain"), FIELD(tack_event, device, "Device"),
	FIELD(tack_event, seq, "Sequence"), FIELD(tack_event, old, "Old"), FIELD(tack_event, new_, "New"), FIELD(tack_event, old_size, "OldSize"),
	FIELD(tack_event, new_size, "NewSize"), FIELD(tack_event, requested, "Requested"), FIELD(tack_event, stream, "Stream"), FIELD(tack_event, site, "Site"),
	FIELD(tack_event, thread, "Thread"), FIELD(tack_event, reason, "Reason"), FIELD(tack_event, reserved, "_"),
};
static const tm_field tm_event_slot_fields[] = {
	FIELD(tm_event_slot, turn, "Turn"), FIELD(tm_event_slot, event, "Event"), FIELD(tm_event_slot, nest, "Nest"), FIELD(tm_event_slot, spare, "_"),
};
static const tm_field tm_event_ring_fields[] = {
	FIELD(tm_event_ring, active, "Active"), FIELD(tm_event_ring, mask, "Mask"), FIELD(tm_event_ring, slots, "Slots"), FIELD(tm_event_ring, dropped, "Dropped"),
	FIELD(tm_event_ring, padding, "_"), FIELD(tm_event_ring, head, "Head"), FIELD(tm_event_ring, padding_too, "_"), FIELD(tm_event_ring, tail, "Tail"),
	FIELD(tm_event_ring, padding_three, "_"),
};
enum { EVENT_FIELDS = sizeof tack_event_fields / sizeof(tm_field), SLOT_FIELDS = sizeof tm_event_slot_fields / sizeof(tm_field),
	RING_FIELDS = sizeof tm_event_ring_fields / sizeof(tm_field) };
enum { RECORD_FIELDS = sizeof tm_record_fields / sizeof(tm_field), BOOKS_FIELDS = sizeof tm_books_fields / sizeof(tm_field),
	SCOPE_FIELDS = sizeof tm_scope_fields / sizeof(tm_field) };

// cgo finds functions of a preamble, but not its variables.
static const tm_field *record_fields(void) { return tm_record_fields; }
static const tm_field *books_fields(void) { return tm_books_fields; }
static const tm_field *scope_fields(void) { return tm_scope_fields; }
static const tm_field *event_fields(void) { return tack_event_fields; }
static const tm_field *slot_fields(void) { return tm_event_slot_fields; }
static const tm_field *ring_fields(void) { return tm_event_ring_fields; }
*/
import "C"

import "unsafe"

// Field is one field of a struct of C.
type Field struct {
	Name         string // Go's name of it
	Offset, Size uintptr
}

// Struct is a struct of C: its size, and its fields in order.
type Struct struct {
	Size   uintptr
	Fields []Field
}

// Structs are those of tm_shared.h and events.h by the name that Go gives them.
func Structs() map[string]Struct {
	return map[string]Struct{
		"Record": {C.sizeof_tm_record, fields(C.record_fields(), C.RECORD_FIELDS)},
		"Books":  {C.sizeof_tm_books, fields(C.books_fields(), C.BOOKS_FIELDS)},
		"Scope":  {C.sizeof_tm_scope, fields(C.scope_fields(), C.SCOPE_FIELDS)},

		"Told":     {C.sizeof_tack_event, fields(C.event_fields(), C.EVENT_FIELDS)},
		"ToldSlot": {C.sizeof_tm_event_slot, fields(C.slot_fields(), C.SLOT_FIELDS)},
		"ToldRing": {C.sizeof_tm_event_ring, fields(C.ring_fields(), C.RING_FIELDS)},
	}
}

func fields(first *C.tm_field, count int) []Field {
	var list []Field
	for _, f := range unsafe.Slice(first, count) {
		list = append(list, Field{C.GoString(f.name), uintptr(f.offset), uintptr(f.size)})
	}
	return list
}

// States are the values of enum tm_state in order, from TM_FREE on.
func States() []uint32 {
	return []uint32{C.TM_FREE, C.TM_BUILDING, C.TM_RESIDENT, C.TM_SPILLING, C.TM_SPILLED, C.TM_RESTORING}
}

// Numbers are what else the two halves of events must agree in, by the name that Go gives it.
func Numbers() map[string]uint32 {
	return map[string]uint32{
		"New": C.TACK_NEW, "Free": C.TACK_FREE, "Renew": C.TACK_RENEW, "Device": C.TACK_DEVICE,
		"Plain": C.TACK_PLAIN, "Adopt": C.TACK_ADOPT, "Spill": C.TACK_SPILL, "Restore": C.TACK_RESTORE, "ThreadBits": C.TM_CAUSE_THREAD_BITS,
	}
}

// Dropped and StateMask are the other values that C knows of a record's word.
const (
	Dropped   = C.TM_DROPPED
	StateMask = C.TM_STATE_MASK
)
