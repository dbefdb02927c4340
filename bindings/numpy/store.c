/* Arrays in arenas: the handler's functions, and what becomes of them in a forked child. */
#include "store.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "event.h"
#include "numpy_books.h"

np_store *np_stores;

/* NULL: there is none, and none can be made. */
static np_arena *arena_of(np_store *store)
{
	np_arena *arena = atomic_load_explicit(&store->arenas, memory_order_acquire);
	if (NP_LIKELY(arena && arena->gives)) return arena;
	pthread_mutex_lock(&np_arena_lock);
	arena = atomic_load_explicit(&store->arenas, memory_order_acquire);
	if (!arena || !arena->gives) {
		np_arena *made = store->open(store, !arena);
		if (made) {
			made->next = arena;
			made->advises = store->advises;
			atomic_store_explicit(&store->arenas, made, memory_order_release);
			arena = made;
		} else if (arena && !arena->mine)
			arena = NULL; /* one of ours goes on with what is free in it */
	}
	pthread_mutex_unlock(&np_arena_lock);
	return arena;
}

np_block *np_store_find(np_store *store, const void *pointer, np_arena **arena)
{
	for (*arena = atomic_load_explicit(&store->arenas, memory_order_acquire); *arena; *arena = (*arena)->next) {
		np_block *block = np_arena_find(*arena, pointer);
		if (block) return block;
	}
	return NULL;
}

/* The parent's are the parent's to use again. */
static void put(np_arena *arena, np_block *block)
{
	if (NP_LIKELY(arena->mine)) np_arena_put(arena, block);
}

static void *new_block(np_store *store, size_t size, bool zero)
{
	np_arena *arena = size <= NP_MOST_BYTES ? arena_of(store) : NULL;
	np_block *block = arena ? np_arena_take(arena, size, zero) : NULL;
	if (NP_UNLIKELY(!block)) return np_count_failed(NULL, 0, size, 0);
	void *pointer = arena->base + block->offset;
	np_count_new(&block->header, size, np_block_around(size));
	np_event(TACK_NEW, NULL, pointer, 0, size, block->header.site);
	return pointer;
}

void *np_store_malloc(void *context, size_t size) { return new_block(((np_handler *)context)->store, size, false); }

void *np_store_calloc(void *context, size_t count, size_t each)
{
	size_t size;
	if (NP_UNLIKELY(__builtin_mul_overflow(count, each, &size))) size = SIZE_MAX;
	return new_block(((np_handler *)context)->store, size, true);
}

void np_store_free(void *context, void *pointer, size_t size)
{
	if (NP_UNLIKELY(!pointer)) return;
	np_arena *arena;
	np_block *block = np_store_find(((np_handler *)context)->store, pointer, &arena);
	if (NP_UNLIKELY(!block || block->header.magic != NP_LIVE)) {
		np_count_unknown();
		if (!block) np_default.free(np_default.ctx, pointer, size); /* somebody gave an array memory of his own: as without us */
		return;
	}
	size_t asked = block->header.size;
	np_count_gone(&block->header, np_block_around(asked));
	np_event(TACK_FREE, pointer, NULL, asked, 0, block->header.site);
	put(arena, block);
}

void *np_store_realloc(void *context, void *pointer, size_t size)
{
	np_store *store = ((np_handler *)context)->store;
	if (!pointer) return new_block(store, size, false);
	np_arena *arena;
	np_block *block = np_store_find(store, pointer, &arena);
	if (NP_UNLIKELY(!block || block->header.magic != NP_LIVE)) {
		np_count_unknown();
		return block ? NULL : np_default.realloc(np_default.ctx, pointer, size);
	}
	np_header before = block->header;
	bool stays = size <= NP_MOST_BYTES && arena->mine && np_arena_resize(arena, block, size);
	np_arena *home = stays ? arena : size <= NP_MOST_BYTES ? arena_of(store) : NULL;
	np_block *moved = stays ? block : home ? np_arena_take(home, size, false) : NULL;
	if (NP_UNLIKELY(!moved && size <= before.size && arena->mine)) { /* to become small never fails */
		stays = true;
		home = arena;
		moved = block;
	}
	if (NP_UNLIKELY(!moved)) return np_count_failed(pointer, before.size, size, before.site);
	void *address = home->base + moved->offset;
	if (!stays) memcpy(address, pointer, before.size < size ? before.size : size);
	np_count_resized(&moved->header, &before, np_block_around(before.size), size, np_block_around(size));
	if (!stays) block->header.magic = NP_DEAD;
	np_event(TACK_RENEW, pointer, address, before.size, size, before.site);
	if (!stays) put(arena, block);
	return address;
}

size_t np_store_capacity(void)
{
	size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE), capacity = (size_t)64 << 30;
	while (capacity < 8 * memory && capacity < (size_t)16 << 40) capacity *= 2;
	return capacity;
}

np_store *np_store_new(np_arena *(*open)(np_store *, bool), size_t capacity, char *path, bool advises)
{
	np_store *store = calloc(1, sizeof *store);
	if (!store) {
		free(path);
		PyErr_NoMemory();
		return NULL;
	}
	*store = (np_store){.open = open, .references = 1, .capacity = capacity, .path = path, .advises = advises};
	if (!arena_of(store)) {
		if (path) {
			PyObject *name = PyUnicode_DecodeFSDefault(path);
			if (name) PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, name);
			Py_XDECREF(name);
		} else
			PyErr_SetFromErrno(PyExc_OSError);
		free(path);
		free(store);
		return NULL;
	}
	pthread_mutex_lock(&np_arena_lock);
	store->next = np_stores;
	np_stores = store;
	pthread_mutex_unlock(&np_arena_lock);
	return store;
}

void np_store_leave(np_store *store)
{
	pthread_mutex_lock(&np_arena_lock);
	bool last = !--store->references;
	if (last)
		for (np_store **link = &np_stores; *link; link = &(*link)->next)
			if (*link == store) {
				*link = store->next;
				break;
			}
	pthread_mutex_unlock(&np_arena_lock);
	if (!last) return;
	for (np_arena *arena = atomic_load(&store->arenas), *next; arena; arena = next) {
		next = arena->next;
		np_arena_close(arena);
	}
	free(store->path);
	free(store);
}

PyObject *np_store_handler(const np_kind *kind, np_store *store)
{
	PyObject *capsule = np_handler_make(kind, np_default_capsule, 0, 0, false);
	if (capsule)
		np_handler_in(capsule)->store = store;
	else
		np_store_leave(store);
	return capsule;
}

/* Locked across the fork, as the books are, and by the same reason. No thread ever has both locks. */
static void before(void)
{
	pthread_mutex_lock(&np_arena_lock);
	for (np_store *store = np_stores; store; store = store->next)
		for (np_arena *arena = atomic_load(&store->arenas); arena; arena = arena->next) np_arena_before_fork(arena);
}

static void in_parent(void)
{
	for (np_store *store = np_stores; store; store = store->next)
		for (np_arena *arena = atomic_load(&store->arenas); arena; arena = arena->next) np_arena_after_fork(arena);
	pthread_mutex_unlock(&np_arena_lock);
}

static void in_child(void)
{
	for (np_store *store = np_stores; store; store = store->next)
		for (np_arena *arena = atomic_load(&store->arenas); arena; arena = arena->next) np_arena_in_child(arena);
	pthread_mutex_init(&np_arena_lock, NULL); /* its owner has another number here */
}

int np_store_init(void)
{
	if (!pthread_atfork(before, in_parent, in_child)) return 0;
	PyErr_SetString(PyExc_ImportError, "tack_memory: pthread_atfork failed: no memory");
	return -1;
}

typedef struct figures {
	char *path;
	bool mine;
	unsigned long long live, live_bytes, kept, waiting_bytes, top;
} figures;

static PyObject *arenas(PyObject *module, PyObject *unused)
{
	size_t count = 0, most = 0;
	pthread_mutex_lock(&np_arena_lock);
	for (np_store *store = np_stores; store; store = store->next)
		for (np_arena *arena = atomic_load(&store->arenas); arena; arena = arena->next) most++;
	figures *found = malloc((most + 1) * sizeof *found);
	for (np_store *store = np_stores; found && store; store = store->next)
		for (np_arena *arena = atomic_load(&store->arenas); arena; arena = arena->next)
			found[count++] = (figures){store->path ? strdup(store->path) : NULL, arena->mine, arena->live, arena->live_bytes, arena->kept, arena->waiting_bytes, arena->top};
	pthread_mutex_unlock(&np_arena_lock);
	if (!found) return PyErr_NoMemory();
	PyObject *list = PyTuple_New((Py_ssize_t)count);
	for (size_t i = 0; list && i < count; i++) {
		PyObject *path = found[i].path ? PyUnicode_DecodeFSDefault(found[i].path) : Py_NewRef(Py_None);
		PyObject *one = path ? Py_BuildValue("(NOKKKKK)", path, found[i].mine ? Py_True : Py_False, found[i].live, found[i].live_bytes, found[i].kept,
			found[i].waiting_bytes, found[i].top) : NULL;
		if (one)
			PyTuple_SET_ITEM(list, (Py_ssize_t)i, one);
		else
			Py_CLEAR(list);
	}
	for (size_t i = 0; i < count; i++) free(found[i].path);
	free(found);
	return list;
}

PyMethodDef np_store_methods[] = {
	{"arenas", arenas, METH_NOARGS,
		"arenas()\n--\n\n(path, own, live, live_bytes, kept, waiting_bytes, cut) of each arena: whether it is this process's own or inherited, blocks in use and the bytes of the file\n"
		"that they have, bytes of free blocks that keep their memory, bytes of freed blocks that another process still holds, and all bytes that blocks were cut from."},
	{NULL},
};
