/* From the end of a call to a Python exception. failure.go has the other half: the table from Go's errors to enum tm_code. */
#include "lane.h"

static PyObject *memory_error; /* callable: dict of fields -> exception; from configure() */
static PyObject *lost_error, *fork_error, *capture_error;
static PyObject *loads; /* json.loads, imported with the first error: most programs never need it */

#define FORKED_TEXT \
	"tack_memory cannot use a GPU or sim device in a process made by fork(): the driver and this library's threads do not survive it. " \
	"Start processes with the \"spawn\" or \"forkserver\" method (multiprocessing.set_start_method)"

int tm_errors_init(PyObject *module)
{
	memory_error = Py_NewRef(PyExc_MemoryError);
	lost_error = Py_NewRef(PyExc_RuntimeError);
	fork_error = Py_NewRef(PyExc_RuntimeError);
	capture_error = Py_NewRef(PyExc_RuntimeError);
	return 0;
}

static int set_callable(PyObject **place, PyObject *value, const char *name)
{
	if (!value) return 0;
	if (!PyCallable_Check(value)) {
		PyErr_Format(PyExc_TypeError, "configure: %s must be callable, not %.100s", name, Py_TYPE(value)->tp_name);
		return -1;
	}
	Py_XSETREF(*place, Py_NewRef(value));
	return 0;
}

PyObject *tm_errors_configure(PyObject *memory, PyObject *lost, PyObject *fork, PyObject *capture)
{
	if (set_callable(&memory_error, memory, "memory_error") || set_callable(&lost_error, lost, "lost_error") ||
	    set_callable(&fork_error, fork, "fork_error") || set_callable(&capture_error, capture, "capture_error"))
		return NULL;
	Py_RETURN_NONE;
}

void tm_raise_forked(void) { PyErr_SetString(fork_error, FORKED_TEXT); }

void tm_raise_forked_adoption(int device)
{
	if (tm_devices[device].is_cpu)
		PyErr_SetString(fork_error, "memory of a framework's own cannot be adopted in a process made by fork(), also on the CPU: there it is used without being counted. "
			"Buffers of allocate() work there; or start processes with the \"spawn\" or \"forkserver\" method (multiprocessing.set_start_method)");
	else
		tm_raise_forked();
}

/* Raises what memory_error makes of a dict of fields. Steals fields. */
static int raise_memory(PyObject *fields)
{
	PyObject *error = fields ? PyObject_CallOneArg(memory_error, fields) : NULL;
	Py_XDECREF(fields);
	if (!error) return -1;
	if (PyExceptionInstance_Check(error))
		PyErr_SetObject((PyObject *)Py_TYPE(error), error);
	else
		PyErr_Format(PyExc_TypeError, "memory_error returned a %.100s, not an exception", Py_TYPE(error)->tp_name);
	Py_DECREF(error);
	return -1;
}

static PyObject *parse(const char *text)
{
	if (!loads) {
		PyObject *json = PyImport_ImportModule("json");
		if (!json) return NULL;
		loads = PyObject_GetAttrString(json, "loads");
		Py_DECREF(json);
		if (!loads) return NULL;
	}
	return PyObject_CallFunction(loads, "s", text);
}

int tm_raise_call(tm_call *call)
{
	char *text = call->text;
	call->text = NULL;
	const char *told = text ? text : "no text";
	switch (call->code) {
	case TM_MEMORY: raise_memory(parse(told)); break;
	case TM_LOST: PyErr_SetString(lost_error, told); break;
	case TM_CAPTURE: PyErr_SetString(capture_error, told); break;
	case TM_BUSY: PyErr_SetString(PyExc_BufferError, told); break;
	case TM_VALUE: PyErr_SetString(PyExc_ValueError, told); break;
	case TM_CANCELLED: PyErr_SetNone(PyExc_KeyboardInterrupt); break;
	default: PyErr_SetString(PyExc_RuntimeError, told);
	}
	free(text);
	return -1;
}

int tm_raise_child_memory(int device, uint64_t nbytes, const char *reason)
{
	tm_books *books = tm_devices[device].books;
	raise_memory(Py_BuildValue("{sO sK sL sL sL ss sO}", "device", tm_devices[device].name, "requested", (unsigned long long)nbytes,
		"in_use", (long long)books->in_use, "spilled", (long long)books->spilled, "budget", (long long)books->budget,
		"reason", reason, "cause", Py_None));
	tm_tell_failed((uint32_t)device, nbytes);
	return -1;
}
