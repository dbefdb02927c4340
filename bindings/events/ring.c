/* The ring of events that happened without the GIL; events.h says how it works. gomem/tell.go pushes by the same rules. */
#include "module.h"
#include <sched.h>
#include <sys/mman.h>

tm_event_ring tm_ring __attribute__((aligned(64)));

#define RING_BYTES (TM_MOST_WAITING * sizeof(tm_event_slot))

/* Never unmapped: Go may write into it as long as the process lives. Pages that no event came to cost nothing. */
int tm_ring_open(void)
{
	if (tm_ring.slots) return 0;
	void *memory = mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED) return -1;
	tm_ring.mask = TM_MOST_WAITING - 1;
	tm_ring.slots = memory; /* seen by others once `active` is set */
	return 0;
}

static inline uint64_t lap_of(uint64_t number) { return number & ~(uint64_t)(TM_MOST_WAITING - 1); }

void tm_ring_push(const tack_event *event, uint32_t nest)
{
	for (;;) {
		uint64_t at = __atomic_load_n(&tm_ring.head, __ATOMIC_RELAXED), lap = lap_of(at);
		tm_event_slot *slot = &tm_ring.slots[at & tm_ring.mask];
		uint64_t turn = __atomic_load_n(&slot->turn, __ATOMIC_ACQUIRE);
		if (turn == 2 * lap) {
			if (!__atomic_compare_exchange_n(&tm_ring.head, &at, at + 1, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) continue;
			slot->event = *event;
			slot->nest = nest;
			__atomic_store_n(&slot->turn, 2 * lap + 1, __ATOMIC_RELEASE);
			return;
		}
		if (turn < 2 * lap) { /* what is in it was not taken yet */
			__atomic_fetch_add(&tm_ring.dropped, 1, __ATOMIC_RELAXED);
			return;
		}
	}
}

bool tm_ring_take(tm_event_slot *out)
{
	if (!tm_ring.slots) return false;
	uint64_t at = tm_ring.tail, lap = lap_of(at);
	tm_event_slot *slot = &tm_ring.slots[at & tm_ring.mask];
	for (int tries = 0; __atomic_load_n(&slot->turn, __ATOMIC_ACQUIRE) != 2 * lap + 1; tries++) {
		if (__atomic_load_n(&tm_ring.head, __ATOMIC_ACQUIRE) == at) return false;
		if (tries > 64) sched_yield(); /* whoever has this number has lost its processor; it needs no GIL to go on */
	}
	*out = *slot;
	__atomic_store_n(&slot->turn, 2 * (lap + TM_MOST_WAITING), __ATOMIC_RELEASE);
	__atomic_store_n(&tm_ring.tail, at + 1, __ATOMIC_RELAXED);
	return true;
}

void tm_ring_clear(void)
{
	if (!tm_ring.slots) return;
	madvise(tm_ring.slots, RING_BYTES, MADV_DONTNEED); /* zeros, without touching what the parent shares */
	tm_ring.head = tm_ring.tail = 0;
}
