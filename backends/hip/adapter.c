#include "api.h"
#include <string.h>

/* The library as package ordered wants it. What is said of each function there (vendor.h) is not repeated here. The adapters of CUDA and HIP look alike,
 * as their libraries do; each is compiled against the prototypes of its own, which a common text with the names put in would no longer show. */

/* 1 is the legacy default stream, for which only HIP 6 and later have a handle of its own; NULL means the same. */
#define STREAM(handle) ((hipStream_t)(uintptr_t)((handle) == 1 ? 0 : (handle)))
#define EVENT(handle) ((hipEvent_t)(uintptr_t)(handle))
#define POOL(handle) ((hipMemPool_t)(uintptr_t)(handle))
#define POINTER(address) ((void *)(uintptr_t)(address))

/* ---- the current device: it takes the place of a context, so that a host's context has no meaning */

enum { ANY_CONTEXT = 1 };

static tmo_status retain(const void *api, int device, uint64_t *context) {
	(void)api, (void)device;
	*context = ANY_CONTEXT;
	return TMO_OK;
}

static tmo_status release(const void *api, int device) {
	(void)api, (void)device;
	return TMO_OK;
}

static tmo_status enter(const void *api, int device, uint64_t context, tmo_guard *guard) {
	(void)context;
	int before = 0;
	tmo_status status = TMH_TRY(api, hipGetDevice, &before);
	guard->before = (uint64_t)before;
	if (status.code || before == device) return status;
	status = TMH_TRY(api, hipSetDevice, device);
	guard->changed = !status.code;
	return status;
}

static tmo_status leave(const void *api, const tmo_guard *guard) {
	tmo_status status = TMH_TRY(api, hipSetDevice, (int)guard->before);
	if (!status.code) return TMO_OK;
	/* The caller's thread must not keep our device, or its next call would go to the wrong one: try again. */
	return TMH_TRY(api, hipSetDevice, (int)guard->before).code ? status : TMO_OK;
}

static tmo_status finish(const void *api) { return TMH_TRY(api, hipDeviceSynchronize); }

static tmo_status exchange_mode(const void *api, int *mode) {
	if (!((const tmh_api *)api)->hipThreadExchangeStreamCaptureMode) return TMO_OK;  /* runtimes older than HIP 5 */
	hipStreamCaptureMode exchanged = (hipStreamCaptureMode)*mode;
	tmo_status status = TMH_TRY(api, hipThreadExchangeStreamCaptureMode, &exchanged);
	if (!status.code) *mode = (int)exchanged;
	return status;
}

_Static_assert((int)TMH_CAPTURE_MODE_RELAXED == (int)TMO_RELAXED, "the same number for every vendor");

/* ---- streams and events */

static tmo_status stream_create(const void *api, uint64_t *stream) {
	hipStream_t made = NULL;
	tmo_status status = TMH_TRY(api, hipStreamCreateWithFlags, &made, TMH_STREAM_NON_BLOCKING);
	if (!status.code) *stream = (uintptr_t)made;
	return status;
}

static tmo_status stream_destroy(const void *api, uint64_t stream) { return TMH_TRY(api, hipStreamDestroy, STREAM(stream)); }
static tmo_status stream_synchronize(const void *api, uint64_t stream) { return TMH_TRY(api, hipStreamSynchronize, STREAM(stream)); }
static tmo_status stream_query(const void *api, uint64_t stream) { return TMH_TRY(api, hipStreamQuery, STREAM(stream)); }
static tmo_status stream_wait(const void *api, uint64_t stream, uint64_t event) { return TMH_TRY(api, hipStreamWaitEvent, STREAM(stream), EVENT(event), 0); }

static tmo_status not_capturing(const void *api, uint64_t stream) {
	if (!((const tmh_api *)api)->hipStreamIsCapturing) return TMO_OK;  /* runtimes older than HIP 4.3 capture nothing */
	hipStreamCaptureStatus capture = TMH_CAPTURE_STATUS_NONE;
	tmo_status status = TMH_TRY(api, hipStreamIsCapturing, STREAM(stream), &capture);
	if (!status.code && (int)capture != TMH_CAPTURE_STATUS_NONE) status = (tmo_status){ TMH_STREAM_CAPTURE_UNSUPPORTED, TMH_CALL_hipStreamIsCapturing };
	return status;
}

static tmo_status event_create(const void *api, uint64_t *event) {
	hipEvent_t made = NULL;
	tmo_status status = TMH_TRY(api, hipEventCreateWithFlags, &made, TMH_EVENT_DISABLE_TIMING);
	if (!status.code) *event = (uintptr_t)made;
	return status;
}

static tmo_status event_destroy(const void *api, uint64_t event) { return TMH_TRY(api, hipEventDestroy, EVENT(event)); }
static tmo_status event_record(const void *api, uint64_t event, uint64_t stream) { return TMH_TRY(api, hipEventRecord, EVENT(event), STREAM(stream)); }
static tmo_status event_query(const void *api, uint64_t event) { return TMH_TRY(api, hipEventQuery, EVENT(event)); }
static tmo_status event_synchronize(const void *api, uint64_t event) { return TMH_TRY(api, hipEventSynchronize, EVENT(event)); }

/* ---- memory */

static tmo_status allocate(const void *api, uint64_t *address, uint64_t bytes) {
	void *made = NULL;
	tmo_status status = TMH_TRY(api, hipMalloc, &made, bytes);
	*address = (uintptr_t)made;
	return status;
}

static tmo_status free_plain(const void *api, uint64_t address) { return TMH_TRY(api, hipFree, POINTER(address)); }

static tmo_status allocate_ordered(const void *api, uint64_t *address, uint64_t bytes, uint64_t pool, uint64_t stream) {
	void *made = NULL;
	tmo_status status = TMH_TRY(api, hipMallocFromPoolAsync, &made, bytes, POOL(pool), STREAM(stream));
	*address = (uintptr_t)made;
	return status;
}

static tmo_status free_ordered(const void *api, uint64_t address, uint64_t stream) {
	if (((const tmh_api *)api)->hipFreeAsync) return TMH_TRY(api, hipFreeAsync, POINTER(address), STREAM(stream));
	return (tmo_status){ TMH_NOT_SUPPORTED, TMH_CALL_hipFreeAsync };
}

static tmo_status memory(const void *api, uint64_t *free_bytes, uint64_t *total) {
	size_t left = 0, all = 0;
	tmo_status status = TMH_TRY(api, hipMemGetInfo, &left, &all);
	*free_bytes = left;
	*total = all;
	return status;
}

/* The number of host memory, which was one lower before HIP 6 made 0 "unregistered". */
static tmo_status host_type(const void *api, int *number) {
	int version = 0;
	tmo_status status = TMH_TRY(api, hipRuntimeGetVersion, &version);
	*number = version >= 60000000;
	return status;
}

/* The runtime tells the range of all that it has allocated or pinned, host memory, too. */
static tmo_status find(const void *api, uint64_t address, tmo_found *found) {
	const tmh_api *library = api;
	if (!library->hipMemGetAddressRange) return (tmo_status){ TMH_NOT_SUPPORTED, TMH_CALL_hipMemGetAddressRange };
	hipDeviceptr_t base = NULL;
	size_t bytes = 0;
	tmo_status status = TMH_TRY(api, hipMemGetAddressRange, &base, &bytes, (hipDeviceptr_t)POINTER(address));
	if (status.code == TMH_NOT_FOUND || tmh_meaning(status.code) == TMO_INVALID) return TMO_OK;  /* nothing is there; versions differ in the code */
	found->base = (uintptr_t)base;
	found->bytes = bytes;
	if (status.code || !library->hipPointerGetAttributes) return status;
	hipPointerAttribute_t attributes = { 0 };
	int type = 0, host = 0;
	status = TMH_TRY(api, hipPointerGetAttributes, &attributes, POINTER(address));
	if (!status.code) status = host_type(api, &host);
	if (status.code) return status;
	memcpy(&type, &attributes, sizeof type);  /* versions differ in the field's name */
	found->host = type == host;
	/* Managed memory moves between devices. Visible devices are counted, as in our names. */
	if (!found->host && !attributes.isManaged) found->device = attributes.device;
	return status;
}

/* ---- pools */

static tmo_status pool_create(const void *api, int device, uint64_t *pool) {
	hipMemPoolProps properties = { 0 };
	properties.allocType = TMH_ALLOCATION_TYPE_PINNED;
	properties.location.type = TMH_LOCATION_TYPE_DEVICE;
	properties.location.id = device;
	hipMemPool_t made = NULL;
	tmo_status status = TMH_TRY(api, hipMemPoolCreate, &made, &properties);
	if (!status.code) *pool = (uintptr_t)made;
	return status;
}

static tmo_status pool_destroy(const void *api, uint64_t pool) { return TMH_TRY(api, hipMemPoolDestroy, POOL(pool)); }

/* Some versions of ROCm take the threshold and ignore it: then each wait empties the pool, and nothing but time is lost. */
static tmo_status pool_keep_all(const void *api, uint64_t pool) {
	uint64_t threshold = UINT64_MAX;
	return TMH_TRY(api, hipMemPoolSetAttribute, POOL(pool), TMH_POOL_RELEASE_THRESHOLD, &threshold);
}

static tmo_status pool_figures(const void *api, uint64_t pool, uint64_t *reserved, uint64_t *used) {
	tmo_status status = TMH_TRY(api, hipMemPoolGetAttribute, POOL(pool), TMH_POOL_RESERVED_CURRENT, reserved);
	return status.code ? status : TMH_TRY(api, hipMemPoolGetAttribute, POOL(pool), TMH_POOL_USED_CURRENT, used);
}

static tmo_status pool_trim(const void *api, uint64_t pool) { return TMH_TRY(api, hipMemPoolTrimTo, POOL(pool), 0); }

static tmo_status current_pool(const void *api, int device, uint64_t *pool) {
	hipMemPool_t current = NULL;
	tmo_status status = TMH_TRY(api, hipDeviceGetMemPool, &current, device);
	*pool = (uintptr_t)current;
	return status;
}

/* ---- copies and fills */

static tmo_status copy_out(const void *api, void *host, uint64_t address, uint64_t bytes, uint64_t stream) {
	return TMH_TRY(api, hipMemcpyAsync, host, POINTER(address), bytes, TMH_DEVICE_TO_HOST, STREAM(stream));
}

static tmo_status copy_in(const void *api, uint64_t address, const void *host, uint64_t bytes, uint64_t stream) {
	return TMH_TRY(api, hipMemcpyAsync, POINTER(address), host, bytes, TMH_HOST_TO_DEVICE, STREAM(stream));
}

static tmo_status copy_within(const void *api, uint64_t destination, uint64_t source, uint64_t bytes, uint64_t stream) {
	return TMH_TRY(api, hipMemcpyAsync, POINTER(destination), POINTER(source), bytes, TMH_DEVICE_TO_DEVICE, STREAM(stream));
}

static tmo_status fill8(const void *api, uint64_t address, uint8_t value, uint64_t count, uint64_t stream) {
	return TMH_TRY(api, hipMemsetAsync, POINTER(address), value, count, STREAM(stream));
}

static tmo_status fill16(const void *api, uint64_t address, uint16_t value, uint64_t count, uint64_t stream) {
	return TMH_TRY(api, hipMemsetD16Async, POINTER(address), value, count, STREAM(stream));
}

static tmo_status fill32(const void *api, uint64_t address, uint32_t value, uint64_t count, uint64_t stream) {
	return TMH_TRY(api, hipMemsetD32Async, POINTER(address), (int)value, count, STREAM(stream));
}

const tmo_vendor tmh_vendor = {
	.free_waits = true,  /* hipFree "performs an implicit hipDeviceSynchronize" (hip_runtime_api.h) */
	.init = tmh_init, .count = tmh_count, .ask = tmh_ask, .error_name = tmh_error_name, .meaning = tmh_meaning,
	TMO_ADAPTERS,
};
