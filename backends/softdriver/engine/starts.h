/* Which block holds an address: a bitmap of the granules where blocks begin, summarised 64 to 1 level by level, so that the nearest
 * start at or before an address is found in a few steps whatever lies between, and beside it one pointer a granule. Both are mapped
 * without backing: only the parts that are used cost memory. */
#ifndef SOFT_STARTS_H
#define SOFT_STARTS_H

#include <stddef.h>
#include <stdint.h>

struct soft_block;

enum { SOFT_STARTS_LEVELS = 6 };

struct soft_starts {
	uint64_t granules;
	uint64_t *bits[SOFT_STARTS_LEVELS]; /* bits[0] has a bit a granule, bits[n+1] a bit a word of bits[n] */
	int levels;
	struct soft_block **blocks;
};

int soft_starts_open(struct soft_starts *starts, uint64_t granules); /* 0, or -1: no address space */
void soft_starts_set(struct soft_starts *starts, uint64_t granule, struct soft_block *block);
void soft_starts_clear(struct soft_starts *starts, uint64_t granule);
struct soft_block *soft_starts_find(const struct soft_starts *starts, uint64_t granule); /* NULL: none at or before */

#endif
