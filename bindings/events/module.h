/* What the files of the module _events share. */
#ifndef TM_EVENTS_MODULE_H
#define TM_EVENTS_MODULE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stdbool.h>
#include <string.h>
#include "events.h"
#include "interpreter.h"

#define TM_LIKELY(x) __builtin_expect(!!(x), 1)
#define TM_UNLIKELY(x) __builtin_expect(!!(x), 0)

static inline bool tm_finalizing(void)
{
#if PY_VERSION_HEX >= 0x030d0000
	return Py_IsFinalizing();
#else
	return _Py_IsFinalizing();
#endif
}

/* ---- the ring (ring.c) */
#define TM_MOST_WAITING 65536 /* events in the ring, and in the queue of one hook of Python's where no frees come on top; a power of two */
extern tm_event_ring tm_ring;
int tm_ring_open(void); /* maps its memory, once: 0, or -1 without any; with the GIL */
void tm_ring_push(const tack_event *event, uint32_t nest);
/* The oldest event, which leaves the ring; false: there is none. With the GIL, by one thread at a time. */
bool tm_ring_take(tm_event_slot *out);
void tm_ring_clear(void); /* in a forked child, where nobody else is */

/* ---- hooks (hooks.c) */
typedef enum tm_hook_kind { TM_C_EVENT, TM_C_2012, TM_PYTHON_EVENT, TM_PYTHON_2012 } tm_hook_kind;

typedef struct tm_waiting {
	tack_event event;
	uint32_t nest;
} tm_waiting;

typedef struct tm_hook {
	uint32_t references; /* atomic: of the lists that it is in, and of who works with it */
	uint32_t running;    /* atomic: calls of a C hook that are under way */
	uint64_t token;
	tm_hook_kind kind;
	unsigned domains;
	bool without_gil;
	bool sync;           /* Python: called at once, not from the queue */
	bool removed;        /* atomic: no call begins any more */
	unsigned failures;   /* calls in a row that raised */
	union {
		void (*event)(const tack_event *event, void *user_data);
		tack_event_hook of_2012;
	} function;          /* of C hooks */
	void *user_data;
	PyObject *object;    /* what owns it: Python's callable, or an EventHook; NULL: it came from C */
	char name[64];
	/* What waits for a Python hook that is not sync: a ring that grows. With the GIL. */
	tm_waiting *queue;
	size_t first, count, room;
	uint64_t taken;      /* events that have left the queue so far */
	uint64_t stuck_at;   /* taken, when somebody has waited for it in vain; UINT64_MAX: never */
	bool delivering;     /* a thread calls the hook with what waits */
} tm_hook;

/* Hooks at one moment: a list never changes, a change makes another one. */
typedef struct tm_hooks {
	uint32_t references; /* atomic */
	uint32_t count;
	tm_hook *hooks[];
} tm_hooks;

/* The hooks that want the GIL, and those that do not; a new reference (NULL: none). The second needs no GIL. */
tm_hooks *tm_hooks_now(void);
tm_hooks *tm_hooks_without_gil_now(void);
void tm_hooks_release(tm_hooks *hooks);      /* with the GIL */
void tm_hooks_release_without_gil(tm_hooks *hooks);
extern unsigned tm_gil_domains, tm_free_domains; /* domains of the two; the second is atomic */

/* A hook that is filled in and not there yet: one reference; NULL with MemoryError. */
tm_hook *tm_hook_make(tm_hook_kind kind, const char *name, unsigned domains);
void tm_hook_retain(tm_hook *hook);
void tm_hook_release(tm_hook *hook);
/* Puts it there, before all others or behind them: 0, or -1 with MemoryError. The list takes a reference of its own. */
int tm_hook_enter(tm_hook *hook, bool first);
/* From here on no call of it begins. What waits for it is lost, and counted. */
void tm_hook_stop(tm_hook *hook);
/* Stops it and takes it away; nothing happens where it is not there any more. */
void tm_hook_leave(tm_hook *hook);
tm_hook *tm_hook_find(uint64_t token); /* borrowed; NULL: it is not there */
/* Waits until no thread runs it, if it is a C function, whose user data its owner may free then; gives the GIL away. Python's are kept alive by whoever runs them, and may be waiting for this
 * very thread. 0; -1 with an exception, only where signals are looked for: Ctrl-C has ended the waiting. */
int tm_hook_quiet(tm_hook *hook, bool looks_for_signals);
void tm_hooks_at_fork(int when);       /* -1: before, 0: in the parent, 1: in the child */

/* ---- delivery (deliver.c) */
typedef struct tm_frame {
	tm_hook *hook;
	struct tm_frame *up;
} tm_frame;

/* What a thread is in. */
typedef struct tm_here {
	tm_frame *frames;   /* hooks that run on it, the innermost first */
	uint32_t nest;      /* of the events that happen now: 0 outside of hooks */
	uint32_t thread;    /* its number, once it was asked for */
	unsigned holding;   /* how often it has collections held off */
	bool draining;      /* it takes events from the ring */
	bool missed;        /* it was asked to deliver what waits, while it was in a hook */
} tm_here;
extern __thread tm_here tm_me;

void tm_deliver(const tack_event *event, int have_gil);
void tm_drain(void);                  /* what is in the ring, now; unless another thread does */
void tm_drain_and_wait(void);         /* the same, and waits where others are to catch up: gives the GIL away */
void tm_drain_in_free(void);          /* the same in a destructor: waits for nobody */
uint32_t tm_cause(void);
void tm_call_later(void);             /* has Python's main thread deliver what waits, soon; needs no GIL */
int tm_flush(void);                   /* 0; -1 with an exception (Ctrl-C while it waited for another thread) */
int tm_flush_at_exit(void);           /* the same, with an end: a daemon thread that is stuck in a hook must not keep the program from ending */
int tm_flush_hook(tm_hook *hook);     /* the same for one */
void tm_enter(tm_frame *frame, tm_hook *hook, uint32_t nest);
void tm_leave(tm_frame *frame, uint32_t nest_before);
void tm_count(tack_event_counts *counts);
void tm_deliver_at_fork(void);        /* in the child */
extern uint64_t tm_delivered, tm_suppressed, tm_lost; /* atomic */

/* ---- memory that hooks allocated (untold.c); with the GIL */
bool tm_untold_add(unsigned domain, const void *address); /* false: no memory for it */
bool tm_untold_take(unsigned domain, const void *address); /* whether it was there */
void tm_untold_forget(unsigned domains); /* nobody listens to these (bits) any more: what was untold is older than the next hook */

/* ---- what waits for a hook of Python's that is not sync (queue.c); with the GIL */
int tm_python_queue(tm_hook *hook, const tack_event *event, uint32_t nest); /* -1: it is lost */
void tm_python_run_queue(tm_hook *hook);
/* Where too much waits for a hook: waits for the thread that calls it (gives the GIL away), if this may wait; calls it with what waits, if no thread does and there is no room any more. */
void tm_make_room(bool may_wait);

/* ---- Python's hooks (python.c) */
int tm_python_init(PyObject *module);
/* Calls it, and deals with what it raises. */
void tm_python_call(tm_hook *hook, const tack_event *event);
/* A hook was called: where it did not go well, an exception is set, and is dealt with. */
void tm_hook_called(tm_hook *hook, bool well);
/* Automatic collections are off from the first of these to the last. */
void tm_gc_hold(void);
void tm_gc_release(void);
void tm_gc_at_fork(void); /* in the child */
extern const char *(*tm_device_name)(int device);

/* ---- the hook of 2012 (legacy.c) */
int tm_legacy_init(PyObject *module);
tack_event_hook tm_set_event_hook(tack_event_hook hook, void *user_data, void **old_data);
void tm_release_event_hook(tack_event_hook hook, void *user_data);
/* Calls a hook with the signature of 2012; not for failures. */
void tm_call_2012(tack_event_hook hook, void *user_data, const tack_event *event);
PyObject *tm_event_hook_call(PyObject *event_hook, const tack_event *event);

/* ---- the C API (capi.c) */
extern const tack_memory_api tm_public_api;
extern const tm_events_api tm_internal_api;

#endif
