#include "api.h"

/* The library as package ordered wants it. What is said of each function there (vendor.h) is not repeated here. The adapters of CUDA and HIP look alike,
 * as their libraries do; each is compiled against the prototypes of its own, which a common text with the names put in would no longer show. */

#define STREAM(handle) ((CUstream)(uintptr_t)(handle))
#define EVENT(handle) ((CUevent)(uintptr_t)(handle))
#define POOL(handle) ((CUmemoryPool)(uintptr_t)(handle))

/* ---- the current context */

static tmo_status retain(const void *api, int device, uint64_t *context) {
	CUcontext primary = NULL;
	tmo_status status = TMC_TRY(api, cuDevicePrimaryCtxRetain, &primary, device);
	if (!status.code) *context = (uintptr_t)primary;
	return status;
}

static tmo_status release(const void *api, int device) { return TMC_TRY(api, cuDevicePrimaryCtxRelease_v2, device); }

static tmo_status enter(const void *api, int device, uint64_t context, tmo_guard *guard) {
	(void)device;
	CUcontext before = NULL;
	tmo_status status = TMC_TRY(api, cuCtxGetCurrent, &before);
	guard->before = (uintptr_t)before;
	if (status.code || guard->before == context) return status;
	status = TMC_TRY(api, cuCtxPushCurrent_v2, (CUcontext)(uintptr_t)context);
	guard->changed = !status.code;
	return status;
}

static tmo_status leave(const void *api, const tmo_guard *guard) {
	CUcontext ours;
	tmo_status status = TMC_TRY(api, cuCtxPopCurrent_v2, &ours);
	if (!status.code) return TMO_OK;
	/* The caller's thread must not keep our context, or its next call would go to the wrong device: try again, then overwrite. */
	if (!TMC_TRY(api, cuCtxPopCurrent_v2, &ours).code) return TMO_OK;
	if (!TMC_TRY(api, cuCtxSetCurrent, (CUcontext)(uintptr_t)guard->before).code) return TMO_OK;
	return status;
}

static tmo_status finish(const void *api) { return TMC_TRY(api, cuCtxSynchronize); }

static tmo_status exchange_mode(const void *api, int *mode) {
	if (!((const tmc_api *)api)->cuThreadExchangeStreamCaptureMode) return TMO_OK;  /* drivers older than CUDA 10.1 */
	CUstreamCaptureMode exchanged = (CUstreamCaptureMode)*mode;
	tmo_status status = TMC_TRY(api, cuThreadExchangeStreamCaptureMode, &exchanged);
	if (!status.code) *mode = (int)exchanged;
	return status;
}

_Static_assert((int)TMC_CAPTURE_MODE_RELAXED == (int)TMO_RELAXED, "the same number for every vendor");

/* ---- streams and events */

static tmo_status stream_create(const void *api, uint64_t *stream) {
	CUstream made = NULL;
	tmo_status status = TMC_TRY(api, cuStreamCreate, &made, TMC_STREAM_NON_BLOCKING);
	if (!status.code) *stream = (uintptr_t)made;
	return status;
}

static tmo_status stream_destroy(const void *api, uint64_t stream) { return TMC_TRY(api, cuStreamDestroy_v2, STREAM(stream)); }
static tmo_status stream_synchronize(const void *api, uint64_t stream) { return TMC_TRY(api, cuStreamSynchronize, STREAM(stream)); }
static tmo_status stream_query(const void *api, uint64_t stream) { return TMC_TRY(api, cuStreamQuery, STREAM(stream)); }
static tmo_status stream_wait(const void *api, uint64_t stream, uint64_t event) { return TMC_TRY(api, cuStreamWaitEvent, STREAM(stream), EVENT(event), 0); }

static tmo_status not_capturing(const void *api, uint64_t stream) {
	if (!((const tmc_api *)api)->cuStreamIsCapturing) return TMO_OK;  /* drivers older than CUDA 10 have no graphs */
	CUstreamCaptureStatus capture = TMC_CAPTURE_STATUS_NONE;
	tmo_status status = TMC_TRY(api, cuStreamIsCapturing, STREAM(stream), &capture);
	if (!status.code && (int)capture != TMC_CAPTURE_STATUS_NONE) status = tmc_tried(TMC_STREAM_CAPTURE_UNSUPPORTED, TMC_CALL_cuStreamIsCapturing);
	return status;
}

static tmo_status event_create(const void *api, uint64_t *event) {
	CUevent made = NULL;
	tmo_status status = TMC_TRY(api, cuEventCreate, &made, TMC_EVENT_DISABLE_TIMING);
	if (!status.code) *event = (uintptr_t)made;
	return status;
}

static tmo_status event_destroy(const void *api, uint64_t event) { return TMC_TRY(api, cuEventDestroy_v2, EVENT(event)); }
static tmo_status event_record(const void *api, uint64_t event, uint64_t stream) { return TMC_TRY(api, cuEventRecord, EVENT(event), STREAM(stream)); }
static tmo_status event_query(const void *api, uint64_t event) { return TMC_TRY(api, cuEventQuery, EVENT(event)); }
static tmo_status event_synchronize(const void *api, uint64_t event) { return TMC_TRY(api, cuEventSynchronize, EVENT(event)); }

/* ---- memory */

static tmo_status allocate(const void *api, uint64_t *address, uint64_t bytes) {
	CUdeviceptr made = 0;
	tmo_status status = TMC_TRY(api, cuMemAlloc_v2, &made, bytes);
	*address = made;
	return status;
}

static tmo_status free_plain(const void *api, uint64_t address) { return TMC_TRY(api, cuMemFree_v2, address); }

static tmo_status allocate_ordered(const void *api, uint64_t *address, uint64_t bytes, uint64_t pool, uint64_t stream) {
	CUdeviceptr made = 0;
	tmo_status status = TMC_TRY(api, cuMemAllocFromPoolAsync, &made, bytes, POOL(pool), STREAM(stream));
	*address = made;
	return status;
}

static tmo_status free_ordered(const void *api, uint64_t address, uint64_t stream) {
	if (((const tmc_api *)api)->cuMemFreeAsync) return TMC_TRY(api, cuMemFreeAsync, address, STREAM(stream));
	return (tmo_status){ TMC_NOT_SUPPORTED, TMC_CALL_cuMemFreeAsync };
}

static tmo_status memory(const void *api, uint64_t *free_bytes, uint64_t *total) {
	size_t left = 0, all = 0;
	tmo_status status = TMC_TRY(api, cuMemGetInfo_v2, &left, &all);
	*free_bytes = left;
	*total = all;
	return status;
}

/* The range is that of the allocation, also within a pool: UCX exports pointers of pools by its base. It need not be device memory: pinned host memory
 * has the same kind of addresses. */
static tmo_status find(const void *api, uint64_t address, tmo_found *found) {
	const tmc_api *library = api;
	if (!library->cuMemGetAddressRange_v2) return (tmo_status){ TMC_NOT_SUPPORTED, TMC_CALL_cuMemGetAddressRange_v2 };
	CUdeviceptr base = 0;
	size_t bytes = 0;
	tmo_status status = TMC_TRY(api, cuMemGetAddressRange_v2, &base, &bytes, address);
	if (status.code == TMC_NOT_FOUND || status.code == TMC_INVALID_VALUE) return TMO_OK;  /* nothing is there */
	found->base = base;
	found->bytes = bytes;
	if (status.code || !library->cuPointerGetAttributes) return status;
	unsigned type = 0, managed = 0;
	int device = -1;
	CUpointer_attribute asked[] = { TMC_POINTER_MEMORY_TYPE, TMC_POINTER_IS_MANAGED, TMC_POINTER_DEVICE_ORDINAL };
	void *answers[] = { &type, &managed, &device };
	enum { ATTRIBUTES = sizeof asked / sizeof *asked };
	status = TMC_TRY(api, cuPointerGetAttributes, ATTRIBUTES, asked, answers, address);
	if (status.code == TMC_INVALID_VALUE) {  /* drivers older than CUDA 9.2 do not know the last one */
		device = -1;
		status = TMC_TRY(api, cuPointerGetAttributes, ATTRIBUTES - 1, asked, answers, address);
	}
	if (status.code) return status;
	found->host = type == TMC_MEMORYTYPE_HOST && !managed;  /* managed memory may lie on the host, and is freed as device memory is */
	if (!found->host && !managed) found->device = device;   /* managed memory moves between devices. Visible devices are counted, as in our names */
	return status;
}

/* ---- pools */

static tmo_status pool_create(const void *api, int device, uint64_t *pool) {
	CUmemPoolProps properties = { 0 };
	properties.allocType = TMC_ALLOCATION_TYPE_PINNED;
	properties.location.type = TMC_LOCATION_TYPE_DEVICE;
	properties.location.id = device;
	CUmemoryPool made = NULL;
	tmo_status status = TMC_TRY(api, cuMemPoolCreate, &made, &properties);
	if (!status.code) *pool = (uintptr_t)made;
	return status;
}

static tmo_status pool_destroy(const void *api, uint64_t pool) { return TMC_TRY(api, cuMemPoolDestroy, POOL(pool)); }

static tmo_status pool_keep_all(const void *api, uint64_t pool) {
	uint64_t threshold = UINT64_MAX;
	return TMC_TRY(api, cuMemPoolSetAttribute, POOL(pool), TMC_POOL_RELEASE_THRESHOLD, &threshold);
}

static tmo_status pool_figures(const void *api, uint64_t pool, uint64_t *reserved, uint64_t *used) {
	tmo_status status = TMC_TRY(api, cuMemPoolGetAttribute, POOL(pool), TMC_POOL_RESERVED_CURRENT, reserved);
	return status.code ? status : TMC_TRY(api, cuMemPoolGetAttribute, POOL(pool), TMC_POOL_USED_CURRENT, used);
}

static tmo_status pool_trim(const void *api, uint64_t pool) { return TMC_TRY(api, cuMemPoolTrimTo, POOL(pool), 0); }

static tmo_status current_pool(const void *api, int device, uint64_t *pool) {
	CUmemoryPool current = NULL;
	tmo_status status = TMC_TRY(api, cuDeviceGetMemPool, &current, device);
	*pool = (uintptr_t)current;
	return status;
}

/* ---- copies and fills */

static tmo_status copy_out(const void *api, void *host, uint64_t address, uint64_t bytes, uint64_t stream) {
	return TMC_TRY(api, cuMemcpyDtoHAsync_v2, host, address, bytes, STREAM(stream));
}

static tmo_status copy_in(const void *api, uint64_t address, const void *host, uint64_t bytes, uint64_t stream) {
	return TMC_TRY(api, cuMemcpyHtoDAsync_v2, address, host, bytes, STREAM(stream));
}

static tmo_status copy_within(const void *api, uint64_t destination, uint64_t source, uint64_t bytes, uint64_t stream) {
	return TMC_TRY(api, cuMemcpyDtoDAsync_v2, destination, source, bytes, STREAM(stream));
}

static tmo_status fill8(const void *api, uint64_t address, uint8_t value, uint64_t count, uint64_t stream) {
	return TMC_TRY(api, cuMemsetD8Async, address, value, count, STREAM(stream));
}

static tmo_status fill16(const void *api, uint64_t address, uint16_t value, uint64_t count, uint64_t stream) {
	return TMC_TRY(api, cuMemsetD16Async, address, value, count, STREAM(stream));
}

static tmo_status fill32(const void *api, uint64_t address, uint32_t value, uint64_t count, uint64_t stream) {
	return TMC_TRY(api, cuMemsetD32Async, address, value, count, STREAM(stream));
}

const tmo_vendor tmc_vendor = {
	/* NVIDIA only says that cuMemFree may wait, and drivers of today are reported not to (kokkos/kokkos#9307). What is freed at once is there for the
	 * host framework and for other processes, so nothing is kept. */
	.free_waits = false,
	.init = tmc_init, .count = tmc_count, .ask = tmc_ask, .error_name = tmc_error_name, .meaning = tmc_meaning,
	TMO_ADAPTERS,
};
