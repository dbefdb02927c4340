#include "starts.h"

#include <sys/mman.h>

static void *sparse(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

static uint64_t words(uint64_t bits) { return (bits + 63) / 64; }

int soft_starts_open(struct soft_starts *starts, uint64_t granules)
{
	uint64_t total = 0, count = granules;
	starts->granules = granules;
	starts->levels = 0;
	do {
		count = words(count);
		total += count;
		starts->levels++;
	} while (count > 1 && starts->levels < SOFT_STARTS_LEVELS);
	uint64_t *bits = sparse(total * sizeof *bits);
	starts->blocks = sparse(granules * sizeof *starts->blocks);
	if (!bits || !starts->blocks) {
		if (bits)
			munmap(bits, total * sizeof *bits);
		if (starts->blocks)
			munmap(starts->blocks, granules * sizeof *starts->blocks);
		return -1;
	}
	count = granules;
	for (int level = 0; level < starts->levels; level++) {
		starts->bits[level] = bits;
		count = words(count);
		bits += count;
	}
	return 0;
}

void soft_starts_set(struct soft_starts *starts, uint64_t granule, struct soft_block *block)
{
	starts->blocks[granule] = block;
	for (int level = 0; level < starts->levels; level++) {
		uint64_t *word = &starts->bits[level][granule / 64], before = *word;
		*word |= 1ull << granule % 64;
		if (before)
			return;
		granule /= 64;
	}
}

void soft_starts_clear(struct soft_starts *starts, uint64_t granule)
{
	starts->blocks[granule] = NULL;
	for (int level = 0; level < starts->levels; level++) {
		uint64_t *word = &starts->bits[level][granule / 64];
		*word &= ~(1ull << granule % 64);
		if (*word)
			return;
		granule /= 64;
	}
}

struct soft_block *soft_starts_find(const struct soft_starts *starts, uint64_t granule)
{
	/* Up: the lowest level that has a start at or before us within one word. */
	uint64_t position = granule;
	for (int level = 0; level < starts->levels; level++) {
		uint64_t upto = ~0ull >> (63 - position % 64); /* bits 0 .. position */
		uint64_t found = starts->bits[level][position / 64] & upto;
		if (found) {
			position = position / 64 * 64 + (uint64_t)(63 - __builtin_clzll(found));
			/* Down: the last one of each word on the way. */
			while (level--)
				position = position * 64 + (uint64_t)(63 - __builtin_clzll(starts->bits[level][position]));
			return starts->blocks[position];
		}
		if (position / 64 == 0)
			return NULL;
		position = position / 64 - 1; /* the words before ours */
	}
	return NULL;
}
