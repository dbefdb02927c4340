/* The hook with the signature of 2012, of which there is one at a time, and what hands the previous one back.
 *
 * A hook from Python is an EventHook, which owns the callable and its user data (or the capsule). C sees it as the function call_event_hook with the EventHook as its user
 * data: so each side can hold, call and set again what the other one had set. */
#include "module.h"

typedef struct event_hook {
	PyObject_HEAD
	PyObject *hook;      /* a callable, or a capsule named TACK_HOOK_CAPSULE */
	PyObject *user_data; /* NULL with a capsule, whose context it is */
	char sync;
} event_hook;

static PyTypeObject *event_hook_type;
static tm_hook *current; /* it is in the list of hooks, too; NULL: none */

static void call_event_hook(void *old, void *new, size_t size, void *user_data);

/* ---- the object */

static PyObject *make(PyObject *hook, PyObject *user_data, bool sync)
{
	event_hook *made = (event_hook *)event_hook_type->tp_alloc(event_hook_type, 0);
	if (!made) return NULL;
	made->hook = Py_NewRef(hook);
	made->user_data = Py_XNewRef(user_data);
	made->sync = sync;
	return (PyObject *)made;
}

static int traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(((event_hook *)self)->hook);
	Py_VISIT(((event_hook *)self)->user_data);
	return 0;
}

static int clear(PyObject *self)
{
	Py_CLEAR(((event_hook *)self)->hook);
	Py_CLEAR(((event_hook *)self)->user_data);
	return 0;
}

static void dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	PyObject_GC_UnTrack(self);
	clear(self);
	type->tp_free(self);
	Py_DECREF(type);
}

static PyObject *repr(PyObject *self)
{
	event_hook *hook = (event_hook *)self;
	return PyUnicode_FromFormat("<EventHook of %R%s>", hook->hook, hook->sync ? ", sync" : "");
}

static PyMemberDef members[] = {
	{"hook", T_OBJECT, offsetof(event_hook, hook), READONLY, "The callable, or the capsule of a C function."},
	{"user_data", T_OBJECT, offsetof(event_hook, user_data), READONLY, "Its last argument; None with a capsule."},
	{"sync", T_BOOL, offsetof(event_hook, sync), READONLY, "Whether it is called at once."},
	{NULL},
};

static PyType_Slot slots[] = {
	{Py_tp_traverse, traverse},
	{Py_tp_clear, clear},
	{Py_tp_dealloc, dealloc},
	{Py_tp_repr, repr},
	{Py_tp_members, members},
	{Py_tp_doc, "A hook that set_event_hook has replaced, with its user data: give it to set_event_hook, in any thread, to have it back."},
	{0, NULL},
};
static PyType_Spec spec = {"tack_memory.EventHook", sizeof(event_hook), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

static bool is_capsule(PyObject *hook) { return PyCapsule_IsValid(hook, TACK_HOOK_CAPSULE); }

/* ---- calls */

void tm_call_2012(tack_event_hook hook, void *user_data, const tack_event *event)
{
	hook(event->kind == TACK_NEW ? NULL : event->old, event->kind == TACK_FREE ? NULL : event->new_, event->kind == TACK_FREE ? 0 : event->new_size, user_data);
}

static PyObject *call_python(event_hook *hook, void *old, void *new, size_t size)
{
	PyObject *arguments[] = {PyLong_FromVoidPtr(old), PyLong_FromVoidPtr(new), PyLong_FromSize_t(size), hook->user_data ? hook->user_data : Py_None};
	PyObject *called = Py_NewRef(hook->hook), *result = NULL; /* it may replace itself */
	if (arguments[0] && arguments[1] && arguments[2]) result = PyObject_Vectorcall(called, arguments, 4, NULL);
	Py_DECREF(called);
	for (int i = 0; i < 3; i++) Py_XDECREF(arguments[i]);
	return result;
}

PyObject *tm_event_hook_call(PyObject *self, const tack_event *event)
{
	return call_python((event_hook *)self, event->kind == TACK_NEW ? NULL : event->old, event->kind == TACK_FREE ? NULL : event->new_,
		event->kind == TACK_FREE ? 0 : event->new_size);
}

/* As C calls a hook of Python's that it has got as the previous one. What it raises is left to whoever called the C hook (deliver.c). */
static void call_event_hook(void *old, void *new, size_t size, void *user_data)
{
	event_hook *hook = user_data;
	if (is_capsule(hook->hook)) {
		((tack_event_hook)PyCapsule_GetPointer(hook->hook, TACK_HOOK_CAPSULE))(old, new, size, PyCapsule_GetContext(hook->hook));
		return;
	}
	if (tm_finalizing()) return;
	tm_gc_hold();
	Py_XDECREF(call_python(hook, old, new, size));
	tm_gc_release();
}

/* ---- setting it */

/* Makes the entry of the list; an EventHook is what owns it (a new reference is taken). */
static tm_hook *entry_of(event_hook *owner)
{
	bool capsule = is_capsule(owner->hook);
	tm_hook *hook = tm_hook_make(capsule ? TM_C_2012 : TM_PYTHON_2012, "set_event_hook", TACK_ALL_DOMAINS);
	if (!hook) return NULL;
	hook->object = Py_NewRef(owner);
	hook->sync = owner->sync;
	if (capsule) {
		hook->function.of_2012 = (tack_event_hook)PyCapsule_GetPointer(owner->hook, TACK_HOOK_CAPSULE);
		hook->user_data = PyCapsule_GetContext(owner->hook);
	}
	return hook;
}

/* Puts an entry (NULL: none) in the place of the current one, which is returned with its reference; steals it. On an error nothing has changed. */
static int replace(tm_hook *hook, tm_hook **before)
{
	*before = NULL;
	if (hook && tm_hook_enter(hook, true)) {
		tm_hook_release(hook);
		return -1;
	}
	*before = current;
	current = hook;
	if (*before) tm_hook_leave(*before);
	return 0;
}

tack_event_hook tm_set_event_hook(tack_event_hook function, void *user_data, void **old_data)
{
	if (old_data) *old_data = NULL;
	if (current && tm_flush_hook(current)) return NULL; /* what waits for it is not lost */
	tm_hook *hook = NULL, *before;
	if (function == call_event_hook) {
		if (!(hook = entry_of(user_data))) return NULL;
	} else if (function) {
		if (!(hook = tm_hook_make(TM_C_2012, "set_event_hook", TACK_ALL_DOMAINS))) return NULL;
		hook->function.of_2012 = function;
		hook->user_data = user_data;
	}
	if (replace(hook, &before)) return NULL;
	if (function == call_event_hook) Py_DECREF((PyObject *)user_data); /* the reference was handed back with it */
	if (!before) return NULL;
	tack_event_hook old = before->object ? call_event_hook : before->function.of_2012;
	void *data = before->object ? Py_NewRef(before->object) : before->user_data;
	tm_hook_quiet(before, false); /* the caller may free its user data next: no signal may end this */
	tm_hook_release(before);
	if (old_data)
		*old_data = data;
	else
		tm_release_event_hook(old, data); /* the caller does not want it back */
	return old;
}

void tm_release_event_hook(tack_event_hook hook, void *user_data)
{
	if (hook == call_event_hook) Py_DECREF((PyObject *)user_data);
}

/* What set_event_hook takes, as an EventHook; Py_None for none; NULL with an exception. */
static PyObject *owner_of(PyObject *hook, PyObject *user_data, int sync)
{
	if (hook == Py_None || Py_IS_TYPE(hook, event_hook_type)) {
		if (!user_data && sync < 0) return Py_NewRef(hook);
		return PyErr_Format(PyExc_TypeError, hook == Py_None ? "set_event_hook(None) takes the hook away: give None alone"
			: "an EventHook has its user_data and its sync: give it alone");
	}
	if (PyCapsule_CheckExact(hook)) {
		if (!is_capsule(hook)) return PyErr_Format(PyExc_ValueError, "the capsule of a hook must be named \"%s\", not %R", TACK_HOOK_CAPSULE, hook);
		if (user_data || sync >= 0) return PyErr_Format(PyExc_TypeError, "a capsule's user data is its context, and it is called at once: give it alone");
	} else if (!PyCallable_Check(hook)) {
		return PyErr_Format(PyExc_TypeError, "a hook must be callable, or a capsule named \"%s\", or None, not %.100s", TACK_HOOK_CAPSULE, Py_TYPE(hook)->tp_name);
	}
	return make(hook, user_data, sync > 0);
}

/* The previous hook as an EventHook; None: there was none. */
static PyObject *previous(tm_hook *before)
{
	if (!before) Py_RETURN_NONE;
	if (before->object) return Py_NewRef(before->object);
	PyObject *capsule = PyCapsule_New((void *)before->function.of_2012, TACK_HOOK_CAPSULE, NULL);
	if (capsule && before->user_data && PyCapsule_SetContext(capsule, before->user_data)) Py_CLEAR(capsule);
	PyObject *owner = capsule ? make(capsule, NULL, false) : NULL;
	Py_XDECREF(capsule);
	return owner;
}

static PyObject *set_event_hook(PyObject *module, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"hook", "user_data", "sync", NULL};
	PyObject *given, *user_data = NULL, *sync_given = NULL;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O$O:set_event_hook", names, &given, &user_data, &sync_given)) return NULL;
	if (user_data == Py_None) user_data = NULL;
	int sync = sync_given ? PyObject_IsTrue(sync_given) : -1;
	if (sync_given && sync < 0) return NULL;
	if (current && tm_flush_hook(current)) return NULL; /* what waits for it is not lost */
	PyObject *owner = owner_of(given, user_data, sync);
	if (!owner) return NULL;
	tm_hook *hook = owner == Py_None ? NULL : entry_of((event_hook *)owner), *before = NULL, *expected = NULL;
	PyObject *result = NULL;
	bool failed = owner != Py_None && !hook;
	Py_DECREF(owner);
	if (failed) return NULL;
	do { /* before anything has changed, for it can fail; it may also collect garbage, which may set hooks */
		Py_XDECREF(result);
		expected = current;
		result = previous(expected);
	} while (result && current != expected);
	if (!result) {
		if (hook) tm_hook_release(hook);
		return NULL;
	}
	if (replace(hook, &before)) {
		Py_DECREF(result);
		return NULL;
	}
	if (before != expected) Py_SETREF(result, previous(before)); /* a hook that ended just now has set another one */
	if (before) {
		if (tm_hook_quiet(before, true)) Py_CLEAR(result);
		tm_hook_release(before);
	}
	return result;
}

static PyMethodDef methods[] = {
	{"set_event_hook", (PyCFunction)(void (*)(void))set_event_hook, METH_VARARGS | METH_KEYWORDS,
		"set_event_hook($module, /, hook, user_data=None, *, sync=False)\n--\n\n"
		"Be told of each allocation, free and move of array memory, NumPy's and device memory, as by NumPy's PyDataMem_SetEventHook of 2012.\n\n"
		"Parameters\n----------\n"
		"hook : callable, capsule, EventHook or None\n"
		"    `hook(old, new, size, user_data)`: (0, p, n) for n bytes that were allocated at address p, (p, 0, 0) for their free, (p, q, n) when they\n"
		"    lie at q now, and are n bytes: a resized array, device memory that was spilled or restored. A capsule named \"tack_memory.event_hook\" is a C function\n"
		"    (tack_memory.h), called at once. None: no hook.\n"
		"user_data : object, optional\n"
		"    The last argument.\n"
		"sync : bool, default False\n"
		"    Call it at once, inside the allocation and inside the free, with automatic garbage collection off (`event_hook` says what that means for other\n"
		"    threads). Else it is called a little later, in order, by the main thread between two lines of its program, or by `flush_events`: then it may do\n"
		"    what it likes.\n\n"
		"Returns\n-------\n"
		"EventHook or None\n"
		"    The hook before: give it to `set_event_hook` to have it back, with its user data. There is one such hook at a time.\n\n"
		"Raises\n------\n"
		"TypeError, ValueError\n"
		"    For what is no hook, a capsule of another name, and user_data or sync beside a capsule, an EventHook or None.\n"
		"KeyboardInterrupt\n"
		"    Ctrl-C while it waited for another thread: to deliver what waits for the hook before, which stays then; or to end its call of the C function before, in whose\n"
		"    place the new hook is already.\n\n"
		"Notes\n-----\n"
		"Failed allocations are not told here: `event_hook` tells them. What a hook itself allocates is never told. What it raises goes to `sys.unraisablehook`; after ten calls in a row\n"
		"that raised it is switched off, with a RuntimeWarning, and what waits for it is lost. A call of a Python hook that is under way on another thread goes on while this returns; one of a C\n"
		"function has ended. May be called from any thread, also by a hook."},
	{NULL},
};

int tm_legacy_init(PyObject *module)
{
	event_hook_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
	if (!event_hook_type || PyModule_AddType(module, event_hook_type)) return -1;
	return PyModule_AddFunctions(module, methods);
}
