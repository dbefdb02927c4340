/* Buffer.hold(): a context manager that makes a buffer resident and keeps it so until the block ends. */
#include "lane.h"

PyTypeObject *tm_hold_type;

/* As for launches: whoever enters has the object to itself, though it gives the GIL away. */
enum { OUT, ENTERING, ENTERED };

typedef struct tm_hold {
	PyObject_HEAD
	PyObject *of;      /* Buffer or BufferView */
	tm_thread *thread; /* who entered it */
	uint64_t token;    /* gomem's number of the hold */
	uint32_t reason;
	uint8_t state;
	bool child;        /* entered in a forked child: C holds it */
} tm_hold;

PyObject *tm_hold_new(PyObject *of, PyObject *reason)
{
	tm_range range;
	if (tm_range_of(of, "hold", &range)) return NULL;
	static PyObject *usual; /* interned once; the common case needs no way into Go */
	if (!usual && !(usual = PyUnicode_InternFromString("hold"))) return NULL;
	int64_t number = tm_intern(tm_given(reason) ? reason : usual, "reason");
	if (number < 0) return NULL;
	tm_hold *hold = PyObject_GC_New(tm_hold, tm_hold_type);
	if (!hold) return NULL;
	hold->of = Py_NewRef(of);
	hold->thread = NULL;
	hold->token = 0;
	hold->reason = (uint32_t)number;
	hold->state = OUT;
	hold->child = false;
	if (Py_IS_TYPE(of, tm_view_type)) PyObject_GC_Track(hold);
	return (PyObject *)hold;
}

static PyObject *pointer_of(PyObject *object)
{
	return Py_IS_TYPE(object, tm_buffer_type) ? tm_buffer_pointer((tm_buffer *)object) : tm_view_pointer((tm_view *)object);
}

static void leave(tm_hold *hold)
{
	hold->state = OUT;
	tm_thread_leave(hold->thread);
	hold->thread = NULL;
	bool ok = true;
	tm_buffer *base = tm_root(hold->of, &ok);
	/* Not tm_range_of: another thread may be trying to free the buffer just now, and will be refused. No home: possible only in a forked child. */
	if (!base || !base->home) return;
	if (hold->child || (tm_forked && tm_devices[base->device].is_cpu)) { /* entered in the child, or by the parent: its copy of the count is C's */
		__atomic_fetch_sub(&base->home->pins, 1, __ATOMIC_SEQ_CST);
		return;
	}
	tm_call call = {.op = TM_OP_RELEASE, .device = base->device, .index = base->index, .token = hold->token};
	tm_release(&call);
}

static PyObject *hold_enter(PyObject *self, PyObject *unused)
{
	tm_hold *hold = (tm_hold *)self;
	uint32_t asker = tm_asker();
	if (hold->state != OUT) return PyErr_Format(PyExc_RuntimeError, "this hold is entered already");
	tm_range range;
	bool child;
	if (tm_range_of(hold->of, "hold", &range) || tm_check_fork((int)range.device, &child)) return NULL;
	if (range.base && child) {
		__atomic_fetch_add(&range.base->home->pins, 1, __ATOMIC_SEQ_CST);
	} else if (range.base) {
		tm_call call = {.op = TM_OP_HOLD, .origin = asker, .device = range.device, .index = range.base->index, .reason = hold->reason};
		hold->state = ENTERING;
		int failed = tm_perform_on(range.base, &call, tm_word(range.base->record) == TM_RESIDENT ? TM_SHORT : tm_bringing(range.device, range.base->nbytes));
		hold->state = OUT;
		if (failed) return NULL;
		hold->token = call.token;
	}
	hold->child = child;
	hold->state = ENTERING;
	hold->thread = tm_thread_enter();
	PyObject *pointer = pointer_of(hold->of);
	if (pointer)
		hold->state = ENTERED;
	else
		leave(hold);
	return pointer;
}

static PyObject *hold_exit(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
	tm_hold *hold = (tm_hold *)self;
	if (hold->state != ENTERED) return PyErr_Format(PyExc_RuntimeError, "this hold is not entered");
	leave(hold);
	Py_RETURN_NONE;
}

static int hold_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(((tm_hold *)self)->of);
	return 0;
}

static void hold_dealloc(PyObject *self)
{
	tm_hold *hold = (tm_hold *)self;
	PyTypeObject *type = Py_TYPE(self);
	PyObject_GC_UnTrack(self);
	if (hold->state == ENTERED) {
		PyObject *kind, *value, *traceback;
		PyErr_Fetch(&kind, &value, &traceback);
		leave(hold);
		PyErr_Restore(kind, value, traceback);
	}
	Py_DECREF(hold->of);
	type->tp_free(self);
	Py_DECREF(type);
}

static PyMethodDef hold_methods[] = {
	{"__enter__", hold_enter, METH_NOARGS, NULL},
	{"__exit__", TM_FASTCALL(hold_exit), NULL},
	{NULL},
};

static PyType_Slot hold_slots[] = {
	{Py_tp_dealloc, hold_dealloc},
	{Py_tp_traverse, hold_traverse},
	{Py_tp_methods, hold_methods},
	{Py_tp_doc, "Keeps a buffer on the device: `with buffer.hold(\"texture\") as pointer`."},
	{0, NULL},
};
static PyType_Spec hold_spec = {"tack_memory.Hold", sizeof(tm_hold), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, hold_slots};

int tm_hold_init(PyObject *module)
{
	return (tm_hold_type = tm_add_type(module, &hold_spec)) ? 0 : -1;
}
