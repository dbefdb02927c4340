/* The handler that counts over somebody's own. What stands before his blocks is as long as the alignment that he gives, so that it is kept. */
#include "prefixed.h"

static void *wrapped_malloc(void *context, size_t size)
{
	np_handler *handler = context;
	return np_prefixed_malloc(&handler->inner, size, handler->prefix);
}

static void *wrapped_calloc(void *context, size_t count, size_t each)
{
	np_handler *handler = context;
	return np_prefixed_calloc(&handler->inner, count, each, handler->prefix);
}

static void *wrapped_realloc(void *context, void *pointer, size_t size)
{
	np_handler *handler = context;
	return np_prefixed_realloc(&handler->inner, pointer, size, handler->prefix);
}

static void wrapped_free(void *context, void *pointer, size_t size)
{
	np_handler *handler = context;
	np_prefixed_free(&handler->inner, pointer, size, handler->prefix);
}

const np_kind np_wrapped = {"tack_memory", {NULL, wrapped_malloc, wrapped_calloc, wrapped_realloc, wrapped_free}};
