/* A memory handler as another extension has one: blocks at multiples of 64, by its own means, and it wants to be told at each free what it was asked for. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static long live, wrong, without_gil;

/* Of the interpreter. A handler's malloc may rely on the GIL, as NumPy's own does. */
extern int PyGILState_Check(void);
static void look(void) { if (!PyGILState_Check()) __atomic_fetch_add(&without_gil, 1, __ATOMIC_RELAXED); }

static void *give(size_t size, int zero)
{
	char *block = aligned_alloc(64, 64 + (size + 63) / 64 * 64);
	if (!block) return NULL;
	memcpy(block, &size, sizeof size);
	memset(block + 64, zero ? 0 : 0xa5, size);
	__atomic_fetch_add(&live, 1, __ATOMIC_RELAXED);
	return block + 64;
}

static void *other_malloc(void *context, size_t size)
{
	look();
	return size > (size_t)1 << 40 ? NULL : give(size, 0);
}

static void *other_calloc(void *context, size_t count, size_t each)
{
	look();
	return each && count > ((size_t)1 << 40) / each ? NULL : give(count * each, 1);
}

static void other_free(void *context, void *pointer, size_t size)
{
	if (!pointer) return;
	size_t asked;
	memcpy(&asked, (char *)pointer - 64, sizeof asked);
	if (asked != size) __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&live, 1, __ATOMIC_RELAXED);
	free((char *)pointer - 64);
}

static void *other_realloc(void *context, void *pointer, size_t size)
{
	void *moved = size > (size_t)1 << 40 ? NULL : give(size, 0); /* NumPy calls it without the GIL, too */
	if (!moved || !pointer) return moved;
	size_t asked;
	memcpy(&asked, (char *)pointer - 64, sizeof asked);
	memcpy(moved, pointer, asked < size ? asked : size);
	other_free(context, pointer, asked);
	return moved;
}

long other_live(void) { return live; }
long other_wrong(void) { return wrong; }
long other_without_gil(void) { return without_gil; }

/* NEP 49's PyDataMem_Handler */
struct {
	char name[127];
	uint8_t version;
	void *context;
	void *(*malloc)(void *, size_t);
	void *(*calloc)(void *, size_t, size_t);
	void *(*realloc)(void *, void *, size_t);
	void (*free)(void *, void *, size_t);
} other_handler = {"another_extension", 1, NULL, other_malloc, other_calloc, other_realloc, other_free};
