/* The CPU device in a forked child. Go is gone there, but what worked before a fork must still work: a host's CPU path. So buffers made in the child have
 * their record and memory from calloc, and the books are counted here by the same rules as in gomem/books.go. Nothing is spilled on the CPU. */
#include "lane.h"

/* As gomem's maxSize: no request is larger, so that sums of a few sizes stay inside int64. */
#define MOST_BYTES ((uint64_t)1 << 60)

/* A record of the child's own, in the list of those that live. */
typedef struct child_record {
	tm_record record; /* first: a tm_record * of a child's buffer is one of these */
	struct child_record *next, **from;
	tm_buffer *buffer; /* borrowed */
} child_record;

static child_record *living;

/* A CPU device that was not opened before the fork. */
tm_books *tm_child_open_cpu(uint32_t index)
{
	tm_books *books = calloc(1, sizeof *books);
	if (books) {
		books->device = index;
		books->budget = -1;
	}
	return books;
}

/* As Books.reserveLocked, and what Go does after it: nothing can be spilled here, so a soft budget gives way and a strict one refuses. For none there is always
 * room. The reason why not, or NULL. */
static const char *promise(tm_books *books, uint64_t nbytes)
{
	if (nbytes > MOST_BYTES) return "too_large";
	const char *refused = NULL;
	int64_t n = (int64_t)nbytes;
	tm_books_lock(books);
	if (n > INT64_MAX - (books->in_use + books->reserved + books->spilled)) /* as Books.countableLocked: the sum passes no end, for each of them was asked so */
		refused = "too_large";
	else if (n && books->strict && books->budget >= 0 && books->in_use + books->reserved + n > books->budget)
		refused = n > books->budget ? "too_large" : "budget";
	else
		books->reserved += n;
	tm_books_unlock(books);
	return refused;
}

/* Counts what was promised. */
static void born(tm_books *books, tm_record *record)
{
	tm_books_lock(books);
	books->reserved -= (int64_t)record->size;
	record->sequence = tm_books_born(books, (int64_t)record->size);
	tm_books_unlock(books);
}

static void gone(tm_books *books, const tm_record *record)
{
	tm_books_lock(books);
	tm_books_gone(books, (int64_t)record->size, record->sequence);
	tm_books_unlock(books);
}

/* Steals label and origin. Memory is zero, as calloc gives it, whether asked for or not. */
PyObject *tm_child_allocate(int device, uint64_t nbytes, PyObject *label, PyObject *origin)
{
	tm_books *books = tm_devices[device].books;
	const char *refused = promise(books, nbytes);
	child_record *made = refused ? NULL : calloc(1, sizeof *made);
	tm_record *record = made ? &made->record : NULL;
	void *memory = record && nbytes ? calloc(1, nbytes) : NULL;
	tm_buffer *buffer = record && (memory || !nbytes) ? (tm_buffer *)tm_buffer_type->tp_alloc(tm_buffer_type, 0) : NULL;
	if (!buffer) {
		if (!refused) tm_child_unreserve(device, nbytes);
		if (!PyErr_Occurred()) tm_raise_child_memory(device, nbytes, refused ? refused : "device");
		free(memory);
		free(made);
		Py_XDECREF(label);
		Py_XDECREF(origin);
		return NULL;
	}
	record->word = TM_RESIDENT;
	record->address = (uint64_t)(uintptr_t)memory;
	record->size = nbytes;
	record->index = UINT32_MAX;
	record->device = (uint32_t)device;
	born(books, record);
	tm_touch(record, books);
	buffer->home = buffer->record = record;
	buffer->books = books;
	buffer->address = TM_NO_ADDRESS;
	buffer->nbytes = nbytes;
	buffer->device = (uint32_t)device;
	buffer->index = UINT32_MAX; /* in no table */
	buffer->label = label;
	buffer->origin = origin;
	buffer->child = true;
	made->buffer = buffer;
	made->from = &living;
	if ((made->next = living)) living->from = &made->next;
	living = made;
	tm_tell_child(buffer->device, record, true);
	return (PyObject *)buffer;
}

void tm_child_leave(tm_buffer *buffer)
{
	child_record *made = (child_record *)buffer->home;
	if (!made->from) return;
	if ((*made->from = made->next)) made->next->from = made->from;
	made->from = NULL;
}

int tm_child_alive(PyObject *list)
{
	for (child_record *one = living; one; one = one->next)
		if (PyList_Append(list, (PyObject *)one->buffer)) return -1;
	return 0;
}

int tm_child_reserve(int device, uint64_t nbytes)
{
	const char *refused = promise(tm_devices[device].books, nbytes);
	return refused ? tm_raise_child_memory(device, nbytes, refused) : 0;
}

void tm_child_unreserve(int device, uint64_t nbytes)
{
	tm_books *books = tm_devices[device].books;
	tm_books_lock(books);
	books->reserved -= (int64_t)nbytes;
	tm_books_unlock(books);
}

/* Lets go of a buffer on the CPU. The memory of one that the parent made stays as it is: its allocator is Go's. */
void tm_child_drop(tm_buffer *buffer)
{
	tm_record *record = buffer->home;
	gone(buffer->books, record);
	if (buffer->child) tm_child_leave(buffer);
	buffer->record = &tm_nowhere; /* freed, for everybody: hooks run now */
	buffer->home = NULL;
	tm_tell_child(buffer->device, record, false);
	if (!buffer->child) return;
	free((void *)(uintptr_t)record->address);
	free(record);
}
