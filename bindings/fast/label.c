/* `with label("temporary"):`: what the block's thread allocates has this label. Entry and exit are one C call each: in Python code, Ctrl-C could come
 * between the change of the label and the note of the one before, and the thread would keep the label for ever. */
#include "lane.h"

static PyTypeObject *labelled_type;

typedef struct tm_labelled {
	PyObject_HEAD
	PyObject *name;   /* str or None */
	PyObject *before; /* list of the labels before each entry: one object may be entered again inside itself */
} tm_labelled;

static PyObject *labelled(PyObject *module, PyObject *name)
{
	if (tm_intern(name, "label") < 0) return NULL; /* a wrong one is refused before the block */
	PyObject *before = PyList_New(0);
	tm_labelled *block = before ? (tm_labelled *)labelled_type->tp_alloc(labelled_type, 0) : NULL;
	if (!block) {
		Py_XDECREF(before);
		return NULL;
	}
	block->name = Py_NewRef(name);
	block->before = before;
	return (PyObject *)block;
}

static PyObject *labelled_enter(PyObject *self, PyObject *unused)
{
	tm_labelled *block = (tm_labelled *)self;
	PyObject *before = tm_thread_set_label(block->name);
	if (!before) return NULL;
	if (PyList_Append(block->before, before)) {
		PyObject *type, *value, *traceback;
		PyErr_Fetch(&type, &value, &traceback);
		PyObject *undone = tm_thread_set_label(before); /* it was set before, so its number is known */
		Py_XDECREF(undone);
		Py_DECREF(before);
		PyErr_Restore(type, value, traceback);
		return NULL;
	}
	Py_DECREF(before);
	Py_RETURN_NONE;
}

static PyObject *labelled_exit(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
	tm_labelled *block = (tm_labelled *)self;
	Py_ssize_t last = PyList_GET_SIZE(block->before) - 1;
	if (last < 0) return PyErr_Format(PyExc_RuntimeError, "this label was not entered");
	PyObject *label = Py_NewRef(PyList_GET_ITEM(block->before, last));
	PyObject *mine = tm_thread_set_label(label);
	Py_DECREF(label);
	if (!mine || PyList_SetSlice(block->before, last, last + 1, NULL)) {
		Py_XDECREF(mine);
		return NULL;
	}
	Py_DECREF(mine);
	Py_RETURN_NONE;
}

static void labelled_dealloc(PyObject *self)
{
	tm_labelled *block = (tm_labelled *)self;
	PyTypeObject *type = Py_TYPE(self);
	Py_XDECREF(block->name);
	Py_XDECREF(block->before);
	type->tp_free(self);
	Py_DECREF(type);
}

static PyMethodDef labelled_methods[] = {
	{"__enter__", labelled_enter, METH_NOARGS, NULL},
	{"__exit__", TM_FASTCALL(labelled_exit), NULL},
	{NULL},
};

static PyType_Slot labelled_slots[] = {
	{Py_tp_dealloc, labelled_dealloc},
	{Py_tp_methods, labelled_methods},
	{Py_tp_doc, "What label(name) returns: the block's allocations have this label."},
	{0, NULL},
};
static PyType_Spec labelled_spec = {"tack_memory.Labelled", sizeof(tm_labelled), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, labelled_slots};

int tm_label_init(PyObject *module)
{
	return (labelled_type = tm_add_type(module, &labelled_spec)) ? 0 : -1;
}

PyMethodDef tm_label_methods[] = {
	{"labelled", labelled, METH_O, "labelled(name, /)\n--\n\nA context manager: what its thread allocates inside has this label; inner blocks win."},
	{NULL},
};
