/* Stream-ordered pools. A pool holds device memory: `reserved` bytes, of which `used` are in clients' blocks; the rest are pieces that were
 * freed and are kept for the next request.
 *
 * Which pieces may a request on stream s get? Those freed on s, at once. Of another stream t: up to what s waits for (attribute 1), what t has
 * done (2), and, before an allocation would fail, everything by making s wait for t (3). A piece of the very size comes with its address; pieces
 * of other sizes are joined and split as bytes (a device maps its pages anew), and the block gets a new address. */
#ifndef SOFT_POOL_H
#define SOFT_POOL_H

#include <stdint.h>
#include "result.h"

struct soft_device;
struct soft_stream;
struct soft_block;
struct soft_cache;

struct soft_pool {
	struct soft_device *device;
	struct soft_pool *next;
	int is_default;
	int destroyed; /* by the client; ends with its last block */
	uint64_t reserved, reserved_high, used, used_high;
	uint64_t kept;      /* bytes in pieces: reserved = used + kept */
	uint64_t threshold; /* what a synchronise leaves reserved */
	uint64_t most;      /* 0: no maximum */
	int reuse_followed, reuse_done, reuse_by_waiting;
	struct soft_cache *caches;
};

/* With the numbers that CUDA and HIP give them. */
enum soft_pool_attribute {
	SOFT_POOL_REUSE_FOLLOWED = 1,
	SOFT_POOL_REUSE_DONE,
	SOFT_POOL_REUSE_BY_WAITING,
	SOFT_POOL_THRESHOLD,
	SOFT_POOL_RESERVED,
	SOFT_POOL_RESERVED_HIGH, /* may be set to 0: starts again at what is reserved now */
	SOFT_POOL_USED,
	SOFT_POOL_USED_HIGH,     /* likewise */
};

/* ---- without the lock */
struct soft_pool *soft_pool_create(struct soft_device *device, uint64_t most);
enum soft_result soft_pool_destroy(struct soft_pool *pool);
enum soft_result soft_pool_make_current(struct soft_device *device, struct soft_pool *pool);
enum soft_result soft_pool_owner(struct soft_pool *pool, struct soft_device **device);
enum soft_result soft_pool_set(struct soft_pool *pool, enum soft_pool_attribute attribute, uint64_t value);
enum soft_result soft_pool_get(struct soft_pool *pool, enum soft_pool_attribute attribute, uint64_t *value);
enum soft_result soft_pool_trim(struct soft_pool *pool, uint64_t keep);
enum soft_result soft_pool_allocate(struct soft_pool *pool, uint64_t size, struct soft_stream *stream, uint64_t *address);
/* Frees in stream order: a pool's block, or any other. */
enum soft_result soft_free_ordered(uint64_t address, struct soft_stream *stream);

/* ---- with the lock */
struct soft_pool *soft_pool_new(struct soft_device *device);
void soft_pool_free_block(struct soft_block *block, struct soft_stream *stream);
/* A synchronise happened: what was seen to be free and is above the thresholds goes back to the system. */
void soft_pools_settle(struct soft_device *device);
/* The device is full: what was seen to be free goes back to the system, thresholds or not. */
void soft_pools_relieve(struct soft_device *device);
/* The context ends: all pieces go, client's pools too. */
void soft_pools_reset(struct soft_device *device);

#endif
