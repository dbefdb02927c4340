/* The figures of a device: memory_info() and counters(). */
#include "lane.h"
#include "docs_calls.h"

static PyTypeObject *info_type;
static PyObject *format_info, *format_info_html; /* callables; from configure() */

/* As a tuple MemoryInfo has the first six; the others are attributes only, added to but never changed. */
static PyStructSequence_Field fields[] = {
	{"in_use", "Bytes of live buffers on the device."},
	{"peak", "The most in_use has been since the last reset."},
	{"cached", "Bytes that caches keep and empty_cache() gives back; None: unknown."},
	{"spilled", "Bytes of buffers that are in host memory instead."},
	{"device_free", "The driver's answer; None: unknown, or the device was not used yet."},
	{"device_total", "The driver's answer; None: unknown."},
	{"device", "Name of the device."},
	{"budget", "Bytes; None: no budget."},
	{"strict", "Whether the budget is strict."},
	{"footprint", "in_use + spilled: what the program would need without a budget."},
	{"available", "device_free + cached; None: unknown."},
	{"reserved", "Bytes that are being built or moved, and room reserved by hosts."},
	{"pending_free", "Bytes that were dropped and are not back at the driver yet."},
	{"over_budget", "Bytes above the budget now."},
	{"over_budget_count", "How many times in_use rose above the budget."},
	{"spill_count", "Spills so far."},
	{"restore_count", "Restores so far."},
	{"spilled_bytes", "Bytes spilled so far."},
	{"restored_bytes", "Bytes restored so far."},
	{"received_bytes", "Bytes of buffers so far that came from other processes, and began in host memory."},
	{"host_bytes", "Bytes of host memory that spilled contents and their pool take, of all devices."},
	{"driver_allocated", "Metal's currentAllocatedSize; None elsewhere."},
	{NULL, NULL},
};
static PyStructSequence_Desc description = {"tack_memory.MemoryInfo", TM_DOC_MEMORY_INFO_TYPE, fields, 6};

static PyObject *known(int64_t figure) { return figure < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(figure); }

static PyObject *make_info(int device, const tm_info *now)
{
	PyObject *info = PyStructSequence_New(info_type);
	if (!info) return NULL;
	PyObject *values[] = {
		PyLong_FromLongLong(now->in_use),
		PyLong_FromLongLong(now->peak),
		known(now->cached),
		PyLong_FromLongLong(now->spilled),
		known(now->device_free),
		known(now->device_total),
		Py_NewRef(tm_devices[device].name),
		known(now->budget),
		PyBool_FromLong(now->strict != 0),
		PyLong_FromLongLong(now->in_use + now->spilled),
		now->device_free < 0 || now->cached < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(now->device_free + now->cached),
		PyLong_FromLongLong(now->reserved),
		PyLong_FromLongLong(now->pending_free),
		PyLong_FromLongLong(now->budget >= 0 && now->in_use > now->budget ? now->in_use - now->budget : 0),
		PyLong_FromLongLong(now->over_budget_count),
		PyLong_FromLongLong(now->spill_count),
		PyLong_FromLongLong(now->restore_count),
		PyLong_FromLongLong(now->spilled_bytes),
		PyLong_FromLongLong(now->restored_bytes),
		PyLong_FromLongLong(now->received_bytes),
		known(now->host_bytes),
		known(now->driver_allocated),
	};
	_Static_assert(sizeof values / sizeof *values == sizeof fields / sizeof *fields - 1, "one value for each field");
	bool whole = true;
	for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
		whole = whole && values[i];
		PyStructSequence_SetItem(info, (Py_ssize_t)i, values[i]);
	}
	if (!whole) Py_CLEAR(info);
	return info;
}

/* What can be told in a forked child, and of NumPy's memory: the books as they are, nothing of a driver's. */
static void info_of_books(tm_books *books, tm_info *now)
{
	tm_books_lock(books);
	*now = (tm_info){.in_use = books->in_use, .peak = books->peak, .spilled = books->spilled, .reserved = books->reserved,
		.pending_free = books->pending_free, .budget = books->budget, .over_budget_count = books->over_budget_count,
		.spill_count = books->spill_count, .restore_count = books->restore_count, .spilled_bytes = books->spilled_bytes,
		.restored_bytes = books->restored_bytes, .received_bytes = books->received_bytes, .strict = books->strict};
	tm_books_unlock(books);
	now->device_free = now->device_total = now->cached = now->driver_allocated = now->host_bytes = -1;
}

static int one_device(const char *function, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	tm_signature signature = {function, 1, 0, {"device"}};
	PyObject *value;
	if (TM_LIKELY(!names && nargs <= 1)) return tm_resolve_device(nargs ? args[0] : NULL);
	int failed = tm_arguments(&signature, args, nargs, names, &value);
	Py_XDECREF(signature.interned[0]);
	return failed ? -1 : tm_resolve_device(value);
}

static PyObject *memory_info(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	int device = one_device("memory_info", args, nargs, names);
	if (device < 0) return NULL;
	tm_info now;
	if (tm_forked || device == TM_NUMPY_DEVICE) {
		info_of_books(tm_devices[device].books, &now);
	} else {
		tm_call call = {.op = TM_OP_INFO, .device = (uint32_t)device, .memory = &now};
		if (tm_perform(&call, TM_SHORT)) return NULL;
	}
	return make_info(device, &now);
}

static PyObject *counters(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	int device = one_device("counters", args, nargs, names);
	if (device < 0) return NULL;
	tm_books *books = tm_devices[device].books;
	tm_books_lock(books);
	int64_t figures[] = {books->in_use, books->peak, books->spilled};
	tm_books_unlock(books);
	PyObject *tuple = PyTuple_New(3);
	for (int i = 0; tuple && i < 3; i++) {
		PyObject *figure = PyLong_FromLongLong(figures[i]);
		if (figure)
			PyTuple_SET_ITEM(tuple, i, figure);
		else
			Py_CLEAR(tuple);
	}
	return tuple;
}

/* ---- how it shows itself */

static reprfunc plain_repr; /* of every structure sequence: all fields by name */

/* What a formatter makes of it; NULL without an exception where it can make nothing of the fields: anybody can make a MemoryInfo of anything. */
static PyObject *formatted(PyObject *formatter, PyObject *info)
{
	if (!formatter) return NULL;
	PyObject *text = PyObject_CallOneArg(formatter, info);
	if (!text && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
	return text;
}

static PyObject *info_repr(PyObject *self, PyObject *unused)
{
	PyObject *text = formatted(format_info, self);
	return text || PyErr_Occurred() ? text : plain_repr(self);
}

/* None says to a notebook: there is no HTML, take the repr. */
static PyObject *info_html(PyObject *self, PyObject *unused)
{
	PyObject *text = formatted(format_info_html, self);
	return text || PyErr_Occurred() ? text : Py_NewRef(Py_None);
}

static PyMethodDef info_repr_method = {"__repr__", info_repr, METH_NOARGS, NULL};
static PyMethodDef info_html_method = {"_repr_html_", info_html, METH_NOARGS, NULL};

PyObject *tm_info_configure(PyObject *format, PyObject *format_html)
{
	if ((format && !PyCallable_Check(format)) || (format_html && !PyCallable_Check(format_html)))
		return PyErr_Format(PyExc_TypeError, "configure: format_info and format_info_html must be callable");
	if (format) Py_XSETREF(format_info, Py_NewRef(format));
	if (format_html) Py_XSETREF(format_info_html, Py_NewRef(format_html));
	Py_RETURN_NONE;
}

static int add_method(PyMethodDef *method)
{
	PyObject *descriptor = PyDescr_NewMethod(info_type, method);
	int failed = !descriptor || PyObject_SetAttrString((PyObject *)info_type, method->ml_name, descriptor);
	Py_XDECREF(descriptor);
	return failed ? -1 : 0;
}

int tm_info_init(PyObject *module)
{
	info_type = PyStructSequence_NewType(&description);
	plain_repr = info_type ? info_type->tp_repr : NULL; /* add_method puts another into its place */
	if (!info_type || add_method(&info_repr_method) || add_method(&info_html_method)) return -1;
	return PyModule_AddObjectRef(module, "MemoryInfo", (PyObject *)info_type);
}

PyMethodDef tm_info_methods[] = {
	{"memory_info", TM_KEYWORDS(memory_info), TM_DOC_MEMORY_INFO},
	{"counters", TM_KEYWORDS(counters), "counters(device=None)\n--\n\n(in_use, peak, spilled), without asking the driver; works in a forked child."},
	{NULL},
};
