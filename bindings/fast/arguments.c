/* Arguments of METH_FASTCALL functions. PyArg_ParseTupleAndKeywords would cost as much as the rest of an allocation. */
#include "lane.h"

static int intern_names(tm_signature *signature)
{
	for (int i = 0; signature->names[i]; i++)
		if (!signature->interned[i] && !(signature->interned[i] = PyUnicode_InternFromString(signature->names[i]))) return -1;
	return 0;
}

/* The place of a keyword, or -1. Callers' keywords are interned, so a look at the pointers nearly always finds it. */
static int place_of(const tm_signature *signature, PyObject *name)
{
	for (int i = 0; signature->names[i]; i++)
		if (signature->interned[i] == name) return i;
	for (int i = 0; signature->names[i]; i++)
		if (PyUnicode_CompareWithASCIIString(name, signature->names[i]) == 0) return i;
	return -1;
}

int tm_arguments(tm_signature *signature, PyObject *const *args, Py_ssize_t nargs, PyObject *names, PyObject **values)
{
	if (nargs > signature->positional) {
		PyErr_Format(PyExc_TypeError, "%s() takes %d positional arguments at most, %zd given", signature->function, signature->positional, nargs);
		return -1;
	}
	for (int i = 0; signature->names[i]; i++) values[i] = i < nargs ? args[i] : NULL;
	Py_ssize_t nnames = names ? PyTuple_GET_SIZE(names) : 0;
	if (nnames && !signature->interned[0] && intern_names(signature)) return -1;
	for (Py_ssize_t i = 0; i < nnames; i++) {
		PyObject *name = PyTuple_GET_ITEM(names, i);
		int place = place_of(signature, name);
		if (place < 0 || values[place]) {
			PyErr_Format(PyExc_TypeError, "%s() got %s argument '%U'", signature->function, place < 0 ? "an unexpected keyword" : "two values for", name);
			return -1;
		}
		values[place] = args[nargs + i];
	}
	for (int i = 0; i < signature->required; i++)
		if (!values[i]) {
			PyErr_Format(PyExc_TypeError, "%s() misses its argument '%s'", signature->function, signature->names[i]);
			return -1;
		}
	return 0;
}

int64_t tm_parse_count(PyObject *value, const char *name)
{
	if (PyBool_Check(value) || !PyIndex_Check(value)) {
		PyErr_Format(PyExc_TypeError, "%s must be an int, not %.100s", name, Py_TYPE(value)->tp_name);
		return -1;
	}
	PyObject *integer = PyNumber_Index(value);
	if (!integer) return -1;
	int overflow;
	long long count = PyLong_AsLongLongAndOverflow(integer, &overflow);
	if (overflow || count < 0) PyErr_Format(PyExc_ValueError, "%s must be from 0 to 2**63-1, not %R", name, integer);
	Py_DECREF(integer);
	return overflow ? -1 : count;
}

int tm_parse_handle(PyObject *value, const char *name, uint64_t *handle)
{
	if (PyBool_Check(value) || !PyIndex_Check(value)) {
		PyErr_Format(PyExc_TypeError, "%s must be an int, not %.100s", name, Py_TYPE(value)->tp_name);
		return -1;
	}
	PyObject *integer = PyNumber_Index(value);
	if (!integer) return -1;
	*handle = PyLong_AsUnsignedLongLong(integer);
	if (*handle == (uint64_t)-1 && PyErr_Occurred()) {
		PyErr_Clear();
		PyErr_Format(PyExc_ValueError, "%s must be from 0 to 2**64-1, not %R", name, integer);
		Py_DECREF(integer);
		return -1;
	}
	Py_DECREF(integer);
	return 0;
}

int64_t tm_intern(PyObject *text, const char *what)
{
	if (!text || text == Py_None) return 0;
	if (!PyUnicode_Check(text)) {
		PyErr_Format(PyExc_TypeError, "%s must be a str or None, not %.100s", what, Py_TYPE(text)->tp_name);
		return -1;
	}
	if (tm_forked) return 0; /* the number is Go's; in a child nothing reports it */
	/* A label is given to many buffers: remember the last few by identity, and spare the way into Go. */
	static struct { PyObject *text; uint32_t number; } known[64];
	size_t place = ((uintptr_t)text >> 4) % 64;
	if (known[place].text == text) return known[place].number;
	Py_ssize_t length;
	const char *utf8 = PyUnicode_AsUTF8AndSize(text, &length);
	if (!utf8) return -1;
	if (length > 4096) {
		PyErr_Format(PyExc_ValueError, "%s must not be longer than 4096 bytes, not %zd", what, length);
		return -1;
	}
	tm_call call = {.op = TM_OP_INTERN, .memory = (void *)utf8, .nbytes = (uint64_t)length};
	if (tm_perform(&call, TM_SHORT)) return -1;
	PyObject *before = known[place].text;
	known[place].text = Py_NewRef(text);
	known[place].number = call.label;
	Py_XDECREF(before); /* last: it may be a subclass of str, with a destructor that comes here, too */
	return call.label;
}

int64_t tm_intern_stack(PyObject *stack, uint32_t line)
{
	if (tm_forked || !line) return line; /* no line has no stack */
	Py_ssize_t length;
	const char *utf8 = PyUnicode_AsUTF8AndSize(stack, &length);
	if (!utf8) return -1;
	tm_call call = {.op = TM_OP_INTERN, .memory = (void *)utf8, .nbytes = (uint64_t)length, .origin = line};
	return tm_perform(&call, TM_SHORT) ? -1 : (int64_t)call.label;
}
