/* The handler "hugepage": large blocks begin at a huge page and ask the kernel for huge pages, zeroed ones, too (NumPy's own handler does so from 2.2 on only). */
#include "aligned.h"
#include <sys/mman.h>
#include <unistd.h>

#define LARGE ((size_t)4 << 20) /* from here on NumPy asks for huge pages, too */
#define HUGE_PAGE ((size_t)2 << 20)

static size_t align_of(size_t size) { return size >= LARGE ? HUGE_PAGE : 16; }

/* A hint: where the kernel has no huge pages, the memory is as good as before. */
static void *advised(const np_handler *handler, void *pointer, size_t size)
{
	if (pointer && size >= LARGE && handler->advise) madvise(pointer, size, MADV_HUGEPAGE);
	return pointer;
}

static void *hugepage_malloc(void *context, size_t size) { return advised(context, np_aligned_new(size, align_of(size), false), size); }

static void *hugepage_calloc(void *context, size_t count, size_t each)
{
	size_t size;
	if (NP_UNLIKELY(__builtin_mul_overflow(count, each, &size))) size = SIZE_MAX;
	return advised(context, np_aligned_new(size, align_of(size), true), size);
}

static void *hugepage_realloc(void *context, void *pointer, size_t size) { return advised(context, np_aligned_realloc(pointer, size, align_of(size)), size); }
static void hugepage_free(void *context, void *pointer, size_t size) { np_aligned_free(pointer, size); }

const np_kind np_hugepage = {"tack_memory_hugepage", {NULL, hugepage_malloc, hugepage_calloc, hugepage_realloc, hugepage_free}};
