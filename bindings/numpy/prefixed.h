/* Blocks with a prefix of a fixed size before the pointer, whose last 16 bytes are the np_header. Inline, because the two handlers that are made of it (counted.c,
 * wrapped.c) differ in that size, and it should be a constant where every array comes by. */
#ifndef NP_PREFIXED_H
#define NP_PREFIXED_H
#include "event.h"
#include "handler.h"
#include "numpy_books.h"
#include <string.h>

static inline void *np_prefixed_new(char *block, size_t size, size_t prefix)
{
	if (NP_UNLIKELY(!block)) return np_count_failed(NULL, 0, size, 0);
	void *pointer = block + prefix;
	np_header *header = np_header_of(pointer);
	np_count_new(header, size, prefix);
	np_event(TACK_NEW, NULL, pointer, 0, size, header->site);
	return pointer;
}

static inline void *np_prefixed_malloc(const PyDataMemAllocator *inner, size_t size, size_t prefix)
{
	char *block = NP_LIKELY(size <= NP_MOST_BYTES) ? inner->malloc(inner->ctx, size + prefix) : NULL;
	return np_prefixed_new(block, size, prefix);
}

static inline void *np_prefixed_calloc(const PyDataMemAllocator *inner, size_t count, size_t each, size_t prefix)
{
	size_t size;
	if (NP_UNLIKELY(__builtin_mul_overflow(count, each, &size))) size = SIZE_MAX;
	char *block = NP_LIKELY(size <= NP_MOST_BYTES) ? inner->calloc(inner->ctx, 1, size + prefix) : NULL;
	return np_prefixed_new(block, size, prefix);
}

static inline void np_prefixed_free(const PyDataMemAllocator *inner, void *pointer, size_t size, size_t prefix)
{
	if (NP_UNLIKELY(!pointer)) return;
	np_header *header = np_header_of(pointer);
	if (NP_UNLIKELY(header->magic != NP_LIVE)) {
		np_count_unknown();
		/* Somebody gave an array memory of his own: as without us. A block that was freed already is left alone. */
		if (header->magic != NP_DEAD) inner->free(inner->ctx, pointer, size);
		return;
	}
	size_t asked = header->size; /* not `size`: see header.h */
	np_count_gone(header, prefix);
	np_event(TACK_FREE, pointer, NULL, asked, 0, header->site);
	inner->free(inner->ctx, (char *)pointer - prefix, asked + prefix);
}

/* NumPy calls it without the GIL, too (np.fromstring of a text), which guards NumPy's cache of small blocks. So memory beside the old comes from the inner
 * `realloc`, which looks at no cache, and never from its `malloc`: else two threads could be given one block. The old block goes back through `free`; those that
 * NumPy resizes so have 4096 bytes or more, which the cache does not take. */
static inline void *np_prefixed_realloc(const PyDataMemAllocator *inner, void *pointer, size_t size, size_t prefix)
{
	if (!pointer) return np_prefixed_malloc(inner, size, prefix);
	np_header before = *np_header_of(pointer);
	if (NP_UNLIKELY(before.magic != NP_LIVE)) {
		np_count_unknown();
		return before.magic == NP_DEAD ? NULL : inner->realloc(inner->ctx, pointer, size);
	}
	char *old = (char *)pointer - prefix, *block = NULL;
	bool listened = np_listened(); /* then the old address must not be used again before its end was told */
	if (NP_LIKELY(size <= NP_MOST_BYTES)) block = inner->realloc(inner->ctx, listened ? NULL : old, size + prefix);
	if (NP_UNLIKELY(!block)) return np_count_failed(pointer, before.size, size, before.site);
	if (NP_UNLIKELY(listened)) memcpy(block + prefix, pointer, before.size < size ? before.size : size);
	void *moved = block + prefix;
	np_count_resized(np_header_of(moved), &before, prefix, size, prefix);
	if (NP_UNLIKELY(listened)) {
		np_header_of(pointer)->magic = NP_DEAD;
		np_event(TACK_RENEW, pointer, moved, before.size, size, before.site);
		inner->free(inner->ctx, old, before.size + prefix);
	}
	return moved;
}
#endif
