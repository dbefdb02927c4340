/* The handler "mmap": arrays in a file. It may be larger than memory, and any process can read it while and after this one runs; what is there is the bytes of the arrays. */
#define _GNU_SOURCE
#include "store.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST 4096 /* bytes that say what the file is */
static const char mark[] = "tack_memory: NumPy arrays, as they are in memory, of the process that has this file open.\n";

/* The file is ours to begin anew: it is new or empty, or was one of ours, and nobody has it open: whose arena it
 * was has the whole file locked, and who looks at an array, a byte of it. Otherwise errno. */
static bool is_free(int fd)
{
	struct stat found;
	char begin[sizeof mark - 1];
	if (flock(fd, LOCK_EX | LOCK_NB) || fstat(fd, &found)) return false;
	if (!S_ISREG(found.st_mode)) {
		errno = EINVAL;
		return false;
	}
	if (!found.st_size) return true;
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	if (fcntl(fd, F_OFD_GETLK, &lock)) return false;
	if (lock.l_type != F_UNLCK) {
		errno = EWOULDBLOCK;
		return false;
	}
	ssize_t length = pread(fd, begin, sizeof begin, 0);
	if (length == (ssize_t)sizeof begin && !memcmp(begin, mark, sizeof begin)) return true;
	if (length >= 0) errno = EEXIST;
	return false;
}

static int begin(int fd)
{
	ssize_t written = -1;
	if (fd >= 0 && is_free(fd) && !ftruncate(fd, 0)) written = pwrite(fd, mark, sizeof mark - 1, 0);
	if (written == (ssize_t)sizeof mark - 1) return fd;
	int why = written >= 0 ? ENOSPC : errno;
	if (fd >= 0) close(fd);
	errno = why;
	return -1;
}

/* Of a forked child: beside its parent's, without a name, so that it ends with the child. */
static int nameless(const char *path)
{
	char name[4096];
	const char *slash = strrchr(path, '/');
	int length = slash ? (int)(slash - path) : 0;
	if (snprintf(name, sizeof name, "%.*s/", length, path) >= (int)sizeof name) {
		errno = ENAMETOOLONG;
		return -1;
	}
	int fd = open(name, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0) return fd;
	if (snprintf(name, sizeof name, "%.*s/.tack_memory-XXXXXX", length, path) >= (int)sizeof name) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = mkostemp(name, O_CLOEXEC); /* file systems without unnamed files */
	if (fd >= 0) unlink(name);
	return fd;
}

static np_arena *open_file(np_store *store, bool first)
{
	if (!first && atomic_load(&store->arenas)->mine) { /* the program has closed its file: what would be elsewhere now is not what was asked for */
		errno = EBADF;
		return NULL;
	}
	int fd = begin(first ? open(store->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600) : nameless(store->path));
	if (fd < 0) return NULL;
	struct stat found;
	if (first && !fstat(fd, &found)) store->file = (np_file){found.st_dev, found.st_ino};
	for (size_t capacity = store->capacity;; capacity /= 2) {
		np_arena *arena = np_arena_open(fd, capacity, FIRST, true);
		if (arena) return arena;
		if (errno == ENOMEM && capacity > NP_STORE_LEAST) continue;
		int why = errno;
		close(fd);
		errno = why;
		return NULL;
	}
}

/* With a reference, if this process has the file already. */
static np_store *known(const char *path)
{
	struct stat found;
	if (stat(path, &found)) return NULL;
	pthread_mutex_lock(&np_arena_lock);
	np_store *store = np_stores;
	while (store && !(store->path && store->file.device == found.st_dev && store->file.inode == found.st_ino)) store = store->next;
	if (store) store->references++;
	pthread_mutex_unlock(&np_arena_lock);
	return store;
}

static PyObject *mapped(PyObject *module, PyObject *object)
{
	PyObject *bytes;
	if (!PyUnicode_FSConverter(object, &bytes)) return NULL;
	const char *path = PyBytes_AS_STRING(bytes);
	np_store *store = known(path);
	if (!store) {
		char *copy = strdup(path);
		store = copy ? np_store_new(open_file, np_store_capacity(), copy, false) : (np_store *)PyErr_NoMemory();
	}
	Py_DECREF(bytes);
	return store ? np_store_handler(&np_mapped, store) : NULL;
}

const np_kind np_mapped = {"tack_memory_mmap", {NULL, np_store_malloc, np_store_calloc, np_store_realloc, np_store_free}};

PyMethodDef np_mapped_methods[] = {
	{"mapped", mapped, METH_O, "mapped(path, /)\n--\n\nA handler that counts, over a file, whose path is absolute."},
	{NULL},
};
