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

/* An error of the program's own log handler is none of the call's that happened to bring word, so it is shown and forgotten. But KeyboardInterrupt, SystemExit
 * and whatever else is no Exception were not meant for the handler: a signal came while it ran, or it wants the thread to end. They go on as if they had come
 * at the end of the call, and whoever called gives back what it has got (tm_perform). Not by PyErr_SetInterrupt: that would call the program's handler of
 * SIGINT a second time, on the main thread, whichever thread it was, and SystemExit has no such way. */
int tm_notify(void)
{
	if (!notify || notifying) return 0;
	PyObject *type, *value, *traceback;
	PyErr_Fetch(&type, &value, &traceback);
	notifying = true;
	PyObject *done = PyObject_CallNoArgs(notify);
	notifying = false;
	int failed = !done && !PyErr_ExceptionMatches(PyExc_Exception) ? -1 : 0;
	if (!done && !failed) PyErr_WriteUnraisable(notify);
	Py_XDECREF(done);
	if (!failed) {
		PyErr_Restore(type, value, traceback);
	} else if (type) { /* a signal handler has raised, too: that one is older */
		PyObject *newer, *newer_value, *newer_traceback;
		PyErr_NormalizeException(&type, &value, &traceback);
		if (traceback) PyException_SetTraceback(value, traceback);
		PyErr_Fetch(&newer, &newer_value, &newer_traceback);
		PyErr_NormalizeException(&newer, &newer_value, &newer_traceback);
		if (newer_value != value)
			PyException_SetContext(newer_value, value); /* takes the reference */
		else
			Py_DECREF(value);
		Py_DECREF(type);
		Py_XDECREF(traceback);
		PyErr_Restore(newer, newer_value, newer_traceback);
	}
	return failed;
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
