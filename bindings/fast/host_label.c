/* The label of what a host framework's own code allocates, while origins are recorded and nobody gave one: the function's name, "CellSet.point_links" or
 * "flying_edges". So a report tells a data set's derived structure, or what a filter needs, from the arrays that a program made itself. */
#include "lane.h"

/* The folders of the hosts that are plugged in, each with its last slash; NULL: there is none. */
static PyObject *folders;

/* The numbers of the functions' names seen last, by code object; as remembered lines, an entry keeps its code object. */
enum { REMEMBERED = 64 };
static struct {
	PyCodeObject *code;
	uint32_t number;
} remembered[REMEMBERED];

/* Whether it is a name that a person knows: "_scan", "flying_edges.<locals>.pass_2" and "<module>" are the framework's own affair. */
static bool is_public(PyCodeObject *code)
{
	Py_ssize_t length;
	const char *name = PyUnicode_AsUTF8AndSize(code->co_qualname, &length);
	if (!name) {
		PyErr_Clear();
		return false;
	}
	if (*name == '_' || memchr(name, '<', (size_t)length)) return false;
	return !strstr(name, "._");
}

/* The code that the name is taken from, a new reference: of the host's functions that called one another, with nothing but machinery between them, the innermost
 * whose name is public. NULL: it was not a host that called. */
static PyCodeObject *naming_code(void)
{
	PyCodeObject *found = NULL;
	for (PyFrameObject *frame = tm_calling_frame(), *back; frame; frame = back) {
		PyCodeObject *code = PyFrame_GetCode(frame);
		bool passed = tm_code_is_machinery(code), is_hosts = !passed && tm_code_is_within(code, folders), named = is_hosts && is_public(code);
		back = passed || (is_hosts && !named) ? PyFrame_GetBack(frame) : NULL;
		if (named) found = (PyCodeObject *)Py_NewRef(code);
		Py_DECREF(code);
		Py_DECREF(frame);
	}
	return found;
}

/* A new reference, or NULL: there is none, or an exception is set. */
PyObject *tm_host_label_slow(uint32_t *number)
{
	PyCodeObject *code = folders ? naming_code() : NULL;
	if (!code) return NULL;
	PyObject *name = tm_name_text(code->co_qualname, false);
	if (!name) {
		Py_DECREF(code);
		return NULL;
	}
	size_t place = ((uintptr_t)code >> 4) % REMEMBERED;
	if (remembered[place].code == code) {
		*number = remembered[place].number;
		Py_DECREF(code);
		return name;
	}
	int64_t id = tm_intern(name, "label");
	if (id < 0) {
		Py_DECREF(name);
		Py_DECREF(code);
		return NULL;
	}
	*number = (uint32_t)id;
	PyCodeObject *before = remembered[place].code;
	remembered[place].code = code; /* keeps the reference */
	remembered[place].number = (uint32_t)id;
	Py_XDECREF(before); /* last: weak references to a code object have callbacks, which may come here, too */
	return name;
}

static PyObject *set_host_folders(PyObject *module, PyObject *given)
{
	if (tm_check_folders(given, "set_host_folders")) return NULL;
	Py_XSETREF(folders, PyTuple_GET_SIZE(given) ? Py_NewRef(given) : NULL);
	Py_RETURN_NONE;
}

PyMethodDef tm_host_label_methods[] = {
	{"set_host_folders", set_host_folders, METH_O,
		"set_host_folders(folders, /)\n--\n\nWhat code in these folders (each with its last slash) allocates has the name of its function for a label, while origins are recorded."},
	{NULL},
};
