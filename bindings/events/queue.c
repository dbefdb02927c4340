/* The queue of a hook of Python's that is called later: by the main thread between two lines, by a flush, or, where neither comes to it, by a thread that has just told of an event.
 *
 * One thread at a time takes from it, so that the hook sees one order. Others that allocate meanwhile wait before the queue is full, or it would run over, and what is told then
 * would not add up. A free never waits: it happens in destructors, which nobody expects to let other threads run. It finds room all the same, which is bounded by what lives. */
#include "module.h"
#include <unistd.h>

/* Who waits in vain for so many steps of half a millisecond does not wait any more, nor does anybody else, until the hook has taken something: it may be waiting for this very thread. */
#define PATIENCE 4000

/* Others wait from here on. What is between this and TM_MOST_WAITING is for those that cannot: frees, and threads that have lost their patience. */
#define ENOUGH_WAITING (TM_MOST_WAITING / 4)

static bool is_deferred(const tm_hook *hook) { return (hook->kind == TM_PYTHON_EVENT || hook->kind == TM_PYTHON_2012) && !hook->sync && !hook->removed; }

static bool is_stuck(const tm_hook *hook) { return hook->delivering && hook->taken == hook->stuck_at; }

static int grow(tm_hook *hook)
{
	size_t room = hook->room ? 2 * hook->room : 64;
	tm_waiting *queue = malloc(room * sizeof *queue);
	if (!queue) return -1;
	for (size_t i = 0; i < hook->count; i++) queue[i] = hook->queue[(hook->first + i) % hook->room];
	free(hook->queue);
	hook->queue = queue;
	hook->first = 0;
	hook->room = room;
	return 0;
}

int tm_python_queue(tm_hook *hook, const tack_event *event, uint32_t nest)
{
	if (hook->removed || (hook->count >= TM_MOST_WAITING && is_stuck(hook)) || (hook->count == hook->room && grow(hook))) return -1;
	hook->queue[(hook->first + hook->count++) % hook->room] = (tm_waiting){*event, nest};
	tm_call_later();
	return 0;
}

/* Calls the hook with what waits now; what comes meanwhile waits for the next time. */
void tm_python_run_queue(tm_hook *hook)
{
	if (hook->delivering) return; /* another thread does: in order, so one at a time */
	hook->delivering = true;
	tm_hook_retain(hook);
	PyObject *type, *value, *traceback;
	PyErr_Fetch(&type, &value, &traceback);
	for (size_t most = hook->count; most && hook->count && !hook->removed; most--) {
		tm_waiting next = hook->queue[hook->first];
		hook->first = (hook->first + 1) % hook->room;
		hook->count--;
		tm_frame frame;
		uint32_t before = tm_me.nest;
		tm_enter(&frame, hook, next.nest);
		tm_python_call(hook, &next.event);
		tm_leave(&frame, before);
		hook->taken++;
	}
	if (!hook->count && hook->room > TM_MOST_WAITING) { /* many frees at once had needed it */
		free(hook->queue);
		hook->queue = NULL;
		hook->first = hook->room = 0;
	}
	hook->delivering = false;
	PyErr_Restore(type, value, traceback);
	tm_hook_release(hook);
	tm_drain(); /* what happened in the hook */
	if (hook->count) tm_call_later();
}

/* Until whoever calls the hook has made room. */
static void wait_for_room(tm_hook *hook)
{
	uint64_t began = hook->taken;
	for (int patience = PATIENCE; hook->delivering && !hook->removed && hook->count > ENOUGH_WAITING && !is_stuck(hook); patience--) {
		if (!patience) {
			if (hook->taken == began) hook->stuck_at = began;
			return;
		}
		Py_BEGIN_ALLOW_THREADS
		usleep(500);
		Py_END_ALLOW_THREADS
	}
}

void tm_make_room(bool may_wait)
{
	if (tm_me.frames || tm_finalizing()) return; /* whoever called the hook goes on */
	PyObject *type, *value, *traceback;
	PyErr_Fetch(&type, &value, &traceback);
	tm_hooks *hooks = tm_hooks_now();
	for (uint32_t i = 0; hooks && i < hooks->count; i++) {
		tm_hook *hook = hooks->hooks[i];
		if (TM_LIKELY(hook->count <= ENOUGH_WAITING) || !is_deferred(hook)) continue;
		if (may_wait) wait_for_room(hook);
		if (hook->count >= TM_MOST_WAITING && !hook->delivering) { /* the main thread does not come to it: it waits in C, or for other threads */
			tm_gc_hold();
			tm_python_run_queue(hook);
			tm_gc_release();
		}
	}
	tm_hooks_release(hooks);
	PyErr_Restore(type, value, traceback);
}
