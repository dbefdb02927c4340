/* The books of NumPy's arrays, and what Python reads of them. */
#include "np.h"
#include "event.h"
#include "numpy_books.h"

np_books np_the_books __attribute__((aligned(64))) = {.memory = {.budget = -1}};

void *np_count_failed(void *old, size_t old_size, size_t size, uint32_t site)
{
	tm_books_lock(&np_the_books.memory);
	np_the_books.failed_count++;
	tm_books_unlock(&np_the_books.memory);
	np_event(TACK_FAIL, old, NULL, old_size, size, site);
	return NULL;
}

void np_count_unknown(void)
{
	tm_books_lock(&np_the_books.memory);
	np_the_books.unknown_count++;
	tm_books_unlock(&np_the_books.memory);
}

static PyObject *statistics(PyObject *module, PyObject *unused)
{
	tm_books_lock(&np_the_books.memory);
	np_books now = np_the_books;
	tm_books_unlock(&np_the_books.memory);
	const tm_books *memory = &now.memory;
	return Py_BuildValue("(LLLLLLLLLLL)", (long long)memory->in_use, (long long)memory->peak, (long long)memory->reserved,
		(long long)(memory->allocate_count - memory->free_count), (long long)(memory->allocate_count - now.resize_count),
		(long long)(memory->free_count - now.resize_count), (long long)now.resize_count, (long long)now.failed_count, (long long)now.unknown_count,
		(long long)now.inherited, (long long)now.inherited_count);
}

static PyObject *books(PyObject *module, PyObject *unused) { return PyCapsule_New(&np_the_books.memory, "tack_memory.numpy_books", NULL); }

PyMethodDef np_books_methods[] = {
	{"statistics", statistics, METH_NOARGS,
		"statistics()\n--\n\n(in_use, peak, overhead, live, allocations, frees, resizes, failed, unknown_frees, inherited, inherited_live), of one moment."},
	{"books", books, METH_NOARGS, "books()\n--\n\nThe books, for _fast.count_numpy."},
	{NULL},
};
