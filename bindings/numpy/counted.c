/* The handler that only counts: 16 bytes before each block of NumPy's own handler. */
#include "prefixed.h"

#define PREFIX sizeof(np_header)

static void *counted_malloc(void *context, size_t size) { return np_prefixed_malloc(&np_default, size, PREFIX); }
static void *counted_calloc(void *context, size_t count, size_t each) { return np_prefixed_calloc(&np_default, count, each, PREFIX); }
static void *counted_realloc(void *context, void *pointer, size_t size) { return np_prefixed_realloc(&np_default, pointer, size, PREFIX); }
static void counted_free(void *context, void *pointer, size_t size) { np_prefixed_free(&np_default, pointer, size, PREFIX); }

const np_kind np_counted = {"tack_memory", {NULL, counted_malloc, counted_calloc, counted_realloc, counted_free}};
