/* The module _events: who wants to be told of allocations, frees and moves, and the telling. Pure C: it works in a forked child, too, and needs neither NumPy nor Go. */
#include "module.h"
#include <pthread.h>

bool tm_have_gil(void)
{
	/* Not PyGILState_Check: it says yes to everybody once a subinterpreter was made. */
	PyThreadState *mine = PyGILState_GetThisThreadState();
#if PY_VERSION_HEX >= 0x030d0000
	return mine && mine == PyThreadState_GetUnchecked();
#else
	return mine && mine == _PyThreadState_UncheckedGet();
#endif
}

static void before_fork(void) { tm_hooks_at_fork(-1); }
static void in_parent(void) { tm_hooks_at_fork(0); }

static void in_child(void)
{
	tm_hooks_at_fork(1);
	tm_deliver_at_fork();
}

static int add_capsule(PyObject *module, const char *attribute, const void *table, const char *name)
{
	PyObject *capsule = PyCapsule_New((void *)table, name, NULL);
	int failed = capsule ? PyModule_AddObjectRef(module, attribute, capsule) : -1;
	Py_XDECREF(capsule);
	return failed;
}

static int execute(PyObject *module)
{
	static bool once;
	if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
		PyErr_SetString(PyExc_ImportError, "tack_memory does not support subinterpreters: its hooks are one list per process");
		return -1;
	}
	if (once) {
		PyErr_SetString(PyExc_ImportError, "tack_memory._native._events can be loaded once per process only");
		return -1;
	}
	if (tm_python_init(module) || tm_legacy_init(module)) return -1;
	if (add_capsule(module, "api", &tm_internal_api, TM_EVENTS_CAPSULE) || add_capsule(module, "c_api", &tm_public_api, TACK_MEMORY_CAPSULE)) return -1;
	if (pthread_atfork(before_fork, in_parent, in_child)) {
		PyErr_SetString(PyExc_ImportError, "tack_memory: pthread_atfork failed: no memory");
		return -1;
	}
	once = true;
	return 0;
}

static PyModuleDef_Slot slots[] = {
	{Py_mod_exec, execute},
#ifdef Py_mod_multiple_interpreters
	{Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_mod_gil
	{Py_mod_gil, Py_MOD_GIL_USED},
#endif
	{0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "tack_memory._native._events", .m_doc = "Events of memory: hooks, and their delivery.", .m_slots = slots};

PyMODINIT_FUNC PyInit__events(void) { return PyModuleDef_Init(&definition); }
