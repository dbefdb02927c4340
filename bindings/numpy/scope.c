/* Where a handler is in force: a context, by the ContextVar in which NumPy looks for it, or the whole process, by that variable's default value.
 *
 * A default reaches every thread, also one that runs now or was made by C, and every context in which nobody has set a handler. Python has no function that changes it, so it
 * is written where CPython keeps it, once the object was found to look as we know it. PyDataMem_SetHandler(NULL) goes on meaning NumPy's own handler. */
#include "handler.h"

static PyObject *variable;  /* the ContextVar */
static PyObject **place;    /* its default value; NULL: not looked at yet */

/* NumPy does not publish its ContextVar; but a context in which a handler was set has it. */
static PyObject *find_variable(void)
{
	PyObject *context = PyContext_CopyCurrent();
	if (!context || PyContext_Enter(context)) {
		Py_XDECREF(context);
		return NULL;
	}
	PyObject *before = PyDataMem_SetHandler(np_default_capsule);
	if (PyContext_Exit(context)) Py_CLEAR(before);
	PyObject *variables = before ? PyObject_GetIter(context) : NULL, *one, *found = NULL;
	Py_XDECREF(before);
	while (variables && !found && (one = PyIter_Next(variables))) {
		PyObject *name = PyObject_GetAttrString(one, "name");
		if (name && PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "current_allocator") == 0) found = Py_NewRef(one);
		Py_XDECREF(name);
		Py_DECREF(one);
		if (!name) break;
	}
	Py_XDECREF(variables);
	Py_DECREF(context);
	if (!found && !PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "NumPy keeps its handler in no ContextVar named current_allocator");
	return found;
}

static PyObject *context_variable(PyObject *module, PyObject *unused)
{
	if (!variable && !(variable = find_variable())) return NULL;
	return Py_NewRef(variable);
}

/* CPython 3.11 to 3.13: the object's head, its name, its default. */
static int find_place(void)
{
	if (place) return 0;
	PyObject *found = context_variable(NULL, NULL);
	if (!found) return -1;
	Py_DECREF(found);
	PyObject **fields = (PyObject **)((char *)variable + sizeof(PyObject));
	PyObject *name = PyObject_GetAttrString(variable, "name");
	if (!name) return -1;
	bool known = Py_TYPE(variable)->tp_basicsize >= (Py_ssize_t)(sizeof(PyObject) + 2 * sizeof(PyObject *)) && fields[0] == name && fields[1] == np_default_capsule;
	Py_DECREF(name);
	if (!known) {
		PyErr_SetString(PyExc_RuntimeError, "the default value of NumPy's ContextVar is not where CPython 3.11 to 3.13 have it, or is somebody else's handler");
		return -1;
	}
	place = &fields[1];
	return 0;
}

/* None: NumPy's own. */
static PyObject *set_process_handler(PyObject *module, PyObject *capsule)
{
	if (capsule != Py_None && !PyCapsule_IsValid(capsule, NP_CAPSULE)) return PyErr_Format(PyExc_TypeError, "not a capsule named %s", NP_CAPSULE);
	if (find_place()) return NULL;
	PyObject *before = *place;
	*place = Py_NewRef(capsule == Py_None ? np_default_capsule : capsule);
	Py_DECREF(before);
	Py_RETURN_NONE;
}

static PyObject *set_context_handler(PyObject *module, PyObject *capsule)
{
	if (capsule != Py_None && !PyCapsule_IsValid(capsule, NP_CAPSULE)) return PyErr_Format(PyExc_TypeError, "not a capsule named %s", NP_CAPSULE);
	return PyDataMem_SetHandler(capsule == Py_None ? np_default_capsule : capsule);
}

/* A signal handler can raise at the end of any call of Python's: what a block has set and what takes it back are therefore kept in one step here. */
static PyObject *enter_context(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
	if (nargs != 2 || !PyList_CheckExact(args[1])) return PyErr_Format(PyExc_TypeError, "enter_context() takes capsule and a list");
	if (!PyCapsule_IsValid(args[0], NP_CAPSULE)) return PyErr_Format(PyExc_TypeError, "not a capsule named %s", NP_CAPSULE);
	if (!variable && !(variable = find_variable())) return NULL;
	PyObject *token = PyContextVar_Set(variable, args[0]);
	if (!token) return NULL;
	int failed = PyList_Append(args[1], token);
	if (failed) {
		PyObject *type, *value, *traceback;
		PyErr_Fetch(&type, &value, &traceback);
		PyContextVar_Reset(variable, token); /* just set here: it cannot fail */
		PyErr_Restore(type, value, traceback);
	}
	Py_DECREF(token);
	if (failed) return NULL;
	Py_RETURN_NONE;
}

/* Sets what was in force while a block that goes on was entered, and in the block, with what the block's handler takes back in the place of what did. */
static int enter_again(PyObject *entry, PyObject *below)
{
	PyObject *handler = PyTuple_GET_ITEM(entry, 0), *tokens = PyTuple_GET_ITEM(entry, 1);
	PyObject *before = PyObject_GetAttrString(PyList_GET_ITEM(tokens, 0), "old_value");
	if (!before) return -1;
	PyObject *set = NULL, *token = NULL;
	/* Installed between the two blocks: it is of the one below, and stays. (Not where there was none, Token.MISSING.) */
	bool installed = below && before != below && PyCapsule_IsValid(before, NP_CAPSULE);
	if (!installed || (set = PyContextVar_Set(variable, before))) token = PyContextVar_Set(variable, handler);
	Py_DECREF(before);
	Py_XDECREF(set);
	if (!token) return -1;
	return PyList_SetItem(tokens, 0, token);
}

static bool is_entered(PyObject *tokens) { return PyList_CheckExact(tokens) && PyList_GET_SIZE(tokens); }

static bool are_entries(PyObject *above)
{
	if (!PyTuple_CheckExact(above)) return false;
	for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(above); i++) {
		PyObject *entry = PyTuple_GET_ITEM(above, i);
		if (!PyTuple_CheckExact(entry) || PyTuple_GET_SIZE(entry) != 2 || !is_entered(PyTuple_GET_ITEM(entry, 1))) return false;
	}
	return true;
}

/* A ContextVar only goes back, step by step. So a block that ends below others goes back to where it began, and the others are entered again, all in one step, in which no Python code runs. */
static PyObject *leave_context(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
	if (nargs != 2 || !is_entered(args[0]) || !are_entries(args[1]))
		return PyErr_Format(PyExc_TypeError, "leave_context() takes a list with a token, and a tuple of capsules with such lists");
	PyObject *token = Py_NewRef(PyList_GET_ITEM(args[0], PyList_GET_SIZE(args[0]) - 1)), *now = NULL, *result = NULL, *below = NULL;
	if (PyContextVar_Get(variable, NULL, &now)) goto end;
	if (PyContextVar_Reset(variable, token)) {
		if (PyErr_ExceptionMatches(PyExc_ValueError)) {
			PyErr_Clear();
			result = Py_NewRef(Py_False);
		}
		goto end;
	}
	if (PyList_SetSlice(args[0], PyList_GET_SIZE(args[0]) - 1, PyList_GET_SIZE(args[0]), NULL)) goto end;
	for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args[1]); i++) {
		if (enter_again(PyTuple_GET_ITEM(args[1], i), below)) goto end;
		below = PyTuple_GET_ITEM(PyTuple_GET_ITEM(args[1], i), 0);
	}
	result = below && now != below ? PyContextVar_Set(variable, now) : Py_NewRef(Py_True); /* installed in the youngest of them */
end:
	Py_DECREF(token);
	Py_XDECREF(now);
	return result;
}

static PyObject *current_handler(PyObject *module, PyObject *unused) { return PyDataMem_GetHandler(); }

PyMethodDef np_scope_methods[] = {
	{"context_variable", context_variable, METH_NOARGS, "context_variable()\n--\n\nThe ContextVar in which NumPy looks for its handler."},
	{"set_process_handler", set_process_handler, METH_O,
		"set_process_handler(capsule, /)\n--\n\nThe handler of every context in which none was set; None: NumPy's own. RuntimeError, and nothing has changed, where this Python is not known."},
	{"set_context_handler", set_context_handler, METH_O, "set_context_handler(capsule, /)\n--\n\nThe handler of this context; None: NumPy's own. Returns the one before."},
	{"enter_context", NP_FASTCALL(enter_context), "enter_context(capsule, tokens, /)\n--\n\nThe handler of this context; what takes it back is appended to the list."},
	{"leave_context", NP_FASTCALL(leave_context),
		"leave_context(tokens, above, /)\n--\n\nTakes back the last of the list, and takes it out; the blocks that were entered after it, (capsule, tokens) each, stay in force in their order.\n"
		"False, and nothing has changed, in another context than that it was entered in. Else True; or, where something was installed in the youngest of those blocks,\n"
		"the token that takes it back."},
	{"current_handler", current_handler, METH_NOARGS, "current_handler()\n--\n\nThe handler of this context."},
	{NULL},
};
