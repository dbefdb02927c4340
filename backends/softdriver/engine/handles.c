#include "handles.h"

#include <stdint.h>
#include <stdlib.h>

#include "record.h"

/* Open addressing with linear probing; at most half full. */
struct entry {
	const void *handle;
	enum soft_kind kind;
};
static struct entry *table;
static size_t slots, filled;

static size_t home(const void *handle, size_t size)
{
	return (size_t)((uint64_t)(uintptr_t)handle * 0x9e3779b97f4a7c15ull >> 20) & (size - 1);
}

static void put(struct entry *to, size_t size, struct entry entry)
{
	size_t i = home(entry.handle, size);
	while (to[i].handle)
		i = (i + 1) & (size - 1);
	to[i] = entry;
}

void soft_handle_add(const void *handle, enum soft_kind kind)
{
	if (2 * (filled + 1) > slots) {
		size_t size = slots ? 2 * slots : 64;
		struct entry *larger = soft_records(size, sizeof *larger);
		for (size_t i = 0; i < slots; i++)
			if (table[i].handle)
				put(larger, size, table[i]);
		free(table);
		table = larger;
		slots = size;
	}
	put(table, slots, (struct entry){ handle, kind });
	filled++;
}

static struct entry *find(const void *handle)
{
	if (!slots)
		return NULL;
	for (size_t i = home(handle, slots); table[i].handle; i = (i + 1) & (slots - 1))
		if (table[i].handle == handle)
			return &table[i];
	return NULL;
}

int soft_handle_is(const void *handle, enum soft_kind kind)
{
	const struct entry *entry = handle ? find(handle) : NULL;
	return entry && entry->kind == kind;
}

void soft_handle_remove(const void *handle)
{
	struct entry *entry = find(handle);
	if (!entry)
		return;
	entry->handle = NULL;
	filled--;
	/* Those behind it may have been pushed on by it: put each of them where it belongs now. */
	for (size_t i = (size_t)(entry - table + 1) & (slots - 1); table[i].handle; i = (i + 1) & (slots - 1)) {
		struct entry moved = table[i];
		table[i].handle = NULL;
		put(table, slots, moved);
	}
}
