/* Arrays that other processes see: a descriptor that stands for one, and an array made from such a descriptor. */
#include "store.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_DIMENSIONS 64 /* of NumPy 2; it refuses what is too much for NumPy 1 */
#define ATTACHMENT "tack_memory.attachment"

typedef struct attachment {
	void *base;
	size_t length;
	int fd; /* holds the block at its owner's, as long as it is open anywhere */
	np_file file;
} attachment;

static uint64_t page_of(uint64_t offset) { return offset & ~((uint64_t)sysconf(_SC_PAGESIZE) - 1); }

static PyObject *not_shared(PyObject *capsule)
{
	const PyDataMem_Handler *handler = capsule ? PyCapsule_GetPointer(capsule, NP_CAPSULE) : NULL;
	PyErr_Clear();
	return PyErr_Format(PyExc_ValueError,
		"this array's memory cannot be shared: it is of %.127s; make the array, or a copy of it, inside 'with tack_memory.numpy.use(\"shared\"):'",
		handler ? handler->name : "no handler of NumPy's (a memory map, another object's buffer)");
}

/* What errno of np_arena_export means to who wants to share. */
static PyObject *not_opened(void)
{
	const char *why = errno == EBADF ? "the program has closed the descriptor of the file that this array is in (os.closerange, or what makes a daemon): share a copy of the array"
		: errno == EACCES ? "the file that this array is in belongs to the user that this process was before: share a copy of the array" : NULL;
	if (!why) return PyErr_SetFromErrno(PyExc_OSError);
	PyObject *error = PyObject_CallFunction(PyExc_OSError, "is", errno, why);
	if (!error) return NULL;
	PyErr_SetObject((PyObject *)Py_TYPE(error), error);
	Py_DECREF(error);
	return NULL;
}

static PyObject *export(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
	if (nargs != 3) return PyErr_Format(PyExc_TypeError, "export() takes array, readonly and handle");
	if (!PyArray_Check(args[0])) return PyErr_Format(PyExc_TypeError, "share() takes an array, not %.100s", Py_TYPE(args[0])->tp_name);
	int readonly = PyObject_IsTrue(args[1]);
	if (readonly < 0) return NULL;
	PyArrayObject *array = np_root(args[0]);
	PyObject *capsule = array ? PyArray_HANDLER(array) : NULL;
	np_handler *handler = capsule ? np_handler_in(capsule) : NULL;
	if (!handler || !handler->store) return not_shared(capsule);
	np_arena *arena;
	np_block *block = np_store_find(handler->store, PyArray_DATA(array), &arena);
	if (!block || block->header.magic != NP_LIVE) return not_shared(NULL);
	if (!arena->mine)
		return PyErr_Format(PyExc_ValueError, "this array was made by the process that this one was forked from, and which alone can share it; share a copy");
	int fd = np_arena_export(arena, block, readonly);
	if (fd < 0) return not_opened();
	PyObject *number = PyLong_FromLong(fd);
	int failed = !number || PyObject_SetAttrString(args[2], "_fd", number); /* here, since a signal may come between any two steps of Python code */
	Py_XDECREF(number);
	if (failed) {
		close(fd);
		return NULL;
	}
	unsigned long long data = (unsigned long long)(PyArray_BYTES((PyArrayObject *)args[0]) - arena->base);
	return Py_BuildValue("(KKK)", (unsigned long long)block->offset, (unsigned long long)block->header.size, data);
}

static void detach(PyObject *capsule)
{
	attachment *attached = PyCapsule_GetPointer(capsule, ATTACHMENT);
	munmap(attached->base, attached->length);
	if (np_is_file(attached->fd, attached->file)) close(attached->fd); /* else the program has closed it, and the number is another file's */
	PyMem_Free(attached);
}

/* NULL with an exception; else a capsule that unmaps. */
static PyObject *map(int fd, uint64_t start, uint64_t length, bool writable)
{
	struct stat found;
	if (fstat(fd, &found)) return PyErr_SetFromErrno(PyExc_OSError);
	if ((uint64_t)found.st_size < start + length)
		return PyErr_Format(PyExc_ValueError, "the file behind the handle has %llu bytes, and the array lies beyond", (unsigned long long)found.st_size);
	attachment *attached = PyMem_Malloc(sizeof *attached);
	if (!attached) return PyErr_NoMemory();
	uint64_t from = page_of(start);
	attached->length = (size_t)(start + length - from);
	attached->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	attached->file = (np_file){found.st_dev, found.st_ino};
	attached->base = MAP_FAILED;
	int protection = PROT_READ | (writable ? PROT_WRITE : 0);
	if (attached->fd >= 0) attached->base = mmap(NULL, attached->length, protection, MAP_SHARED | MAP_NORESERVE, attached->fd, (off_t)from);
	PyObject *capsule = NULL;
	if (attached->base == MAP_FAILED)
		PyErr_SetFromErrno(PyExc_OSError);
	else if ((capsule = PyCapsule_New(attached, ATTACHMENT, detach)))
		return capsule;
	else
		munmap(attached->base, attached->length);
	if (attached->fd >= 0) close(attached->fd);
	PyMem_Free(attached);
	return NULL;
}

/* A tuple of integers into values; their number, or -1 with an exception. */
static int integers(PyObject *tuple, npy_intp *values)
{
	if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) > MOST_DIMENSIONS) {
		PyErr_SetString(PyExc_ValueError, "shape and strides are tuples of at most 64 integers");
		return -1;
	}
	int count = (int)PyTuple_GET_SIZE(tuple);
	for (int i = 0; i < count; i++)
		if ((values[i] = (npy_intp)PyLong_AsSsize_t(PyTuple_GET_ITEM(tuple, i))) == -1 && PyErr_Occurred()) return -1;
	return count;
}

/* Whether all items lie in the length bytes in which the first is at `first`. */
static bool inside(uint64_t first, uint64_t length, uint64_t item, int count, const npy_intp *shape, const npy_intp *strides)
{
	__int128 low = first, high = (__int128)first + item;
	for (int i = 0; i < count; i++) {
		if (shape[i] < 0) return false;
		if (!shape[i]) return first <= length;
	}
	for (int i = 0; i < count; i++) {
		__int128 reach = (__int128)(shape[i] - 1) * strides[i];
		if (reach < 0)
			low += reach;
		else
			high += reach;
	}
	return low >= 0 && high <= length;
}

static PyObject *attach(PyObject *module, PyObject *args)
{
	int fd, writable;
	unsigned long long start, length, data;
	PyObject *descr, *shape, *strides;
	if (!PyArg_ParseTuple(args, "iKKKO!O!O!p", &fd, &start, &length, &data, &PyArrayDescr_Type, &descr, &PyTuple_Type, &shape, &PyTuple_Type, &strides,
			&writable))
		return NULL;
	npy_intp extents[MOST_DIMENSIONS], steps[MOST_DIMENSIONS];
	int count = integers(shape, extents);
	if (count < 0 || integers(strides, steps) != count) {
		if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "shape and strides are of different lengths");
		return NULL;
	}
	if (PyDataType_REFCHK((PyArray_Descr *)descr)) return PyErr_Format(PyExc_ValueError, "arrays of objects cannot be shared");
	if (!length || length > NP_MOST_BYTES || start > NP_MOST_BYTES || data < start ||
	    !inside(data - start, length, (uint64_t)PyDataType_ELSIZE((PyArray_Descr *)descr), count, extents, steps))
		return PyErr_Format(PyExc_ValueError, "the handle says that parts of the array lie outside of its block");
	PyObject *mapping = map(fd, start, length, writable);
	if (!mapping) return NULL;
	attachment *attached = PyCapsule_GetPointer(mapping, ATTACHMENT);
	char *pointer = (char *)attached->base + (data - page_of(start));
	Py_INCREF(descr);
	PyObject *array = PyArray_NewFromDescr(&PyArray_Type, (PyArray_Descr *)descr, count, extents, steps, pointer, writable ? NPY_ARRAY_WRITEABLE : 0, NULL);
	if (!array) {
		Py_DECREF(mapping);
		return NULL;
	}
	if (PyArray_SetBaseObject((PyArrayObject *)array, mapping)) Py_CLEAR(array);
	return array;
}

PyMethodDef np_export_methods[] = {
	{"export", NP_FASTCALL(export),
		"export(array, readonly, handle, /)\n--\n\n(start, bytes, first): start and length of the array's block in its file, and where its first item is. handle._fd becomes a new descriptor of\n"
		"the file. The block is used by nobody else as long as that, or a copy of it, is open in any process."},
	{"attach", attach, METH_VARARGS, "attach(descriptor, start, bytes, first, dtype, shape, strides, writable, /)\n--\n\nAn array over that; it has a copy of the descriptor."},
	{NULL},
};
