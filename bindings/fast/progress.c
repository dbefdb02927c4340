/* How far long moves have come, for a callback of the program's: tack_memory.set_progress.
 *
 * A call that may move much runs on a goroutine, and the thread that made it waits in slices (task.c). Go counts what it has copied, part by part, in a struct of
 * the waiting thread's; between two slices that thread, which has the GIL and no lock of ours, calls the callback. The moving goes on meanwhile. So the callback
 * may take long, and may call anything: what needs the device waits for the end of the move, on which it does not depend.
 *
 * Several calls can be one move for whoever watches (begin_moves): spill(*arrays) is a call for each array. They share one report then, and the callback is called
 * between them, too. */
#include "lane.h"
#include <time.h>

static PyObject *progress; /* callable(device, kind, done, total); NULL: none. With the GIL */
static uint64_t progress_after; /* nanoseconds */

static _Thread_local bool telling; /* this thread is inside the callback: moves of its own are not reported */

bool tm_progress_wanted(void) { return TM_UNLIKELY(progress != NULL) && !telling; }

/* The report of the calls that this thread makes between begin_moves and end_moves; NULL: each has its own. */
static _Thread_local tm_report *shared;
uint32_t tm_shared_reports; /* of all threads; with the GIL */

static tm_report *shared_now(void) { return telling ? NULL : shared; }

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void tm_report_begin(tm_report *report, tm_call *call)
{
	*report = (tm_report){.after = progress_after};
	if (TM_UNLIKELY(shared_now() != NULL)) {
		tm_report_share(call);
		return;
	}
	/* TM_OP_DISOWN has no way back, so no Python code may run after it (is_final in task.c), and a bar that was begun would have no end. */
	if (TM_LIKELY(!tm_progress_wanted()) || call->op == TM_OP_DISOWN) return;
	report->callback = Py_NewRef(progress);
	call->progress = &report->moved;
}

/* One call of the callback. An Exception of its own is shown, and it is not called for this move again: 0. What was not meant for it goes on to the program: -1. */
static int tell(tm_report *report, uint32_t device, int kind, uint64_t done, uint64_t total)
{
	report->told[kind] = done;
	report->began_kind[kind] = true;
	telling = true;
	PyObject *result = PyObject_CallFunction(report->callback, "OsKK", tm_devices[device].name, kind ? "restore" : "spill", (unsigned long long)done,
		(unsigned long long)total);
	telling = false;
	if (result) {
		Py_DECREF(result);
		return 0;
	}
	if (!PyErr_ExceptionMatches(PyExc_Exception)) return -1;
	PyErr_WriteUnraisable(report->callback);
	Py_CLEAR(report->callback);
	return 0;
}

bool tm_report_share(tm_call *call)
{
	tm_report *report = shared_now();
	if (TM_LIKELY(!report) || !report->callback || call->op == TM_OP_DISOWN) return false;
	call->progress = &report->moved;
	return true;
}

int tm_report_tell(tm_report *report, const tm_call *call)
{
	if (TM_UNLIKELY(shared_now() != NULL)) report = shared;
	if (TM_LIKELY(!report->callback)) return 0;
	const uint64_t *fields[2][2] = {{&report->moved.spill_done, &report->moved.spill_total}, {&report->moved.restore_done, &report->moved.restore_total}};
	uint64_t figures[2][2];
	for (int kind = 0; kind < 2; kind++)
		for (int which = 0; which < 2; which++) figures[kind][which] = __atomic_load_n(fields[kind][which], __ATOMIC_RELAXED);
	if (!figures[0][1] && !figures[1][1]) return 0;
	if (!report->began) report->began = now();
	if (now() - report->began < report->after) return 0;
	for (int kind = 0; kind < 2 && report->callback; kind++) {
		uint64_t done = figures[kind][0], total = figures[kind][1];
		/* done == total is said once, at the end: a call may find that it has to move more. */
		if (done >= total || (report->began_kind[kind] && done == report->told[kind])) continue;
		if (tell(report, call->device, kind, done, total)) return -1;
	}
	return 0;
}

/* The last call of the callback for each kind that it was called for. */
static int finish(tm_report *report, uint32_t device)
{
	PyObject *type, *value, *traceback;
	PyErr_Fetch(&type, &value, &traceback);
	int failed = 0;
	const uint64_t done[2] = {report->moved.spill_done, report->moved.restore_done};
	for (int kind = 0; kind < 2 && report->callback && !failed && !tm_forked; kind++)
		if (report->began_kind[kind]) failed = tell(report, device, kind, done[kind], done[kind]);
	Py_CLEAR(report->callback);
	if (type) { /* older, and the reason why the call has ended */
		if (failed) PyErr_WriteUnraisable(NULL);
		PyErr_Restore(type, value, traceback);
		return 0;
	}
	return failed;
}

int tm_report_end(tm_report *report, tm_call *call)
{
	call->progress = NULL;
	if (TM_UNLIKELY(shared_now() != NULL)) return PyErr_Occurred() ? 0 : tm_report_tell(shared, call);
	return TM_LIKELY(!report->callback) ? 0 : finish(report, call->device);
}

static PyObject *begin_moves(PyObject *module, PyObject *args)
{
	const char *kind;
	unsigned long long nbytes;
	if (!PyArg_ParseTuple(args, "sK:begin_moves", &kind, &nbytes)) return NULL;
	if (!tm_progress_wanted() || shared) Py_RETURN_FALSE;
	tm_report *report = PyMem_RawCalloc(1, sizeof *report);
	if (!report) return PyErr_NoMemory();
	report->after = progress_after;
	report->callback = Py_NewRef(progress);
	*(kind[0] == 'r' ? &report->moved.restore_total : &report->moved.spill_total) = nbytes;
	shared = report;
	tm_shared_reports++;
	Py_RETURN_TRUE;
}

static PyObject *end_moves(PyObject *module, PyObject *device)
{
	tm_report *report = shared;
	int index = tm_resolve_device(device);
	if (!report) return index < 0 ? NULL : Py_NewRef(Py_None);
	shared = NULL;
	tm_shared_reports--;
	int failed = index < 0 || (report->callback && finish(report, (uint32_t)index));
	Py_CLEAR(report->callback);
	PyMem_RawFree(report);
	if (failed) return NULL;
	Py_RETURN_NONE;
}

static PyObject *set_progress(PyObject *module, PyObject *args)
{
	PyObject *callable;
	double seconds;
	if (!PyArg_ParseTuple(args, "Od:set_progress", &callable, &seconds)) return NULL;
	if (callable != Py_None && !PyCallable_Check(callable)) return PyErr_Format(PyExc_TypeError, "set_progress: a callable or None is needed");
	if (!(seconds >= 0 && seconds <= 1e9)) return PyErr_Format(PyExc_ValueError, "set_progress: seconds must be from 0 to 1e9");
	progress_after = (uint64_t)(seconds * 1e9);
	PyObject *before = progress;
	progress = callable == Py_None ? NULL : Py_NewRef(callable);
	return before ? before : Py_NewRef(Py_None);
}

static PyObject *get_progress(PyObject *module, PyObject *unused) { return Py_NewRef(progress ? progress : Py_None); }

PyMethodDef tm_progress_methods[] = {
	{"set_progress", set_progress, METH_VARARGS,
		"set_progress(callback, after, /)\n--\n\nHave callback(device, kind, done, total) called while a call that moves for more than so many seconds goes on; None: nobody.\n"
		"Returns what it was before."},
	{"begin_moves", begin_moves, METH_VARARGS,
		"begin_moves(kind, nbytes, /)\n--\n\nWhat this thread moves from now on, to end_moves, is told as one \"spill\" or \"restore\" of so many bytes, on one device. False: nobody\n"
		"watches, or it is part of another one; then there is nothing to end."},
	{"end_moves", end_moves, METH_O, "end_moves(device, /)\n--\n\nTells the end of it."},
	{"get_progress", get_progress, METH_NOARGS, "get_progress()\n--\n\nThe callback; None: none."},
	{NULL},
};
