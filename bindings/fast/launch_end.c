/* The end of `with launch(..., stream=S)` (model: launch.leave). The launch's work is queued on a stream that is not the device's, and nothing but the counts
 * keeps the memory where that work finds it. So the counts are lowered only when the device's own stream comes after that work, or when the work is over; and
 * no Python code runs in between, of a log handler for one, which may raise.
 *
 * Mostly the streams are joined, which takes no time. Where the device or a fault wants a wait instead, it is one that Ctrl-C ends: work that never ends must
 * not make a program that nobody can stop. Then, and where the driver can do neither, the launch is late: its counts stay raised and its Buffers are kept, so
 * that nothing moves or frees them (Buffer.holds and reports show a launch), and later calls look whether it is over.
 *
 * Of a per-thread stream only its own thread can ask, and that may have ended, or never call again. A wait for the whole context answers for all of them: it is
 * made by synchronize(), before free() refuses, and before a call waits for launches or fails for want of memory (tm_await_late_launches). */
#include "lane.h"
#include <stdlib.h>
#include "_cgo_export.h"

typedef struct late {
	struct late *next;
	uint64_t stream;
	uint64_t number;   /* the later it was left, the higher */
	tm_thread *thread; /* that it was entered on, a reference: nobody else can ask for a per-thread stream. NULL: there was no memory for it */
	uint32_t device;
	Py_ssize_t count;
	PyObject *items[];
} late;

static late *first; /* this and all below: with the GIL */
uint32_t tm_late_launches;
static uint64_t newest;                     /* number of the launch that became late last */
static uint64_t waited[TM_MAX_DEVICES + 1]; /* by device: the newest launch that a wait for the whole context has come after */

static bool is_per_thread(const late *launch) { return tm_per_thread_stream((int)launch->device, tm_stream_handle((int)launch->device, launch->stream)); }

static void keep(late *launch)
{
	launch->next = first;
	first = launch;
	tm_late_launches++;
}

/* The launch is late: its counts, and references to its items, are kept from now on. */
static void be_late(PyObject *const *items, Py_ssize_t count, uint32_t device, uint64_t stream, tm_thread *thread)
{
	late *launch = malloc(sizeof *launch + (size_t)count * sizeof *items);
	for (Py_ssize_t i = 0; i < count; i++) {
		Py_INCREF(items[i]); /* also where there is no memory to remember it: then they stay held for ever, which loses room and nothing else */
		if (launch) launch->items[i] = items[i];
	}
	if (launch) {
		launch->stream = stream;
		launch->thread = tm_thread_keep(thread);
		launch->device = device;
		launch->count = count;
		launch->number = ++newest;
		if (is_per_thread(launch)) tm_devices[device].late_per_thread++;
		keep(launch);
	}
	char text[256];
	snprintf(text, sizeof text,
		"a launch on stream %#llx was left while its work may still run, and the device could not be made to come after it: its %lld buffers stay held until it is over",
		(unsigned long long)stream, (long long)count);
	tmReport(device, text);
}

int tm_pass_leave_stream(PyObject *const *items, Py_ssize_t count, uint32_t device, uint64_t stream, tm_thread *thread, bool may_wait)
{
	tm_call call = {.device = device, .stream = tm_stream_handle((int)device, stream)};
	bool raised = tm_follow(&call, thread, may_wait);
	int failed = raised ? -1 : 0;
	if (TM_UNLIKELY(!call.result && !tm_forked)) { /* in a child that a signal handler made, nothing is moved any more */
		be_late(items, count, device, stream, thread);
		call.notices = 1;
	} else {
		PyObject *type, *value, *traceback;
		PyErr_Fetch(&type, &value, &traceback);
		failed |= tm_pass_leave(items, count);
		if (type) PyErr_Restore(type, value, traceback);
	}
	if (TM_UNLIKELY(call.code != TM_OK && call.code != TM_LATER && !failed)) failed = tm_raise_call(&call);
	if (failed) {
		free(call.text);
		call.text = NULL;
	}
	if (TM_UNLIKELY(call.notices) && !tm_forked && tm_notify()) failed = -1;
	return failed;
}

void tm_settle_late_launches(void)
{
	PyObject *type, *value, *traceback;
	PyErr_Fetch(&type, &value, &traceback);
	late *todo = first; /* other threads find none meanwhile */
	first = NULL;
	tm_late_launches = 0;
	while (todo) {
		late *launch = todo;
		todo = todo->next;
		tm_call call = {.device = launch->device, .stream = tm_stream_handle((int)launch->device, launch->stream)};
		bool per_thread = is_per_thread(launch);
		if (per_thread && launch->number <= waited[launch->device]) call.result = 1;
		else if (!tm_forked) tm_follow(&call, launch->thread, false);
		free(call.text); /* it was told when the launch became late */
		if (!call.result) {
			keep(launch);
			continue;
		}
		if (per_thread) tm_devices[launch->device].late_per_thread--;
		if (tm_pass_leave(launch->items, launch->count)) PyErr_WriteUnraisable(NULL);
		for (Py_ssize_t i = 0; i < launch->count; i++) Py_DECREF(launch->items[i]);
		tm_thread_let_go(launch->thread);
		free(launch);
	}
	PyErr_Restore(type, value, traceback);
}

int tm_await_late_launches(uint32_t device)
{
	if (TM_LIKELY(!tm_devices[device].late_per_thread) || tm_forked) return 0;
	uint64_t upto = newest; /* those that become late while this one waits may have queued work that it does not wait for */
	tm_call call = {.device = device, .stream = 2};
	bool raised = tm_follow(&call, NULL, true);
	free(call.text); /* as above; and the launches stay late, which the caller tells of */
	if (call.result && !tm_forked) {
		if (waited[device] < upto) waited[device] = upto;
		tm_settle_late_launches();
	}
	return raised ? -1 : call.result != 0;
}
