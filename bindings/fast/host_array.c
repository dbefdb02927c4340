/* HostArray: memory of ours that a host reads through an array of its own (NumPy's), as a CPU backend does.
 *
 * An array is a pointer that anybody may keep for as long as he likes, so the memory must stay in its place for as long as any array over it lives:
 *   - the base of each array is an object of ours, the owner. Views and slices of an array keep it, the array keeps its base;
 *   - outside a launch the owner has an export of the memory from the first moment on;
 *   - in a launch of the reading thread the launch holds the memory, so the owner needs nothing, and the array is kept for the next read: that is what
 *     makes launches cheap. When the launch ends, and before it lets go, an array that somebody has beside us gives its owner an export, and is kept here no longer.
 * So an array that is kept here is in nobody's hands but those of running launches that hold its memory. */
#include "lane.h"

PyTypeObject *tm_host_array_type;
static PyTypeObject *owner_type;
static PyObject *name_base; /* interned */

/* ---- what keeps the memory of one array in its place */

typedef struct host_owner {
	PyObject_HEAD
	PyObject *of;       /* Buffer or BufferView */
	PyObject *exported; /* NULL: a launch holds the memory, and the array is kept by the HostArray; or `counts` */
	uint64_t address, nbytes;
	bool counts;        /* the owner has taken over a launch's count */
} host_owner;

static host_owner *owner_new(PyObject *of, uint64_t address, uint64_t nbytes)
{
	host_owner *owner = PyObject_GC_New(host_owner, owner_type);
	if (!owner) return NULL;
	owner->of = Py_NewRef(of);
	owner->exported = NULL;
	owner->address = address;
	owner->nbytes = nbytes;
	owner->counts = false;
	PyObject_GC_Track(owner);
	return owner;
}

static PyObject *export_of(PyObject *of)
{
	static PyObject *reason;
	if (!reason && !(reason = PyUnicode_InternFromString("array"))) return NULL;
	return tm_export_new(of, reason);
}

/* The memory stays in its place from now on, whatever comes: a launch still holds it. -1 with an exception that was somebody else's (tm_notify). */
static int owner_hold(host_owner *owner)
{
	if (owner->exported || owner->counts || (owner->exported = export_of(owner->of))) return 0;
	/* No memory, a broken device, a forked child. The array is out, and must not become stale: the owner takes over the launch's count instead, which needs
	 * nothing. So nothing has failed here; what is wrong with the device is told by the next call that needs it. */
	bool ok = true;
	tm_buffer *base = tm_root(owner->of, &ok);
	if (base && base->home) {
		tm_raise_launch(base->home);
		owner->counts = true;
	}
	if (!PyErr_ExceptionMatches(PyExc_Exception)) return -1;
	PyErr_Clear();
	return 0;
}

static void owner_dealloc(PyObject *self)
{
	host_owner *owner = (host_owner *)self;
	PyTypeObject *type = Py_TYPE(self);
	PyObject_GC_UnTrack(self);
	PyObject *kind, *value, *traceback;
	PyErr_Fetch(&kind, &value, &traceback);
	if (owner->counts && tm_pass_leave(&owner->of, 1)) PyErr_WriteUnraisable(NULL);
	Py_XDECREF(owner->exported);
	Py_DECREF(owner->of);
	PyErr_Restore(kind, value, traceback);
	type->tp_free(self);
	Py_DECREF(type);
}

static int owner_traverse(PyObject *self, visitproc visit, void *arg)
{
	host_owner *owner = (host_owner *)self;
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(owner->of);
	Py_VISIT(owner->exported);
	return 0;
}

static int owner_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
	static char nothing[1]; /* a buffer of 0 bytes has address 0, which consumers take for "none given" */
	host_owner *owner = (host_owner *)self;
	return PyBuffer_FillInfo(view, self, owner->nbytes ? (void *)(uintptr_t)owner->address : nothing, (Py_ssize_t)owner->nbytes, 0, flags);
}

static PyObject *owner_get_buffer(PyObject *self, void *unused) { return Py_NewRef(((host_owner *)self)->of); }

static PyGetSetDef owner_getset[] = {
	{"buffer", owner_get_buffer, NULL, "The Buffer or BufferView whose memory it is.", NULL},
	{NULL},
};

static PyType_Slot owner_slots[] = {
	{Py_tp_dealloc, owner_dealloc},
	{Py_tp_traverse, owner_traverse},
	{Py_tp_getset, owner_getset},
	{Py_bf_getbuffer, owner_getbuffer},
	{Py_tp_doc, "What an array over a HostArray's memory has as its base: the memory stays in its place while this lives. It has the buffer protocol."},
	{0, NULL},
};
static PyType_Spec owner_spec = {"tack_memory._native._fast.HostArrayOwner", sizeof(host_owner), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, owner_slots};

/* ---- reading */

/* The array over the owner's memory, by the adapter's function; its base must be the owner, or nothing would keep the memory. */
static PyObject *make_over(tm_host_array *array, host_owner *owner)
{
	PyObject *stack[] = {NULL, (PyObject *)array, (PyObject *)owner};
	PyObject *made = PyObject_Vectorcall(array->make, stack + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
	if (!made) return NULL;
	PyObject *base = PyObject_GetAttr(made, name_base);
	bool right = base == (PyObject *)owner;
	Py_XDECREF(base);
	if (right) return made;
	if (base) PyErr_Format(PyExc_TypeError, "make must return an array whose base is the owner that it was given, as numpy.ndarray(shape, dtype, owner) does; not %R", made);
	Py_DECREF(made);
	return NULL;
}

/* Where memory that is held is now. */
static inline uint64_t held_address(PyObject *of)
{
	if (TM_LIKELY(Py_IS_TYPE(of, tm_buffer_type))) return __atomic_load_n(&((tm_buffer *)of)->record->address, __ATOMIC_RELAXED);
	tm_view *view = (tm_view *)of;
	return view->base ? __atomic_load_n(&view->base->record->address, __ATOMIC_RELAXED) + view->offset : view->address;
}

static PyObject *read_held(tm_host_array *array)
{
	uint64_t address = held_address(array->of);
	if (TM_LIKELY(array->kept && ((host_owner *)array->owner)->address == address)) return Py_NewRef(array->kept);
	tm_range range;
	if (tm_range_of(array->of, "an array", &range)) return NULL;
	host_owner *owner = owner_new(array->of, address, range.nbytes);
	PyObject *made = owner ? make_over(array, owner) : NULL;
	if (!made) {
		Py_XDECREF(owner);
		return NULL;
	}
	if (array->kept && ((host_owner *)array->owner)->address == address) {
		/* make let another thread run, or read the attribute itself, and that one is out: only one may be out without a hold. */
		Py_DECREF(made);
		Py_DECREF(owner);
		return Py_NewRef(array->kept);
	}
	PyObject *kept = array->kept, *before = array->owner;
	array->kept = Py_NewRef(made);
	array->owner = (PyObject *)owner;
	Py_XDECREF(kept);
	Py_XDECREF(before);
	return made;
}

PyObject *tm_host_array_read(tm_host_array *array)
{
	if (TM_LIKELY(tm_host_launch_has(array)) && TM_LIKELY(!tm_forked)) return read_held(array);
	tm_range range;
	PyObject *exported = export_of(array->of);
	if (!exported || tm_range_of(array->of, "an array", &range)) {
		Py_XDECREF(exported);
		return NULL;
	}
	host_owner *owner = owner_new(array->of, held_address(array->of), range.nbytes);
	if (!owner) {
		Py_DECREF(exported);
		return NULL;
	}
	owner->exported = exported;
	PyObject *made = make_over(array, owner);
	Py_DECREF(owner);
	return made;
}

/* Whether a weak reference could bring the array back when its launch no longer holds the memory. The owner can have none. */
static inline bool has_weak_references(PyObject *made)
{
	return Py_TYPE(made)->tp_weaklistoffset && *PyObject_GET_WEAKREFS_LISTPTR(made);
}

int tm_host_array_settle(tm_host_array *array)
{
	/* The array is ours and nobody's else, the owner ours and the array's. */
	if (TM_LIKELY(!array->kept || (Py_REFCNT(array->kept) == 1 && Py_REFCNT(array->owner) == 2 && !has_weak_references(array->kept)))) return 0;
	PyObject *kept = array->kept, *owner = array->owner;
	array->kept = array->owner = NULL;
	int failed = owner_hold((host_owner *)owner);
	Py_DECREF(kept);
	Py_DECREF(owner);
	return failed;
}

/* ---- the type */

static PyObject *array_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"buffer", "make", "info", NULL};
	PyObject *of, *make, *info = Py_None;
	tm_range range;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO|O:HostArray", names, &of, &make, &info)) return NULL;
	if (!PyCallable_Check(make)) return PyErr_Format(PyExc_TypeError, "make must be callable, not %.100s", Py_TYPE(make)->tp_name);
	if (tm_range_of(of, "HostArray", &range)) return NULL;
	if (!tm_devices[range.device].is_host_memory) return PyErr_Format(PyExc_ValueError, "memory of %U is not the host's to read: a HostArray needs memory that the host and the device share", tm_devices[range.device].name);
	tm_host_array *array = (tm_host_array *)type->tp_alloc(type, 0);
	if (!array) return NULL;
	array->of = Py_NewRef(of);
	array->make = Py_NewRef(make);
	array->info = Py_NewRef(info);
	return (PyObject *)array;
}

static int array_traverse(PyObject *self, visitproc visit, void *arg)
{
	tm_host_array *array = (tm_host_array *)self;
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(array->of);
	Py_VISIT(array->make);
	Py_VISIT(array->info);
	Py_VISIT(array->kept);
	Py_VISIT(array->owner);
	return 0;
}

/* `of` stays: it refers to no HostArray but through these, and what reads it needs no test for NULL. */
static int array_clear(PyObject *self)
{
	tm_host_array *array = (tm_host_array *)self;
	Py_CLEAR(array->kept);
	Py_CLEAR(array->owner);
	Py_XSETREF(array->info, Py_NewRef(Py_None));
	Py_XSETREF(array->make, Py_NewRef(Py_None));
	return 0;
}

static void array_dealloc(PyObject *self)
{
	tm_host_array *array = (tm_host_array *)self;
	PyTypeObject *type = Py_TYPE(self);
	PyObject_GC_UnTrack(self);
	Py_CLEAR(array->kept);
	Py_CLEAR(array->owner);
	Py_CLEAR(array->info);
	Py_CLEAR(array->make);
	Py_CLEAR(array->of);
	type->tp_free(self);
	Py_DECREF(type);
}

static PyObject *array_repr(PyObject *self) { return PyUnicode_FromFormat("<HostArray over %R>", ((tm_host_array *)self)->of); }

static PyObject *get_buffer(PyObject *self, void *unused) { return Py_NewRef(((tm_host_array *)self)->of); }

static PyObject *get_info(PyObject *self, void *unused) { return Py_NewRef(((tm_host_array *)self)->info); }

static PyObject *get_view(PyObject *self, void *unused)
{
	tm_host_array *array = (tm_host_array *)self;
	return Py_NewRef(array->kept && tm_host_launch_has(array) ? array->kept : Py_None);
}

static PyGetSetDef array_getset[] = {
	{"buffer", get_buffer, NULL, "The Buffer or BufferView whose memory it is.", NULL},
	{"info", get_info, NULL, "What the adapter gave: its own.", NULL},
	{"view", get_view, NULL, "The array that this launch has read; None outside a launch that holds the memory, and before the first read.", NULL},
	{NULL},
};

static PyType_Slot array_slots[] = {
	{Py_tp_new, array_new},
	{Py_tp_dealloc, array_dealloc},
	{Py_tp_traverse, array_traverse},
	{Py_tp_clear, array_clear},
	{Py_tp_repr, array_repr},
	{Py_tp_getset, array_getset},
	{Py_tp_doc,
		"HostArray(buffer, make, info=None)\n--\n\nMemory that a host reads through arrays of its own: what a HostArraySlot keeps. make(host_array, owner) returns an array over the\n"
		"owner's memory (the buffer protocol) whose base is the owner."},
	{0, NULL},
};
static PyType_Spec array_spec = {"tack_memory._native._fast.HostArray", sizeof(tm_host_array), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, array_slots};

int tm_host_array_init(PyObject *module)
{
	if (!(name_base = PyUnicode_InternFromString("base"))) return -1;
	if (!(owner_type = tm_add_type(module, &owner_spec))) return -1;
	return (tm_host_array_type = tm_add_type(module, &array_spec)) ? 0 : -1;
}
