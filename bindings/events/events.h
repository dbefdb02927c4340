/* What producers of events need: bindings/fast, bindings/numpy, and Go, which writes into the ring by itself (gomem/tell.go). Knows nothing of Python.
 *
 * A producer holds a `const tm_events_api *`: the table of the module _events, or, before that is loaded, one of its own that says that nobody listens. */
#ifndef TM_EVENTS_H
#define TM_EVENTS_H
#include <stdint.h>
#include "tack_memory.h"

/* One event that waits for a thread with the GIL. */
typedef struct tm_event_slot {
	uint64_t turn;    /* atomic: 2 * lap: free for the event with the number lap + this slot's place; one more: holds it. Zeros are an empty ring */
	tack_event event; /* seq 0: from Go; it gets its number, and goes to the hooks without the GIL, when it is taken */
	uint32_t nest;    /* 0: of the program; 1: it happened in a hook; 2: in a hook that was told of one of those, and so on */
	uint32_t spare;
} tm_event_slot;

/* The ring of what happened without the GIL, or while its order had to wait. Any number may push, without a lock: a number is taken by compare-and-swap from head, the slot is written, and its turn says
 * that it is whole. (lap: the number without its low bits, so a multiple of the number of slots.) Who takes has the GIL, and is alone. Go and C push by the same rules. */
typedef struct tm_event_ring {
	uint32_t active; /* bit per domain: somebody listens; relaxed */
	uint32_t mask;   /* slots - 1; a power of two */
	tm_event_slot *slots;
	uint64_t dropped; /* atomic */
	uint64_t padding[5];
	uint64_t head; /* atomic; pushed so far */
	uint64_t padding_too[7];
	uint64_t tail; /* taken so far; written with the GIL, read by all */
	uint64_t padding_three[7];
} tm_event_ring;

/* What is told of a cause in one word: the thread, and how deep in hooks. */
#define TM_CAUSE_THREAD_BITS 22 /* Linux has no higher numbers */
#define TM_CAUSE_THREAD ((1u << TM_CAUSE_THREAD_BITS) - 1)

typedef struct tm_events_api {
	uint32_t abi, size;
	const uint32_t *active; /* of the ring */
	tm_event_ring *ring;
	/* Tells of an event. have_gil: 1: the caller has the GIL, and any Python code may run; 0: it has not; TM_GIL_UNKNOWN: find out. It holds no lock. An exception that is set stays
	 * set. */
	void (*deliver)(const tack_event *event, int have_gil);
	/* With the GIL: delivers what is in the ring. The same conditions; where too much waits for a hook that another thread is calling, it gives the GIL away until there is room. */
	void (*drain)(void);
	/* Of the calling thread, for events that Go will tell of. */
	uint32_t (*cause)(void);
	/* Who knows the devices' names: (number) -> UTF-8 text that stays valid, or NULL. */
	void (*name_devices)(const char *(*name)(int device));
	/* drain() for destructors: waits for no other thread. */
	void (*drain_in_free)(void);
} tm_events_api;

#define TM_GIL_UNKNOWN (-1)
#define TM_EVENTS_ABI 1
#define TM_EVENTS_CAPSULE "tack_memory._native._events.api"

/* Whether somebody listens: what an allocation pays for events that nobody wants. */
#define TM_EVENTS_ON(api, domain) __builtin_expect((__atomic_load_n((api)->active, __ATOMIC_RELAXED) & (1u << (domain))) != 0, 0)

#endif
