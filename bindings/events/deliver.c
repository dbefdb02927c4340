/* From an event to the hooks.
 *
 * A thread with the GIL delivers its own events at once, after those in the ring, which are older. What cannot be delivered at once goes through the ring: events of threads without the GIL, events that
 * happen in a hook, and those that come while another thread is taking events from the ring, or they would overtake them. So the events of one address come in their
 * order: memory is not handed out before it was told of, and not given back before that was told or is in the ring. */
#include "module.h"
#include <sys/syscall.h>
#include <unistd.h>

__thread tm_here tm_me __attribute__((tls_model("initial-exec"))); /* one instruction to read; see bindings/fast/nested.c */

uint64_t tm_delivered, tm_suppressed, tm_lost;
static uint64_t last_number; /* atomic */
static bool draining;        /* a thread takes events from the ring; with the GIL */
static uint32_t called;      /* atomic: the main thread will call us */

/* How long a chain of events may be of which each happened in a hook that was told of the one before. A hook that moves told memory each time it is called would never end. */
#define MOST_NESTED 1000

static void count(uint64_t *counter) { __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }

static uint32_t this_thread(void)
{
	if (TM_UNLIKELY(!tm_me.thread)) tm_me.thread = (uint32_t)syscall(SYS_gettid);
	return tm_me.thread;
}

uint32_t tm_cause(void) { return (this_thread() & TM_CAUSE_THREAD) | tm_me.nest << TM_CAUSE_THREAD_BITS; }

static uint64_t next_number(void) { return __atomic_add_fetch(&last_number, 1, __ATOMIC_RELAXED); }

/* ---- calls of hooks */

void tm_enter(tm_frame *frame, tm_hook *hook, uint32_t nest)
{
	*frame = (tm_frame){hook, tm_me.frames};
	tm_me.frames = frame;
	tm_me.nest = nest + 1;
	__atomic_fetch_add(&hook->running, 1, __ATOMIC_SEQ_CST);
}

void tm_leave(tm_frame *frame, uint32_t nest_before)
{
	tm_me.frames = frame->up;
	tm_me.nest = nest_before;
	__atomic_fetch_sub(&frame->hook->running, 1, __ATOMIC_SEQ_CST);
	if (TM_UNLIKELY(tm_me.missed && !tm_me.frames)) {
		tm_me.missed = false;
		tm_call_later();
	}
}

static bool wants(const tm_hook *hook, const tack_event *event)
{
	if (!(hook->domains & (1u << event->domain))) return false;
	return event->kind != TACK_FAIL || (hook->kind != TM_C_2012 && hook->kind != TM_PYTHON_2012);
}

/* Calls a C hook that was entered, with or without the GIL. */
static void call_c(tm_hook *hook, const tack_event *event)
{
	if (__atomic_load_n(&hook->removed, __ATOMIC_SEQ_CST)) return; /* behind the count, and who removes it looks at the count afterwards: one of the two sees the other */
	count(&tm_delivered);
	if (hook->kind == TM_C_EVENT)
		hook->function.event(event, hook->user_data);
	else
		tm_call_2012(hook->function.of_2012, hook->user_data, event);
}

/* The hooks that need no GIL. They are not called for what happens in themselves. */
static void call_without_gil(const tack_event *event, uint32_t nest)
{
	if (TM_LIKELY(!(__atomic_load_n(&tm_free_domains, __ATOMIC_RELAXED) & (1u << event->domain)))) return;
	for (const tm_frame *frame = tm_me.frames; frame; frame = frame->up)
		if (frame->hook->without_gil) return;
	tm_hooks *hooks = tm_hooks_without_gil_now();
	for (uint32_t i = 0; hooks && i < hooks->count; i++) {
		if (!wants(hooks->hooks[i], event)) continue;
		tm_frame frame;
		uint32_t before = tm_me.nest;
		tm_enter(&frame, hooks->hooks[i], nest);
		call_c(hooks->hooks[i], event);
		tm_leave(&frame, before);
	}
	tm_hooks_release_without_gil(hooks);
}

static void call(tm_hook *hook, const tack_event *event, uint32_t nest)
{
	bool python = hook->kind == TM_PYTHON_EVENT || hook->kind == TM_PYTHON_2012;
	if (python && tm_finalizing()) return; /* its modules are being taken down */
	if (python && !hook->sync) {
		if (tm_python_queue(hook, event, nest)) count(&tm_lost);
		return;
	}
	tm_frame frame;
	uint32_t before = tm_me.nest;
	tm_enter(&frame, hook, nest);
	if (python) {
		tm_gc_hold(); /* a collection may run where an object is half taken down */
		tm_python_call(hook, event);
		tm_gc_release();
	} else {
		call_c(hook, event);
		tm_hook_called(hook, PyErr_Occurred() == NULL);
	}
	tm_leave(&frame, before);
}

/* To the hooks that want the GIL. */
static void dispatch(const tack_event *event, uint32_t nest)
{
	if (!(tm_gil_domains & (1u << event->domain))) return;
	PyObject *type, *value, *traceback;
	PyErr_Fetch(&type, &value, &traceback);
	tm_hooks *hooks = tm_hooks_now();
	for (uint32_t i = 0; hooks && i < hooks->count; i++) {
		tm_hook *hook = hooks->hooks[i];
		if (wants(hook, event) && !hook->removed) call(hook, event, nest);
	}
	tm_hooks_release(hooks);
	PyErr_Restore(type, value, traceback);
}

/* Whether hooks are told: not of memory that one of them allocated. */
static bool is_told(const tack_event *event, uint32_t nest)
{
	bool hooks_own = false;
	switch (event->kind) {
	case TACK_NEW:
		if (nest)
			hooks_own = tm_untold_add(event->domain, event->new_);
		else
			tm_untold_take(event->domain, event->new_); /* its free was lost: the ring was full */
		break;
	case TACK_RENEW:
		hooks_own = tm_untold_take(event->domain, event->old) && (tm_untold_add(event->domain, event->new_), true);
		break;
	case TACK_FREE: hooks_own = tm_untold_take(event->domain, event->old); break;
	default: hooks_own = nest > 0;
	}
	if (!hooks_own && nest < MOST_NESTED) return true;
	count(&tm_suppressed);
	return false;
}

/* ---- the ring */

static uint64_t waiting(void) { return __atomic_load_n(&tm_ring.head, __ATOMIC_SEQ_CST) - tm_ring.tail; }

/* Where hooks are slow and threads many, those that only add to the ring wait for the one that takes from it, or it would run over. Not for ever: a hook may be waiting
 * for this very thread. Then nobody waits any more until something is taken. Frees of NumPy's wait, too: somebody else can only be in the middle of taking where a hook that is called at once lets
 * go of the GIL, and such hooks run inside of frees anyway. */
#define ENOUGH_WAITING (TM_MOST_WAITING / 4)
static void let_others_drain(void)
{
	static uint64_t stuck_at = UINT64_MAX; /* tail, when somebody has waited in vain; with the GIL */
	if (TM_LIKELY(!draining) || tm_me.frames) return;
	uint64_t began = tm_ring.tail;
	for (int patience = 4000; /* 2 s */ draining && waiting() > ENOUGH_WAITING && tm_ring.tail != stuck_at; patience--) {
		if (!patience) {
			if (tm_ring.tail == began) stuck_at = began;
			return;
		}
		Py_BEGIN_ALLOW_THREADS
		usleep(500);
		Py_END_ALLOW_THREADS
	}
}

/* As many events at a time: then another thread takes its turn, so that none is kept here as long as others allocate. */
#define MOST_AT_A_TIME 4096

void tm_drain(void)
{
	if (tm_me.frames) return; /* whoever called the hook goes on */
	if (draining) return; /* the other thread takes what comes, too */
	tm_event_slot slot;
	draining = tm_me.draining = true;
	for (int left = MOST_AT_A_TIME; left && tm_ring_take(&slot); left--) {
		if (!slot.event.seq) { /* from Go */
			slot.event.size = sizeof slot.event;
			slot.event.seq = next_number();
			call_without_gil(&slot.event, slot.nest);
		}
		if (!(tm_gil_domains & (1u << slot.event.domain))) continue; /* its last hook has gone meanwhile: nothing is untold of that domain any more, and this must not be either */
		if (is_told(&slot.event, slot.nest)) dispatch(&slot.event, slot.nest);
	}
	draining = tm_me.draining = false;
	if (TM_UNLIKELY(waiting())) tm_call_later();
}

void tm_drain_and_wait(void)
{
	let_others_drain();
	tm_drain();
	tm_make_room(true);
}

void tm_drain_in_free(void)
{
	tm_drain();
	tm_make_room(false);
}

/* By a thread with the GIL. */
static void deliver_here(const tack_event *event)
{
	let_others_drain();
	tm_drain();
	if (tm_me.frames || draining || waiting()) /* or it would overtake what is older */
		tm_ring_push(event, tm_me.nest);
	else if (is_told(event, 0))
		dispatch(event, 0);
	tm_drain(); /* what happened in the hooks, or came meanwhile */
	tm_make_room(event->kind != TACK_FREE);
}

void tm_deliver(const tack_event *told, int have_gil)
{
	tack_event event = *told;
	event.size = sizeof event;
	event.seq = next_number();
	event.thread = this_thread();
	event.reserved = 0;
	call_without_gil(&event, tm_me.nest);
	if (!(__atomic_load_n(&tm_gil_domains, __ATOMIC_RELAXED) & (1u << event.domain))) return;
	if (have_gil == TM_GIL_UNKNOWN) have_gil = tm_have_gil();
	if (have_gil) {
		deliver_here(&event);
	} else {
		tm_ring_push(&event, tm_me.nest);
		tm_call_later();
	}
}

/* ---- what waits for the main thread */

static void run_queues(void)
{
	tm_hooks *hooks = tm_hooks_now();
	for (uint32_t i = 0; hooks && i < hooks->count; i++)
		if (hooks->hooks[i]->count) tm_python_run_queue(hooks->hooks[i]);
	tm_hooks_release(hooks);
}

static int from_main_thread(void *unused)
{
	__atomic_store_n(&called, 0, __ATOMIC_SEQ_CST);
	if (tm_me.frames) { /* between two lines of a hook: its end calls again */
		tm_me.missed = true;
		return 0;
	}
	tm_drain();
	run_queues();
	return 0;
}

void tm_call_later(void)
{
	if (__atomic_load_n(&called, __ATOMIC_SEQ_CST) || !Py_IsInitialized() || tm_finalizing()) return;
	if (__atomic_exchange_n(&called, 1, __ATOMIC_SEQ_CST)) return;
	if (Py_AddPendingCall(from_main_thread, NULL)) __atomic_store_n(&called, 0, __ATOMIC_SEQ_CST); /* no room: the next event asks again */
}

/* Lets other threads run while they deliver what this one waits for; -1: Ctrl-C, 1: the patience (in steps, < 0: without end) is at an end. */
static int wait_for_others(int *patience)
{
	if (!*patience) return 1;
	if (*patience > 0) --*patience;
	Py_BEGIN_ALLOW_THREADS
	usleep(1000);
	Py_END_ALLOW_THREADS
	return PyErr_CheckSignals();
}

/* Delivers what is in the ring now. */
static int empty_ring(int *patience)
{
	uint64_t goal = __atomic_load_n(&tm_ring.head, __ATOMIC_SEQ_CST);
	int ended = 0;
	while (!ended && waiting() && tm_ring.tail < goal) { /* in the child of a hook that forked the ring begins anew: it is empty, and the goal was the parent's */
		if (draining)
			ended = wait_for_others(patience);
		else
			tm_drain();
	}
	return ended;
}

/* Delivers what is in a hook's queue now. */
static int empty_queue(tm_hook *hook, int *patience)
{
	uint64_t goal = hook->taken + hook->count;
	int ended = 0;
	while (!ended && hook->taken < goal && !hook->removed) {
		if (hook->delivering)
			ended = wait_for_others(patience);
		else
			tm_python_run_queue(hook);
	}
	return ended;
}

/* A hook that waits for this thread, on another thread, must not stop it for ever: what has not come then is lost, and counted. */
#define PATIENCE 2000

int tm_flush_hook(tm_hook *hook)
{
	if (tm_me.frames) return 0;
	int patience = PATIENCE;
	tm_hook_retain(hook);
	int ended = empty_ring(&patience);
	if (!ended) ended = empty_queue(hook, &patience);
	tm_hook_release(hook);
	return ended < 0 ? -1 : 0;
}

static int flush(int patience)
{
	if (tm_me.frames) return 0;
	int ended = empty_ring(&patience);
	tm_hooks *hooks = tm_hooks_now();
	for (uint32_t i = 0; hooks && i < hooks->count && !ended; i++) ended = empty_queue(hooks->hooks[i], &patience);
	tm_hooks_release(hooks);
	return ended < 0 ? -1 : 0;
}

int tm_flush(void) { return flush(-1); }
int tm_flush_at_exit(void) { return flush(PATIENCE); }

void tm_count(tack_event_counts *counts)
{
	uint64_t head = __atomic_load_n(&tm_ring.head, __ATOMIC_RELAXED), tail = __atomic_load_n(&tm_ring.tail, __ATOMIC_RELAXED);
	*counts = (tack_event_counts){
		.delivered = __atomic_load_n(&tm_delivered, __ATOMIC_RELAXED),
		.suppressed = __atomic_load_n(&tm_suppressed, __ATOMIC_RELAXED),
		.dropped = __atomic_load_n(&tm_ring.dropped, __ATOMIC_RELAXED) + __atomic_load_n(&tm_lost, __ATOMIC_RELAXED),
		.waiting = head > tail ? head - tail : 0,
	};
}

void tm_deliver_at_fork(void)
{
	tm_ring_clear();
	tm_me.thread = 0;
	if (!tm_me.draining) draining = false;
	called = 0;
	tm_gc_at_fork();
}
