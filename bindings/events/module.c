/* The module _events: who wants to be told of allocations, frees and moves, and the telling. Pure C: it works in a forked child, too, and needs neither NumPy nor Go. */
#include "module.h"
#include <pthread.h>

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
	if (tm_only_once(&once, "_events", "hooks are one list")) return -1;
	if (tm_python_init(module) || tm_legacy_init(module)) return -1;
	if (add_capsule(module, "api", &tm_internal_api, TM_EVENTS_CAPSULE) || add_capsule(module, "c_api", &tm_public_api, TACK_MEMORY_CAPSULE)) return -1;
	if (pthread_atfork(before_fork, in_parent, in_child)) {
		PyErr_SetString(PyExc_ImportError, "tack_memory: pthread_atfork failed: no memory");
		return -1;
	}
	once = true;
	return 0;
}

static PyModuleDef_Slot slots[] = TM_MODULE_SLOTS(execute);

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "tack_memory._native._events", .m_doc = "Events of memory: hooks, and their delivery.", .m_slots = slots};

PyMODINIT_FUNC PyInit__events(void) { return PyModuleDef_Init(&definition); }
