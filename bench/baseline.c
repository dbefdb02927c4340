/* What the benchmarks compare with, compiled by bench/baseline.py. Each function is the least that anybody could do for the same job:
 * a plain slot of a C type, a call that does nothing, the driver's own calls in a C loop, one thread's memcpy. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* ---- a C type with plain slots */

typedef struct { PyObject_HEAD PyObject *value; } slot;

static PyMemberDef slot_members[] = {
	{"value", T_OBJECT_EX, offsetof(slot, value), 0, "the kind of __slots__, which CPython 3.11 and later read without a call"},
	{"member", T_OBJECT, offsetof(slot, value), 0, "the kind that may be NULL"},
	{NULL},
};
static PyObject *slot_enter(PyObject *self, PyObject *unused) { Py_INCREF(self); return self; }
static PyObject *slot_exit(PyObject *self, PyObject *const *args, Py_ssize_t count) { Py_RETURN_NONE; }
static PyMethodDef slot_methods[] = {
	{"__enter__", slot_enter, METH_NOARGS, NULL},
	{"__exit__", (PyCFunction)(void (*)(void))slot_exit, METH_FASTCALL, NULL},
	{NULL},
};
static void slot_free(PyObject *self) {
	PyTypeObject *type = Py_TYPE(self);
	Py_XDECREF(((slot *)self)->value);
	type->tp_free(self);
	Py_DECREF(type);
}
static PyObject *slot_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
	slot *self = (slot *)type->tp_alloc(type, 0);
	if (self) self->value = PyLong_FromUnsignedLongLong(0x7f0000000000ULL);
	return (PyObject *)self;
}
static PyType_Slot slot_slots[] = {{Py_tp_new, slot_new}, {Py_tp_dealloc, slot_free}, {Py_tp_members, slot_members}, {Py_tp_methods, slot_methods}, {0, NULL}};
static PyType_Spec slot_spec = {"tack_memory_baseline.Slot", sizeof(slot), 0, Py_TPFLAGS_DEFAULT, slot_slots};

/* ---- a call that does nothing */

static PyObject *empty(PyObject *module, PyObject *argument) { Py_RETURN_NONE; }

/* ---- the driver's own calls */

typedef uint64_t address;
typedef void *handle;
static struct {
	int (*init)(unsigned);
	int (*retain)(handle *, int);
	int (*push)(handle);
	int (*pop)(handle *);
	int (*get_pool)(handle *, int);
	int (*allocate)(address *, size_t, handle, handle);
	int (*release)(address, handle);
	int (*fill)(address, unsigned char, size_t, handle);
	int (*information)(size_t *, size_t *);
	int (*attribute)(handle, int, void *);
	int (*synchronize)(handle);
	handle context, pool, stream;
} driver;

static int failed(int code, const char *call) {
	if (code) PyErr_Format(PyExc_RuntimeError, "%s failed with %d", call, code);
	return code;
}

/* driver_open(path, stream): the library that tack_memory has loaded, and its stream of device 0 */
static PyObject *driver_open(PyObject *module, PyObject *args) {
	const char *path;
	unsigned long long stream;
	if (!PyArg_ParseTuple(args, "sK", &path, &stream)) return NULL;
	handle library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) return PyErr_Format(PyExc_OSError, "%s", dlerror());
	const char *names[] = {"cuInit", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuDeviceGetDefaultMemPool", "cuMemAllocFromPoolAsync",
		"cuMemFreeAsync", "cuMemsetD8Async", "cuMemGetInfo_v2", "cuMemPoolGetAttribute", "cuStreamSynchronize"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		void *function = dlsym(library, names[i]);
		if (!function) return PyErr_Format(PyExc_OSError, "%s has no %s", path, names[i]);
		memcpy((char *)&driver + i * sizeof(void *), &function, sizeof function);
	}
	driver.stream = (handle)(uintptr_t)stream;
	if (failed(driver.init(0), "cuInit") || failed(driver.retain(&driver.context, 0), "cuDevicePrimaryCtxRetain") ||
		failed(driver.push(driver.context), "cuCtxPushCurrent") || failed(driver.get_pool(&driver.pool, 0), "cuDeviceGetDefaultMemPool"))
		return NULL;
	Py_RETURN_NONE;
}

/* driver_pairs(count, nbytes, fill): seconds for one allocation and one free, and one memset between them if fill; at the end it waits for the device */
static PyObject *driver_pairs(PyObject *module, PyObject *args) {
	Py_ssize_t count, nbytes;
	int fill, code = 0;
	if (!PyArg_ParseTuple(args, "nnp", &count, &nbytes, &fill)) return NULL;
	double began = now();
	for (Py_ssize_t i = 0; i < count && !code; i++) {
		address block;
		code = driver.allocate(&block, (size_t)nbytes, driver.pool, driver.stream);
		if (fill && !code) code = driver.fill(block, 0, (size_t)nbytes, driver.stream);
		if (!code) code = driver.release(block, driver.stream);
	}
	if (!code) code = driver.synchronize(driver.stream);
	double seconds = now() - began;
	if (failed(code, "an allocation")) return NULL;
	return PyFloat_FromDouble(seconds / count);
}

/* driver_query(count): seconds for what answers free, total and the pool's cache */
static PyObject *driver_query(PyObject *module, PyObject *args) {
	Py_ssize_t count;
	int code = 0;
	if (!PyArg_ParseTuple(args, "n", &count)) return NULL;
	double began = now();
	for (Py_ssize_t i = 0; i < count && !code; i++) {
		size_t available, total;
		uint64_t reserved, used;
		code = driver.information(&available, &total);
		if (!code) code = driver.attribute(driver.pool, 5, &reserved);  /* CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT */
		if (!code) code = driver.attribute(driver.pool, 7, &used);      /* CU_MEMPOOL_ATTR_USED_MEM_CURRENT */
	}
	double seconds = now() - began;
	return failed(code, "a query") ? NULL : PyFloat_FromDouble(seconds / count);
}

/* ---- one thread's memcpy into warm memory */

typedef struct { char *from, *to; size_t nbytes; } area;

static void *map(size_t nbytes) {
	void *memory = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED) return NULL;
	madvise(memory, nbytes, MADV_HUGEPAGE);
	memset(memory, 1, nbytes);
	return memory;
}

static area areas[8];

/* copy(nbytes, which=0): seconds for one copy between two areas that are mapped once, warm, in huge pages where there are any */
static PyObject *copy(PyObject *module, PyObject *args) {
	Py_ssize_t nbytes;
	int which = 0;
	if (!PyArg_ParseTuple(args, "n|i", &nbytes, &which)) return NULL;
	area *a = &areas[which & 7];
	if (a->nbytes != (size_t)nbytes) {
		a->from = map((size_t)nbytes);
		a->to = map((size_t)nbytes);
		a->nbytes = (size_t)nbytes;
		if (!a->from || !a->to) return PyErr_NoMemory();
	}
	double seconds;
	Py_BEGIN_ALLOW_THREADS
	double began = now();
	memcpy(a->to, a->from, (size_t)nbytes);
	seconds = now() - began;
	Py_END_ALLOW_THREADS
	return PyFloat_FromDouble(seconds);
}

static PyMethodDef methods[] = {
	{"empty", empty, METH_O, NULL},
	{"driver_open", driver_open, METH_VARARGS, NULL},
	{"driver_pairs", driver_pairs, METH_VARARGS, NULL},
	{"driver_query", driver_query, METH_VARARGS, NULL},
	{"copy", copy, METH_VARARGS, NULL},
	{NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "tack_memory_baseline", NULL, -1, methods};

PyMODINIT_FUNC PyInit_tack_memory_baseline(void) {
	PyObject *module = PyModule_Create(&definition);
	PyObject *type = PyType_FromSpec(&slot_spec);
	if (!module || !type || PyModule_AddObject(module, "Slot", type) < 0) return NULL;
	return module;
}
