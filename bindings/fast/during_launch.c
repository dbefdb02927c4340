/* during_launch(): a host's own launch around one of its functions, in one call of C. A host's wrapper in Python cannot do it with enter_launch and
 * leave_launch alone: the interpreter runs signal handlers at the end of each call, so Ctrl-C may come when enter_launch is through and the `try` is not
 * begun, and the buffers would be held for ever. */
#include "lane.h"

static PyObject *during_launch(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	if (nargs < 2) return PyErr_Format(PyExc_TypeError, "during_launch() takes a list of buffers and a function");
	if (!PyList_Check(args[0]) && !PyTuple_Check(args[0]))
		return PyErr_Format(PyExc_TypeError, "during_launch() takes a list or tuple of buffers, not %.100s", Py_TYPE(args[0])->tp_name);
	PyObject *buffers = PySequence_Tuple(args[0]); /* what is left is what was entered, whatever becomes of the list */
	if (!buffers) return NULL;
	PyObject *result = NULL;
	if (tm_pass_enter_devices(PySequence_Fast_ITEMS(buffers), PyTuple_GET_SIZE(buffers)) != TM_WRONG) {
		tm_thread *thread = tm_thread_enter();
		result = PyObject_Vectorcall(args[1], args + 2, (size_t)(nargs - 2), names);
		PyObject *type, *value, *traceback;
		PyErr_Fetch(&type, &value, &traceback);
		tm_thread_leave(thread);
		if (tm_pass_leave(PySequence_Fast_ITEMS(buffers), PyTuple_GET_SIZE(buffers)) && !type)
			Py_CLEAR(result); /* somebody has lowered a count that was not theirs, and no other error tells of it */
		else
			PyErr_Restore(type, value, traceback);
	}
	Py_DECREF(buffers);
	return result;
}

PyMethodDef tm_during_launch_methods[] = {
	{"during_launch", TM_KEYWORDS(during_launch),
		"during_launch(buffers, function, /, *args, **named)\n--\n\nCalls the function with these arguments, and returns what it returns, while a launch on the\n"
		"buffers runs: all are resident and held. They may be on several devices."},
	{NULL},
};
