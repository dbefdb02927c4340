/* Stream-ordered memory and its pools. */
#include "../engine/lock.h"
#include "../engine/pool.h"
#include "../engine/stream.h"
#include "abi.h"

static struct soft_pool *pool_of(hipMemPool_t handle) { return (struct soft_pool *)(void *)handle; }
static hipMemPool_t handle_of(struct soft_pool *pool) { return (hipMemPool_t)(void *)pool; }

/* A device, or a runtime, without pools. */
#define NEED_POOLS() \
	do { \
		if (!soft_setting(&soft_settings.pools)) \
			return hip_answer(V_hipErrorNotSupported); \
	} while (0)

/* HIP 7 makes, destroys and chooses no pool while any stream is captured, whatever the thread's mode; the captures go on. */
#define NEED_NO_CAPTURE() \
	do { \
		if (soft_setting(&soft_settings.driver_version) >= 70000000 && soft_capture_ongoing()) \
			return hip_result(SOFT_CAPTURE_UNSUPPORTED); \
	} while (0)

static hipError_t allocate_ordered(void **out, size_t bytes, struct soft_pool *pool, hipStream_t stream)
{
	uint64_t address = 0;
	REQUIRE(out);
	NEED_POOLS();
	enum soft_result result = bytes ? soft_pool_allocate(pool, bytes, hip_stream(stream), &address) : SOFT_OK;
	*out = result ? NULL : (void *)(uintptr_t)address;
	return hip_result(result);
}

hipError_t hipMallocAsync(void **out, size_t bytes, hipStream_t stream)
{
	ENTER(hipMallocAsync);
	return allocate_ordered(out, bytes, NULL, stream);
}

hipError_t hipMallocFromPoolAsync(void **out, size_t bytes, hipMemPool_t pool, hipStream_t stream)
{
	ENTER(hipMallocFromPoolAsync);
	REQUIRE(pool);
	return allocate_ordered(out, bytes, pool_of(pool), stream);
}

/* Of memory that no pool made it is hipFree, with its waiting. */
hipError_t hipFreeAsync(void *pointer, hipStream_t stream)
{
	uint64_t address = hip_address(pointer);
	struct soft_block_info info;
	ENTER(hipFreeAsync);
	NEED_POOLS();
	REQUIRE(pointer);
	if (soft_block_info(address, &info) && !info.pool)
		return hip_result(soft_free(address));
	return hip_result(soft_free_ordered(address, hip_stream(stream)));
}

hipError_t hipDeviceGetDefaultMemPool(hipMemPool_t *out, int ordinal)
{
	struct soft_device *device;
	ENTER(hipDeviceGetDefaultMemPool);
	REQUIRE(out);
	NEED_DEVICE(device, ordinal);
	NEED_POOLS();
	*out = handle_of(device->default_pool);
	return hip_result(SOFT_OK);
}

hipError_t hipDeviceGetMemPool(hipMemPool_t *out, int ordinal)
{
	struct soft_device *device;
	ENTER(hipDeviceGetMemPool);
	REQUIRE(out);
	NEED_DEVICE(device, ordinal);
	NEED_POOLS();
	soft_lock();
	*out = handle_of(device->current_pool);
	soft_unlock();
	return hip_result(SOFT_OK);
}

hipError_t hipDeviceSetMemPool(int ordinal, hipMemPool_t pool)
{
	struct soft_device *device;
	ENTER(hipDeviceSetMemPool);
	NEED_DEVICE(device, ordinal);
	NEED_POOLS();
	NEED_NO_CAPTURE();
	return hip_result(soft_pool_make_current(device, pool_of(pool)));
}

hipError_t hipMemPoolCreate(hipMemPool_t *out, const hipMemPoolProps *props)
{
	struct soft_device *device;
	ENTER(hipMemPoolCreate);
	REQUIRE(out && props);
	NEED_POOLS();
	/* Memory on a device, not shared with other processes, is all there is. */
	REQUIRE((int)props->allocType == V_hipMemAllocationTypePinned && (int)props->location.type == V_hipMemLocationTypeDevice &&
	        (int)props->handleTypes == V_hipMemHandleTypeNone);
	device = soft_device(props->location.id);
	REQUIRE(device);
	NEED_NO_CAPTURE();
	*out = handle_of(soft_pool_create(device, props->maxSize));
	return hip_result(SOFT_OK);
}

hipError_t hipMemPoolDestroy(hipMemPool_t pool)
{
	ENTER(hipMemPoolDestroy);
	REQUIRE(pool);
	NEED_NO_CAPTURE();
	return hip_result(soft_pool_destroy(pool_of(pool)));
}

hipError_t hipMemPoolTrimTo(hipMemPool_t pool, size_t keep)
{
	ENTER(hipMemPoolTrimTo);
	REQUIRE(pool);
	return hip_result(soft_pool_trim(pool_of(pool), keep));
}

/* Attributes 1 to 3 are an int, the others 64 bits. */
static int is_int(hipMemPoolAttr attribute) { return (int)attribute <= V_hipMemPoolReuseAllowInternalDependencies; }

hipError_t hipMemPoolSetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void *value)
{
	ENTER(hipMemPoolSetAttribute);
	REQUIRE(pool && value);
	uint64_t wanted = is_int(attribute) ? *(const int *)value != 0 : *(const uint64_t *)value;
	return hip_result(soft_pool_set(pool_of(pool), (enum soft_pool_attribute)attribute, wanted));
}

hipError_t hipMemPoolGetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void *out)
{
	uint64_t value = 0;
	ENTER(hipMemPoolGetAttribute);
	REQUIRE(pool && out);
	enum soft_result result = soft_pool_get(pool_of(pool), (enum soft_pool_attribute)attribute, &value);
	if (!result && is_int(attribute))
		*(int *)out = (int)value;
	else if (!result)
		*(uint64_t *)out = value;
	return hip_result(result);
}

/* The engine's attributes have the vendors' numbers (CUDA's and HIP's agree). */
#define SAME(ours, theirs) _Static_assert((int)ours == (int)theirs, #ours)
SAME(SOFT_POOL_REUSE_FOLLOWED, V_hipMemPoolReuseFollowEventDependencies);
SAME(SOFT_POOL_REUSE_DONE, V_hipMemPoolReuseAllowOpportunistic);
SAME(SOFT_POOL_REUSE_BY_WAITING, V_hipMemPoolReuseAllowInternalDependencies);
SAME(SOFT_POOL_THRESHOLD, V_hipMemPoolAttrReleaseThreshold);
SAME(SOFT_POOL_RESERVED, V_hipMemPoolAttrReservedMemCurrent);
SAME(SOFT_POOL_RESERVED_HIGH, V_hipMemPoolAttrReservedMemHigh);
SAME(SOFT_POOL_USED, V_hipMemPoolAttrUsedMemCurrent);
SAME(SOFT_POOL_USED_HIGH, V_hipMemPoolAttrUsedMemHigh);

hipError_t hipMemPoolGetAccess(hipMemAccessFlags *flags, hipMemPool_t pool, hipMemLocation *location)
{
	struct soft_device *owner, *asker;
	ENTER(hipMemPoolGetAccess);
	REQUIRE(flags && pool && location && (int)location->type == V_hipMemLocationTypeDevice);
	asker = soft_device(location->id);
	REQUIRE(asker);
	enum soft_result result = soft_pool_owner(pool_of(pool), &owner);
	if (!result)
		*flags = (hipMemAccessFlags)(owner == asker ? V_hipMemAccessFlagsProtReadWrite : V_hipMemAccessFlagsProtNone);
	return hip_result(result);
}

/* A pool's own device always has access, and no other device can. Taking access away is refused with the code of the real runtime. */
hipError_t hipMemPoolSetAccess(hipMemPool_t pool, const hipMemAccessDesc *access, size_t count)
{
	struct soft_device *owner, *asker;
	ENTER(hipMemPoolSetAccess);
	REQUIRE(pool && access);
	enum soft_result result = soft_pool_owner(pool_of(pool), &owner);
	for (size_t i = 0; i < count && !result; i++) {
		REQUIRE((int)access[i].location.type == V_hipMemLocationTypeDevice);
		NEED_DEVICE(asker, access[i].location.id);
		if ((int)access[i].flags == V_hipMemAccessFlagsProtNone)
			return hip_answer(V_hipErrorInvalidDevice);
		REQUIRE((int)access[i].flags == V_hipMemAccessFlagsProtRead || (int)access[i].flags == V_hipMemAccessFlagsProtReadWrite);
		if (asker != owner)
			return hip_answer(V_hipErrorPeerAccessUnsupported);
	}
	return hip_result(result);
}
