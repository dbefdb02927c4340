#include "device.h"
#include <stdlib.h>

/* ---- nodes: blocks whose free waits, and the events that say when */

/* More events than this are not kept for reuse. A free needs one only while the device is behind. */
enum { MOST_SPARES = 1024 };

tmc_pending *tmc_take_node(tmc_device *d) {
	pthread_mutex_lock(&d->lock);
	tmc_pending *node = d->spare;
	if (node) {
		d->spare = node->next;
		d->spares--;
	}
	pthread_mutex_unlock(&d->lock);
	return node ? node : calloc(1, sizeof *node);
}

void tmc_put_node(tmc_device *d, tmc_pending *node) {
	node->recorded = false;
	pthread_mutex_lock(&d->lock);
	bool keep = d->spares < MOST_SPARES;
	if (keep) {
		node->next = d->spare;
		d->spare = node;
		d->spares++;
	}
	pthread_mutex_unlock(&d->lock);
	if (keep) return;
	if (!node->event || !TMC_TRY(d, cuEventDestroy_v2, node->event).code) {
		free(node);
		return;
	}
	pthread_mutex_lock(&d->lock);  /* it could not be destroyed now: keep it after all */
	node->next = d->spare;
	d->spare = node;
	d->spares++;
	pthread_mutex_unlock(&d->lock);
}

tmc_status tmc_make_event(tmc_device *d, tmc_pending *node) {
	return node->event ? TMC_OK : TMC_TRY(d, cuEventCreate, &node->event, TMC_EVENT_DISABLE_TIMING);
}

tmc_status tmc_forget_events(tmc_device *d) {
	tmc_status first = TMC_OK;
	pthread_mutex_lock(&d->lock);
	for (tmc_pending **link = &d->spare; *link;) {
		tmc_pending *node = *link;
		tmc_status status = node->event ? TMC_TRY(d, cuEventDestroy_v2, node->event) : TMC_OK;
		if (status.code) {
			first = tmc_first(first, status);
			link = &node->next;
			continue;
		}
		*link = node->next;
		d->spares--;
		free(node);
	}
	pthread_mutex_unlock(&d->lock);
	return first;
}

static void append(tmc_device *d, tmc_pending *node) {
	node->next = NULL;
	pthread_mutex_lock(&d->lock);
	*d->last = node;
	d->last = &node->next;
	pthread_mutex_unlock(&d->lock);
}

/* ---- giving memory back */

/* Trying again would not help: the block is none, or the device is lost. */
static bool final(int code) { return code == TMC_INVALID_VALUE || tmc_lost(code); }

static tmc_status release(tmc_device *d, CUdeviceptr address, bool stream_ordered, CUstream stream) {
	if (!stream_ordered) return TMC_TRY(d, cuMemFree_v2, address);
	if (d->api->cuMemFreeAsync) return TMC_TRY(d, cuMemFreeAsync, address, stream);
	return (tmc_status){ TMC_NOT_SUPPORTED, TMC_CALL_cuMemFreeAsync };
}

/* Frees a block that nothing uses any more. It stays on the list where that fails and could work later. */
static tmc_status give_back(tmc_device *d, tmc_pending *node, bool keep_always) {
	tmc_status status = release(d, node->address, node->ordered, d->stream);
	if (status.code && (keep_always || !final(status.code))) {
		node->recorded = false;
		node->stream = d->stream;
		append(d, node);
		return status;
	}
	__atomic_fetch_sub(&d->pending_bytes, node->bytes, __ATOMIC_RELAXED);
	tmc_put_node(d, node);
	return status;
}

/* Frees the blocks at the head of the list that the device is done with. An error stays with its block, for tmc_synchronize to meet
 * again and to report: the caller here wants other memory. */
static void reap_ready(tmc_device *d) {
	for (;;) {
		pthread_mutex_lock(&d->lock);
		tmc_pending *node = d->first;
		if (!node || !node->recorded || d->api->cuEventQuery(node->event)) {
			pthread_mutex_unlock(&d->lock);
			return;
		}
		if (!(d->first = node->next)) d->last = &d->first;
		pthread_mutex_unlock(&d->lock);
		give_back(d, node, true);
	}
}

/* Waits for a block that no event tells of: for its stream, which may be of another context, and for all of ours. Where the stream is gone
 * there is nothing more to ask; while it is captured, waiting would spoil the capture. */
static tmc_status wait_without_event(tmc_device *d, tmc_pending *node, bool *idle) {
	tmc_status status = tmc_not_capturing(d, node->stream);
	if (!status.code) status = TMC_TRY(d, cuStreamSynchronize, node->stream);
	if (status.code && status.code != TMC_INVALID_HANDLE && status.code != TMC_INVALID_CONTEXT) return status;
	if (*idle) return TMC_OK;
	status = TMC_TRY(d, cuCtxSynchronize);
	*idle = !status.code;
	return status;
}

/* Waits for what each waiting block waits for, frees it, and waits for that. */
static tmc_status reap_all(tmc_device *d) {
	pthread_mutex_lock(&d->lock);
	tmc_pending *list = d->first;
	d->first = NULL;
	d->last = &d->first;
	pthread_mutex_unlock(&d->lock);
	tmc_status first = TMC_OK;
	bool idle = false;     /* the whole context has been waited for */
	bool ordered = false;  /* something was freed in stream order */
	while (list) {
		tmc_pending *node = list;
		list = node->next;
		tmc_status status = node->recorded ? TMC_TRY(d, cuEventSynchronize, node->event) : wait_without_event(d, node, &idle);
		if (status.code) {
			append(d, node);
		} else {
			ordered |= node->ordered;
			status = give_back(d, node, false);
		}
		first = tmc_first(first, status);
	}
	return tmc_first(first, ordered ? TMC_TRY(d, cuStreamSynchronize, d->stream) : TMC_OK);
}

/* ---- the short way
 *
 * Both calls of a pool name all that they need: the pool or the block, and the stream, which belongs to a context. So they are tried with
 * whatever context the thread has, which saves three calls for each block. Where a driver wants a current context after all it says so,
 * and from then on the device goes the long way. (The default streams are not handles: they mean the current context's.) */

static bool short_way(tmc_device *d, CUstream stream) {
	return d->pools && (uintptr_t)stream > 2 && !__atomic_load_n(&d->wants_context, __ATOMIC_RELAXED);
}

static bool wants_context(tmc_device *d, CUstream stream, int code) {
	if (stream != d->stream || (code != TMC_INVALID_CONTEXT && code != TMC_INVALID_HANDLE)) return false;
	__atomic_store_n(&d->wants_context, true, __ATOMIC_RELAXED);
	return true;
}

tmc_status tmc_free(tmc_device *d, uint64_t address, uint64_t bytes, bool stream_ordered, CUstream stream) {
	/* Fills and copies of ours are queued on our stream, and may be under way: another stream's free comes after them, too. */
	tmc_status joined = tmc_same_stream(stream, d->stream) ? TMC_OK : tmc_join(d, d->stream, stream);
	if (stream_ordered && !joined.code && short_way(d, stream) && !tmc_not_capturing(d, stream).code) {
		int code = release(d, address, true, stream).code;
		if (!code) return TMC_OK;
		wants_context(d, stream, code);  /* whatever it was, the long way tries once more and knows what to do then */
	}
	tmc_guard guard;
	tmc_status entered = tmc_enter(d, &guard), status = tmc_first(entered, joined);
	if (!status.code) status = tmc_not_capturing(d, stream);
	if (!status.code && stream_ordered) {
		status = release(d, address, true, stream);
		if (!status.code) return tmc_leave(d, &guard);
	}
	/* Here the block has to wait: always where frees are not ordered by the stream, else because of a capture or of a failure. */
	bool hopeless = status.call == TMC_CALL_cuMemFreeAsync ? final(status.code) : tmc_lost(status.code);
	tmc_pending *node = hopeless ? NULL : tmc_take_node(d);
	if (node) {
		node->address = address;
		node->bytes = bytes;
		node->stream = stream;
		node->ordered = stream_ordered;
		if (!status.code) status = tmc_make_event(d, node);
		if (!status.code) status = TMC_TRY(d, cuEventRecord, node->event, stream);
		node->recorded = !status.code;
		__atomic_fetch_add(&d->pending_bytes, bytes, __ATOMIC_RELAXED);
		append(d, node);
		if (!tmc_lost(status.code)) status = TMC_OK;  /* tmc_synchronize waits for everything instead of the event */
	} else if (!hopeless) {  /* no host memory for a node: wait now */
		status = entered.code ? entered : tmc_settle(d, stream);
		if (!status.code) status = release(d, address, stream_ordered, stream);
	}
	return entered.code ? status : tmc_first(status, tmc_leave(d, &guard));
}

/* ---- allocation */

tmc_result tmc_allocate(tmc_device *d, uint64_t bytes) {
	tmc_result result = { 0, TMC_OK };
	tmc_guard guard;
	CUdeviceptr address = 0;
	if (short_way(d, d->stream)) {
		result.status = tmc_not_capturing(d, d->stream);
		if (!result.status.code) result.status = TMC_TRY(d, cuMemAllocFromPoolAsync, &address, bytes, d->pool, d->stream);
		result.value = result.status.code ? 0 : address;
		if (!result.status.code || !wants_context(d, d->stream, result.status.code)) return result;
	}
	if ((result.status = tmc_enter(d, &guard)).code) return result;
	result.status = tmc_not_capturing(d, d->stream);  /* the block would belong to the graph */
	if (!result.status.code && d->pools) {
		result.status = TMC_TRY(d, cuMemAllocFromPoolAsync, &address, bytes, d->pool, d->stream);
	} else if (!result.status.code) {
		reap_ready(d);
		result.status = TMC_TRY(d, cuMemAlloc_v2, &address, bytes);
	}
	bool allocated = !result.status.code;
	tmc_status left = tmc_leave(d, &guard);
	if (left.code && allocated) {  /* the caller gets an error, so nobody would free it */
		tmc_free(d, address, bytes, d->pools, d->stream);
		address = 0;
	}
	result.status = tmc_first(result.status, left);
	result.value = address;
	return result;
}

tmc_status tmc_synchronize(tmc_device *d) {
	tmc_guard guard;
	tmc_status status = tmc_enter(d, &guard);
	if (status.code) return status;
	status = tmc_not_capturing(d, d->stream);
	if (!status.code) status = TMC_TRY(d, cuStreamSynchronize, d->stream);
	if (!status.code) status = reap_all(d);
	return tmc_first(status, tmc_leave(d, &guard));
}

/* ---- figures and the cache */

/* Adds what a pool has from the system but no block uses. */
static tmc_status add_cached(tmc_device *d, CUmemoryPool pool, uint64_t *cached) {
	uint64_t reserved = 0, used = 0;
	tmc_status status = TMC_TRY(d, cuMemPoolGetAttribute, pool, TMC_POOL_RESERVED_CURRENT, &reserved);
	if (!status.code) status = TMC_TRY(d, cuMemPoolGetAttribute, pool, TMC_POOL_USED_CURRENT, &used);
	if (!status.code && reserved > used) *cached += reserved - used;  /* two questions: another thread may allocate in between */
	return status;
}

/* The pools that tmc_trim empties: ours, and the one that the host framework's cuMemAllocAsync takes from. What a spill of adopted
 * memory frees goes back into that one, and must be given back before it is of use to ours. */
static tmc_status current_pool(tmc_device *d, CUmemoryPool *other) {
	*other = NULL;
	tmc_status status = TMC_TRY(d, cuDeviceGetMemPool, other, d->device);
	if (status.code || *other == d->pool) *other = NULL;
	return status;
}

static tmc_status all_cached(tmc_device *d, CUmemoryPool other, uint64_t *cached) {
	*cached = 0;
	tmc_status status = add_cached(d, d->pool, cached);
	return status.code || !other ? status : add_cached(d, other, cached);
}

tmc_result tmc_trim(tmc_device *d) {
	tmc_result result = { 0, tmc_synchronize(d) };  /* a block is released only after its free was seen to be complete */
	tmc_guard guard;
	if (result.status.code || !d->pools || (result.status = tmc_enter(d, &guard)).code) return result;
	CUmemoryPool other;
	uint64_t before = 0, after = 0;
	tmc_status status = current_pool(d, &other);
	if (!status.code) status = all_cached(d, other, &before);
	if (!status.code) status = TMC_TRY(d, cuMemPoolTrimTo, d->pool, 0);
	if (!status.code && other) status = TMC_TRY(d, cuMemPoolTrimTo, other, 0);
	if (!status.code) status = all_cached(d, other, &after);
	if (!status.code && before > after) result.value = before - after;
	result.status = tmc_first(status, tmc_leave(d, &guard));
	return result;
}

tmc_figures tmc_memory(tmc_device *d) {
	tmc_figures figures = { 0 };
	tmc_guard guard;
	if ((figures.status = tmc_enter(d, &guard)).code) return figures;
	size_t free_bytes = 0, total = 0;
	tmc_status status = TMC_TRY(d, cuMemGetInfo_v2, &free_bytes, &total);
	if (!status.code && d->pools) {
		CUmemoryPool other;
		status = current_pool(d, &other);
		if (!status.code) status = all_cached(d, other, &figures.cached);
	}
	figures.free = free_bytes;
	figures.total = total;
	figures.status = tmc_first(status, tmc_leave(d, &guard));
	return figures;
}
