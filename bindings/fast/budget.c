/* Budgets, and what else concerns a device as a whole: its stream, waiting for it, its caches, moving all of it. */
#include "lane.h"
#include "docs_calls.h"

static PyObject *none_or(int64_t bytes) { return bytes < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(bytes); }

static PyObject *set_memory_budget(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"set_memory_budget", 2, 1, {"size", "device", "strict"}};
	PyObject *value[3];
	if (tm_arguments(&signature, args, nargs, names, value)) return NULL;
	int device = tm_resolve_device(value[1]);
	if (device < 0) return NULL;
	int64_t bytes = -1;
	if (value[0] != Py_None && (bytes = tm_parse_size(value[0], device)) < 0) return NULL;
	int strict = value[2] ? PyObject_IsTrue(value[2]) : 0;
	bool child;
	if (strict < 0 || tm_check_fork(device, &child)) return NULL;
	tm_books *books = tm_devices[device].books;
	if (child) {
		tm_books_lock(books);
		int64_t before = books->budget;
		books->budget = bytes;
		books->strict = strict && bytes >= 0;
		tm_books_unlock(books);
		return none_or(before);
	}
	tm_call call = {.op = TM_OP_SET_BUDGET, .origin = tm_asker(), .device = (uint32_t)device, .result = bytes, .flags = strict ? TM_STRICT : 0};
	if (tm_perform(&call, bytes < 0 || bytes >= books->in_use ? TM_SHORT : (uint64_t)(books->in_use - bytes) + tm_devices[device].largest)) return NULL;
	return none_or(call.result);
}

/* The device of a function that takes nothing else. */
static int one_device(tm_signature *signature, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	PyObject *value;
	return tm_arguments(signature, args, nargs, names, &value) ? -1 : tm_resolve_device(value);
}

static PyObject *get_memory_budget(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"get_memory_budget", 1, 0, {"device"}};
	int device = one_device(&signature, args, nargs, names);
	return device < 0 ? NULL : none_or(__atomic_load_n(&tm_devices[device].books->budget, __ATOMIC_RELAXED));
}

static PyObject *get_strict(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"get_strict", 1, 0, {"device"}};
	int device = one_device(&signature, args, nargs, names);
	return device < 0 ? NULL : PyBool_FromLong(__atomic_load_n(&tm_devices[device].books->strict, __ATOMIC_RELAXED) != 0);
}

static PyObject *stream(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"stream", 1, 0, {"device"}};
	int device = one_device(&signature, args, nargs, names);
	bool child;
	if (device < 0 || tm_check_fork(device, &child)) return NULL;
	tm_call call = {.op = TM_OP_STREAM, .device = (uint32_t)device};
	if (!child && tm_perform(&call, TM_SHORT)) return NULL; /* in the child there is the CPU only, which has no stream */
	return PyLong_FromUnsignedLongLong(call.stream);
}

static PyObject *set_stream(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"set_stream", 3, 3, {"device", "context", "stream"}};
	PyObject *value[3];
	if (tm_arguments(&signature, args, nargs, names, value)) return NULL;
	int device = tm_resolve_device(value[0]);
	tm_call call = {.op = TM_OP_SET_STREAM, .device = (uint32_t)device};
	if (device < 0 || tm_parse_handle(value[1], "context", &call.context) || tm_parse_handle(value[2], "stream", &call.stream)) return NULL;
	if (!tm_lasting_stream(device, call.stream)) return NULL;
	if (tm_perform(&call, TM_LONG)) return NULL;
	Py_RETURN_NONE;
}

static PyObject *synchronize(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"synchronize", 1, 0, {"device"}};
	int device = one_device(&signature, args, nargs, names);
	bool child;
	if (device < 0 || tm_check_fork(device, &child)) return NULL;
	if (child) Py_RETURN_NONE;
	if (tm_await_late_launches((uint32_t)device) < 0) return NULL; /* first: what they have let go of is given back with the rest */
	tm_call call = {.op = TM_OP_SYNCHRONIZE, .device = (uint32_t)device};
	if (tm_perform(&call, TM_LONG)) return NULL;
	Py_RETURN_NONE;
}

static PyObject *empty_cache(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"empty_cache", 1, 0, {"device"}};
	int device = one_device(&signature, args, nargs, names);
	bool child;
	if (device < 0 || tm_check_fork(device, &child)) return NULL;
	if (child) return PyLong_FromLong(0);
	tm_call call = {.op = TM_OP_TRIM, .device = (uint32_t)device};
	return tm_perform(&call, TM_LONG) ? NULL : PyLong_FromLongLong(call.result);
}

static PyObject *empty_host_pool(PyObject *module, PyObject *unused)
{
	tm_call call = {.op = TM_OP_TRIM_HOST};
	return tm_perform(&call, TM_SHORT) ? NULL : PyLong_FromLongLong(call.result);
}

static PyObject *spill_all(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"spill_all", 1, 0, {"device"}};
	int device = one_device(&signature, args, nargs, names);
	bool child;
	if (device < 0 || tm_check_fork(device, &child)) return NULL;
	if (child) return PyLong_FromLong(0);
	tm_call call = {.op = TM_OP_SPILL_ALL, .origin = tm_asker(), .device = (uint32_t)device};
	return tm_perform(&call, TM_LONG) ? NULL : PyLong_FromLongLong(call.result);
}

static PyObject *spill_to_budget(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"spill_to_budget", 1, 0, {"device"}};
	int device = one_device(&signature, args, nargs, names);
	bool child;
	if (device < 0 || tm_check_fork(device, &child)) return NULL;
	if (child) return PyLong_FromLong(0);
	tm_books *books = tm_devices[device].books;
	int64_t over = __atomic_load_n(&books->in_use, __ATOMIC_RELAXED) - __atomic_load_n(&books->budget, __ATOMIC_RELAXED);
	tm_call call = {.op = TM_OP_SPILL_TO_BUDGET, .origin = tm_asker(), .device = (uint32_t)device};
	return tm_perform(&call, over > 0 ? (uint64_t)over + tm_devices[device].largest : 1) ? NULL : PyLong_FromLongLong(call.result);
}

static PyObject *restore_all(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"restore_all", 1, 0, {"device"}};
	int device = one_device(&signature, args, nargs, names);
	bool child;
	if (device < 0 || tm_check_fork(device, &child)) return NULL;
	tm_call call = {.op = TM_OP_RESTORE_ALL, .origin = tm_asker(), .device = (uint32_t)device};
	if (!child && tm_perform(&call, TM_LONG)) return NULL;
	Py_RETURN_NONE;
}

PyMethodDef tm_budget_methods[] = {
	{"set_memory_budget", TM_KEYWORDS(set_memory_budget),
		"set_memory_budget(size, /, device=None, *, strict=False)\n--\n\nThe budget of a device, None for none; returns the one before. Lowering it spills at once what can be. 0 is a budget\n"
		"here, for simulated devices: what is not in use is spilled. (The public function refuses it: there it would be a slip of the pen.)"},
	{"get_memory_budget", TM_KEYWORDS(get_memory_budget), "get_memory_budget(device=None)\n--\n\nBytes, or None."},
	{"get_strict", TM_KEYWORDS(get_strict), "get_strict(device=None)\n--\n\nWhether the budget is strict."},
	{"stream", TM_KEYWORDS(stream), TM_DOC_STREAM},
	{"set_stream", TM_KEYWORDS(set_stream),
		"set_stream(device, context, stream)\n--\n\nA host framework's context and stream become the device's own. A context of 0 is the device's primary one, a stream of 0\n"
		"its legacy default stream."},
	{"synchronize", TM_KEYWORDS(synchronize), TM_DOC_SYNCHRONIZE},
	{"empty_cache", TM_KEYWORDS(empty_cache), TM_DOC_EMPTY_CACHE},
	{"empty_host_pool", empty_host_pool, METH_NOARGS, TM_DOC_EMPTY_HOST_POOL},
	{"spill_all", TM_KEYWORDS(spill_all), "spill_all(device=None)\n--\n\nSpills everything that can be spilled; returns the bytes freed."},
	{"spill_to_budget", TM_KEYWORDS(spill_to_budget),
		"spill_to_budget(device=None)\n--\n\nSpills at once what can be, until the device is within its budget, as set_memory_budget does; returns the bytes freed. Waits for no launch\n"
		"or hold, and leaves the driver's cache alone."},
	{"restore_all", TM_KEYWORDS(restore_all), "restore_all(device=None)\n--\n\nBrings everything back to the device, or raises."},
	{NULL},
};
