/* What the core noted and nobody's call can be told of: a free that failed, a panic in a destructor (gomem/notices.go). Go never calls Python, so a call
 * that comes back says that something waits (tm_call.notices), and Python's logger gets it then, or when the interpreter ends. */
#include "lane.h"

static PyObject *notify; /* callable without arguments that takes the notices; from configure() */
static bool notifying;   /* it runs now, and may itself call into the core */

PyObject *tm_notices_configure(PyObject *callable)
{
	if (callable && !PyCallable_Check(callable)) return PyErr_Format(PyExc_TypeError, "configure: notify must be callable");
	if (callable) Py_XSETREF(notify, Py_NewRef(callable));
	Py_RETURN_NONE;
}

void tm_notify(void)
{
	if (!notify || notifying) return;
	PyObject *type, *value, *traceback;
	PyErr_Fetch(&type, &value, &traceback);
	notifying = true;
	PyObject *done = PyObject_CallNoArgs(notify);
	notifying = false;
	if (!done) PyErr_WriteUnraisable(notify); /* an error of the program's own log handler is none of the call's */
	Py_XDECREF(done);
	PyErr_Restore(type, value, traceback);
}

static PyObject *take_notices(PyObject *module, PyObject *unused)
{
	if (tm_forked) return PyUnicode_FromString("[]"); /* what waits is the parent's, and it will tell */
	tm_call call = {.op = TM_OP_NOTICES};
	bool before = notifying;
	notifying = true; /* what this takes need not be announced */
	int failed = tm_perform(&call, TM_SHORT);
	notifying = before;
	if (failed) return NULL;
	PyObject *text = PyUnicode_FromString(call.text);
	free(call.text);
	return text;
}

PyMethodDef tm_notices_methods[] = {
	{"take_notices", take_notices, METH_NOARGS,
		"take_notices()\n--\n\nJSON: a list of {seconds, level, text} of what happened in the core that no call could be told of, oldest first; forgotten then."},
	{NULL},
};
