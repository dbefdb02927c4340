#include "device.h"
#include <stdlib.h>

/* The largest part of a device that the cache keeps. A program's working set of temporaries fits; what it does not use again for a while goes. */
enum { CACHED_PART = 4 };

/* The part of a device that may wait to be freed before a free that waits for the whole device is worth it. */
enum { PENDING_PART = 16 };

tmo_device *tmo_new(const tmo_vendor *vendor, const void *api, int device, uint64_t total, bool pools) {
	tmo_device *d = calloc(1, sizeof *d);
	if (!d) return NULL;
	d->vendor = vendor;
	d->api = api;
	d->device = device;
	d->pools = pools;
	d->last = &d->first;
	pthread_mutex_init(&d->lock, NULL);
	d->most_pending = total / PENDING_PART;
	tmo_cache_init(&d->cache, total / CACHED_PART);
	return d;
}

void tmo_delete(tmo_device *d) {
	pthread_mutex_destroy(&d->lock);
	tmo_cache_delete(&d->cache);
	free(d);
}

/* ---- the thread's context, and the stream's state */

static tmo_status relax(tmo_device *d, int *mode) {
	*mode = TMO_RELAXED;
	return TMO_CALL(d, exchange_mode, mode);
}

static tmo_status restore_mode(tmo_device *d, int mode) {
	if (mode == TMO_RELAXED) return TMO_OK;
	int ours = mode;
	tmo_status status = TMO_CALL(d, exchange_mode, &ours);
	if (!status.code) return TMO_OK;
	/* The caller's own mistakes would not be found any more in its captures: try again. */
	ours = mode;
	return TMO_CALL(d, exchange_mode, &ours).code ? status : TMO_OK;
}

tmo_status tmo_enter(tmo_device *d, tmo_guard *guard) {
	*guard = (tmo_guard){ 0 };
	tmo_status status = relax(d, &guard->mode);
	if (status.code) return status;
	status = TMO_CALL(d, enter, d->device, d->context, guard);
	if (status.code) (void)restore_mode(d, guard->mode);
	return status;
}

tmo_status tmo_leave(tmo_device *d, const tmo_guard *guard) {
	tmo_status status = guard->changed ? TMO_CALL(d, leave, guard) : TMO_OK;
	return tmo_first(status, restore_mode(d, guard->mode));
}

tmo_status tmo_not_capturing(tmo_device *d, uint64_t stream) {
	if (stream == d->stream && __atomic_load_n(&d->private_stream, __ATOMIC_ACQUIRE)) return TMO_OK;
	tmo_status status = TMO_CALL(d, not_capturing, stream);
	if (status.code) status.call |= (tmo_same_stream(stream, d->stream) ? TMO_DEVICES_STREAM : TMO_OTHER_STREAM) << TMO_CAPTURED_BITS;
	return status;
}

uint64_t tmo_publish_stream(tmo_device *d) {
	__atomic_store_n(&d->private_stream, false, __ATOMIC_RELEASE);
	return d->stream;
}

tmo_status tmo_settle(tmo_device *d, uint64_t stream) {
	tmo_status status = TMO_CALL(d, stream_synchronize, stream);
	/* A wait that failed may have left copies on their way to or from host memory that the caller is about to give away. */
	if (status.code && !tmo_lost(d, status) && TMO_CALL(d, stream_synchronize, stream).code) TMO_CALL(d, finish);
	return status;
}

/* ---- start, bind, close
 *
 * Each step of these leaves its mark in the device, so that after an error the next call goes on where this one failed: nothing is
 * made twice, and nothing is lost. */

static tmo_status make_pool(tmo_device *d) {
	if (!d->pool) {
		tmo_status status = TMO_CALL(d, pool_create, d->device, &d->pool);
		if (status.code && tmo_means(d, status) == TMO_UNSUPPORTED) {  /* pools were promised, this device cannot: go on without */
			d->pools = false;
			return TMO_OK;
		}
		if (status.code) return status;
	}
	/* The default threshold of 0 would give every free block back to the system at each wait, and map it anew at the next allocation. */
	tmo_status status = TMO_OK;
	if (!d->pool_keeps) status = TMO_CALL(d, pool_keep_all, d->pool);
	d->pool_keeps = !status.code;
	return status;
}

/* Makes the context where nobody has made it yet, and may allocate for that. */
static tmo_status retain(tmo_device *d) {
	int mode;
	tmo_status status = d->primary ? TMO_OK : relax(d, &mode);
	if (d->primary || status.code) return status;
	status = TMO_CALL(d, retain, d->device, &d->primary);
	return tmo_first(status, restore_mode(d, mode));
}

tmo_status tmo_start(tmo_device *d) {
	tmo_status status = retain(d);
	if (status.code) return status;
	d->context = d->primary;
	tmo_guard guard;
	if ((status = tmo_enter(d, &guard)).code) return status;
	/* Not ordered against the legacy default stream: frees on that one may wait for ever for somebody to synchronise it. */
	if (!d->own_stream) status = TMO_CALL(d, stream_create, &d->own_stream);
	d->stream = d->own_stream;
	d->private_stream = true;
	if (!status.code && d->pools) status = make_pool(d);
	return tmo_first(status, tmo_leave(d, &guard));
}

/* Ends what belongs to the context that is left: queued work, deferred frees, blocks kept, events. */
static tmo_status leave_context(tmo_device *d) {
	tmo_status status = tmo_synchronize(d);
	tmo_guard guard;
	if (status.code || (status = tmo_enter(d, &guard)).code) return status;
	uint64_t released = 0;
	status = tmo_first(tmo_empty_cache(d, &released), tmo_forget_events(d));
	return tmo_first(status, tmo_leave(d, &guard));
}

tmo_status tmo_bind(tmo_device *d, uint64_t context, uint64_t stream) {
	tmo_status status = TMO_OK;
	if (!context) {
		if ((status = retain(d)).code) return status;
		context = d->primary;
	}
	if (d->context && (status = leave_context(d)).code) return status;
	uint64_t before = d->context;
	d->context = context;
	tmo_guard guard;
	if (!(status = tmo_enter(d, &guard)).code) {
		/* A stream that is none is refused here, and not at the first copy. */
		status = tmo_not_capturing(d, stream);
		if (!status.code) status = TMO_CALL(d, stream_query, stream);
		if (status.code && tmo_means(d, status) == TMO_NOT_READY) status = TMO_OK;
		if (!status.code && d->pools) status = make_pool(d);
		status = tmo_first(status, tmo_leave(d, &guard));
	}
	if (status.code) {
		d->context = before;
		return status;
	}
	d->stream = stream;
	d->private_stream = false;
	return status;
}

tmo_status tmo_close(tmo_device *d) {
	tmo_status status = TMO_OK;
	tmo_guard guard;
	if (d->context) {
		if ((status = leave_context(d)).code || (status = tmo_enter(d, &guard)).code) return status;
		if (d->pool && !(status = TMO_CALL(d, pool_destroy, d->pool)).code) d->pool = 0;
		status = tmo_first(status, tmo_leave(d, &guard));
		if (status.code) return status;
	}
	if (d->own_stream) {  /* it belongs to the primary context, whatever context we were bound to */
		d->context = d->primary;
		if ((status = tmo_enter(d, &guard)).code) return status;
		status = TMO_CALL(d, stream_destroy, d->own_stream);
		if (!status.code) d->own_stream = 0;
		status = tmo_first(status, tmo_leave(d, &guard));
		if (status.code) return status;
	}
	d->context = 0;
	if (d->primary && !(status = TMO_CALL(d, release, d->device)).code) d->primary = 0;
	return status;
}
