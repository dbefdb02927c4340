/* Stores: what the handlers "shared" and "mmap" take blocks from. A store has one arena for each process that allocates in it: a forked child begins one of its own, since its
 * parent goes on giving out blocks of the old one, and keeps the old one mapped for the arrays that it has inherited. A process whose arena has lost its descriptor does the same. */
#ifndef NP_STORE_H
#define NP_STORE_H
#include <stdatomic.h>
#include "arena.h"
#include "handler.h"

typedef struct np_store {
	struct np_store *next;
	_Atomic(np_arena *) arenas;                     /* the newest first */
	np_arena *(*open)(struct np_store *, bool first); /* with np_arena_lock; first: the store has no arena yet. NULL: errno */
	long references;                                /* handlers */
	size_t capacity;
	bool advises;                                   /* of its arenas */
	char *path;                                     /* mmap_file.c: absolute; NULL: the file has no name */
	np_file file;                                   /* that one */
} np_store;

#define NP_STORE_GRAIN ((size_t)2 << 20) /* what arenas' lengths are multiples of: a huge page */
#define NP_STORE_LEAST ((size_t)64 << 20) /* below that, an arena that cannot be mapped is not tried again with half as much */
/* What address space an arena gets where nobody says: several times the machine's memory, since blocks of one size are seldom used for another. */
size_t np_store_capacity(void);

/* With one reference, or NULL with an OSError of path, if any. Takes over path. */
np_store *np_store_new(np_arena *(*open)(np_store *, bool), size_t capacity, char *path, bool advises);
void np_store_leave(np_store *store);
/* A handler that allocates in the store; takes over the reference, also where it fails. */
PyObject *np_store_handler(const np_kind *kind, np_store *store);

/* The block that an array's memory begins with; NULL: none of this store. */
np_block *np_store_find(np_store *store, const void *pointer, np_arena **arena);

extern np_store *np_stores; /* under np_arena_lock */
int np_store_init(void);

/* What both kinds have but their names. */
void *np_store_malloc(void *context, size_t size);
void *np_store_calloc(void *context, size_t count, size_t each);
void *np_store_realloc(void *context, void *pointer, size_t size);
void np_store_free(void *context, void *pointer, size_t size);
#endif
