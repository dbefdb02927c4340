/* The variables of code that runs, for who looks for arrays. Python's f_locals would make a copy of them, which lives on with the frame up to 3.12; and the garbage collector does not know what running
 * code has. */
#include "frames.h"

static int add(PyObject *to, PyObject *object)
{
	if (object && PyCell_Check(object)) object = PyCell_GET(object);
	return object ? PyList_Append(to, object) : 0;
}

static PyObject *running_locals(PyObject *module, PyObject *unused)
{
	/* The list is made before the frames are looked at, and making it longer runs no Python code: they stay as they are. */
	PyObject *found = PyList_New(0);
	if (Py_Version < 0x030B0100) return found; /* 3.11.0 still has frames in line whose variables it is letting go of */
	for (PyThreadState *state = PyInterpreterState_ThreadHead(PyInterpreterState_Get()); found && state; state = PyThreadState_Next(state))
		for (np_frame *frame = np_innermost(state); found && frame; frame = frame->previous) {
			if (!np_runs(frame)) continue;
			for (int i = 0; found && i < np_code(frame)->co_nlocalsplus; i++)
				if (add(found, frame->localsplus[i])) Py_CLEAR(found);
		}
	return found;
}

PyMethodDef np_locals_methods[] = {
	{"running_locals", running_locals, METH_NOARGS, "running_locals()\n--\n\nWhat the variables of all functions that run now are, in all threads."},
	{NULL},
};
