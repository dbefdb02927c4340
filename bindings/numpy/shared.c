/* The handler "shared": arrays that another process can map. Their arena is a memfd: it has no name, so nobody can delete it and nothing of it can stay behind, and it is sealed
 * against a change of its length, which would kill whoever reads there. */
#define _GNU_SOURCE
#include "store.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Where the kernel promises no more memory than it has, it does not promise this file's: writing to a page that it cannot give would be a signal. */
static bool is_strict(void)
{
	FILE *file = fopen("/proc/sys/vm/overcommit_memory", "re");
	int mode = file ? fgetc(file) : '0';
	if (file) fclose(file);
	return mode == '2';
}

static int sealed_file(size_t capacity)
{
	int fd = memfd_create("tack_memory", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL) fd = memfd_create("tack_memory", MFD_CLOEXEC | MFD_ALLOW_SEALING); /* Linux before 6.3 */
	/* Whoever has a readonly descriptor could open it anew for writing, by /proc, as far as the mode lets him. */
	if (fd < 0 || (!fchmod(fd, 0600) && !ftruncate(fd, (off_t)capacity) && !fcntl(fd, F_ADD_SEALS, SEALS))) return fd;
	int why = errno;
	close(fd);
	errno = why;
	return -1;
}

static np_arena *open_memfd(np_store *store, bool first)
{
	size_t capacity = store->capacity;
	for (;; capacity /= 2) { /* limits of address space, or of a file's length */
		int fd = sealed_file(capacity);
		np_arena *arena = fd < 0 ? NULL : np_arena_open(fd, capacity, 0, is_strict());
		if (arena) return arena;
		int why = errno;
		if (fd >= 0) close(fd);
		errno = why;
		if (capacity <= NP_STORE_LEAST || (why != ENOMEM && why != EFBIG)) return NULL;
	}
}

static PyObject *shared(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
	if (nargs != 2) return PyErr_Format(PyExc_TypeError, "shared() takes capacity and advise");
	size_t capacity = PyLong_AsSize_t(args[0]);
	if (capacity == (size_t)-1 && PyErr_Occurred()) return NULL;
	if (capacity > NP_MOST_BYTES) return PyErr_Format(PyExc_ValueError, "an arena of %zu bytes is more than a process can map", capacity);
	capacity = (capacity + NP_STORE_GRAIN - 1) & ~(NP_STORE_GRAIN - 1);
	int advises = PyObject_IsTrue(args[1]);
	if (advises < 0) return NULL;
	np_store *store = np_store_new(open_memfd, capacity ? capacity : np_store_capacity(), NULL, advises);
	return store ? np_store_handler(&np_shared, store) : NULL;
}

const np_kind np_shared = {"tack_memory_shared", {NULL, np_store_malloc, np_store_calloc, np_store_realloc, np_store_free}};

PyMethodDef np_shared_methods[] = {
	{"shared", NP_FASTCALL(shared),
		"shared(capacity, advise, /)\n--\n\nA handler that counts, over memory of its own that other processes can map: of at most so many bytes; 0: as much as the machine can have.\n"
		"With advise, blocks of 2 MiB and more ask the kernel for huge pages."},
	{NULL},
};
