/* Dropped blocks that are kept for reuse, where a device has no pools and its library's free waits for the whole device (vendor.free_waits).
 *
 * There each free would stop the program until all that it has queued is done. So a block that the device is done with is kept, and serves an
 * allocation of its size or a little less. What is kept counts as cached: tmo_trim gives all of it back, which is what the core does before it
 * spills anything. Blocks are told by their address from those of others: only what this package allocated, of a size that it knows, is kept. */
#ifndef TMO_CACHE_H
#define TMO_CACHE_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Sizes are rounded up to this, so that sizes that hardly differ fit each other. The libraries round at least as much. */
enum { TMO_GRANULE = 512 };

/* No more blocks than this are kept: an allocation looks at each of them. */
enum { TMO_MOST_KEPT = 1024 };

typedef struct { uint64_t address, bytes; } tmo_block;

typedef struct tmo_cache {
	pthread_mutex_t lock;          /* guards all below; leaf: nothing is called under it */
	uint64_t limit;                /* bytes; more are not kept. Constant */
	tmo_block kept[TMO_MOST_KEPT]; /* oldest first */
	uint32_t count;
	uint32_t out;                  /* blocks that are being freed: each has a place to come back to */
	uint64_t bytes;                /* of all kept; atomic, read without the lock */
	tmo_block *live;               /* the blocks in use: a hash table by address with linear probing; address 0: a free place */
	uint64_t places, used;         /* of live; places is 0 or a power of two, and at most half of them are used */
} tmo_cache;

void tmo_cache_init(tmo_cache *c, uint64_t limit);
void tmo_cache_delete(tmo_cache *c);

/* Takes the smallest kept block of at least this size that wastes no more than an eighth. */
bool tmo_cache_take(tmo_cache *c, uint64_t bytes, uint64_t *address);
/* A block was allocated. Without host memory to remember it, it will not be kept when it is dropped; that is all. */
void tmo_cache_note(tmo_cache *c, uint64_t address, uint64_t bytes);
/* A block that was allocated is somebody else's now. */
void tmo_cache_forget(tmo_cache *c, uint64_t address);
/* Whether a kept block has this address. */
bool tmo_cache_has(tmo_cache *c, uint64_t address);
/* A block was dropped and the device is done with it. False: it is not kept, and must be freed. */
bool tmo_cache_keep(tmo_cache *c, uint64_t address);
/* Takes the oldest kept block out, to be freed: while the cache is over its limits or, with `all`, as long as there is one. What was taken out must be told of by
 * tmo_cache_evicted. */
bool tmo_cache_evict(tmo_cache *c, bool all, tmo_block *block);
/* That block is gone. back: it could not be freed, so it is kept as before. */
void tmo_cache_evicted(tmo_cache *c, tmo_block block, bool back);
static inline uint64_t tmo_cache_bytes(tmo_cache *c) { return __atomic_load_n(&c->bytes, __ATOMIC_RELAXED); }
#endif
