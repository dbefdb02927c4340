/* BufferView: a part of a buffer, or memory that somebody else owns. It owns nothing, is never counted, and takes its pointer from its base each
 * time, so that a base that moved is seen through it. */
#include "lane.h"
#include "docs_buffers.h"

PyTypeObject *tm_view_type;
static PyObject *name_device_ptr; /* interned */

static tm_view *make(uint64_t offset, uint64_t nbytes, uint32_t device)
{
	tm_view *view = PyObject_GC_New(tm_view, tm_view_type);
	if (!view) return NULL;
	view->base = NULL;
	view->owner = NULL;
	view->offset = offset;
	view->nbytes = nbytes;
	view->address = TM_NO_ADDRESS;
	view->pointer = NULL;
	view->weak = NULL;
	view->device = device;
	return view;
}

/* The range lies inside the base; callers have checked it. */
PyObject *tm_view_new(tm_buffer *base, uint64_t offset, uint64_t nbytes)
{
	tm_view *view = make(offset, nbytes, base->device);
	if (!view) return NULL;
	view->base = (tm_buffer *)Py_NewRef(base);
	return (PyObject *)view; /* not tracked: a Buffer is in no cycle */
}

PyObject *tm_view_foreign(uint64_t address, uint64_t nbytes, uint32_t device, PyObject *owner)
{
	tm_view *view = make(0, nbytes, device);
	if (!view) return NULL;
	view->owner = Py_NewRef(owner);
	view->address = address;
	view->pointer = PyLong_FromUnsignedLongLong(address);
	PyObject_GC_Track(view); /* an owner may refer to its view */
	if (!view->pointer) Py_CLEAR(view);
	return (PyObject *)view;
}

static int view_traverse(PyObject *self, visitproc visit, void *arg)
{
	tm_view *view = (tm_view *)self;
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(view->base);
	Py_VISIT(view->owner);
	return 0;
}

static int view_clear(PyObject *self)
{
	Py_CLEAR(((tm_view *)self)->owner);
	return 0;
}

static void view_dealloc(PyObject *self)
{
	tm_view *view = (tm_view *)self;
	PyTypeObject *type = Py_TYPE(self);
	PyObject_GC_UnTrack(self);
	if (view->weak) PyObject_ClearWeakRefs(self);
	Py_XDECREF(view->owner);
	Py_XDECREF(view->base);
	Py_XDECREF(view->pointer);
	type->tp_free(self);
	Py_DECREF(type);
}

static PyObject *slow_pointer(tm_view *view) { return tm_cold_pointer(view->base, view->offset, &view->address, &view->pointer); }

PyObject *tm_view_pointer(tm_view *view)
{
	tm_buffer *base = view->base;
	if (TM_UNLIKELY(!base)) {
		if (TM_UNLIKELY(tm_forked && !tm_devices[view->device].is_cpu)) {
			tm_raise_forked();
			return NULL;
		}
		return Py_NewRef(view->pointer);
	}
	PyObject *warm = tm_warm_pointer(base, view->address, view->pointer);
	return TM_LIKELY(warm != NULL) ? warm : slow_pointer(view);
}

static PyObject *get_device_ptr(PyObject *self, void *unused) { return tm_view_pointer((tm_view *)self); }

static PyObject *view_getattro(PyObject *self, PyObject *name)
{
	if (TM_LIKELY(name == name_device_ptr)) return tm_view_pointer((tm_view *)self);
	return PyObject_GenericGetAttr(self, name);
}

static PyObject *get_nbytes(PyObject *self, void *unused) { return PyLong_FromUnsignedLongLong(((tm_view *)self)->nbytes); }

static PyObject *get_offset(PyObject *self, void *unused) { return PyLong_FromUnsignedLongLong(((tm_view *)self)->offset); }

static PyObject *get_device(PyObject *self, void *unused) { return Py_NewRef(tm_devices[((tm_view *)self)->device].name); }

static PyObject *get_base(PyObject *self, void *unused)
{
	tm_buffer *base = ((tm_view *)self)->base;
	return Py_NewRef(base ? (PyObject *)base : Py_None);
}

static PyObject *get_owner(PyObject *self, void *unused)
{
	tm_view *view = (tm_view *)self;
	return Py_NewRef(view->base ? (PyObject *)view->base : view->owner ? view->owner : Py_None);
}

static PyObject *get_state(PyObject *self, void *unused)
{
	tm_view *view = (tm_view *)self;
	return view->base ? tm_buffer_state(view->base) : PyUnicode_InternFromString("resident");
}

static PyObject *get_is_spilled(PyObject *self, void *unused)
{
	tm_view *view = (tm_view *)self;
	return PyBool_FromLong(view->base && tm_buffer_is_spilled(view->base));
}

static PyObject *get_label(PyObject *self, void *unused)
{
	tm_view *view = (tm_view *)self;
	return Py_NewRef(view->base && view->base->label ? view->base->label : Py_None);
}

static int set_label(PyObject *self, PyObject *label, void *unused)
{
	tm_view *view = (tm_view *)self;
	if (view->base) return tm_buffer_set_label(view->base, label);
	PyErr_SetString(PyExc_ValueError, "memory that is not ours has no label");
	return -1;
}

static PyObject *get_origin(PyObject *self, void *unused)
{
	tm_view *view = (tm_view *)self;
	return tm_origin_line(view->base ? view->base->origin : NULL);
}

static PyObject *get_origin_stack(PyObject *self, void *unused)
{
	tm_view *view = (tm_view *)self;
	return tm_origin_stack(view->base ? view->base->origin : NULL);
}

static PyObject *get_holds(PyObject *self, void *unused)
{
	tm_view *view = (tm_view *)self;
	return view->base ? tm_buffer_holds(view->base) : PyDict_New();
}

static PyObject *view_repr(PyObject *self)
{
	tm_view *view = (tm_view *)self;
	if (!view->base)
		return PyUnicode_FromFormat("<BufferView of %llu bytes on %U that are not ours>", (unsigned long long)view->nbytes,
			tm_devices[view->device].name);
	return PyUnicode_FromFormat("<BufferView of %llu bytes at %llu of %R>", (unsigned long long)view->nbytes, (unsigned long long)view->offset, view->base);
}

static PyGetSetDef view_getset[] = {
	{"device_ptr", get_device_ptr, NULL, "Address of its first byte on the device; makes its base resident and counts a use.", NULL},
	{"nbytes", get_nbytes, NULL, "Size in bytes.", NULL},
	{"offset", get_offset, NULL, "Where it begins in its base, in bytes.", NULL},
	{"base", get_base, NULL, "The Buffer that it is a part of; None for memory that is not ours.", NULL},
	{"owner", get_owner, NULL, "What keeps the memory alive: the base, or what was given to wrap().", NULL},
	{"device", get_device, NULL, "Name of the device, \"cuda:0\".", NULL},
	{"state", get_state, NULL, "State of its base.", NULL},
	{"is_spilled", get_is_spilled, NULL, "Whether the contents are in host memory now.", NULL},
	{"label", get_label, set_label, "Label of its base.", NULL},
	{"origin", get_origin, NULL, "Origin of its base.", NULL},
	{"origin_stack", get_origin_stack, NULL, "The frames that allocated its base.", NULL},
	{"holds", get_holds, NULL, "Why its base cannot be moved now: reason -> count.", NULL},
	{NULL},
};

static PyMemberDef view_members[] = {
	{"__weaklistoffset__", T_PYSSIZET, offsetof(tm_view, weak), READONLY, NULL},
	{NULL},
};

static PyType_Slot view_slots[] = {
	{Py_tp_dealloc, view_dealloc},
	{Py_tp_traverse, view_traverse},
	{Py_tp_clear, view_clear},
	{Py_tp_getattro, view_getattro},
	{Py_tp_repr, view_repr},
	{Py_tp_getset, view_getset},
	{Py_tp_methods, tm_access_methods},
	{Py_tp_members, view_members},
	{Py_tp_doc, TM_DOC_BUFFER_VIEW},
	{0, NULL},
};
static PyType_Spec view_spec = {"tack_memory.BufferView", sizeof(tm_view), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, view_slots};

int tm_view_init(PyObject *module)
{
	if (!(name_device_ptr = PyUnicode_InternFromString("device_ptr"))) return -1;
	return (tm_view_type = tm_add_type(module, &view_spec)) ? 0 : -1;
}
