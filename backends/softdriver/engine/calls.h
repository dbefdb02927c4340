/* What happens at the door of every exported vendor function: it is counted, and refused where the process, the device or a test says so. */
#ifndef SOFT_CALLS_H
#define SOFT_CALLS_H

#include <stdatomic.h>
#include "result.h"

struct soft_key;
struct soft_default;
struct soft_visible;

/* The vendor's ABI over the engine. Each library defines exactly one. */
struct soft_abi {
	const char *name;             /* in messages */
	const char *const *calls;     /* exported vendor functions; the index is the number that soft_enter gets */
	unsigned count;
	int (*code)(enum soft_result); /* the vendor's number */
	int (*sticky)(int code);      /* whether this number, once returned, is returned by every later call */
	int starts_itself;            /* any call initialises the driver, not only the initialising one */
	long long driver_version;     /* default of the setting */
	const struct soft_key *keys;  /* settings of this ABI only, beside the engine's (settings.h) */
	unsigned key_count;
	const struct soft_default *defaults; /* first values of engine settings that are others with this vendor */
	unsigned default_count;
	/* Which of so many devices the vendor's variable of the environment lets the process see; all, where it is not set. */
	void (*visible)(struct soft_visible *visible, int devices);
};
extern const struct soft_abi soft_abi;

enum { SOFT_MAX_CALLS = 256 };

/* Why a call may be refused. All clear is the common case: one load. */
enum soft_gate {
	SOFT_GATE_UNINITIALIZED = 1,
	SOFT_GATE_FORKED = 2,         /* this process is a child of one that had initialised the driver */
	SOFT_GATE_STICKY = 4,
	SOFT_GATE_FAULTS = 8,
};
extern _Atomic unsigned soft_gate;
extern _Atomic unsigned long soft_call_counts[SOFT_MAX_CALLS];

enum soft_door {
	SOFT_DOOR_ANY,   /* error texts and look-ups: only an injected fault refuses it */
	SOFT_DOOR_START, /* the initialising call: a forked child is refused too */
	SOFT_DOOR_READY, /* everything else */
};

int soft_enter_refused(unsigned call, enum soft_door door);

static inline void soft_count(unsigned call) { atomic_fetch_add_explicit(&soft_call_counts[call], 1, memory_order_relaxed); }

/* 0, or the vendor's number that the function must return without doing anything. */
static inline int soft_enter(unsigned call, enum soft_door door)
{
	soft_count(call);
	if (__builtin_expect(atomic_load_explicit(&soft_gate, memory_order_acquire) == 0, 1))
		return 0;
	return soft_enter_refused(call, door);
}

/* Marks the process: every later call returns the vendor's number for this result (only the first one counts). */
void soft_poison(enum soft_result result);
void soft_poison_code(int code);
int soft_sticky_code(void);

int soft_call_number(const char *function); /* -1: not exported */
int soft_calls_fail(const char *function, unsigned long nth, int code);
unsigned long soft_calls_count(const char *function);
void soft_calls_reset(void);

#endif
