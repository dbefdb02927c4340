/* HostLaunch: stands in the place of a host's function that launches a kernel. It finds the arrays among the kernel's arguments, makes their memory
 * resident in one pass, and holds it until the host's function is through, however that ends.
 *
 * Everything here is on the path of every launch of the host, so where nothing is spilled it is one walk over the arguments: no call into Go, no Python
 * code. */
#include "host_frames.h"

/* ---- the arguments */

enum kind { UNKNOWN, ARRAY, NEVER };

#define KNOWN_TYPES 64 /* a power of two */

typedef struct host_launch {
	PyObject_HEAD
	vectorcallfunc vectorcall;
	PyObject *original, *expand, *settle; /* NULL: none of the last two */
	PyTypeObject *array;
	PyObject *buffer, *storage;  /* interned: the attribute of an array that is its buffer, the key of the buffer's __dict__ under which our memory is */
	bool skip;
	PyObject *dict, *weak;
	/* What was found out about types of arguments. A type is known by its address and its version, a number that no two types share and that changes with it: so
	 * this needs no reference to it. */
	struct { PyTypeObject *type; unsigned int version; enum kind kind; } known[KNOWN_TYPES];
} host_launch;

static PyTypeObject *launch_type;
static PyObject *name_args, *name_kernel_args, *name_kwargs, *name_class; /* interned */

static inline size_t place_of(const PyTypeObject *type) { return ((uintptr_t)type >> 4 ^ (uintptr_t)type >> 10) % KNOWN_TYPES; }

static enum kind kind_of(host_launch *launch, PyTypeObject *type)
{
	size_t place = place_of(type);
	unsigned int version = type->tp_version_tag;
	if (launch->known[place].type == type && launch->known[place].version == version && version) return launch->known[place].kind;
	return type == launch->array || PyType_IsSubtype(type, launch->array) ? ARRAY : UNKNOWN;
}

static void learn(host_launch *launch, PyTypeObject *type, enum kind kind)
{
	_PyType_Lookup(type, name_class); /* gives it a version, if there are any left */
	size_t place = place_of(type);
	launch->known[place].type = type;
	launch->known[place].version = type->tp_version_tag;
	launch->known[place].kind = kind;
}

static inline bool is_plain(PyObject *argument)
{
	PyTypeObject *type = Py_TYPE(argument);
	return type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type || type == &PyUnicode_Type || argument == Py_None;
}

/* Takes what a host's buffer keeps, where it is memory of ours: 0, or -1 with an exception. */
static int take(tm_frame **launch, PyObject *kept)
{
	bool is_array = Py_IS_TYPE(kept, tm_host_array_type);
	PyObject *item = is_array ? ((tm_host_array *)kept)->of : kept;
	if (!Py_IS_TYPE(item, tm_buffer_type) && !Py_IS_TYPE(item, tm_view_type)) return 0;
	if (TM_UNLIKELY((*launch)->items_count == (*launch)->room) && tm_frame_grow(launch)) return -1;
	tm_frame *now = *launch;
	tm_frame_items(now)[now->items_count++] = Py_NewRef(item);
	if (is_array) {
		((tm_host_array *)kept)->place = now->arrays_count;
		tm_frame_arrays(now)[now->arrays_count++] = Py_NewRef(kept);
	}
	return 0;
}

static int take_array(host_launch *self, tm_frame **launch, PyObject *array)
{
	PyObject *buffer = PyObject_GetAttr(array, self->buffer);
	if (TM_UNLIKELY(!buffer)) {
		if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
		PyErr_Clear(); /* half made: the host's own function says so, in the host's words */
		return 0;
	}
	PyObject **dict = _PyObject_GetDictPtr(buffer);
	PyObject *kept = dict && *dict ? PyDict_GetItemWithError(*dict, self->storage) : NULL;
	int failed = kept ? take(launch, kept) : PyErr_Occurred() ? -1 : 0;
	Py_DECREF(buffer);
	return failed;
}

static int take_argument(host_launch *self, tm_frame **launch, PyObject *argument);

/* The parts of an argument that is no array itself. */
static int take_parts(host_launch *self, tm_frame **launch, PyObject *argument)
{
	if (!self->expand) return 0;
	PyObject *parts = PyObject_CallOneArg(self->expand, argument);
	if (!parts) return -1;
	if (parts == Py_None) {
		learn(self, Py_TYPE(argument), NEVER);
		Py_DECREF(parts);
		return 0;
	}
	PyObject *sequence = PySequence_Tuple(parts);
	Py_DECREF(parts);
	if (!sequence) return -1;
	int failed = Py_EnterRecursiveCall(" while the arrays of a launch were looked for");
	if (!failed) {
		for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(sequence) && !failed; i++) failed = take_argument(self, launch, PyTuple_GET_ITEM(sequence, i));
		Py_LeaveRecursiveCall();
	}
	Py_DECREF(sequence);
	return failed;
}

static int take_argument(host_launch *self, tm_frame **launch, PyObject *argument)
{
	if (Py_IS_TYPE(argument, self->array)) return take_array(self, launch, argument);
	if (is_plain(argument)) return 0;
	switch (kind_of(self, Py_TYPE(argument))) {
	case NEVER: return 0;
	case ARRAY: return take_array(self, launch, argument);
	default: return take_parts(self, launch, argument);
	}
}

/* Python code may run for any argument (a property, expand), and other threads with it, which may change the list. */
static int take_sequence(host_launch *self, tm_frame **launch, PyObject *arguments)
{
	if (TM_UNLIKELY(!PyList_CheckExact(arguments) && !PyTuple_CheckExact(arguments))) {
		if (!PySequence_Check(arguments)) return 0; /* the host's own function says what is wrong with it */
		PyObject *tuple = PySequence_Tuple(arguments);
		int failed = tuple ? take_sequence(self, launch, tuple) : -1;
		Py_XDECREF(tuple);
		return failed;
	}
	for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(arguments); i++) {
		PyObject *argument = Py_NewRef(PySequence_Fast_GET_ITEM(arguments, i));
		int failed = take_argument(self, launch, argument);
		Py_DECREF(argument);
		if (TM_UNLIKELY(failed)) return -1;
	}
	return 0;
}

static int take_named(host_launch *self, tm_frame **launch, PyObject *arguments)
{
	if (!PyDict_Check(arguments) || !PyDict_GET_SIZE(arguments)) return 0;
	PyObject *values = PyDict_Values(arguments);
	int failed = values ? take_sequence(self, launch, values) : -1;
	Py_XDECREF(values);
	return failed;
}

/* (backend, kernel, arguments, named arguments of the kernel or something else, ...) */
static int take_all(host_launch *self, tm_frame **launch, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
	if (TM_LIKELY(count > 2) && take_sequence(self, launch, args[2])) return -1;
	if (count > 3 && take_named(self, launch, args[3])) return -1;
	for (Py_ssize_t i = 0; TM_UNLIKELY(names != NULL) && i < PyTuple_GET_SIZE(names); i++) {
		PyObject *name = PyTuple_GET_ITEM(names, i), *value = args[count + i];
		int failed = 0;
		if (!PyUnicode_Compare(name, name_args) || !PyUnicode_Compare(name, name_kernel_args))
			failed = take_sequence(self, launch, value);
		else if (!PyUnicode_Compare(name, name_kwargs))
			failed = take_named(self, launch, value);
		if (failed) return -1;
	}
	return 0;
}

/* ---- the launch */

/* An exception that came up while the launch ended, with the one that its function had raised (NULL: none) as its context. Takes over the references. */
static void raise_in_context(PyObject *type, PyObject *value, PyObject *traceback, PyObject *older, PyObject *older_value, PyObject *older_traceback)
{
	if (older) {
		PyErr_NormalizeException(&older, &older_value, &older_traceback);
		if (older_traceback) PyException_SetTraceback(older_value, older_traceback);
		PyErr_NormalizeException(&type, &value, &traceback);
		PyException_SetContext(value, older_value); /* takes the reference */
		Py_DECREF(older);
		Py_XDECREF(older_traceback);
	}
	PyErr_Restore(type, value, traceback);
}

/* Whether a device of these items has more on it than its budget allows: launches may pass a soft one. */
static bool is_over_budget(PyObject *const *items, Py_ssize_t count)
{
	tm_books *last = NULL;
	for (Py_ssize_t i = 0; i < count; i++) {
		bool ok = true;
		tm_buffer *buffer = tm_root(items[i], &ok);
		if (!buffer || buffer->books == last) continue;
		last = buffer->books;
		int64_t budget = __atomic_load_n(&last->budget, __ATOMIC_RELAXED); /* negative: none */
		if (budget >= 0 && __atomic_load_n(&last->in_use, __ATOMIC_RELAXED) > budget) return true;
	}
	return false;
}

/* Calls settle, with no exception set: 0; or -1 with one that is no Exception, and so was meant for the program (Ctrl-C). An Exception is shown: the launch is
 * through, and did not fail. */
static int call_settle(PyObject *settle)
{
	PyObject *done = PyObject_CallNoArgs(settle);
	if (done || !PyErr_ExceptionMatches(PyExc_Exception)) {
		Py_XDECREF(done);
		return done ? 0 : -1;
	}
	PyErr_WriteUnraisable(settle);
	return 0;
}

/* Ends a launch that was entered: 0, or -1 with an exception of its own. One that is set stays set. */
static int leave(host_launch *self, tm_frame *launch)
{
	PyObject *type, *value, *traceback, *own = NULL, *own_value = NULL, *own_traceback = NULL;
	PyErr_Fetch(&type, &value, &traceback);
	/* First: what runs from here on (other threads, a log handler) must not be given a kept array by this launch, which has looked at it already. */
	tm_frame_pop(launch);
	for (Py_ssize_t i = 0; i < launch->arrays_count; i++) {
		if (TM_LIKELY(!tm_host_array_settle((tm_host_array *)tm_frame_arrays(launch)[i]))) continue;
		if (own)
			PyErr_Clear(); /* one Ctrl-C of a launch is enough */
		else
			PyErr_Fetch(&own, &own_value, &own_traceback);
	}
	if (TM_LIKELY(launch->items_count)) {
		if (TM_UNLIKELY(tm_pass_leave(tm_frame_items(launch), launch->items_count))) {
			if (own)
				PyErr_Clear();
			else
				PyErr_Fetch(&own, &own_value, &own_traceback);
		}
		tm_thread_leave_plain();
	}
	bool settles = self->settle && tm_frame_is_outermost() && !tm_forked && is_over_budget(tm_frame_items(launch), launch->items_count);
	tm_frame_free(launch);
	if (TM_UNLIKELY(settles) && call_settle(self->settle)) {
		if (own)
			PyErr_Clear();
		else
			PyErr_Fetch(&own, &own_value, &own_traceback);
	}
	if (TM_UNLIKELY(own != NULL)) {
		raise_in_context(own, own_value, own_traceback, type, value, traceback);
		return -1;
	}
	if (TM_UNLIKELY(type != NULL)) PyErr_Restore(type, value, traceback);
	return 0;
}

static PyObject *launch_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *names)
{
	host_launch *self = (host_launch *)callable;
	if (TM_UNLIKELY(!self->original)) return PyErr_Format(PyExc_RuntimeError, "this HostLaunch is being taken apart by the garbage collector");
	tm_frame *launch = tm_frame_new(TM_USUAL_ROOM);
	if (TM_UNLIKELY(!launch)) return NULL;
	if (TM_UNLIKELY(take_all(self, &launch, args, PyVectorcall_NARGS(nargsf), names))) goto failed;
	if (self->skip && tm_frame_is_inside(self->array) && tm_frames_hold(launch)) {
		tm_frame_free(launch);
		return PyObject_Vectorcall(self->original, args, nargsf, names);
	}
	if (TM_LIKELY(launch->items_count)) {
		if (TM_UNLIKELY(tm_pass_enter_devices(tm_frame_items(launch), launch->items_count) == TM_WRONG)) goto failed;
		tm_thread_enter_plain();
	}
	tm_frame_push(launch, self->array);
	PyObject *result = PyObject_Vectorcall(self->original, args, nargsf, names);
	if (TM_UNLIKELY(leave(self, launch))) Py_CLEAR(result);
	return result;
failed:;
	PyObject *type, *value, *traceback;
	PyErr_Fetch(&type, &value, &traceback);
	tm_frame_free(launch);
	PyErr_Restore(type, value, traceback);
	return NULL;
}

/* ---- the type */

/* Name, documentation and signature are the original's. */
static int wrap(PyObject *self, PyObject *original)
{
	PyObject *functools = PyImport_ImportModule("functools");
	PyObject *done = functools ? PyObject_CallMethod(functools, "update_wrapper", "OO", self, original) : NULL;
	Py_XDECREF(functools);
	Py_XDECREF(done);
	return done ? 0 : -1;
}

static PyObject *interned(PyObject *text)
{
	Py_INCREF(text);
	PyUnicode_InternInPlace(&text);
	return text;
}

static PyObject *launch_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"original", "array", "storage", "buffer", "expand", "nested", "settle", NULL};
	PyObject *original, *array = NULL, *storage = NULL, *buffer = NULL, *expand = Py_None, *settle = Py_None;
	const char *nested = "hold";
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|$O!UUOsO:HostLaunch", names, &original, &PyType_Type, &array, &storage, &buffer, &expand, &nested, &settle))
		return NULL;
	if (!array || !storage) return PyErr_Format(PyExc_TypeError, "HostLaunch() misses its argument '%s'", array ? "storage" : "array");
	if (!PyCallable_Check(original) || (expand != Py_None && !PyCallable_Check(expand)) || (settle != Py_None && !PyCallable_Check(settle)))
		return PyErr_Format(PyExc_TypeError, "original, expand and settle must be callable");
	bool skip = !strcmp(nested, "skip");
	if (!skip && strcmp(nested, "hold")) return PyErr_Format(PyExc_ValueError, "nested must be \"hold\" or \"skip\", not \"%s\"", nested);
	host_launch *self = (host_launch *)type->tp_alloc(type, 0);
	if (!self) return NULL;
	self->vectorcall = launch_call;
	self->original = Py_NewRef(original);
	self->expand = Py_XNewRef(tm_given(expand));
	self->settle = Py_XNewRef(tm_given(settle));
	self->array = (PyTypeObject *)Py_NewRef(array);
	self->storage = interned(storage);
	self->buffer = buffer ? interned(buffer) : PyUnicode_InternFromString("_buffer");
	self->skip = skip;
	if (!self->buffer || wrap((PyObject *)self, original)) Py_CLEAR(self);
	return (PyObject *)self;
}

static PyObject *launch_get(PyObject *self, PyObject *instance, PyObject *type)
{
	return instance && instance != Py_None ? PyMethod_New(self, instance) : Py_NewRef(self);
}

static int launch_traverse(PyObject *object, visitproc visit, void *arg)
{
	host_launch *self = (host_launch *)object;
	Py_VISIT(Py_TYPE(object));
	Py_VISIT(self->original);
	Py_VISIT(self->expand);
	Py_VISIT(self->settle);
	Py_VISIT(self->array);
	Py_VISIT(self->dict);
	return 0;
}

static int launch_clear(PyObject *object)
{
	host_launch *self = (host_launch *)object;
	Py_CLEAR(self->original);
	Py_CLEAR(self->expand);
	Py_CLEAR(self->settle);
	Py_CLEAR(self->dict);
	return 0; /* not the class of arrays: it is compared with as long as this can be called; where it is part of a cycle, its own clear breaks it */
}

static void launch_dealloc(PyObject *object)
{
	host_launch *self = (host_launch *)object;
	PyTypeObject *type = Py_TYPE(object);
	PyObject_GC_UnTrack(object);
	if (self->weak) PyObject_ClearWeakRefs(object);
	launch_clear(object);
	Py_CLEAR(self->array);
	Py_CLEAR(self->buffer);
	Py_CLEAR(self->storage);
	type->tp_free(object);
	Py_DECREF(type);
}

static PyObject *launch_repr(PyObject *self) { return PyUnicode_FromFormat("<HostLaunch of %R>", ((host_launch *)self)->original); }

static PyMemberDef launch_members[] = {
	{"__vectorcalloffset__", T_PYSSIZET, offsetof(host_launch, vectorcall), READONLY, NULL},
	{"__dictoffset__", T_PYSSIZET, offsetof(host_launch, dict), READONLY, NULL},
	{"__weaklistoffset__", T_PYSSIZET, offsetof(host_launch, weak), READONLY, NULL},
	{NULL},
};

static PyGetSetDef launch_getset[] = {
	{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
	{NULL},
};

static PyType_Slot launch_slots[] = {
	{Py_tp_new, launch_new},
	{Py_tp_dealloc, launch_dealloc},
	{Py_tp_traverse, launch_traverse},
	{Py_tp_clear, launch_clear},
	{Py_tp_call, PyVectorcall_Call},
	{Py_tp_descr_get, launch_get},
	{Py_tp_repr, launch_repr},
	{Py_tp_members, launch_members},
	{Py_tp_getset, launch_getset},
	{Py_tp_doc,
		"HostLaunch(original, *, array, storage, buffer='_buffer', expand=None, nested='hold', settle=None)\n--\n\nStands in the place of a host's method that launches a kernel, (backend, kernel, arguments, ...):\n"
		"the memory of all arrays among the arguments is resident and held while the original runs."},
	{0, NULL},
};
static PyType_Spec launch_spec = {"tack_memory._native._fast.HostLaunch", sizeof(host_launch), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR, launch_slots};

int tm_host_launch_init(PyObject *module)
{
	name_args = PyUnicode_InternFromString("args");
	name_kernel_args = PyUnicode_InternFromString("kernel_args");
	name_kwargs = PyUnicode_InternFromString("kwargs");
	name_class = PyUnicode_InternFromString("__class__");
	if (!name_args || !name_kernel_args || !name_kwargs || !name_class) return -1;
	return (launch_type = tm_add_type(module, &launch_spec)) ? 0 : -1;
}
