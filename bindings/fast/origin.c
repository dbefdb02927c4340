/* Where buffers were allocated: "file.py:12" of the calling Python code, while set_origins("line") is on. */
#include "lane.h"
#include "docs_calls.h"

bool tm_origins_on;

static PyObject *mode_off, *mode_line; /* interned */

/* The texts of the lines seen last, by code object and line: making one costs ten times as much as finding it. An entry keeps its code object, so
 * that the address cannot become another's. */
enum { REMEMBERED = 256 };
static struct {
	PyCodeObject *code;
	int line;
	PyObject *text;
	uint32_t number;
} remembered[REMEMBERED];

/* This package, and the machinery of the host frameworks that are plugged in: a tuple of folders, each with its last slash; NULL: none yet. */
static PyObject *skipped;

/* Whether the code is of this package, or of a host's machinery: then its caller is what a person wants to know. */
static bool is_machinery(PyCodeObject *code)
{
	Py_ssize_t length;
	const char *name = PyUnicode_AsUTF8AndSize(code->co_filename, &length);
	if (!name) {
		PyErr_Clear();
		return false;
	}
	for (Py_ssize_t i = 0, count = skipped ? PyTuple_GET_SIZE(skipped) : 0; i < count; i++) {
		Py_ssize_t its;
		const char *folder = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(skipped, i), &its); /* cannot fail: set_origin_skip has asked */
		if (its <= length && !memcmp(name, folder, (size_t)its)) return true;
	}
	return false;
}

/* The frame outside of all that which called; a new reference, NULL where there is none. */
static PyFrameObject *calling_frame(void)
{
	PyFrameObject *frame = PyEval_GetFrame();
	Py_XINCREF(frame);
	while (frame) {
		PyCodeObject *code = PyFrame_GetCode(frame);
		bool machinery = is_machinery(code);
		Py_DECREF(code);
		if (!machinery) return frame;
		PyFrameObject *back = PyFrame_GetBack(frame);
		if (!back) return frame; /* nobody else: then the outermost */
		Py_DECREF(frame);
		frame = back;
	}
	return NULL;
}

/* "file.py:12". Where accounting is on, an allocation must not fail because of a file's name: one that is no UTF-8 is escaped, of a very long one the end
 * is shown. */
static PyObject *text_of(PyCodeObject *code, int line)
{
	enum { LONGEST = 1000 };
	PyObject *bytes = PyUnicode_AsEncodedString(code->co_filename, "utf-8", "backslashreplace");
	PyObject *name = bytes ? PyUnicode_FromEncodedObject(bytes, "utf-8", NULL) : NULL;
	Py_XDECREF(bytes);
	if (!name) return NULL;
	Py_ssize_t length = PyUnicode_GET_LENGTH(name);
	if (length > LONGEST) Py_XSETREF(name, PyUnicode_Substring(name, length - LONGEST, length));
	PyObject *text = name ? PyUnicode_FromFormat("%s%U:%d", length > LONGEST ? "..." : "", name, line) : NULL;
	Py_XDECREF(name);
	return text;
}

int tm_origin_now(PyObject **text, uint32_t *number)
{
	*text = NULL;
	*number = 0;
	PyFrameObject *frame = calling_frame();
	if (!frame) return 0; /* called by C alone */
	PyCodeObject *code = PyFrame_GetCode(frame);
	int line = PyFrame_GetLineNumber(frame);
	Py_DECREF(frame);
	size_t place = (((uintptr_t)code >> 4) * 31 + (size_t)line) % REMEMBERED;
	if (remembered[place].code != code || remembered[place].line != line) {
		PyObject *made = text_of(code, line);
		int64_t id = made ? tm_intern(made, "origin") : -1;
		if (id < 0) {
			Py_XDECREF(made);
			Py_DECREF(code);
			return -1;
		}
		PyCodeObject *code_before = remembered[place].code;
		PyObject *text_before = remembered[place].text;
		remembered[place].code = code; /* keeps the reference */
		remembered[place].text = Py_NewRef(made);
		remembered[place].line = line;
		remembered[place].number = (uint32_t)id;
		*text = made;
		*number = (uint32_t)id;
		Py_XDECREF(code_before); /* last: weak references to a code object have callbacks */
		Py_XDECREF(text_before);
		return 0;
	}
	Py_DECREF(code);
	*text = Py_NewRef(remembered[place].text);
	*number = remembered[place].number;
	return 0;
}

static PyObject *set_origins(PyObject *module, PyObject *mode)
{
	if (!PyUnicode_Check(mode)) return PyErr_Format(PyExc_TypeError, "mode must be \"off\" or \"line\", not %.100s", Py_TYPE(mode)->tp_name);
	bool line = PyUnicode_CompareWithASCIIString(mode, "line") == 0;
	if (!line && PyUnicode_CompareWithASCIIString(mode, "off")) return PyErr_Format(PyExc_ValueError, "mode must be \"off\" or \"line\", not %R", mode);
	PyObject *before = tm_origins_on ? mode_line : mode_off;
	tm_origins_on = line;
	return Py_NewRef(before);
}

static PyObject *set_origin_skip(PyObject *module, PyObject *folders)
{
	if (!PyTuple_Check(folders)) return PyErr_Format(PyExc_TypeError, "set_origin_skip: a tuple of folders, not %.100s", Py_TYPE(folders)->tp_name);
	for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(folders); i++) {
		PyObject *folder = PyTuple_GET_ITEM(folders, i);
		if (!PyUnicode_Check(folder)) return PyErr_Format(PyExc_TypeError, "set_origin_skip: a folder is a str, not %.100s", Py_TYPE(folder)->tp_name);
		if (!PyUnicode_AsUTF8(folder)) return NULL; /* a lone surrogate, which no file's name could match */
	}
	Py_XSETREF(skipped, Py_NewRef(folders));
	Py_RETURN_NONE;
}

int tm_origin_init(PyObject *module)
{
	return (mode_off = PyUnicode_InternFromString("off")) && (mode_line = PyUnicode_InternFromString("line")) ? 0 : -1;
}

PyMethodDef tm_origin_methods[] = {
	{"set_origins", set_origins, METH_O, TM_DOC_SET_ORIGINS},
	{"set_origin_skip", set_origin_skip, METH_O,
		"set_origin_skip(folders, /)\n--\n\nCode in these folders (each with its last slash) is never an origin: its caller is. This package, and the machinery of host frameworks."},
	{NULL},
};
