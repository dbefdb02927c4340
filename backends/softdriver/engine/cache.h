/* What was freed on one stream and is kept by one pool. All of it needs the lock. */
#ifndef SOFT_CACHE_H
#define SOFT_CACHE_H

#include <stdint.h>

struct soft_block;
struct soft_stream;

/* Freed bytes that the pool keeps. */
struct soft_piece {
	uint64_t bytes, sequence;
	struct soft_block *block; /* the address that comes with them; NULL: none (quarantine, or what is left of a larger piece) */
	struct soft_piece *older, *newer;
	struct soft_piece *bin_before, *bin_after;
};

enum { SOFT_CACHE_BINS = 256 };

/* Oldest first: `sequence` only grows along the list, so "done" and "observed" are prefixes. */
struct soft_cache {
	struct soft_stream *stream;
	struct soft_piece *oldest, *newest;
	struct soft_piece *bins[SOFT_CACHE_BINS]; /* pieces by exact size, newest first */
	uint64_t bytes;
	struct soft_cache *next;
};

void soft_cache_add(struct soft_cache *cache, uint64_t bytes, uint64_t sequence, struct soft_block *block);
void soft_cache_remove(struct soft_cache *cache, struct soft_piece *piece); /* the piece is gone; its block is the caller's now */
/* A piece of just this size with a sequence up to limit. */
struct soft_piece *soft_cache_exact(struct soft_cache *cache, uint64_t bytes, uint64_t limit);
/* How many bytes have a sequence up to limit; counts no further than enough. */
uint64_t soft_cache_usable(const struct soft_cache *cache, uint64_t limit, uint64_t enough);
/* Takes up to bytes from the oldest pieces; what is left of the last one stays, without its address. Returns how much it took. */
uint64_t soft_cache_consume(struct soft_cache *cache, uint64_t bytes, uint64_t limit);

#endif
