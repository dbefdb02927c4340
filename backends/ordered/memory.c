#include "device.h"

/* ---- giving memory back */

/* Trying again would not help: the block is none, or the device is lost. */
static bool final(tmo_device *d, tmo_status status) { return tmo_means(d, status) == TMO_INVALID || tmo_lost(d, status); }

static tmo_status release(tmo_device *d, uint64_t address, bool stream_ordered) {
	if (stream_ordered) return TMO_CALL(d, free_ordered, address, d->stream);
	tmo_status status = TMO_CALL(d, free, address);
	if (!status.code) __atomic_store_n(&d->freed_plainly, true, __ATOMIC_RELAXED);
	return status;
}

/* Dropped blocks are kept for reuse. */
static bool caches(tmo_device *d) { return d->vendor->free_waits && !d->pools; }

/* Puts a block that could not be freed now on the list, for tmo_synchronize. */
static void defer(tmo_device *d, tmo_pending *node, uint64_t address, uint64_t bytes) {
	node->address = address;
	node->bytes = bytes;
	node->recorded = node->ordered = node->ours = false;
	node->refused = true;
	__atomic_fetch_add(&d->pending_bytes, bytes, __ATOMIC_RELAXED);
	tmo_append(d, node);
}

/* Frees what the cache holds beyond its limits, or all. The device is done with it. What cannot be freed waits on the list, for tmo_synchronize to try again
 * and to report; without host memory for that it stays in the cache, for the next call to do so. */
static tmo_status evict(tmo_device *d, bool all, uint64_t *released) {
	tmo_status first = TMO_OK;
	bool back = false;
	for (tmo_block block; !back && tmo_cache_evict(&d->cache, all, &block);) {
		tmo_status status = release(d, block.address, false);
		if (!status.code) *released += block.bytes;
		tmo_pending *node = status.code ? tmo_take_node(d) : NULL;
		if (node) defer(d, node, block.address, block.bytes);
		back = status.code && !node;
		tmo_cache_evicted(&d->cache, block, back);
		first = tmo_first(first, status);
	}
	return first;
}

/* Gives a block back that nothing uses any more: to the cache, or to the library. */
static tmo_status give_up(tmo_device *d, tmo_pending *node) {
	if (node->ordered || !node->ours || !caches(d) || !tmo_cache_keep(&d->cache, node->address)) return release(d, node->address, node->ordered);
	uint64_t released = 0;
	(void)evict(d, false, &released);  /* what fails waits on the list, and tmo_synchronize reports it */
	return TMO_OK;
}

/* Gives a block back that waited on the list. It stays there where that fails and could work later. */
static tmo_status give_back(tmo_device *d, tmo_pending *node, bool keep_always) {
	tmo_status status = give_up(d, node);
	if (status.code && (keep_always || !final(d, status))) {
		node->recorded = false;
		node->refused = true;
		tmo_append(d, node);
		return status;
	}
	__atomic_fetch_sub(&d->pending_bytes, node->bytes, __ATOMIC_RELAXED);
	tmo_put_node(d, node);
	return status;
}

/* Frees the blocks at the head of the list that the device is done with. An error stays with its block, for tmo_synchronize to meet
 * again and to report: the caller here wants other memory. */
static void reap_ready(tmo_device *d) {
	for (tmo_pending *node; (node = tmo_take_ready(d));) give_back(d, node, true);
}

/* The same after a free: a host that allocates by itself and adopts asks for nothing here, so that nobody else would look. It costs one question to an
 * event beside the event that the free itself records: about 0.5 us of the 5 us of such a free, over the software driver. Where a free waits for the whole device, that would stop the
 * program at each of them: there it is done only when a good part of the device waits, and the first free of many waits for all of them. */
static void reap_after_free(tmo_device *d) {
	if (d->vendor->free_waits && __atomic_load_n(&d->pending_bytes, __ATOMIC_RELAXED) < d->most_pending) return;
	reap_ready(d);
}

/* A plain free may wait for the whole device: it must have nothing to do then. */
static bool may_free_now(tmo_device *d) { return !d->vendor->free_waits || !TMO_CALL(d, stream_query, d->stream).code; }

tmo_status tmo_reap(tmo_device *d, bool *waits) {
	*waits = false;
	if (!__atomic_load_n(&d->pending_bytes, __ATOMIC_RELAXED)) return TMO_OK;
	tmo_guard guard;
	tmo_status status = tmo_enter(d, &guard);
	if (status.code) return status;
	if (tmo_not_capturing(d, d->stream).code) {
		*waits = true;
	} else if ((*waits = tmo_mark_late(d)) && may_free_now(d)) {
		reap_ready(d);
		*waits = tmo_mark_late(d);
	}
	return tmo_leave(d, &guard);
}

/* Waits for what each waiting block waits for, frees it, and waits for that. */
static tmo_status reap_all(tmo_device *d) {
	tmo_pending *list = tmo_take_all(d);
	tmo_status first = TMO_OK;
	bool ordered = false;  /* something was freed in stream order */
	while (list) {
		tmo_pending *node = list;
		list = node->next;
		tmo_status status = node->recorded ? TMO_CALL(d, event_synchronize, node->event) : TMO_CALL(d, stream_synchronize, d->stream);
		if (status.code) {
			tmo_append(d, node);
		} else {
			ordered |= node->ordered;
			status = give_back(d, node, false);
		}
		first = tmo_first(first, status);
	}
	return tmo_first(first, ordered ? TMO_CALL(d, stream_synchronize, d->stream) : TMO_OK);
}

/* ---- the short way
 *
 * Both calls of a pool name all that they need: the pool or the block, and the stream, which belongs to a context. So they are tried with
 * whatever context the thread has, which saves three calls for each block. Where a library wants a current context after all it says so,
 * and from then on the device goes the long way. (The default streams are not handles: they mean the current context's.) */

static bool short_way(tmo_device *d) {
	return d->pools && d->stream > 2 && !__atomic_load_n(&d->wants_context, __ATOMIC_RELAXED);
}

static bool wants_context(tmo_device *d, tmo_status status) {
	if (tmo_means(d, status) != TMO_STALE) return false;
	__atomic_store_n(&d->wants_context, true, __ATOMIC_RELAXED);
	return true;
}

bool tmo_has_freed(tmo_device *d, uint64_t address) { return tmo_waits(d, address) || tmo_cache_has(&d->cache, address); }

/* It is legal while streams are captured: it is queued nowhere, waits for nothing, and runs in relaxed mode like all the rest (device.h). Memory of a pool is
 * known from the call on that allocates it, wherever its stream has got to. */
tmo_status tmo_find(tmo_device *d, uint64_t address, tmo_found *found, bool *told) {
	tmo_guard guard;
	tmo_status status = tmo_enter(d, &guard);
	*found = (tmo_found){ .device = -1 };
	*told = true;
	if (status.code) return status;
	status = TMO_CALL(d, find, address, found);
	if (tmo_means(d, status) == TMO_UNSUPPORTED) {
		*told = false;
		status = TMO_OK;
	}
	return tmo_first(status, tmo_leave(d, &guard));
}

void tmo_disown(tmo_device *d, uint64_t address) {
	if (caches(d)) tmo_cache_forget(&d->cache, address);
}

tmo_status tmo_free(tmo_device *d, uint64_t address, uint64_t bytes, bool ours, bool stream_ordered) {
	if (stream_ordered && short_way(d) && !tmo_not_capturing(d, d->stream).code) {
		tmo_status status = release(d, address, true);
		if (!status.code) return TMO_OK;
		wants_context(d, status);  /* whatever it was, the long way tries once more and knows what to do then */
	}
	tmo_guard guard;
	tmo_status entered = tmo_enter(d, &guard), status = entered;
	bool refused = false;  /* the free itself failed, and not something before it */
	if (!status.code) status = tmo_not_capturing(d, d->stream);
	if (!status.code && stream_ordered) {
		status = release(d, address, true);
		if (!status.code) return tmo_leave(d, &guard);
		refused = true;
	}
	/* Here the block has to wait: always where frees are not ordered by the stream, else because of a capture or of a failure. */
	bool hopeless = refused ? final(d, status) : tmo_lost(d, status);
	tmo_pending *node = hopeless ? NULL : tmo_take_node(d);
	if (node) {
		node->address = address;
		node->bytes = bytes;
		node->ordered = stream_ordered;
		node->ours = ours;
		node->refused = false;
		if (!status.code) status = tmo_make_event(d, node);
		if (!status.code) status = TMO_CALL(d, event_record, node->event, d->stream);
		node->recorded = !status.code;
		__atomic_fetch_add(&d->pending_bytes, bytes, __ATOMIC_RELAXED);
		tmo_append(d, node);
		if (!status.code) reap_after_free(d);
		if (!tmo_lost(d, status)) status = TMO_OK;  /* tmo_synchronize waits for everything instead of the event */
	} else if (!hopeless) {  /* no host memory for a node: wait now */
		status = entered.code ? entered : tmo_settle(d, d->stream);
		if (!status.code) status = release(d, address, stream_ordered);
	}
	return entered.code ? status : tmo_first(status, tmo_leave(d, &guard));
}

/* ---- allocation */

static tmo_status allocate_plainly(tmo_device *d, uint64_t bytes, uint64_t *address) {
	if (!caches(d)) return TMO_CALL(d, allocate, address, bytes);
	bytes = (bytes + TMO_GRANULE - 1) / TMO_GRANULE * TMO_GRANULE;
	if (tmo_cache_take(&d->cache, bytes, address)) return TMO_OK;
	tmo_status status = TMO_CALL(d, allocate, address, bytes);
	if (!status.code) tmo_cache_note(&d->cache, *address, bytes);
	return status;
}

tmo_result tmo_allocate(tmo_device *d, uint64_t bytes) {
	tmo_result result = { 0, TMO_OK };
	tmo_guard guard;
	uint64_t address = 0;
	if (short_way(d)) {
		result.status = tmo_not_capturing(d, d->stream);
		if (!result.status.code) result.status = TMO_CALL(d, allocate_ordered, &address, bytes, d->pool, d->stream);
		result.value = result.status.code ? 0 : address;
		if (!result.status.code || !wants_context(d, result.status)) return result;
	}
	if ((result.status = tmo_enter(d, &guard)).code) return result;
	result.status = tmo_not_capturing(d, d->stream);  /* the block would belong to the graph */
	if (!result.status.code && d->pools) {
		result.status = TMO_CALL(d, allocate_ordered, &address, bytes, d->pool, d->stream);
	} else if (!result.status.code) {
		reap_ready(d);
		result.status = allocate_plainly(d, bytes, &address);
	}
	bool allocated = !result.status.code;
	if (!allocated && tmo_means(d, result.status) == TMO_FULL) __atomic_store_n(&d->was_full, true, __ATOMIC_RELAXED);
	tmo_status left = tmo_leave(d, &guard);
	if (left.code && allocated) {  /* the caller gets an error, so nobody would free it */
		tmo_free(d, address, bytes, true, d->pools);
		address = 0;
	}
	result.status = tmo_first(result.status, left);
	result.value = address;
	return result;
}

/* Waits for the whole device where the plain free did so and was called: memory that it freed may be had again only after a later wait
 * (ROCm/hip#3384), and somebody is about to try. Only then, since it breaks the captures of others. */
static tmo_status finish_frees(tmo_device *d) {
	__atomic_store_n(&d->was_full, false, __ATOMIC_RELAXED);
	if (!d->vendor->free_waits || !__atomic_exchange_n(&d->freed_plainly, false, __ATOMIC_RELAXED)) return TMO_OK;
	tmo_status status = TMO_CALL(d, finish);
	if (status.code) __atomic_store_n(&d->freed_plainly, true, __ATOMIC_RELAXED);
	return status;
}

tmo_status tmo_synchronize(tmo_device *d) {
	tmo_guard guard;
	tmo_status status = tmo_enter(d, &guard);
	if (status.code) return status;
	status = tmo_not_capturing(d, d->stream);
	if (!status.code) status = TMO_CALL(d, stream_synchronize, d->stream);
	if (!status.code) status = reap_all(d);
	if (!status.code && __atomic_load_n(&d->was_full, __ATOMIC_RELAXED)) status = finish_frees(d);
	return tmo_first(status, tmo_leave(d, &guard));
}

/* ---- figures and the cache */

/* Adds what a pool has from the system but no block uses. */
static tmo_status add_cached(tmo_device *d, uint64_t pool, uint64_t *cached) {
	uint64_t reserved = 0, used = 0;
	tmo_status status = TMO_CALL(d, pool_figures, pool, &reserved, &used);
	if (!status.code && reserved > used) *cached += reserved - used;  /* two questions: another thread may allocate in between */
	return status;
}

/* The pools that tmo_trim empties: ours, and the one that the host framework's allocations come from. What a spill of adopted memory
 * frees goes back into that one, and must be given back before it is of use to ours. */
static tmo_status current_pool(tmo_device *d, uint64_t *other) {
	*other = 0;
	tmo_status status = TMO_CALL(d, current_pool, d->device, other);
	if (status.code || *other == d->pool) *other = 0;
	return status;
}

static tmo_status all_cached(tmo_device *d, uint64_t other, uint64_t *cached) {
	*cached = 0;
	tmo_status status = add_cached(d, d->pool, cached);
	return status.code || !other ? status : add_cached(d, other, cached);
}

static tmo_status trim_pools(tmo_device *d, uint64_t *released) {
	uint64_t other, before = 0, after = 0;
	tmo_status status = current_pool(d, &other);
	if (!status.code) status = all_cached(d, other, &before);
	if (!status.code) status = TMO_CALL(d, pool_trim, d->pool);
	if (!status.code && other) status = TMO_CALL(d, pool_trim, other);
	if (!status.code) status = all_cached(d, other, &after);
	if (!status.code && before > after) *released = before - after;
	return status;
}

tmo_status tmo_empty_cache(tmo_device *d, uint64_t *released) {
	tmo_status status = evict(d, true, released);
	return status.code ? status : finish_frees(d);
}

tmo_result tmo_trim(tmo_device *d) {
	tmo_result result = { 0, tmo_synchronize(d) };  /* a block is released only after its free was seen to be complete */
	tmo_guard guard;
	bool idle = !d->pools && !tmo_cache_bytes(&d->cache) && !__atomic_load_n(&d->freed_plainly, __ATOMIC_RELAXED);
	if (result.status.code || idle || (result.status = tmo_enter(d, &guard)).code) return result;
	tmo_status status = d->pools ? trim_pools(d, &result.value) : tmo_empty_cache(d, &result.value);
	result.status = tmo_first(status, tmo_leave(d, &guard));
	return result;
}

tmo_figures tmo_memory(tmo_device *d) {
	tmo_figures figures = { 0 };
	tmo_guard guard;
	if ((figures.status = tmo_enter(d, &guard)).code) return figures;
	tmo_status status = TMO_CALL(d, memory, &figures.free, &figures.total);
	if (!status.code && d->pools) {
		uint64_t other;
		status = current_pool(d, &other);
		if (!status.code) status = all_cached(d, other, &figures.cached);
	} else {
		figures.cached = tmo_cache_bytes(&d->cache);
	}
	figures.status = tmo_first(status, tmo_leave(d, &guard));
	return figures;
}
