#include "device.h"
#include <stdlib.h>

const tmc_symbol tmc_symbols[TMC_CALLS] = {
#define F(name, since, need, parameters) { #name, since, TMC_NEED_##need },
#include "symbols.def"
#undef F
};

bool tmc_lost(int code) {
	switch (code) {
	case TMC_DEINITIALIZED:
	case TMC_ECC_UNCORRECTABLE:
	case TMC_NVLINK_UNCORRECTABLE:
	case TMC_CONTAINED:
	case TMC_ILLEGAL_ADDRESS:
	case TMC_LAUNCH_TIMEOUT:
	case TMC_CONTEXT_IS_DESTROYED:
	case TMC_ASSERT:
	case TMC_HARDWARE_STACK_ERROR:
	case TMC_ILLEGAL_INSTRUCTION:
	case TMC_MISALIGNED_ADDRESS:
	case TMC_INVALID_ADDRESS_SPACE:
	case TMC_INVALID_PC:
	case TMC_LAUNCH_FAILED:
	case TMC_TENSOR_MEMORY_LEAK:
	case TMC_MPS_CLIENT_TERMINATED:
	case TMC_EXTERNAL_DEVICE:
		return true;
	}
	return false;
}

tmc_device *tmc_new(const tmc_api *api, CUdevice device, bool pools) {
	tmc_device *d = calloc(1, sizeof *d);
	if (!d) return NULL;
	d->api = api;
	d->device = device;
	d->pools = pools;
	d->last = &d->first;
	pthread_mutex_init(&d->lock, NULL);
	return d;
}

void tmc_delete(tmc_device *d) {
	pthread_mutex_destroy(&d->lock);
	free(d);
}

/* ---- the current context */

tmc_status tmc_enter(tmc_device *d, tmc_guard *guard) {
	*guard = (tmc_guard){ 0 };
	tmc_status status = TMC_TRY(d, cuCtxGetCurrent, &guard->before);
	if (status.code || guard->before == d->context) return status;
	status = TMC_TRY(d, cuCtxPushCurrent_v2, d->context);
	guard->pushed = !status.code;
	return status;
}

tmc_status tmc_leave(tmc_device *d, tmc_guard *guard) {
	if (!guard->pushed) return TMC_OK;
	CUcontext ours;
	tmc_status status = TMC_TRY(d, cuCtxPopCurrent_v2, &ours);
	if (!status.code) return TMC_OK;
	/* The caller's thread must not keep our context, or its next call would go to the wrong device: try again, then overwrite. */
	if (!TMC_TRY(d, cuCtxPopCurrent_v2, &ours).code) return TMC_OK;
	if (!TMC_TRY(d, cuCtxSetCurrent, guard->before).code) return TMC_OK;
	return status;
}

tmc_status tmc_not_capturing(tmc_device *d, CUstream stream) {
	if (!d->api->cuStreamIsCapturing) return TMC_OK;  /* drivers older than CUDA 10 have no graphs */
	if (stream == d->stream && __atomic_load_n(&d->private_stream, __ATOMIC_ACQUIRE)) return TMC_OK;
	CUstreamCaptureStatus capture = TMC_CAPTURE_STATUS_NONE;
	tmc_status status = TMC_TRY(d, cuStreamIsCapturing, stream, &capture);
	if (!status.code && (int)capture != TMC_CAPTURE_STATUS_NONE)
		status = (tmc_status){ TMC_STREAM_CAPTURE_UNSUPPORTED, TMC_CALL_cuStreamIsCapturing };
	return status;
}

CUstream tmc_publish_stream(tmc_device *d) {
	__atomic_store_n(&d->private_stream, false, __ATOMIC_RELEASE);
	return d->stream;
}

tmc_status tmc_settle(tmc_device *d, CUstream stream) {
	tmc_status status = TMC_TRY(d, cuStreamSynchronize, stream);
	/* A wait that failed may have left copies on their way to or from host memory that the caller is about to give away. */
	if (status.code && !tmc_lost(status.code) && TMC_TRY(d, cuStreamSynchronize, stream).code) TMC_TRY(d, cuCtxSynchronize);
	return status;
}

/* ---- start, bind, close
 *
 * Each step of these leaves its mark in the device, so that after an error the next call goes on where this one failed: nothing is
 * made twice, and nothing is lost. */

static tmc_status make_pool(tmc_device *d) {
	if (!d->pool) {
		CUmemPoolProps properties = { 0 };
		properties.allocType = TMC_ALLOCATION_TYPE_PINNED;
		properties.location.type = TMC_LOCATION_TYPE_DEVICE;
		properties.location.id = d->device;
		tmc_status status = TMC_TRY(d, cuMemPoolCreate, &d->pool, &properties);
		if (status.code == TMC_NOT_SUPPORTED) {  /* the attribute promised pools, this device cannot: go on without */
			d->pools = false;
			return TMC_OK;
		}
		if (status.code) return status;
	}
	/* The default threshold of 0 would give every free block back to the system at each wait, and map it anew at the next allocation.
	 * With this one the pool keeps what it has until tmc_trim. */
	uint64_t keep_all = UINT64_MAX;
	tmc_status status = TMC_OK;
	if (!d->pool_keeps) status = TMC_TRY(d, cuMemPoolSetAttribute, d->pool, TMC_POOL_RELEASE_THRESHOLD, &keep_all);
	d->pool_keeps = !status.code;
	return status;
}

static tmc_status retain(tmc_device *d) {
	return d->primary ? TMC_OK : TMC_TRY(d, cuDevicePrimaryCtxRetain, &d->primary, d->device);
}

tmc_status tmc_start(tmc_device *d) {
	tmc_status status = retain(d);
	if (status.code) return status;
	d->context = d->primary;
	tmc_guard guard;
	if ((status = tmc_enter(d, &guard)).code) return status;
	/* Not ordered against the legacy default stream: frees on that one may wait for ever for somebody to synchronise it. */
	if (!d->own_stream) status = TMC_TRY(d, cuStreamCreate, &d->own_stream, TMC_STREAM_NON_BLOCKING);
	d->stream = d->own_stream;
	d->private_stream = true;
	if (!status.code && d->pools) status = make_pool(d);
	return tmc_first(status, tmc_leave(d, &guard));
}

/* Ends what belongs to the context that is left: queued work, deferred frees, events. */
static tmc_status leave_context(tmc_device *d) {
	tmc_status status = tmc_synchronize(d);
	tmc_guard guard;
	if (status.code || (status = tmc_enter(d, &guard)).code) return status;
	status = tmc_forget_events(d);
	return tmc_first(status, tmc_leave(d, &guard));
}

tmc_status tmc_bind(tmc_device *d, CUcontext context, CUstream stream) {
	tmc_status status = TMC_OK;
	if (!context) {
		if ((status = retain(d)).code) return status;
		context = d->primary;
	}
	if (d->context && (status = leave_context(d)).code) return status;
	CUcontext before = d->context;
	d->context = context;
	tmc_guard guard;
	if (!(status = tmc_enter(d, &guard)).code) {
		/* A stream that is none is refused here, and not at the first copy. */
		status = tmc_not_capturing(d, stream);
		if (!status.code) status = TMC_TRY(d, cuStreamQuery, stream);
		if (status.code == TMC_NOT_READY) status = TMC_OK;
		if (!status.code && d->pools) status = make_pool(d);
		status = tmc_first(status, tmc_leave(d, &guard));
	}
	if (status.code) {
		d->context = before;
		return status;
	}
	d->stream = stream;
	d->private_stream = false;
	return status;
}

tmc_status tmc_close(tmc_device *d) {
	tmc_status status = TMC_OK;
	tmc_guard guard;
	if (d->context) {
		if ((status = leave_context(d)).code || (status = tmc_enter(d, &guard)).code) return status;
		if (d->pool && !(status = TMC_TRY(d, cuMemPoolDestroy, d->pool)).code) d->pool = NULL;
		status = tmc_first(status, tmc_leave(d, &guard));
		if (status.code) return status;
	}
	if (d->own_stream) {  /* it belongs to the primary context, whatever context we were bound to */
		d->context = d->primary;
		if ((status = tmc_enter(d, &guard)).code) return status;
		status = TMC_TRY(d, cuStreamDestroy_v2, d->own_stream);
		if (!status.code) d->own_stream = NULL;
		status = tmc_first(status, tmc_leave(d, &guard));
		if (status.code) return status;
	}
	d->context = NULL;
	if (d->primary && !(status = TMC_TRY(d, cuDevicePrimaryCtxRelease_v2, d->device)).code) d->primary = NULL;
	return status;
}
