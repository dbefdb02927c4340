/* Calls into Go. Short ones run on the calling thread. On Python's main thread, what may be long runs on a goroutine while this thread waits in slices
 * and looks for signals between them, so that Ctrl-C ends a long spill; a Go call on the thread itself could not be interrupted. */
#include "lane.h"
#include "rises.h"
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

/* Whether signal handlers may run now: a call that has no way back cannot take its last step while they do (model: gate.close).
 * False: it has taken it, and ends at once. */
static bool close_gate(tm_call *call)
{
	uint32_t open = TM_GATE_OPEN;
	return __atomic_compare_exchange_n(&call->gate, &open, TM_GATE_CLOSED, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* No handler has raised (model: gate.open). */
static void open_gate(tm_call *call) { __atomic_store_n(&call->gate, TM_GATE_OPEN, __ATOMIC_SEQ_CST); }

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
	tm_report report;
	tm_report_begin(&report, call);
	while (!done) {
		Py_BEGIN_ALLOW_THREADS
		if (!started) tmStart(&task, call);
		started = true;
		done = wait_slice(&task);
		Py_END_ALLOW_THREADS
		/* Once a handler has raised, the exception is kept and no further handler runs: the task is on its way to its end. */
		if (!done && !raised && close_gate(call)) {
			if (PyErr_CheckSignals() || tm_report_tell(&report, call)) {
				raised = true; /* and the gate stays closed */
				if (!tm_forked) tmCancel(&task);
			} else {
				open_gate(call);
			}
		}
		if (TM_UNLIKELY(tm_forked)) { /* a handler forked, and this is the child: the goroutine is not here, and will never end */
			if (!raised) tm_raise_forked();
			call->code = TM_CANCELLED;
			call->text = NULL;
			call->progress = NULL;
			Py_CLEAR(report.callback);
			return true;
		}
	}
	pthread_cond_destroy(&task.ended);
	pthread_mutex_destroy(&task.mutex);
	if (tm_report_end(&report, call)) raised = true;
	return raised;
}

/* What has no way back. Memory that was adopted may be spilled by another thread at once: to disown it would give it back at another address, or fail for want
 * of room, while the caller, told of an error, goes on with the address that it gave. The address that disown() returns is the only way to that memory. So no
 * Python code runs between the end of such a call in Go and the return of the C function that made it: nobody is told of notices behind it, and
 *
 *   - an adoption is no task. It is short: its caller has made room by a call that can be undone (adopt.c), and then it waits for no lock;
 *   - a disowning may take long, for it needs the device's lock, and room. It is a task that can be cancelled up to its last step, which is behind a gate that
 *     is closed while handlers run (close_gate). */
static bool is_final(const tm_call *call) { return call->op == TM_OP_ADOPT || call->op == TM_OP_DISOWN; }

/* Gives back what a call has given that nobody will get, because Ctrl-C came at its very end. Exact, whatever other threads have done since, because what was
 * given has a name that only this call knows:
 *
 *   - the index of a new buffer: spilled or not, it is dropped together with its contents, which nobody has seen;
 *   - one of each buffer's Admitted counts, one hold by its number, one reservation by its token: those of others are counted beside it. That buffers were made
 *     resident for it is no harm.
 *
 * All other operations give nothing, or what was asked for has happened (freed, spilled, copied) as if the signal had come a moment later. What a handler has
 * forked needs nothing: the child has no Go, and the parent comes here by itself. */
static void undo(tm_call *call)
{
	switch (call->op) {
	case TM_OP_ALLOCATE: case TM_OP_RECEIVE: call->op = TM_OP_DROP; break;
	case TM_OP_ADMIT: call->op = TM_OP_DISCHARGE; break;
	case TM_OP_HOLD: call->op = TM_OP_RELEASE; break;
	case TM_OP_RESERVE: case TM_OP_RESERVE_TO_ADOPT: call->op = TM_OP_UNRESERVE; break;
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

static int perform(tm_call *call, uint64_t moves)
{
	if (tm_check_memory((int)call->device)) return -1;
	if (tm_thread_is_nested()) call->flags |= TM_NESTED;
	bool waited = false; /* for late launches */
	for (;;) {
		if (TM_UNLIKELY(tm_forked)) { /* asked each time: help() and tm_notify() run Python code, which may fork */
			tm_raise_forked();
			return -1;
		}
		if (TM_UNLIKELY(call->flags & TM_ASK) && !_PyOS_IsMainThread()) call->flags &= ~(uint32_t)TM_ASK; /* no signal is handled here: it just waits */
		if (TM_UNLIKELY(tm_late_launches && moves)) tm_settle_late_launches();
		if (TM_UNLIKELY(tm_devices[call->device].late_per_thread && !waited) && call->op != TM_OP_ADOPT) call->flags |= TM_HAS_LATE;
		call->notices = 0;
		call->gate = TM_GATE_OPEN;
		bool raised = false;
		/* On other threads, no signal ends a call; there it is a task only for the sake of its progress. */
		if (TM_UNLIKELY(moves && may_take_long(moves)) && call->op != TM_OP_ADOPT && (_PyOS_IsMainThread() || tm_progress_wanted())) {
			raised = run_task(call);
		} else {
			bool shared = TM_UNLIKELY(tm_shared_reports) && tm_report_share(call);
			in_flight++;
			Py_BEGIN_ALLOW_THREADS
			tmPerform(call);
			Py_END_ALLOW_THREADS
			in_flight--;
			if (TM_UNLIKELY(shared)) {
				call->progress = NULL;
				if (tm_report_tell(NULL, call)) raised = true;
			}
		}
		if (TM_UNLIKELY(tm_open_rises)) tm_note_rises(call);
		if (TM_UNLIKELY(__atomic_load_n(&tm_frames_back, __ATOMIC_RELAXED) != NULL) && !(is_final(call) && call->code == TM_OK)) tm_frames_release();
		if (TM_UNLIKELY(call->notices) && !(is_final(call) && call->code == TM_OK) && tm_notify()) raised = true;
		if (TM_UNLIKELY(raised)) {
			if (call->code == TM_OK) undo(call);
			free(call->text);
			call->text = NULL;
			return -1;
		}
		if (TM_LIKELY(call->code == TM_OK)) return 0;
		if (TM_UNLIKELY(call->code == TM_AGAIN)) continue; /* it came to its gate just while signals were looked for */
		if (call->code == TM_LATER) {
			call->flags &= ~(uint32_t)TM_ASK;
			moves = TM_LONG;
			continue;
		}
		if (TM_UNLIKELY(call->flags & TM_HAS_LATE) && (call->code == TM_SETTLE || call->code == TM_MEMORY)) {
			call->flags &= ~(uint32_t)TM_HAS_LATE;
			waited = true;
			int over = tm_await_late_launches(call->device);
			if (over || call->code == TM_SETTLE) {
				free(call->text);
				call->text = NULL;
				if (over < 0) return -1;
				moves = TM_LONG;
				continue;
			}
		}
		if (call->code != TM_COLLECT && call->code != TM_RELIEVE) return tm_raise_call(call);
		free(call->text);
		call->text = NULL;
		if (help(call)) return -1;
		moves = TM_LONG; /* what comes now is spilling */
	}
}

/* Who makes or ends a Buffer by this call tells of it when the Buffer is what the events say. */
static bool tells_by_itself(const tm_call *call)
{
	return call->code == TM_OK && (is_final(call) || call->op == TM_OP_ALLOCATE || call->op == TM_OP_RECEIVE || call->op == TM_OP_FREE);
}

int tm_perform(tm_call *call, uint64_t moves)
{
	if (TM_LIKELY(!TM_EVENTS_ON(tm_events, TACK_DEVICE))) return perform(call, moves);
	call->cause = tm_events->cause();
	bool allocates = call->op == TM_OP_ALLOCATE || call->op == TM_OP_RESERVE; /* before: undo() changes the operation */
	int failed = perform(call, moves);
	if (failed || !tells_by_itself(call)) tm_events->drain();
	if (failed && allocates && PyErr_ExceptionMatches(PyExc_MemoryError)) tm_tell_failed(call->device, call->nbytes);
	return failed;
}

bool tm_follow(tm_call *call, const tm_thread *thread, bool may_wait)
{
	bool per_thread = tm_per_thread_stream((int)call->device, call->stream);
	call->op = TM_OP_FOLLOW;
	call->flags = 0;
	call->result = 0;
	if (TM_UNLIKELY(per_thread && !tm_thread_is_this(thread))) {
		call->stream = TM_UNNAMED_STREAM;
		call->code = TM_LATER;
	} else {
		Py_BEGIN_ALLOW_THREADS
		tmPerform(call);
		Py_END_ALLOW_THREADS
	}
	if (TM_LIKELY(call->code != TM_LATER) || !may_wait) return false;
	call->flags = TM_PATIENT;
	call->gate = TM_GATE_OPEN;
	if (_PyOS_IsMainThread()) {
		if (per_thread) call->stream = TM_UNNAMED_STREAM; /* it is another thread that waits */
		return run_task(call);
	}
	Py_BEGIN_ALLOW_THREADS
	tmPerform(call);
	Py_END_ALLOW_THREADS
	return false;
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
	if (TM_UNLIKELY(__atomic_load_n(&tm_frames_back, __ATOMIC_RELAXED) != NULL)) tm_frames_release();
	if (TM_UNLIKELY(call->text != NULL)) report(call);
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
