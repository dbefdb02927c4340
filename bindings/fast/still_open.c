/* What blocks are open now, in any thread: for tests, which leave none behind. */
#include "lane.h"

static PyObject *still_open(PyObject *module, PyObject *unused)
{
	return Py_BuildValue("{s:I,s:I,s:I}", "peak scopes", tm_open_scopes(), "launches and holds", tm_open_launches_and_holds(), "labels", tm_open_labels);
}

PyMethodDef tm_still_open_methods[] = {
	{"still_open", still_open, METH_NOARGS, "still_open()\n--\n\nHow many blocks are open now, in all threads, by what they are: peak scopes, launches and holds, labels."},
	{NULL},
};
