/* Hooks that are Python's callables: the Event that they get, and what happens to what they raise. */
#include "module.h"

static PyTypeObject *event_type;
static PyObject *kinds[TACK_FAIL + 1], *domains[TACK_DOMAINS], *reasons[TACK_RESTORE + 1]; /* interned */

static const char *no_device(int device) { return NULL; }
const char *(*tm_device_name)(int device) = no_device;

static PyStructSequence_Field fields[] = {
	{"kind", "\"new\", \"free\", \"renew\" or \"fail\""},
	{"domain", "\"numpy\", \"device\", or what other allocators tell of in C: \"pinned\", \"shared\""},
	{"device", "name of the device, \"cuda:0\"; None for host memory"},
	{"old", "address that it had, an int; None: none. At \"fail\": of what stays as it was"},
	{"new", "address that it has, an int; None: none"},
	{"old_size", "bytes at old"},
	{"new_size", "bytes at new"},
	{"requested", "bytes that were asked for"},
	{"reason", "\"adopt\", \"spill\", \"restore\" or None"},
	{"seq", "number of the event; they rise along the events of one address"},
	{"thread", "the system's number of the thread that did it (threading.get_native_id); None: not known"},
	{"site", "number that tells the lines of one domain apart, where lines are recorded: of the line that allocated; None: not known"},
	{NULL},
};
static PyStructSequence_Desc description = {"tack_memory.Event", "One event of memory, a tuple with named fields. Sizes are bytes; `tack_memory.event_hook` explains the rest. Nothing of it changes, in no thread.", fields, 12};

static PyObject *or_none(PyObject *text) { return Py_NewRef(text ? text : Py_None); }

static PyObject *address(const void *pointer) { return pointer ? PyLong_FromVoidPtr((void *)pointer) : Py_NewRef(Py_None); }

static PyObject *number(uint32_t value) { return value ? PyLong_FromUnsignedLong(value) : Py_NewRef(Py_None); }

static PyObject *event_new(const tack_event *event)
{
	PyObject *made = PyStructSequence_New(event_type);
	if (!made) return NULL;
	const char *device = event->device >= 0 ? tm_device_name(event->device) : NULL;
	PyObject *values[] = {
		or_none(event->kind <= TACK_FAIL ? kinds[event->kind] : NULL), or_none(event->domain < TACK_DOMAINS ? domains[event->domain] : NULL),
		device ? PyUnicode_FromString(device) : Py_NewRef(Py_None), address(event->kind == TACK_NEW ? NULL : event->old),
		address(event->kind == TACK_FREE || event->kind == TACK_FAIL ? NULL : event->new_), PyLong_FromSize_t(event->old_size), PyLong_FromSize_t(event->new_size),
		PyLong_FromSize_t(event->requested), or_none(event->reason <= TACK_RESTORE ? reasons[event->reason] : NULL), PyLong_FromUnsignedLongLong(event->seq),
		number(event->thread), number(event->site),
	};
	bool whole = true;
	for (int i = 0; i < 12; i++) {
		whole = whole && values[i];
		PyStructSequence_SetItem(made, i, values[i]); /* NULL: it stays empty */
	}
	if (!whole) Py_CLEAR(made);
	return made;
}

/* ---- what hooks raise */

#define MOST_FAILURES 10 /* in a row */

/* A hook that fails each time would print for each array. The list keeps it, so that whoever set it finds it there; it is not called any more, and nothing waits for it. */
static void switch_off(tm_hook *hook)
{
	tm_hook_stop(hook);
	int failed = hook->object
		? PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "an event hook of tack_memory is switched off, since it raised an exception %d times in a row: %R", MOST_FAILURES, hook->object)
		: PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "an event hook of tack_memory is switched off, since it raised an exception %d times in a row: %s", MOST_FAILURES, hook->name);
	if (failed) PyErr_WriteUnraisable(hook->object); /* warnings are errors in this program: here is nobody to raise it to */
}

void tm_hook_called(tm_hook *hook, bool well)
{
	if (well) {
		hook->failures = 0;
		return;
	}
	if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) { /* somebody pressed Ctrl-C just now, and meant the program */
		PyErr_Clear();
		PyErr_SetInterrupt();
		return;
	}
	PyErr_WriteUnraisable(hook->object);
	if (hook->failures < MOST_FAILURES && ++hook->failures == MOST_FAILURES) switch_off(hook);
}

void tm_python_call(tm_hook *hook, const tack_event *event)
{
	PyObject *result = NULL;
	__atomic_fetch_add(&tm_delivered, 1, __ATOMIC_RELAXED);
	if (hook->kind == TM_PYTHON_2012) {
		result = tm_event_hook_call(hook->object, event);
	} else {
		PyObject *made = event_new(event);
		if (made) result = PyObject_CallOneArg(hook->object, made);
		Py_XDECREF(made);
	}
	tm_hook_called(hook, result != NULL);
	Py_XDECREF(result);
}

/* ---- automatic collections, off while hooks run inside of allocations and frees */

static unsigned holding; /* hooks that hold it; with the GIL */
static bool was_on;

void tm_gc_hold(void)
{
	tm_me.holding++;
	if (!holding++) was_on = PyGC_Disable();
}

void tm_gc_release(void)
{
	tm_me.holding--;
	if (!--holding && was_on) PyGC_Enable();
}

/* Threads that are not here any more will not let go of it. */
void tm_gc_at_fork(void)
{
	bool ended = holding && !tm_me.holding;
	holding = tm_me.holding;
	if (ended && was_on && tm_have_gil()) PyGC_Enable();
}

/* ---- Python's functions */

static PyObject *add_hook(PyObject *module, PyObject *args)
{
	PyObject *callable, *tokens;
	unsigned wanted;
	int sync;
	if (!PyArg_ParseTuple(args, "OIpO!:add_hook", &callable, &wanted, &sync, &PyList_Type, &tokens)) return NULL;
	if (!PyCallable_Check(callable)) return PyErr_Format(PyExc_TypeError, "a hook must be callable, not %.100s", Py_TYPE(callable)->tp_name);
	tm_hook *hook = tm_hook_make(TM_PYTHON_EVENT, "event_hook", wanted & TACK_ALL_DOMAINS);
	if (!hook) return NULL;
	hook->object = Py_NewRef(callable);
	hook->sync = sync;
	tm_drain(); /* what happened before is not told to it */
	/* Into the list, and not returned: Ctrl-C may come before the caller has stored what this returns. */
	PyObject *token = PyLong_FromUnsignedLongLong(hook->token);
	int failed = !token || PyList_Append(tokens, token) || tm_hook_enter(hook, false);
	Py_XDECREF(token);
	tm_hook_release(hook);
	if (failed) return NULL;
	Py_RETURN_NONE;
}

/* Takes a token out of the list, if it is still there: whoever delivers meanwhile may have removed the hook by itself. */
static int take_out(PyObject *tokens, uint64_t wanted)
{
	for (Py_ssize_t i = 0; i < PyList_GET_SIZE(tokens); i++) {
		if (PyLong_AsUnsignedLongLong(PyList_GET_ITEM(tokens, i)) == wanted) return PyList_SetSlice(tokens, i, i + 1, NULL);
		if (PyErr_Occurred()) return -1;
	}
	return 0;
}

static PyObject *remove_hook(PyObject *module, PyObject *args)
{
	PyObject *tokens;
	int deliver;
	if (!PyArg_ParseTuple(args, "O!p:remove_hook", &PyList_Type, &tokens, &deliver)) return NULL;
	if (!PyList_GET_SIZE(tokens)) Py_RETURN_FALSE;
	uint64_t token = PyLong_AsUnsignedLongLong(PyList_GET_ITEM(tokens, PyList_GET_SIZE(tokens) - 1));
	if (token == (uint64_t)-1 && PyErr_Occurred()) return NULL;
	tm_hook *hook = tm_hook_find(token);
	if (!hook) return take_out(tokens, token) ? NULL : Py_NewRef(Py_False);
	tm_hook_retain(hook);
	int failed = deliver && tm_flush_hook(hook); /* Ctrl-C ends the waiting, but not the removing */
	tm_hook_leave(hook);
	tm_hook_release(hook);
	/* Only now, and here: a signal handler runs at the end of a call, and must find either the hook gone or the token that removes it. */
	if (failed) {
		PyObject *type, *value, *traceback;
		PyErr_Fetch(&type, &value, &traceback);
		if (take_out(tokens, token)) PyErr_Clear();
		PyErr_Restore(type, value, traceback);
		return NULL;
	}
	return take_out(tokens, token) ? NULL : Py_NewRef(Py_True);
}

static PyObject *flush_events(PyObject *module, PyObject *unused)
{
	if (tm_flush()) return NULL;
	Py_RETURN_NONE;
}

static PyObject *flush_at_exit(PyObject *module, PyObject *unused)
{
	if (tm_flush_at_exit()) return NULL;
	Py_RETURN_NONE;
}

static PyObject *event_counts(PyObject *module, PyObject *unused)
{
	tack_event_counts counts;
	tm_count(&counts);
	tm_hooks *hooks = tm_hooks_now();
	for (uint32_t i = 0; hooks && i < hooks->count; i++) counts.waiting += hooks->hooks[i]->count;
	tm_hooks_release(hooks);
	return Py_BuildValue("(KKKK)", (unsigned long long)counts.delivered, (unsigned long long)counts.suppressed, (unsigned long long)counts.dropped,
		(unsigned long long)counts.waiting);
}

static PyMethodDef methods[] = {
	{"add_hook", add_hook, METH_VARARGS, "add_hook(callable, domains, sync, tokens, /)\n--\n\nAdds a hook for events of these domains (bits), and to the list of tokens what removes it."},
	{"remove_hook", remove_hook, METH_VARARGS, "remove_hook(tokens, deliver, /)\n--\n\nRemoves the hook of the last token, which it takes out of the list then, and before that delivers what waits for it; whether it was there."},
	{"flush_events", flush_events, METH_NOARGS,
		"flush_events()\n--\n\nCall all hooks with what waits for them, and return when that is done: also for hooks that another thread is calling just now.\n\n"
		"Raises\n------\n"
		"KeyboardInterrupt\n"
		"    Ctrl-C, while it waited for another thread: the rest goes on waiting.\n\n"
		"Notes\n-----\n"
		"May be called from any thread. Called by a hook, it does nothing. At the end of the program this is done once more, for two seconds at most where\n"
		"another thread is stuck in a hook: what has not come then is not told. It is done for one hook by whoever leaves an `event_hook`, or sets another\n"
		"one by `set_event_hook`, with the same patience."},
	{"flush_at_exit", flush_at_exit, METH_NOARGS, "flush_at_exit()\n--\n\nWhat `flush_events` does, but for two seconds at most where another thread is stuck in a hook."},
	{"event_counts", event_counts, METH_NOARGS,
		"event_counts()\n--\n\n(calls of hooks, events of memory that hooks allocated, events that were lost because too many waited, events that wait)."},
	{NULL},
};

int tm_python_init(PyObject *module)
{
	static const char *const kind_names[] = {NULL, "new", "free", "renew", "fail"}, *const domain_names[] = {"numpy", "device", "pinned", "shared"},
				 *const reason_names[] = {NULL, "adopt", "spill", "restore"};
	for (int i = TACK_NEW; i <= TACK_FAIL; i++)
		if (!(kinds[i] = PyUnicode_InternFromString(kind_names[i]))) return -1;
	for (int i = 0; i < TACK_DOMAINS; i++)
		if (!(domains[i] = PyUnicode_InternFromString(domain_names[i]))) return -1;
	for (int i = TACK_ADOPT; i <= TACK_RESTORE; i++)
		if (!(reasons[i] = PyUnicode_InternFromString(reason_names[i]))) return -1;
	if (!(event_type = PyStructSequence_NewType(&description)) || PyModule_AddType(module, event_type)) return -1;
	return PyModule_AddFunctions(module, methods);
}
