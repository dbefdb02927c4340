/* Who listens. The lists are copied at each change, so a delivery walks over one that stays as it is whatever hooks set and remove meanwhile. Changes are made with the GIL. The list of hooks
 * without the GIL is read without it: a spin lock stands before the few instructions that take a reference to the current one. */
#include "module.h"
#include <sched.h>
#include <unistd.h>

static tm_hooks *with_gil, *without_gil;
static uint32_t lock; /* of without_gil, the pointer; held for some instructions */
static uint64_t last_token;
unsigned tm_gil_domains, tm_free_domains;

static void take_lock(void)
{
	for (int tries = 0; __atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE); tries++)
		if (tries > 64) sched_yield();
}

static void give_lock(void) { __atomic_store_n(&lock, 0, __ATOMIC_RELEASE); }

/* ---- references */

void tm_hook_retain(tm_hook *hook) { __atomic_fetch_add(&hook->references, 1, __ATOMIC_RELAXED); }

void tm_hook_release(tm_hook *hook)
{
	if (__atomic_sub_fetch(&hook->references, 1, __ATOMIC_ACQ_REL)) return;
	PyObject *object = hook->object; /* only hooks that are in the list of those with the GIL have one */
	free(hook->queue); /* of one that was never in a list, or has stopped: it is empty */
	free(hook);
	if (object && !tm_finalizing()) Py_DECREF(object);
}

static void drop(tm_hooks *hooks)
{
	if (!hooks || __atomic_sub_fetch(&hooks->references, 1, __ATOMIC_ACQ_REL)) return;
	for (uint32_t i = 0; i < hooks->count; i++) tm_hook_release(hooks->hooks[i]);
	free(hooks);
}

tm_hooks *tm_hooks_now(void)
{
	if (with_gil) __atomic_fetch_add(&with_gil->references, 1, __ATOMIC_RELAXED);
	return with_gil;
}

tm_hooks *tm_hooks_without_gil_now(void)
{
	take_lock();
	tm_hooks *now = without_gil;
	if (now) __atomic_fetch_add(&now->references, 1, __ATOMIC_RELAXED);
	give_lock();
	return now;
}

void tm_hooks_release(tm_hooks *hooks) { drop(hooks); }
void tm_hooks_release_without_gil(tm_hooks *hooks) { drop(hooks); }

/* ---- changes; with the GIL */

tm_hook *tm_hook_make(tm_hook_kind kind, const char *name, unsigned domains)
{
	tm_hook *hook = calloc(1, sizeof *hook);
	if (!hook || tm_ring_open()) {
		free(hook);
		PyErr_NoMemory();
		return NULL;
	}
	hook->references = 1;
	hook->kind = kind;
	hook->domains = domains;
	hook->token = ++last_token;
	hook->stuck_at = UINT64_MAX;
	strncpy(hook->name, name ? name : "", sizeof hook->name - 1);
	return hook;
}

static void publish(tm_hooks **place, tm_hooks *now)
{
	tm_hooks *before = *place;
	if (place == &without_gil) {
		take_lock();
		without_gil = now;
		give_lock();
	} else {
		with_gil = now;
	}
	unsigned domains = 0, *told = place == &without_gil ? &tm_free_domains : &tm_gil_domains;
	for (uint32_t i = 0; now && i < now->count; i++) domains |= now->hooks[i]->domains;
	if (place == &with_gil) tm_untold_forget(*told & ~domains);
	__atomic_store_n(told, domains, __ATOMIC_SEQ_CST);
	__atomic_store_n(&tm_ring.active, tm_gil_domains | tm_free_domains, __ATOMIC_SEQ_CST);
	drop(before); /* last: it may run Python */
}

static tm_hooks *list_of(uint32_t count)
{
	tm_hooks *list = malloc(sizeof *list + count * sizeof(tm_hook *));
	if (!list) {
		PyErr_NoMemory();
		return NULL;
	}
	list->references = 1;
	list->count = 0;
	return list;
}

static void append(tm_hooks *list, tm_hook *hook)
{
	tm_hook_retain(hook);
	list->hooks[list->count++] = hook;
}

int tm_hook_enter(tm_hook *hook, bool first)
{
	tm_hooks **place = hook->without_gil ? &without_gil : &with_gil, *old = *place;
	uint32_t count = old ? old->count : 0;
	tm_hooks *list = list_of(count + 1);
	if (!list) return -1;
	if (first) append(list, hook);
	for (uint32_t i = 0; i < count; i++) append(list, old->hooks[i]);
	if (!first) append(list, hook);
	publish(place, list);
	return 0;
}

void tm_hook_stop(tm_hook *hook)
{
	__atomic_store_n(&hook->removed, true, __ATOMIC_SEQ_CST); /* whatever list somebody walks over */
	/* What would stay in the queue would have the main thread called again and again for what nobody takes. A thread that delivers from it has a copy of its event. */
	__atomic_fetch_add(&tm_lost, hook->count, __ATOMIC_RELAXED);
	hook->taken += hook->count;
	free(hook->queue);
	hook->queue = NULL;
	hook->first = hook->count = hook->room = 0;
}

void tm_hook_leave(tm_hook *hook)
{
	tm_hooks **place = hook->without_gil ? &without_gil : &with_gil, *old = *place;
	tm_hook_stop(hook);
	uint32_t at = 0;
	while (old && at < old->count && old->hooks[at] != hook) at++;
	if (!old || at == old->count) return;
	tm_hooks *list = NULL;
	if (old->count > 1) {
		if (!(list = list_of(old->count - 1))) {
			PyErr_Clear(); /* it stays in the list, and is not called */
			return;
		}
		for (uint32_t i = 0; i < old->count; i++)
			if (i != at) append(list, old->hooks[i]);
	}
	publish(place, list);
}

tm_hook *tm_hook_find(uint64_t token)
{
	tm_hooks *const lists[] = {with_gil, without_gil};
	for (int l = 0; l < 2; l++)
		for (uint32_t i = 0; lists[l] && i < lists[l]->count; i++)
			if (lists[l]->hooks[i]->token == token) return lists[l]->hooks[i];
	return NULL;
}

int tm_hook_quiet(tm_hook *hook, bool looks_for_signals)
{
	if (hook->kind == TM_PYTHON_EVENT || hook->kind == TM_PYTHON_2012) return 0;
	if (tm_me.frames) return 0; /* two hooks that remove each other would wait for ever */
	while (__atomic_load_n(&hook->running, __ATOMIC_SEQ_CST)) {
		Py_BEGIN_ALLOW_THREADS
		usleep(50);
		Py_END_ALLOW_THREADS
		if (looks_for_signals && PyErr_CheckSignals()) return -1;
	}
	return 0;
}

/* ---- fork: of the parent's threads only the one that forked goes on in the child */

static void forget_others(tm_hooks *list)
{
	for (uint32_t i = 0; list && i < list->count; i++) {
		tm_hook *hook = list->hooks[i];
		hook->running = 0;
		hook->delivering = false;
		hook->taken += hook->count; /* what waits is the parent's, which tells it */
		hook->first = hook->count = 0;
	}
}

void tm_hooks_at_fork(int when)
{
	if (when < 0) {
		take_lock(); /* so that the child's copy is whole */
		return;
	}
	if (when > 0) {
		forget_others(with_gil);
		forget_others(without_gil);
		for (tm_frame *frame = tm_me.frames; frame; frame = frame->up) frame->hook->running++;
	}
	give_lock();
}
