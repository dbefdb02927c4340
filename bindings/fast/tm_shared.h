/* The C half of the memory that Go and C both read and write; gomem/shared.go is the Go half and has the meaning of each field.
 * layout_test.go compares the two. */
#ifndef TM_SHARED_H
#define TM_SHARED_H
#include <stdint.h>

enum tm_state { TM_FREE, TM_BUILDING, TM_RESIDENT, TM_SPILLING, TM_SPILLED, TM_RESTORING };
#define TM_DROPPED 0x100u
#define TM_STATE_MASK 0xffu

typedef struct tm_record {
	uint32_t word;       /* enum tm_state | TM_DROPPED; read with acquire; a buffer may be launched on when it is exactly TM_RESIDENT */
	uint32_t generation;
	uint64_t address;
	uint64_t size;
	uint64_t last_use;   /* relaxed stores */
	uint32_t launches;   /* written under the GIL only, plain; atomic adds when tm_atomic_counts is set and in free-threaded builds */
	uint32_t admitted;   /* atomic */
	uint32_t pins;       /* atomic */
	uint32_t index;
	uint64_t sequence;
	uint32_t next;
	uint32_t device;
} tm_record;

typedef struct tm_books {
	uint32_t lock;       /* leaf lock: compare-and-swap 0 -> 1 with acquire, spin then sched_yield; store 0 with release */
	uint32_t device;
	uint64_t clock;      /* relaxed load + store of +1: ticks can be lost, and it can go back; see tm_touch */
	uint32_t drops;
	uint32_t strict;
	int64_t in_use, peak, spilled, reserved, pending_free, budget;
	int64_t over_budget_count, spill_count, restore_count, spilled_bytes, restored_bytes, received_bytes, freed_spilled, allocate_count, free_count;
	uint64_t sequence;
	struct tm_scope *scopes;
	uint32_t waiting;    /* not 0: someone waits for launches to end: leave_launch calls Device.Ended; read with relaxed order */
	uint32_t watched;    /* open scopes that are watched, and who reads what was live at one's peak */
} tm_books;

typedef struct tm_scope {
	struct tm_scope *next, *prev;
	tm_books *books;
	uint64_t sequence;
	int64_t start, peak, footprint, own_now, own, spilled_bytes, restored_bytes, end;
	uint64_t moment;
	uint32_t watched;
	uint32_t whole;
	int64_t when, spilled_then; /* of the device's own scope */
} tm_scope;

_Static_assert(sizeof(tm_record) == 64, "a record is one cache line");
#endif
