#include "pool.h"

#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "device.h"
#include "handles.h"
#include "lock.h"
#include "record.h"
#include "settings.h"
#include "stream.h"

static struct soft_cache *cache_of(struct soft_pool *pool, struct soft_stream *stream)
{
	for (struct soft_cache *cache = pool->caches; cache; cache = cache->next)
		if (cache->stream == stream)
			return cache;
	struct soft_cache *cache = soft_records(1, sizeof *cache);
	cache->stream = stream;
	stream->references++;
	cache->next = pool->caches;
	pool->caches = cache;
	return cache;
}

/* An empty list of a destroyed stream is of no use to anybody. */
static void drop_empty_caches(struct soft_pool *pool, int all)
{
	for (struct soft_cache **at = &pool->caches; *at;) {
		struct soft_cache *cache = *at;
		if (cache->oldest || !(all || cache->stream->closed)) {
			at = &cache->next;
			continue;
		}
		*at = cache->next;
		soft_stream_release(cache->stream);
		free(cache);
	}
}

/* ---- pools ---- */

struct soft_pool *soft_pool_new(struct soft_device *device)
{
	struct soft_pool *pool = soft_records(1, sizeof *pool);
	soft_handle_add(pool, SOFT_KIND_POOL);
	pool->device = device;
	pool->reuse_followed = pool->reuse_done = pool->reuse_by_waiting = 1;
	pool->next = device->pools;
	device->pools = pool;
	return pool;
}

enum soft_result soft_pool_make_current(struct soft_device *device, struct soft_pool *pool)
{
	soft_lock();
	enum soft_result result = soft_handle_is(pool, SOFT_KIND_POOL) && pool->device == device ? SOFT_OK : SOFT_INVALID_VALUE;
	if (!result)
		device->current_pool = pool;
	soft_unlock();
	return result;
}

enum soft_result soft_pool_owner(struct soft_pool *pool, struct soft_device **device)
{
	soft_lock();
	enum soft_result result = soft_handle_is(pool, SOFT_KIND_POOL) ? SOFT_OK : SOFT_INVALID_HANDLE;
	if (!result)
		*device = pool->device;
	soft_unlock();
	return result;
}

static enum soft_result set_locked(struct soft_pool *pool, enum soft_pool_attribute attribute, uint64_t value)
{
	switch (attribute) {
	case SOFT_POOL_REUSE_FOLLOWED: pool->reuse_followed = value != 0; return SOFT_OK;
	case SOFT_POOL_REUSE_DONE: pool->reuse_done = value != 0; return SOFT_OK;
	case SOFT_POOL_REUSE_BY_WAITING: pool->reuse_by_waiting = value != 0; return SOFT_OK;
	case SOFT_POOL_THRESHOLD: pool->threshold = value; return SOFT_OK;
	case SOFT_POOL_RESERVED_HIGH:
		if (value)
			return SOFT_INVALID_VALUE;
		pool->reserved_high = pool->reserved;
		return SOFT_OK;
	case SOFT_POOL_USED_HIGH:
		if (value)
			return SOFT_INVALID_VALUE;
		pool->used_high = pool->used;
		return SOFT_OK;
	case SOFT_POOL_RESERVED:
	case SOFT_POOL_USED:
		break;
	}
	return SOFT_INVALID_VALUE;
}

static enum soft_result get_locked(const struct soft_pool *pool, enum soft_pool_attribute attribute, uint64_t *value)
{
	switch (attribute) {
	case SOFT_POOL_REUSE_FOLLOWED: *value = (uint64_t)pool->reuse_followed; return SOFT_OK;
	case SOFT_POOL_REUSE_DONE: *value = (uint64_t)pool->reuse_done; return SOFT_OK;
	case SOFT_POOL_REUSE_BY_WAITING: *value = (uint64_t)pool->reuse_by_waiting; return SOFT_OK;
	case SOFT_POOL_THRESHOLD: *value = pool->threshold; return SOFT_OK;
	case SOFT_POOL_RESERVED: *value = pool->reserved; return SOFT_OK;
	case SOFT_POOL_RESERVED_HIGH: *value = pool->reserved_high; return SOFT_OK;
	case SOFT_POOL_USED: *value = pool->used; return SOFT_OK;
	case SOFT_POOL_USED_HIGH: *value = pool->used_high; return SOFT_OK;
	}
	return SOFT_INVALID_VALUE;
}

enum soft_result soft_pool_set(struct soft_pool *pool, enum soft_pool_attribute attribute, uint64_t value)
{
	soft_lock();
	enum soft_result result = soft_handle_is(pool, SOFT_KIND_POOL) ? soft_capture_permits() : SOFT_INVALID_HANDLE;
	if (!result)
		result = set_locked(pool, attribute, value);
	soft_unlock();
	return result;
}

enum soft_result soft_pool_get(struct soft_pool *pool, enum soft_pool_attribute attribute, uint64_t *value)
{
	soft_lock();
	enum soft_result result = soft_handle_is(pool, SOFT_KIND_POOL) ? soft_capture_permits() : SOFT_INVALID_HANDLE;
	if (!result)
		result = get_locked(pool, attribute, value);
	soft_unlock();
	return result;
}

struct soft_pool *soft_pool_create(struct soft_device *device, uint64_t most)
{
	soft_lock();
	struct soft_pool *pool = soft_pool_new(device);
	pool->most = most;
	soft_unlock();
	return pool;
}

/* Gives pieces with a sequence up to limit back to the system until the pool reserves no more than keep. */
static void give_back(struct soft_pool *pool, struct soft_cache *cache, uint64_t limit, uint64_t keep)
{
	while (cache->oldest && cache->oldest->sequence <= limit && pool->reserved > keep) {
		struct soft_piece piece = *cache->oldest;
		soft_cache_remove(cache, cache->oldest);
		pool->kept -= piece.bytes;
		pool->reserved -= piece.bytes;
		soft_uncharge(pool->device, piece.bytes);
		if (piece.block)
			soft_stream_end_block(cache->stream, piece.sequence, piece.block);
	}
}

/* How far the host has seen a stream to be done. A destroyed one cannot be waited for any more: there, what is done counts as seen. */
static uint64_t seen(const struct soft_stream *stream) { return stream->closed ? stream->done : stream->observed; }

static void give_back_seen(struct soft_pool *pool, uint64_t keep)
{
	for (struct soft_cache *cache = pool->caches; cache && pool->reserved > keep; cache = cache->next)
		give_back(pool, cache, pool->destroyed ? cache->stream->done : seen(cache->stream), keep);
}

/* A destroyed pool goes with its last byte. */
static int bury_pool(struct soft_pool *pool)
{
	if (!pool->destroyed || pool->reserved)
		return 0;
	struct soft_device *device = pool->device;
	for (struct soft_pool **at = &device->pools; *at; at = &(*at)->next)
		if (*at == pool) {
			*at = pool->next;
			break;
		}
	drop_empty_caches(pool, 1);
	free(pool);
	return 1;
}

void soft_pools_settle(struct soft_device *device)
{
	int ignore = soft_setting(&soft_settings.ignore_threshold) != 0;
	for (struct soft_pool *pool = device->pools, *next; pool; pool = next) {
		next = pool->next;
		uint64_t keep = ignore || pool->destroyed ? 0 : pool->threshold;
		if (pool->kept && pool->reserved > keep)
			give_back_seen(pool, keep);
		drop_empty_caches(pool, 0);
		bury_pool(pool);
	}
}

void soft_pools_relieve(struct soft_device *device)
{
	for (struct soft_pool *pool = device->pools, *next; pool; pool = next) {
		next = pool->next;
		if (pool->kept)
			give_back_seen(pool, 0);
		bury_pool(pool);
	}
}

enum soft_result soft_pool_trim(struct soft_pool *pool, uint64_t keep)
{
	soft_lock();
	enum soft_result result = soft_handle_is(pool, SOFT_KIND_POOL) ? soft_capture_permits() : SOFT_INVALID_HANDLE;
	if (!result)
		give_back_seen(pool, keep);
	soft_unlock();
	return result;
}

static void destroy_locked(struct soft_pool *pool)
{
	soft_handle_remove(pool);
	pool->destroyed = 1;
	if (pool->device->current_pool == pool)
		pool->device->current_pool = pool->device->default_pool;
	give_back_seen(pool, 0);
	bury_pool(pool);
}

enum soft_result soft_pool_destroy(struct soft_pool *pool)
{
	soft_lock();
	int known = soft_handle_is(pool, SOFT_KIND_POOL);
	enum soft_result result = !known ? SOFT_INVALID_HANDLE : pool->is_default ? SOFT_INVALID_VALUE : SOFT_OK;
	if (!result)
		destroy_locked(pool);
	soft_unlock();
	return result;
}

static void free_pool_block(struct soft_block *block)
{
	if (block->state == SOFT_BLOCK_LIVE && block->pool)
		soft_pool_free_block(block, soft_block_device(block)->legacy);
}

void soft_pools_reset(struct soft_device *device)
{
	soft_blocks_visit(device, free_pool_block);
	for (struct soft_pool *pool = device->pools, *next; pool; pool = next) {
		next = pool->next;
		for (struct soft_cache *cache = pool->caches; cache; cache = cache->next)
			give_back(pool, cache, UINT64_MAX, 0);
		drop_empty_caches(pool, 1);
		if (pool->is_default) {
			pool->threshold = 0;
			pool->reserved_high = pool->used_high = 0;
			pool->reuse_followed = pool->reuse_done = pool->reuse_by_waiting = 1;
		} else if (pool->destroyed) {
			bury_pool(pool);
		} else {
			destroy_locked(pool);
		}
	}
}

/* ---- allocating ---- */

/* Which pieces of cache a request on stream may have now: those with a sequence up to this. */
static uint64_t usable_up_to(const struct soft_pool *pool, const struct soft_cache *cache, const struct soft_stream *stream)
{
	if (cache->stream == stream)
		return UINT64_MAX;
	uint64_t limit = pool->reuse_done ? (uint64_t)cache->stream->done : 0;
	if (pool->reuse_followed) {
		uint64_t followed = soft_stream_follows(stream, cache->stream);
		if (limit < followed)
			limit = followed;
	}
	return limit;
}

static uint64_t consume_usable(struct soft_pool *pool, struct soft_stream *stream, uint64_t bytes)
{
	uint64_t taken = 0;
	for (struct soft_cache *cache = pool->caches; cache && taken < bytes; cache = cache->next)
		if (cache->stream == stream)
			taken += soft_cache_consume(cache, bytes, UINT64_MAX);
	for (struct soft_cache *cache = pool->caches; cache && taken < bytes; cache = cache->next)
		taken += soft_cache_consume(cache, bytes - taken, usable_up_to(pool, cache, stream));
	pool->kept -= taken;
	return taken;
}

static enum soft_result grow(struct soft_pool *pool, uint64_t bytes)
{
	if (pool->most && (pool->reserved > pool->most || pool->most - pool->reserved < bytes))
		return SOFT_OUT_OF_MEMORY;
	enum soft_result result = soft_charge(pool->device, bytes);
	if (!result) {
		pool->reserved += bytes;
		if (pool->reserved_high < pool->reserved)
			pool->reserved_high = pool->reserved;
	}
	return result;
}

/* Gets bytes that are not the kept piece of just this size: from pieces that may be used at once if they suffice, else from the device, else
 * from both, else by making the stream wait for others. */
static enum soft_result get_bytes(struct soft_pool *pool, struct soft_stream *stream, uint64_t bytes)
{
	uint64_t usable = 0;
	if (pool->kept >= bytes)
		for (struct soft_cache *cache = pool->caches; cache && usable < bytes; cache = cache->next)
			usable += soft_cache_usable(cache, usable_up_to(pool, cache, stream), bytes - usable);
	if (usable >= bytes) {
		consume_usable(pool, stream, bytes);
		return SOFT_OK;
	}
	if (!grow(pool, bytes))
		return SOFT_OK;
	soft_pools_relieve(pool->device); /* grow did so where the device is full; now nothing below takes pieces away from us */
	usable = 0;
	for (struct soft_cache *cache = pool->caches; cache && usable < bytes; cache = cache->next)
		usable += soft_cache_usable(cache, usable_up_to(pool, cache, stream), bytes - usable);
	if (usable >= bytes || !grow(pool, bytes - usable)) {
		consume_usable(pool, stream, usable < bytes ? usable : bytes);
		return SOFT_OK;
	}
	if (!pool->reuse_by_waiting || (pool->kept < bytes && grow(pool, bytes - pool->kept)))
		return SOFT_OUT_OF_MEMORY;
	uint64_t need = pool->kept < bytes ? pool->kept : bytes;
	need -= consume_usable(pool, stream, need);
	for (struct soft_cache *cache = pool->caches; cache && need; cache = cache->next) {
		uint64_t newest = cache->newest ? cache->newest->sequence : 0;
		if (cache->stream != stream && newest > cache->stream->done)
			soft_stream_follow(stream, cache->stream, newest);
		uint64_t taken = soft_cache_consume(cache, need, UINT64_MAX);
		pool->kept -= taken;
		need -= taken;
	}
	return SOFT_OK;
}

/* A kept piece of just this size, with its address where it has one that may be used now. */
static struct soft_block *take_exact(struct soft_pool *pool, struct soft_stream *stream, uint64_t bytes, int *found)
{
	struct soft_piece *piece = NULL;
	struct soft_cache *from = NULL;
	for (struct soft_cache *cache = pool->caches; cache && !piece; cache = cache->next)
		if (cache->stream == stream && (piece = soft_cache_exact(cache, bytes, UINT64_MAX)))
			from = cache;
	for (struct soft_cache *cache = pool->caches; cache && !piece; cache = cache->next)
		if (cache->oldest && (piece = soft_cache_exact(cache, bytes, usable_up_to(pool, cache, stream))))
			from = cache;
	*found = piece != NULL;
	if (!piece)
		return NULL;
	struct soft_block *block = piece->block;
	uint64_t sequence = piece->sequence;
	soft_cache_remove(from, piece);
	pool->kept -= bytes;
	if (block && soft_setting(&soft_settings.quarantine)) {
		/* freed before quarantine was switched on */
		soft_stream_end_block(from->stream, sequence, block);
		block = NULL;
	}
	return block;
}

static struct soft_block *allocate_locked(struct soft_pool *pool, uint64_t size, struct soft_stream *stream, enum soft_result *result)
{
	uint64_t charge = soft_charge_of(size);
	int found;
	*result = SOFT_OUT_OF_MEMORY;
	if (charge < size)
		return NULL;
	struct soft_block *block = take_exact(pool, stream, charge, &found);
	if (!found && (*result = get_bytes(pool, stream, charge)))
		return NULL;
	if (!block && !(block = soft_block_new(pool->device, size))) {
		pool->reserved -= charge;
		soft_uncharge(pool->device, charge);
		*result = SOFT_OPERATING_SYSTEM;
		return NULL;
	}
	block->state = SOFT_BLOCK_LIVE;
	block->size = size;
	block->pool = pool;
	pool->used += charge;
	if (pool->used_high < pool->used)
		pool->used_high = pool->used;
	soft_block_counts(block);
	*result = SOFT_OK;
	return block;
}

enum soft_result soft_pool_allocate(struct soft_pool *pool, uint64_t size, struct soft_stream *stream, uint64_t *address)
{
	soft_lock();
	enum soft_result result = soft_stream_usable(stream);
	if (!result && !pool)
		pool = stream->device->current_pool;
	if (!result && !soft_handle_is(pool, SOFT_KIND_POOL))
		result = SOFT_INVALID_HANDLE;
	if (!result) {
		const struct soft_block *block = allocate_locked(pool, size, stream, &result);
		if (block)
			*address = block->address;
	}
	soft_unlock();
	return result;
}

/* ---- freeing ---- */

static void run_end(struct soft_operation *operation)
{
	soft_lock();
	soft_block_end(operation->end.block);
	soft_unlock();
}

/* Ends the block's address when the stream gets here, and returns the number of that place. */
static uint64_t end_in_order(struct soft_block *block, struct soft_stream *stream)
{
	block->state = SOFT_BLOCK_FREED;
	uint64_t sequence = soft_stream_mark(stream);
	if (stream->done >= sequence) {
		soft_block_end(block);
		return sequence;
	}
	struct soft_operation *operation = soft_operation_new(run_end);
	operation->internal = 1;
	operation->end.block = block;
	return soft_stream_push(stream, operation, 0);
}

void soft_pool_free_block(struct soft_block *block, struct soft_stream *stream)
{
	struct soft_pool *pool = block->pool;
	uint64_t charge = block->charge;
	soft_block_uncounts(block);
	pool->used -= charge;
	if (soft_block_quarantined(block)) {
		soft_cache_add(cache_of(pool, stream), charge, end_in_order(block, stream), NULL);
	} else {
		block->state = SOFT_BLOCK_CACHED;
		soft_cache_add(cache_of(pool, stream), charge, soft_stream_mark(stream), block);
	}
	pool->kept += charge;
	if (pool->destroyed) {
		give_back_seen(pool, 0);
		bury_pool(pool);
	}
}

static void run_drop(struct soft_operation *operation)
{
	soft_lock();
	soft_block_drop(operation->end.block);
	soft_unlock();
}

enum soft_result soft_free_ordered(uint64_t address, struct soft_stream *stream)
{
	struct soft_block *block;
	soft_lock();
	enum soft_result result = soft_stream_usable(stream);
	if (!result && (soft_place(address, &block) != SOFT_PLACE_BLOCK || block->state != SOFT_BLOCK_LIVE || block->address != address))
		result = SOFT_INVALID_VALUE;
	if (!result) {
		if (block->pool) {
			soft_pool_free_block(block, stream);
		} else {
			struct soft_operation *operation = soft_operation_new(run_drop);
			operation->internal = 1;
			operation->end.block = block;
			block->state = SOFT_BLOCK_FREED;
			uint64_t sequence = soft_stream_push(stream, operation, 0);
			if (sequence == stream->done + 1)
				soft_stream_wait(stream, sequence); /* nothing is before it: now, as without a stream */
		}
	}
	soft_unlock();
	return result;
}
