#include "device.h"

/* ---- giving memory back */

/* Trying again would not help: the block is none, or the device is lost. */
static bool final(tmo_device *d, tmo_status status) { return tmo_means(d, status) == TMO_INVALID || tmo_lost(d, status); }

static tmo_status release(tmo_device *d, uint64_t address, bool stream_ordered, uint64_t stream) {
	if (stream_ordered) return TMO_CALL(d, free_ordered, address, stream);
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
	node->stream = d->stream;
	node->recorded = node->ordered = node->ours = false;
	__atomic_fetch_add(&d->pending_bytes, bytes, __ATOMIC_RELAXED);
	tmo_append(d, node);
}

/* Frees what the cache holds beyond its limits, or all. The device is done with it. */
static tmo_status evict(tmo_device *d, bool all, uint64_t *released) {
	tmo_status first = TMO_OK;
	for (tmo_block block; tmo_cache_evict(&d->cache, all, &block);) {
		tmo_status status = release(d, block.address, false, 0);
		if (!status.code) *released += block.bytes;
		tmo_pending *node = status.code ? tmo_take_node(d) : NULL;
		if (node) defer(d, node, block.address, block.bytes);
		first = tmo_first(first, status);
	}
	return first;
}

/* Gives a block back that nothing uses any more: to the cache, or to the library. */
static tmo_status give_up(tmo_device *d, tmo_pending *node) {
	if (node->ordered || !node->ours || !caches(d) || !tmo_cache_keep(&d->cache, node->address)) return release(d, node->address, node->ordered, d->stream);
	uint64_t released = 0;
	(void)evict(d, false, &released);  /* what fails waits on the list, and tmo_synchronize reports it */
	return TMO_OK;
}

/* Gives a block back that waited on the list. It stays there where that fails and could work later. */
static tmo_status give_back(tmo_device *d, tmo_pending *node, bool keep_always) {
	tmo_status status = give_up(d, node);
	if (status.code && (keep_always || !final(d, status))) {
		node->recorded = false;
		node->stream = d->stream;
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

/* Waits for a block that no event tells of: for its stream, which may be of another context, and for ours. Where the stream is gone, nothing
 * less than the whole context tells that the work queued on it has ended; while it is captured, waiting would spoil the capture. */
static tmo_status wait_without_event(tmo_device *d, tmo_pending *node, bool *idle) {
	tmo_status status = tmo_not_capturing(d, node->stream);
	if (!status.code) status = TMO_CALL(d, stream_synchronize, node->stream);
	if (status.code && tmo_means(d, status) == TMO_STALE) {
		status = *idle ? TMO_OK : TMO_CALL(d, finish);
		*idle = !status.code;
		return status;
	}
	if (status.code || *idle || tmo_same_stream(node->stream, d->stream)) return status;
	return TMO_CALL(d, stream_synchronize, d->stream);
}

/* Waits for what each waiting block waits for, frees it, and waits for that. */
static tmo_status reap_all(tmo_device *d) {
	tmo_pending *list = tmo_take_all(d);
	tmo_status first = TMO_OK;
	bool idle = false;     /* the whole context has been waited for */
	bool ordered = false;  /* something was freed in stream order */
	while (list) {
		tmo_pending *node = list;
		list = node->next;
		tmo_status status = node->recorded ? TMO_CALL(d, event_synchronize, node->event) : wait_without_event(d, node, &idle);
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

static bool short_way(tmo_device *d, uint64_t stream) {
	return d->pools && stream > 2 && !__atomic_load_n(&d->wants_context, __ATOMIC_RELAXED);
}

static bool wants_context(tmo_device *d, uint64_t stream, tmo_status status) {
	if (stream != d->stream || tmo_means(d, status) != TMO_STALE) return false;
	__atomic_store_n(&d->wants_context, true, __ATOMIC_RELAXED);
	return true;
}

void tmo_disown(tmo_device *d, uint64_t address) {
	if (caches(d)) tmo_cache_forget(&d->cache, address);
}

tmo_status tmo_free(tmo_device *d, uint64_t address, uint64_t bytes, bool ours, bool stream_ordered, uint64_t stream) {
	/* Fills and copies of ours are queued on our stream, and may be under way: another stream's free comes after them, too. */
	tmo_status joined = tmo_same_stream(stream, d->stream) ? TMO_OK : tmo_join(d, d->stream, stream);
	if (stream_ordered && !joined.code && short_way(d, stream) && !tmo_not_capturing(d, stream).code) {
		tmo_status status = release(d, address, true, stream);
		if (!status.code) return TMO_OK;
		wants_context(d, stream, status);  /* whatever it was, the long way tries once more and knows what to do then */
	}
	tmo_guard guard;
	tmo_status entered = tmo_enter(d, &guard), status = tmo_first(entered, joined);
	bool refused = false;  /* the free itself failed, and not something before it */
	if (!status.code) status = tmo_not_capturing(d, stream);
	if (!status.code && stream_ordered) {
		status = release(d, address, true, stream);
		if (!status.code) return tmo_leave(d, &guard);
		refused = true;
	}
	/* Here the block has to wait: always where frees are not ordered by the stream, else because of a capture or of a failure. */
	bool hopeless = refused ? final(d, status) : tmo_lost(d, status);
	tmo_pending *node = hopeless ? NULL : tmo_take_node(d);
	if (node) {
		node->address = address;
		node->bytes = bytes;
		node->stream = stream;
		node->ordered = stream_ordered;
		node->ours = ours;
		if (!status.code) status = tmo_make_event(d, node);
		if (!status.code) status = TMO_CALL(d, event_record, node->event, stream);
		node->recorded = !status.code;
		__atomic_fetch_add(&d->pending_bytes, bytes, __ATOMIC_RELAXED);
		tmo_append(d, node);
		if (!tmo_lost(d, status)) status = TMO_OK;  /* tmo_synchronize waits for everything instead of the event */
	} else if (!hopeless) {  /* no host memory for a node: wait now */
		status = entered.code ? entered : tmo_settle(d, stream);
		if (!status.code) status = release(d, address, stream_ordered, stream);
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
	if (short_way(d, d->stream)) {
		result.status = tmo_not_capturing(d, d->stream);
		if (!result.status.code) result.status = TMO_CALL(d, allocate_ordered, &address, bytes, d->pool, d->stream);
		result.value = result.status.code ? 0 : address;
		if (!result.status.code || !wants_context(d, d->stream, result.status)) return result;
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
		tmo_free(d, address, bytes, true, d->pools, d->stream);
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
