/* All living objects of some classes. Python's own gc.get_objects() lists every object there is, also those that another thread is in the middle of
 * making: while such a list is alive and threads take turns, that thread finds a reference too many at what it makes, and fails (a tuple's resize is a
 * SystemError). Here nothing runs between the making of the list and its end: no Python code, no collection, no other thread. */
#include "lane.h"

static PyObject *get_objects; /* gc.get_objects */

static PyObject *instances_of(PyObject *module, PyObject *classes)
{
	if (!PyTuple_Check(classes)) return PyErr_Format(PyExc_TypeError, "instances_of: a tuple of classes, not %.100s", Py_TYPE(classes)->tp_name);
	Py_ssize_t count = PyTuple_GET_SIZE(classes);
	for (Py_ssize_t i = 0; i < count; i++) {
		PyObject *cls = PyTuple_GET_ITEM(classes, i);
		if (!PyType_Check(cls)) return PyErr_Format(PyExc_TypeError, "instances_of: a class is needed, not %.100s", Py_TYPE(cls)->tp_name);
	}
	PyObject *found = PyList_New(0); /* before the list of all: a new list may start a collection, and that runs code */
	PyObject *all = found ? PyObject_CallNoArgs(get_objects) : NULL;
	int failed = !all;
	for (Py_ssize_t at = 0; !failed && at < PyList_GET_SIZE(all); at++) {
		PyObject *one = PyList_GET_ITEM(all, at);
		for (Py_ssize_t i = 0; i < count; i++) {
			if (!PyType_IsSubtype(Py_TYPE(one), (PyTypeObject *)PyTuple_GET_ITEM(classes, i))) continue;
			failed = PyList_Append(found, one);
			break;
		}
	}
	Py_XDECREF(all);
	if (failed) Py_CLEAR(found);
	return found;
}

int tm_instances_init(void)
{
	PyObject *gc = PyImport_ImportModule("gc");
	get_objects = gc ? PyObject_GetAttrString(gc, "get_objects") : NULL;
	Py_XDECREF(gc);
	return get_objects ? 0 : -1;
}

PyMethodDef tm_instances_methods[] = {
	{"instances_of", instances_of, METH_O,
		"instances_of(classes, /)\n--\n\nThe living objects of these classes and of classes below them, but for those that gc.freeze() has hidden."},
	{NULL},
};
