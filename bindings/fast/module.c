/* The module _fast. */
#include "lane.h"
#include "_cgo_export.h"

PyTypeObject *tm_add_type(PyObject *module, PyType_Spec *spec)
{
	PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
	if (type && PyModule_AddType(module, type)) Py_CLEAR(type);
	return type;
}

int tm_join_methods(PyMethodDef *all, int room, const PyMethodDef *first, const PyMethodDef *second)
{
	int count = 0;
	for (const PyMethodDef *list = first; list; list = list == first ? second : NULL)
		for (const PyMethodDef *method = list; method->ml_name; method++) {
			if (count == room - 1) {
				PyErr_SetString(PyExc_SystemError, "no room for all methods");
				return -1;
			}
			all[count++] = *method;
		}
	return 0;
}

static PyObject *configure(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"configure", 0, 0,
		{"resolve_device", "parse_size", "memory_error", "lost_error", "fork_error", "capture_error", "format_info", "format_info_html", "notify"}};
	PyObject *value[9];
	if (tm_arguments(&signature, args, nargs, names, value)) return NULL;
	PyObject *parts[] = {tm_device_configure(value[0], value[1]), tm_errors_configure(value[2], value[3], value[4], value[5]), tm_info_configure(value[6], value[7]),
		tm_notices_configure(value[8])};
	bool whole = parts[0] && parts[1] && parts[2] && parts[3];
	for (int i = 0; i < 4; i++) Py_XDECREF(parts[i]);
	if (!whole) return NULL;
	Py_RETURN_NONE;
}

static PyMethodDef configure_methods[] = {
	{"configure", TM_KEYWORDS(configure),
		"configure(*, resolve_device, parse_size, memory_error, lost_error, fork_error, capture_error, format_info, format_info_html, notify)\n--\n\n"
		"What Python does for this module: called once, by the package."},
	{NULL},
};

int tm_ended; /* Python has ended; Go reads it (ending.go) */

/* Runs when Python has ended, before the process's exit handlers. */
static void at_end(void)
{
	__atomic_store_n(&tm_ended, 1, __ATOMIC_SEQ_CST);
}

static int execute(PyObject *module)
{
	static bool once; /* types and tables are the process's, like the Go core: see below */
	if (tm_only_once(&once, "_fast", "core is one")) return -1;
	PyMethodDef *const methods[] = {configure_methods, tm_device_methods, tm_allocate_methods, tm_frame_methods, tm_launch_methods, tm_during_launch_methods,
		tm_adopt_methods, tm_info_methods, tm_budget_methods, tm_peak_methods, tm_label_methods, tm_instances_methods, tm_origin_methods, tm_host_label_methods,
		tm_notices_methods, tm_progress_methods, tm_still_open_methods, tm_events_methods};
	for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
		if (PyModule_AddFunctions(module, methods[i])) return -1;
	if (tm_errors_init(module) || tm_device_init() || tm_thread_init() || tm_origin_init(module) || tm_fork_init() || tm_buffer_init(module) ||
	    tm_view_init(module) || tm_hold_init(module) || tm_export_init(module) || tm_launch_init(module) || tm_adopt_init(module) || tm_peak_init(module) ||
	    tm_info_init(module) || tm_label_init(module) || tm_instances_init() || tm_pointer_slot_init(module) || tm_host_array_init(module) ||
	    tm_host_launch_init(module))
		return -1;
	if (Py_AtExit(at_end)) {
		/* Python has room for 32 such functions, and others took them. The program works without: at worst a device's frees in the background run into the end of
		 * the vendor's library. Whoever looks into a crash there finds this. */
		static const char message[] = "Python has no room for one more function to be called at its end (Py_AtExit): device memory may be given back while the process ends";
		tmReport(UINT32_MAX, (char *)message);
	}
	tm_atomic_counts = !tmPlainCounts();
	once = true;
	return 0;
}

static PyModuleDef_Slot slots[] = TM_MODULE_SLOTS(execute);

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "tack_memory._native._fast",
	.m_doc = "The C fast lane: buffers, launches, peaks and figures.", .m_slots = slots};

PyMODINIT_FUNC PyInit__fast(void) { return PyModuleDef_Init(&definition); }
