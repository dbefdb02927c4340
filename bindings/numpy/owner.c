/* Who owns an array's memory. */
#include "handler.h"
#include "numpy_books.h"

PyArrayObject *np_root(PyObject *object)
{
	while (object && PyArray_Check(object)) {
		PyArrayObject *array = (PyArrayObject *)object;
		if (PyArray_CHKFLAGS(array, NPY_ARRAY_OWNDATA)) return array;
		object = PyArray_BASE(array);
	}
	return NULL;
}

static PyObject *owner(PyObject *module, PyObject *object)
{
	if (!PyArray_Check(object)) return PyErr_Format(PyExc_TypeError, "owner() takes an array, not %.100s", Py_TYPE(object)->tp_name);
	PyArrayObject *array = np_root(object);
	PyObject *capsule = array ? PyArray_HANDLER(array) : NULL;
	if (!capsule) Py_RETURN_NONE;
	const PyDataMem_Handler *handler = PyCapsule_GetPointer(capsule, NP_CAPSULE);
	if (!handler) return NULL;
	const np_handler *counting = np_handler_in(capsule);
	const np_header *header = counting ? np_header_at(counting, PyArray_DATA(array)) : NULL;
	if (!header || header->magic != NP_LIVE) return Py_BuildValue("(sOOI)", handler->name, Py_None, Py_None, 0u);
	tm_books_lock(&np_the_books.memory);
	uint64_t sequence = np_sequence(header);
	tm_books_unlock(&np_the_books.memory);
	return Py_BuildValue("(sKKI)", handler->name, (unsigned long long)header->size, (unsigned long long)sequence, (unsigned)header->site);
}

PyMethodDef np_owner_methods[] = {
	{"owner", owner, METH_O,
		"owner(array, /)\n--\n\n(handler, bytes, sequence, site) of the memory that an array is made of; bytes and sequence are None, and site 0, where nobody counted it.\n"
		"None where it is not NumPy's."},
	{NULL},
};
