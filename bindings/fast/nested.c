/* What a thread has open: launches and holds.
 *
 * A call of a thread that has something open never waits for the launches of others, who may be waiting for this thread's. Whoever closes a hold lowers the
 * count of the thread that opened it, also from another thread, so the count lives as long as its thread or its last open hold. */
#include "lane.h"
#include <pthread.h>

struct tm_thread {
	uint32_t open;       /* launches and holds; with the GIL */
	uint32_t plain;      /* of these, by tm_thread_enter_plain: nothing but the thread itself leaves them; the thread's own */
	uint32_t references; /* the thread itself, and each open launch or hold; atomic */
};

/* initial-exec: one instruction to read, where a call would cost as much as all the rest of a launch pass. Eight bytes of static TLS are no burden for
 * a library that is loaded late; Go's runtime in the same object has static TLS, too. */
static __thread tm_thread *mine __attribute__((tls_model("initial-exec")));
static pthread_key_t at_thread_end;
static uint32_t open_by_all; /* launches and holds of all threads; with the GIL */
static uint32_t left_open;   /* of these, what threads had open that have ended: atomic, for they end without the GIL */

static void unreference(tm_thread *thread)
{
	if (__atomic_sub_fetch(&thread->references, 1, __ATOMIC_ACQ_REL) == 0) free(thread);
}

/* Other destructors of this thread may still run Python code, which then finds the thread new. What it has entered plainly nobody will leave any more (a host
 * that ends its thread between enter_launch and leave_launch): whoever has the GIL next takes that out of open_by_all. What has a handle is left by the
 * handle. */
static void thread_ended(void *ended)
{
	tm_thread *thread = ended;
	mine = NULL;
	__atomic_fetch_add(&left_open, thread->plain, __ATOMIC_RELAXED);
	unreference(thread);
}

static tm_thread *make(void)
{
	tm_thread *thread = calloc(1, sizeof *thread);
	if (!thread) return NULL;
	thread->references = 1;
	if (pthread_setspecific(at_thread_end, thread)) {
		free(thread);
		return NULL;
	}
	return mine = thread;
}

static inline tm_thread *current(void) { return TM_LIKELY(mine != NULL) ? mine : make(); }

int tm_thread_init(void)
{
	if (pthread_key_create(&at_thread_end, thread_ended)) {
		PyErr_SetString(PyExc_ImportError, "tack_memory: the process has no thread-specific key left");
		return -1;
	}
	return 0;
}

tm_thread *tm_thread_enter(void)
{
	tm_thread *thread = current();
	if (!thread) return NULL;
	__atomic_fetch_add(&thread->references, 1, __ATOMIC_RELAXED);
	thread->open++;
	open_by_all++;
	return thread;
}

tm_thread *tm_thread_keep(tm_thread *thread)
{
	if (thread) __atomic_fetch_add(&thread->references, 1, __ATOMIC_RELAXED);
	return thread;
}

void tm_thread_let_go(tm_thread *thread)
{
	if (thread) unreference(thread);
}

bool tm_thread_is_this(const tm_thread *thread) { return thread && thread == mine; }

void tm_thread_leave(tm_thread *thread)
{
	if (!thread) return;
	thread->open--;
	open_by_all--;
	unreference(thread);
}

/* A pass that is left on another thread than it was entered on would leave the one with too many and the other with too few: the count stops at
 * zero, and too many only makes that thread fail where it could have waited. Plain launches are entered and left by one function. */
void tm_thread_enter_plain(void)
{
	tm_thread *thread = current();
	if (!thread) return;
	thread->open++;
	thread->plain++;
	open_by_all++;
}

void tm_thread_leave_plain(void)
{
	tm_thread *thread = mine;
	if (!thread || !thread->plain) return;
	thread->open--;
	thread->plain--;
	open_by_all--;
}

/* Those that threads left open when they ended are none any more. */
uint32_t tm_open_launches_and_holds(void)
{
	if (TM_UNLIKELY(__atomic_load_n(&left_open, __ATOMIC_RELAXED))) open_by_all -= __atomic_exchange_n(&left_open, 0, __ATOMIC_RELAXED);
	return open_by_all;
}

bool tm_thread_is_nested(void) { return mine && mine->open > 0; }

bool tm_others_have_open(void) { return tm_open_launches_and_holds() > (mine ? mine->open : 0); }
