/* The module _numpy. */
#define NP_IMPORTS_NUMPY
#include "np.h"
#include "event.h"
#include "interpreter.h"
#include "sites.h"

static int execute(PyObject *module)
{
	static bool once; /* the books are the process's, and so are NumPy's handlers */
	if (tm_only_once(&once, "_numpy", "books are one")) return -1;
	if (PyArray_ImportNumPyAPI() || np_event_init() || np_handler_init() || np_sites_init() || np_fork_init() || np_store_init()) return -1;
	PyMethodDef *const methods[] = {np_books_methods, np_handler_methods, np_scope_methods, np_owner_methods, np_sites_methods, np_tracker_methods, np_locals_methods,
		np_store_methods, np_shared_methods, np_mapped_methods, np_export_methods};
	for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
		if (PyModule_AddFunctions(module, methods[i])) return -1;
	once = true;
	return 0;
}

static PyModuleDef_Slot slots[] = TM_MODULE_SLOTS(execute);

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "tack_memory._native._numpy",
	.m_doc = "NumPy's array memory: handlers that count it, and where they are in force.", .m_slots = slots};

PyMODINIT_FUNC PyInit__numpy(void) { return PyModuleDef_Init(&definition); }
