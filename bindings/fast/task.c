/* Calls into Go. Short ones run on the calling thread. On Python's main thread, what may be long runs on a goroutine while this thread waits in slices
 * and looks for signals between them, so that Ctrl-C ends a long spill; a Go call on the thread itself could not be interrupted. */
#include "lane.h"
#include <pthread.h>
#include <time.h>
#include "_cgo_export.h"

/* Some declarations of CPython's are not in its public headers in every version; the function itself is exported by all. */
extern int _PyOS_IsMainThread(void);

struct tm_task {
	pthread_mutex_t mutex; /* guards done */
	pthread_cond_t ended;
	bool done;
};

#define SLICE_NANOSECONDS 50000000L /* how long Ctrl-C may go unseen; taking the GIL 20 times a second costs nothing */

/* The last thing that a task does; called by Go. After the unlock the waiting thread may give the task's memory away. */
void tm_task_finish(tm_task *task)
{
	pthread_mutex_lock(&task->mutex);
	task->done = true;
	pthread_cond_signal(&task->ended);
	pthread_mutex_unlock(&task->mutex);
}

/* Waits for the end of the task, for one slice at most. Without the GIL. */
static bool wait_slice(tm_task *task)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += SLICE_NANOSECONDS;
	if (until.tv_nsec >= 1000000000L) {
		until.tv_nsec -= 1000000000L;
		until.tv_sec++;
	}
	pthread_mutex_lock(&task->mutex);
	while (!task->done && !pthread_cond_timedwait(&task->ended, &task->mutex, &until))
		;
	bool done = task->done;
	pthread_mutex_unlock(&task->mutex);
	return done;
}

/* Runs the call as a task. True when a signal handler raised: the exception is set, the task was told to end, and has ended. */
static bool run_task(tm_call *call)
{
	tm_task task = {.mutex = PTHREAD_MUTEX_INITIALIZER, .done = false};
	pthread_condattr_t monotonic;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&task.ended, &monotonic);
	pthread_condattr_destroy(&monotonic);
	bool raised = false, done = false, started = false;
	while (!done) {
		Py_BEGIN_ALLOW_THREADS
		if (!started) tmStart(&task, call);
		started = true;
		done = wait_slice(&task);
		Py_END_ALLOW_THREADS
		/* Once a handler has raised, the exception is kept and no further handler runs: the task is on its way to its end. */
		if (!done && !raised && PyErr_CheckSignals()) {
			raised = true;
			if (!tm_forked) tmCancel(&task);
		}
		if (TM_UNLIKELY(tm_forked)) { /* a handler forked, and this is the child: the goroutine is not here, and will never end */
			if (!raised) tm_raise_forked();
			call->code = TM_CANCELLED;
			call->text = NULL;
			return true;
		}
	}
	pthread_cond_destroy(&task.ended);
	pthread_mutex_destroy(&task.mutex);
	return raised;
}

/* Gives back what a call has given that nobody will get, because Ctrl-C came at its very end. */
static void undo(tm_call *call)
{
	switch (call->op) {
	case TM_OP_ALLOCATE: call->op = TM_OP_DROP; break;
	case TM_OP_ADMIT: call->op = TM_OP_DISCHARGE; break;
	case TM_OP_HOLD: call->op = TM_OP_RELEASE; break;
	case TM_OP_RESERVE: call->op = TM_OP_UNRESERVE; break;
	case TM_OP_ADOPT: call->op = TM_OP_DISOWN; break;
	default: return;
	}
	tm_release(call);
}

/* Collects garbage and, where asked for, empties the host framework's caches. No lock is held. */
static int help(tm_call *call)
{
	PyObject *gc = PyImport_ImportModule("gc");
	if (!gc) return -1;
	/* Not PyGC_Collect: it does nothing where the program has switched automatic collection off. */
	PyObject *collected = PyObject_CallMethod(gc, "collect", NULL);
	Py_DECREF(gc);
	if (!collected) return -1;
	Py_DECREF(collected);
	call->flags |= TM_COLLECTED;
	if (call->code != TM_RELIEVE) return 0;
	call->flags |= TM_RELIEVED;
	PyObject *relief = Py_XNewRef(tm_devices[call->device].relief);
	if (!relief) return 0;
	PyObject *done = PyObject_CallNoArgs(relief);
	Py_DECREF(relief);
	Py_XDECREF(done);
	return done ? 0 : -1;
}

/* How many threads are inside a call that they carry out themselves: with the GIL. */
static uint32_t in_flight;

/* A task costs two changes of thread, some 10 us and far more on a busy machine: too much for a small restore, nothing beside what takes long. Moving less
 * than this takes some 20 ms at 2 GB/s. */
#define SHORT_MOVE ((uint64_t)32 << 20)

/* Whether a call that moves so much may take longer than a person wants to wait for Ctrl-C. It waits for others only where others are at work: inside a call,
 * with the device's lock, or with launches or holds open. */
static bool may_take_long(uint64_t moves) { return moves >= SHORT_MOVE || in_flight > 0 || tm_others_have_open(); }

uint64_t tm_bringing(uint32_t device, uint64_t nbytes)
{
	uint64_t largest = tm_devices[device].largest;
	return nbytes > INT64_MAX / 2 ? TM_LONG : 2 * nbytes + (largest ? largest : 1);
}

int tm_perform(tm_call *call, uint64_t moves)
{
	if (TM_UNLIKELY(tm_forked)) {
		tm_raise_forked();
		return -1;
	}
	if (tm_thread_is_nested()) call->flags |= TM_NESTED;
	for (;;) {
		call->notices = 0;
		if (TM_UNLIKELY(moves && may_take_long(moves)) && _PyOS_IsMainThread()) {
			if (run_task(call)) {
				if (call->notices) tm_notify();
				if (call->code == TM_OK) undo(call);
				free(call->text);
				return -1;
			}
		} else {
			in_flight++;
			Py_BEGIN_ALLOW_THREADS
			tmPerform(call);
			Py_END_ALLOW_THREADS
			in_flight--;
		}
		if (TM_UNLIKELY(call->notices)) tm_notify();
		if (TM_LIKELY(call->code == TM_OK)) return 0;
		if (call->code != TM_COLLECT && call->code != TM_RELIEVE) return tm_raise_call(call);
		free(call->text);
		call->text = NULL;
		if (help(call)) return -1;
		moves = TM_LONG; /* what comes now is spilling */
	}
}

static void report(tm_call *call)
{
	/* A release cannot fail but on a broken device, or by an error of ours; there is nobody to raise it to. */
	tmReport(call->device, call->text);
	free(call->text);
	call->text = NULL;
}

void tm_release(tm_call *call)
{
	if (TM_UNLIKELY(tm_forked)) return;
	Py_BEGIN_ALLOW_THREADS
	tmPerform(call);
	Py_END_ALLOW_THREADS
	if (TM_UNLIKELY(call->text != NULL)) report(call);
}

bool tm_have_gil(void)
{
	/* Not PyGILState_Check: it says yes to everybody once a subinterpreter was made. */
	PyThreadState *mine = PyGILState_GetThisThreadState();
#if PY_VERSION_HEX >= 0x030d0000
	return mine && mine == PyThreadState_GetUnchecked();
#else
	return mine && mine == _PyThreadState_UncheckedGet();
#endif
}

void tm_release_anywhere(tm_call *call)
{
	if (tm_have_gil()) {
		tm_release(call);
	} else if (!tm_forked) {
		tmPerform(call);
		if (call->text) report(call);
	}
}
