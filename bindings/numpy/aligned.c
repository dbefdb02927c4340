/* The handler "aligned", and the blocks that "hugepage" is made of. */
#include "aligned.h"
#include "event.h"
#include "numpy_books.h"
#include <string.h>

/* Right before the pointer, so that the np_header is where all handlers have it. */
typedef struct aligned_header {
	uint32_t offset; /* of the pointer in the block */
	uint32_t spare;
	uint64_t total;  /* bytes of the block: the default handler's cache goes by it */
	np_header common;
} aligned_header;

static aligned_header *header_of(void *pointer) { return (aligned_header *)pointer - 1; }

static char *align_up(char *block, size_t align) { return (char *)(((uintptr_t)block + sizeof(aligned_header) + align - 1) & ~(uintptr_t)(align - 1)); }

static size_t total_of(size_t size, size_t align)
{
	/* Addresses of the inner handler are multiples of 16, so that much of the alignment is there. */
	return size + sizeof(aligned_header) + align - 16;
}

static void place(char *block, char *pointer, size_t total)
{
	aligned_header *header = header_of(pointer);
	header->offset = (uint32_t)(pointer - block);
	header->total = total;
}

void *np_aligned_new(size_t size, size_t align, bool zero)
{
	size_t total = size <= NP_MOST_BYTES ? total_of(size, align) : 0;
	bool clears = zero && size < align; /* or the inner handler would clear all that lies around a small array */
	char *block = !total ? NULL : zero && !clears ? np_default.calloc(np_default.ctx, 1, total) : np_default.malloc(np_default.ctx, total);
	if (NP_UNLIKELY(!block)) return np_count_failed(NULL, 0, size, 0);
	char *pointer = align_up(block, align);
	if (clears) memset(pointer, 0, size);
	place(block, pointer, total);
	np_header *header = np_header_of(pointer);
	np_count_new(header, size, total - size);
	np_event(TACK_NEW, NULL, pointer, 0, size, header->site);
	return pointer;
}

void np_aligned_free(void *pointer, size_t size)
{
	if (NP_UNLIKELY(!pointer)) return;
	aligned_header *header = header_of(pointer);
	if (NP_UNLIKELY(header->common.magic != NP_LIVE)) {
		np_count_unknown();
		if (header->common.magic != NP_DEAD) np_default.free(np_default.ctx, pointer, size);
		return;
	}
	size_t asked = header->common.size, total = header->total;
	char *block = (char *)pointer - header->offset;
	np_count_gone(&header->common, total - asked);
	np_event(TACK_FREE, pointer, NULL, asked, 0, header->common.site);
	np_default.free(np_default.ctx, block, total);
}

void *np_aligned_realloc(void *pointer, size_t size, size_t align)
{
	if (!pointer) return np_aligned_new(size, align, false);
	aligned_header before = *header_of(pointer);
	if (NP_UNLIKELY(before.common.magic != NP_LIVE)) {
		np_count_unknown();
		return before.common.magic == NP_DEAD ? NULL : np_default.realloc(np_default.ctx, pointer, size);
	}
	size_t asked = before.common.size, kept = asked < size ? asked : size;
	size_t total = size <= NP_MOST_BYTES ? total_of(size, align) : 0;
	char *old = (char *)pointer - before.offset, *block = NULL;
	/* A block that grows may be moved by the kernel, without a copy. Where it was aligned to more than it will be, its contents can lie behind the new end. */
	bool listened = np_listened(), copies = listened || before.offset + kept > total;
	if (total) block = np_default.realloc(np_default.ctx, copies ? NULL : old, total); /* not malloc, whose cache needs the GIL: see prefixed.h */
	if (NP_UNLIKELY(!block)) return np_count_failed(pointer, asked, size, before.common.site);
	char *moved = align_up(block, align), *contents = copies ? pointer : block + before.offset;
	if (moved != contents) memmove(moved, contents, kept);
	place(block, moved, total);
	np_count_resized(np_header_of(moved), &before.common, before.total - asked, size, total - size);
	if (copies) {
		header_of(pointer)->common.magic = NP_DEAD;
		if (listened) np_event(TACK_RENEW, pointer, moved, asked, size, before.common.site);
		np_default.free(np_default.ctx, old, before.total);
	}
	return moved;
}

static void *aligned_malloc(void *context, size_t size) { return np_aligned_new(size, ((np_handler *)context)->align, false); }

static void *aligned_calloc(void *context, size_t count, size_t each)
{
	size_t size;
	if (NP_UNLIKELY(__builtin_mul_overflow(count, each, &size))) size = SIZE_MAX;
	return np_aligned_new(size, ((np_handler *)context)->align, true);
}

static void *aligned_realloc(void *context, void *pointer, size_t size) { return np_aligned_realloc(pointer, size, ((np_handler *)context)->align); }
static void aligned_free(void *context, void *pointer, size_t size) { np_aligned_free(pointer, size); }

const np_kind np_aligned = {"tack_memory_aligned", {NULL, aligned_malloc, aligned_calloc, aligned_realloc, aligned_free}};
