/* Handlers: NEP 49's PyDataMem_Handler over another one, whose blocks they count. */
#ifndef NP_HANDLER_H
#define NP_HANDLER_H
#include "np.h"

typedef struct np_handler {
	PyDataMem_Handler numpy;  /* first: the capsule points to it; its ctx is the np_handler */
	PyDataMemAllocator inner; /* where blocks come from */
	PyObject *inner_capsule;  /* keeps that alive */
	size_t prefix;            /* bytes before the pointer; wrapped.c */
	size_t align;             /* aligned.c, hugepage.c */
	bool advise;              /* hugepage.c: ask the kernel for huge pages */
	struct np_store *store;   /* store.c: where blocks come from instead */
	struct np_handler *next;  /* of all that there are */
} np_handler;

typedef struct np_kind {
	const char *name;            /* as numpy.core.multiarray.get_handler_name tells it */
	PyDataMemAllocator functions; /* without ctx */
} np_kind;

/* One of each file. All but wrapped lie over NumPy's own handler, whose functions come from its capsule: they keep its cache of small blocks and its huge pages, and
 * from NumPy 2.5 on they are not libc's. */
extern const np_kind np_counted, np_aligned, np_hugepage, np_wrapped, np_shared, np_mapped;

extern PyDataMemAllocator np_default; /* of NumPy's own handler */
extern PyObject *np_default_capsule;

/* The handler that counts for a capsule: the one in it, if it is ours, or, in a copy of ours with other functions (the usual way to add something to the handler that is in force),
 * the one that its blocks go back to. NULL, without an exception, for any other object. */
np_handler *np_handler_in(PyObject *capsule);

/* A capsule of a new handler over another one's. NULL with an exception. */
PyObject *np_handler_make(const np_kind *kind, PyObject *over, size_t prefix, size_t align, bool advise);

/* The header of an array's block, wherever the handler has it; NULL: it did not make the block. */
struct np_header *np_header_at(const np_handler *handler, void *pointer);
#endif
