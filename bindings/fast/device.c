/* The devices of this process as C sees them, and how an argument names one. */
#include "lane.h"
#include "dlpack.h"
#include <string.h>

tm_device tm_devices[TM_MAX_DEVICES + 1];
uint32_t tm_device_count;

static PyObject *by_name;     /* dict: name -> index */
static PyObject *resolve;     /* what turns any other argument into an index; from configure() */
static PyObject *parse_size;  /* the same for sizes */
static int default_device = -1;

/* What a kind of device is. A sim device's addresses can be read by the host, so its DLPack consumers are told that it is host memory; so are Metal's,
 * where a consumer of kDLMetal would take the pointer for an MTLBuffer. */
static const struct kind {
	const char *name;
	int32_t dlpack_type;
	bool has_default_stream;
	bool is_host_memory;
} kinds[] = {
	{"cpu", kDLCPU, false, true}, {"cuda", kDLCUDA, true, false}, {"hip", kDLROCM, true, false}, {"level_zero", kDLOneAPI, false, false},
	{"metal", kDLCPU, false, true}, {"sim", kDLCPU, true, false}, {"sim-hip", kDLCPU, true, false}, {"sim-level_zero", kDLCPU, false, false},
	{"sim-cpu", kDLCPU, false, true},
};

int tm_device_init(void)
{
	return (by_name = PyDict_New()) ? 0 : -1;
}

PyObject *tm_device_configure(PyObject *resolver, PyObject *parser)
{
	if ((resolver && !PyCallable_Check(resolver)) || (parser && !PyCallable_Check(parser)))
		return PyErr_Format(PyExc_TypeError, "configure: resolve_device and parse_size must be callable");
	if (resolver) Py_XSETREF(resolve, Py_NewRef(resolver));
	if (parser) Py_XSETREF(parse_size, Py_NewRef(parser));
	Py_RETURN_NONE;
}

/* Enters a device that Go (or, in a child, cpu_child.c) has opened, or NumPy's memory. */
static int enter(const char *kind, uint32_t index, tm_books *books, const char *name, uint32_t ordinal)
{
	if (index >= TM_MAX_DEVICES && index != TM_NUMPY_DEVICE) {
		PyErr_Format(PyExc_RuntimeError, "more than %d devices", TM_MAX_DEVICES);
		return -1;
	}
	tm_device *device = &tm_devices[index];
	if (device->name) return 0; /* opened before */
	device->books = books;
	device->ordinal = ordinal;
	device->is_cpu = !strcmp(kind, "cpu");
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (!strcmp(kind, kinds[i].name)) {
			device->dlpack_type = kinds[i].dlpack_type;
			device->has_default_stream = kinds[i].has_default_stream;
			device->is_host_memory = kinds[i].is_host_memory;
		}
	PyObject *text = PyUnicode_InternFromString(name);
	if (!text || tm_peak_device_opened(index)) {
		Py_XDECREF(text);
		return -1;
	}
	device->name = text;
	if (index >= tm_device_count && index != TM_NUMPY_DEVICE) __atomic_store_n(&tm_device_count, index + 1, __ATOMIC_RELEASE);
	return 0;
}

static PyObject *open_device(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
	if (nargs != 2) return PyErr_Format(PyExc_TypeError, "open_device() takes kind and ordinal");
	if (!PyUnicode_Check(args[0])) return PyErr_Format(PyExc_TypeError, "kind must be a str, not %.100s", Py_TYPE(args[0])->tp_name);
	Py_ssize_t length;
	const char *kind = PyUnicode_AsUTF8AndSize(args[0], &length);
	int64_t ordinal = kind ? tm_parse_count(args[1], "ordinal") : -1;
	if (ordinal < 0) return NULL;
	if (ordinal > INT32_MAX) return PyErr_Format(PyExc_ValueError, "there is no device with ordinal %lld", (long long)ordinal);
	if (tm_forked && !strcmp(kind, "cpu") && ordinal == 0) {
		for (uint32_t i = 0; i < tm_device_count; i++)
			if (tm_devices[i].is_cpu) return PyLong_FromUnsignedLong(i);
		tm_books *books = tm_child_open_cpu(tm_device_count);
		if (!books) return PyErr_NoMemory();
		uint32_t index = tm_device_count;
		if (enter("cpu", index, books, "cpu", 0)) return NULL;
		return PyLong_FromUnsignedLong(index);
	}
	tm_call call = {.op = TM_OP_OPEN, .memory = (void *)kind, .nbytes = (uint64_t)length, .offset = (uint64_t)ordinal};
	if (tm_perform(&call, TM_SHORT)) return NULL; /* loading a driver takes long once, but cannot be stopped half-way */
	if (enter(kind, call.device, (tm_books *)(uintptr_t)call.record, call.name, (uint32_t)ordinal)) return NULL;
	return PyLong_FromUnsignedLong(call.device);
}

static PyObject *count_numpy(PyObject *module, PyObject *capsule)
{
	tm_books *books = PyCapsule_GetPointer(capsule, "tack_memory.numpy_books");
	if (!books || enter("numpy", TM_NUMPY_DEVICE, books, "numpy", 0)) return NULL;
	return PyLong_FromLong(TM_NUMPY_DEVICE);
}

int tm_check_memory(int device)
{
	if (TM_LIKELY(device != TM_NUMPY_DEVICE)) return 0;
	PyErr_SetString(PyExc_ValueError, "numpy: the memory of NumPy's arrays is NumPy's to allocate, and is counted only: it has no buffers, budget, stream or cache here; "
		"memory_info, memory_peak and reset_peak_memory work");
	return -1;
}

/* Checks an index that Python gave. */
static int checked(PyObject *index, const char *who)
{
	int64_t number = tm_parse_count(index, "index");
	if (number < 0) return -1;
	if ((number >= tm_device_count && number != TM_NUMPY_DEVICE) || !tm_devices[number].name) {
		PyErr_Format(PyExc_ValueError, "%s: no device with index %lld is open", who, (long long)number);
		return -1;
	}
	return (int)number;
}

int tm_resolve_device(PyObject *device)
{
	if (!device || device == Py_None) {
		if (TM_LIKELY(default_device >= 0)) return default_device;
		device = Py_None;
	} else if (TM_LIKELY(PyUnicode_CheckExact(device))) {
		PyObject *known = PyDict_GetItemWithError(by_name, device);
		if (TM_LIKELY(known != NULL)) return (int)PyLong_AsLong(known);
		if (PyErr_Occurred()) return -1;
	}
	if (!resolve) {
		PyErr_Format(PyExc_ValueError, "unknown device %R: no resolver is configured", device);
		return -1;
	}
	PyObject *index = PyObject_CallOneArg(resolve, device);
	if (!index) return -1;
	int number = checked(index, "resolve_device");
	Py_DECREF(index);
	return number;
}

/* CUDA's and HIP's handle 0 is the legacy default stream, which CUDA also calls 1; in gomem's Driver 0 is the device's own stream. */
uint64_t tm_stream_handle(int device, uint64_t handle)
{
	return handle == 0 && tm_devices[device].has_default_stream ? 1 : handle;
}

/* CUDA's and HIP's handle 2. */
bool tm_per_thread_stream(int device, uint64_t handle) { return handle == 2 && tm_devices[device].has_default_stream; }

/* What lasts longer than a call, and than a block of one thread, is used from any thread, and would be ordered by nothing. */
bool tm_lasting_stream(int device, uint64_t handle)
{
	if (!tm_per_thread_stream(device, handle)) return true;
	PyErr_Format(PyExc_ValueError, "stream 2 is the per-thread default stream, which is another one on each thread: %U needs a stream of its own, or 1, the legacy default stream",
		tm_devices[device].name);
	return false;
}

int64_t tm_parse_size(PyObject *size, int device)
{
	if (TM_LIKELY(PyLong_CheckExact(size))) {
		int overflow;
		long long nbytes = PyLong_AsLongLongAndOverflow(size, &overflow);
		if (TM_LIKELY(!overflow && nbytes >= 0)) return nbytes;
		PyErr_Format(PyExc_ValueError, "a size must be from 0 to 2**63-1 bytes, not %R", size);
		return -1;
	}
	if (!parse_size) return tm_parse_count(size, "a size");
	PyObject *parsed = PyObject_CallFunction(parse_size, "Oi", size, device);
	if (!parsed) return -1;
	int64_t nbytes = tm_parse_count(parsed, "a size");
	Py_DECREF(parsed);
	return nbytes;
}

/* Until a device is announced, only the resolver finds it by its name: Python has still to give it its budget, and may fail. */
static PyObject *announce_device(PyObject *module, PyObject *index)
{
	int number = checked(index, "announce_device");
	if (number < 0 || PyDict_SetItem(by_name, tm_devices[number].name, index)) return NULL;
	Py_RETURN_NONE;
}

static PyObject *set_default_device(PyObject *module, PyObject *index)
{
	int number = index == Py_None ? -1 : checked(index, "set_default_device");
	if (number < 0 && index != Py_None) return NULL;
	default_device = number;
	Py_RETURN_NONE;
}

static PyObject *set_relief(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
	if (nargs != 2) return PyErr_Format(PyExc_TypeError, "set_relief() takes index and relief");
	int number = checked(args[0], "set_relief");
	if (number < 0) return NULL;
	if (args[1] != Py_None && !PyCallable_Check(args[1]))
		return PyErr_Format(PyExc_TypeError, "relief must be callable or None, not %.100s", Py_TYPE(args[1])->tp_name);
	Py_XSETREF(tm_devices[number].relief, args[1] == Py_None ? NULL : Py_NewRef(args[1]));
	Py_RETURN_NONE;
}

static PyObject *device_names(PyObject *module, PyObject *unused)
{
	PyObject *names = PyList_New(0);
	for (uint32_t i = 0; names && i < tm_device_count; i++)
		if (PyList_Append(names, tm_devices[i].name ? tm_devices[i].name : Py_None)) Py_CLEAR(names);
	return names;
}

static PyObject *check_memory(PyObject *module, PyObject *index)
{
	int number = checked(index, "check_memory");
	return number < 0 || tm_check_memory(number) ? NULL : PyLong_FromLong(number);
}

static PyObject *device_name(PyObject *module, PyObject *index)
{
	int number = checked(index, "device_name");
	return number < 0 ? NULL : Py_NewRef(tm_devices[number].name);
}

static PyObject *forked(PyObject *module, PyObject *unused) { return PyBool_FromLong(tm_forked); }

/* The live Buffers, for reports and uninstall. Each device's table has its Buffers by index, so this is one pass. */
static PyObject *alive(PyObject *module, PyObject *unused)
{
	PyObject *buffers = PyList_New(0);
	for (uint32_t i = 0; buffers && i < tm_device_count; i++)
		for (uint32_t index = 0; buffers && index < tm_devices[i].capacity; index++) {
			PyObject *buffer = (PyObject *)tm_devices[i].buffers[index];
			if (buffer && PyList_Append(buffers, buffer)) Py_CLEAR(buffers);
		}
	if (buffers && tm_child_alive(buffers)) Py_CLEAR(buffers);
	return buffers;
}

PyMethodDef tm_device_methods[] = {
	{"open_device", TM_FASTCALL(open_device), "open_device(kind, ordinal, /)\n--\n\nOpens a device, once, and returns its index in this process."},
	{"count_numpy", count_numpy, METH_O,
		"count_numpy(books, /)\n--\n\nThe books of NumPy's arrays, a capsule, become those of the device \"numpy\", once; returns its index. Nothing but its figures works."},
	{"announce_device", announce_device, METH_O,
		"announce_device(index, /)\n--\n\nThe device is ready: from now on its name is known without asking the resolver."},
	{"set_default_device", set_default_device, METH_O, "set_default_device(index, /)\n--\n\nWhat the device None means; None: ask the resolver."},
	{"set_relief", TM_FASTCALL(set_relief), "set_relief(index, relief, /)\n--\n\nWhat empties a host framework's caches on this device."},
	{"device_names", device_names, METH_NOARGS, "device_names()\n--\n\nNames of the open devices by index; \"numpy\" is not among them."},
	{"check_memory", check_memory, METH_O, "check_memory(index, /)\n--\n\nThe index; ValueError for the device \"numpy\", which has nothing but figures."},
	{"device_name", device_name, METH_O, "device_name(index, /)\n--\n\nThe name of an open device."},
	{"forked", forked, METH_NOARGS, "forked()\n--\n\nWhether this process was made by fork() after the library was loaded."},
	{"alive", alive, METH_NOARGS, "alive()\n--\n\nThe live Buffers."},
	{NULL},
};
