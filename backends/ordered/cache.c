#include "cache.h"
#include <stdlib.h>
#include <string.h>

void tmo_cache_init(tmo_cache *c, uint64_t limit) {
	memset(c, 0, sizeof *c);
	c->limit = limit;
	pthread_mutex_init(&c->lock, NULL);
}

void tmo_cache_delete(tmo_cache *c) {
	pthread_mutex_destroy(&c->lock);
	free(c->live);
}

/* ---- blocks in use, by address; the lock is held */

static uint64_t home(const tmo_cache *c, uint64_t address) { return (address >> 9) * 0x9e3779b97f4a7c15u >> 20 & (c->places - 1); }

/* The place of an address, or the free place where it would be put. There must be places. */
static uint64_t place_of(const tmo_cache *c, uint64_t address) {
	uint64_t i = home(c, address);
	while (c->live[i].address && c->live[i].address != address) i = (i + 1) & (c->places - 1);
	return i;
}

static bool grow(tmo_cache *c) {
	uint64_t places = c->places ? 2 * c->places : 64;
	tmo_block *before = c->live, *live = calloc(places, sizeof *live);
	if (!live) return false;
	uint64_t old = c->places;
	c->live = live;
	c->places = places;
	for (uint64_t i = 0; i < old; i++)
		if (before[i].address) live[place_of(c, before[i].address)] = before[i];
	free(before);
	return true;
}

static void remember(tmo_cache *c, tmo_block block) {
	if (2 * (c->used + 1) > c->places && !grow(c)) return;
	uint64_t i = place_of(c, block.address);
	c->used += !c->live[i].address;
	c->live[i] = block;
}

/* Takes an address out, and closes the gap that searches would stop at. */
static bool forget(tmo_cache *c, uint64_t address, tmo_block *block) {
	if (!c->places) return false;
	uint64_t gap = place_of(c, address), mask = c->places - 1;
	if (!c->live[gap].address) return false;
	*block = c->live[gap];
	for (uint64_t i = (gap + 1) & mask; c->live[i].address; i = (i + 1) & mask) {
		/* What is found from its home on without crossing the gap stays. */
		if (((i - home(c, c->live[i].address)) & mask) < ((i - gap) & mask)) continue;
		c->live[gap] = c->live[i];
		gap = i;
	}
	c->live[gap] = (tmo_block){ 0 };
	c->used--;
	return true;
}

/* ---- blocks kept; the lock is held */

static void add(tmo_cache *c, tmo_block block) {
	c->kept[c->count++] = block;
	__atomic_store_n(&c->bytes, c->bytes + block.bytes, __ATOMIC_RELAXED);
}

static tmo_block remove_at(tmo_cache *c, uint32_t i) {
	tmo_block block = c->kept[i];
	memmove(&c->kept[i], &c->kept[i + 1], (--c->count - i) * sizeof block);
	__atomic_store_n(&c->bytes, c->bytes - block.bytes, __ATOMIC_RELAXED);
	return block;
}

/* ---- */

bool tmo_cache_take(tmo_cache *c, uint64_t bytes, uint64_t *address) {
	pthread_mutex_lock(&c->lock);
	uint32_t best = c->count;
	for (uint32_t i = c->count; i-- > 0 && (best == c->count || c->kept[best].bytes != bytes);) {
		uint64_t has = c->kept[i].bytes;
		if (has >= bytes && has - bytes <= bytes / 8 && (best == c->count || has < c->kept[best].bytes)) best = i;
	}
	bool found = best < c->count;
	if (found) {
		tmo_block block = remove_at(c, best);
		*address = block.address;
		remember(c, block);
	}
	pthread_mutex_unlock(&c->lock);
	return found;
}

void tmo_cache_note(tmo_cache *c, uint64_t address, uint64_t bytes) {
	pthread_mutex_lock(&c->lock);
	remember(c, (tmo_block){ address, bytes });
	pthread_mutex_unlock(&c->lock);
}

void tmo_cache_forget(tmo_cache *c, uint64_t address) {
	tmo_block block;
	pthread_mutex_lock(&c->lock);
	(void)forget(c, address, &block);
	pthread_mutex_unlock(&c->lock);
}

bool tmo_cache_has(tmo_cache *c, uint64_t address) {
	pthread_mutex_lock(&c->lock);
	uint32_t i = 0;
	while (i < c->count && address - c->kept[i].address >= c->kept[i].bytes) i++;
	bool found = i < c->count;
	pthread_mutex_unlock(&c->lock);
	return found;
}

bool tmo_cache_keep(tmo_cache *c, uint64_t address) {
	tmo_block block;
	pthread_mutex_lock(&c->lock);
	bool keep = forget(c, address, &block) && block.bytes <= c->limit && c->count + c->out < TMO_MOST_KEPT;
	if (keep) add(c, block);
	pthread_mutex_unlock(&c->lock);
	return keep;
}

bool tmo_cache_evict(tmo_cache *c, bool all, tmo_block *block) {
	pthread_mutex_lock(&c->lock);
	/* One place stays free for the next block, so that it is an old one that has to go and not that. */
	bool found = c->count > 0 && (all || c->bytes > c->limit || c->count + c->out == TMO_MOST_KEPT);
	if (found) {
		*block = remove_at(c, 0);
		c->out++;
	}
	pthread_mutex_unlock(&c->lock);
	return found;
}

void tmo_cache_evicted(tmo_cache *c, tmo_block block, bool back) {
	pthread_mutex_lock(&c->lock);
	c->out--;
	if (back) add(c, block);
	pthread_mutex_unlock(&c->lock);
}
