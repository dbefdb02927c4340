/* Device memory, pools, host memory, facts about pointers. */
#include <string.h>

#include "../engine/host.h"
#include "../engine/lock.h"
#include "../engine/pool.h"
#include "abi.h"

static struct soft_pool *pool_of(CUmemoryPool handle) { return (struct soft_pool *)(void *)handle; }
static CUmemoryPool handle_of(struct soft_pool *pool) { return (CUmemoryPool)(void *)pool; }

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	struct soft_device *device;
	uint64_t available, all;
	ENTER(cuMemGetInfo_v2);
	REQUIRE(free_bytes && total);
	NEED_CONTEXT(device);
	soft_memory_info(device, &available, &all);
	*free_bytes = available;
	*total = all;
	return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
	struct soft_device *device;
	uint64_t address;
	ENTER(cuMemAlloc_v2);
	REQUIRE(out && bytes);
	NEED_CONTEXT(device);
	enum soft_result result = soft_allocate(device, bytes, &address);
	if (!result)
		*out = address;
	return cuda_result(result);
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
	struct soft_device *device;
	ENTER(cuMemFree_v2);
	NEED_CONTEXT(device);
	return address ? cuda_result(soft_free(address)) : CUDA_SUCCESS;
}

/* ---- pools ---- */

#define NEED_POOLS() \
	do { \
		if (!soft_setting(&soft_settings.pools)) \
			return (CUresult)V_CUDA_ERROR_NOT_SUPPORTED; \
	} while (0)

static CUresult allocate_ordered(CUdeviceptr *out, size_t bytes, struct soft_pool *pool, CUstream handle)
{
	struct soft_stream *stream;
	uint64_t address;
	REQUIRE(out && bytes);
	NEED_POOLS();
	NEED_STREAM(stream, handle);
	enum soft_result result = soft_pool_allocate(pool, bytes, stream, &address);
	if (!result)
		*out = address;
	return cuda_result(result);
}

CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream)
{
	ENTER(cuMemAllocAsync);
	return allocate_ordered(out, bytes, NULL, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	ENTER(cuMemAllocFromPoolAsync);
	REQUIRE(pool);
	return allocate_ordered(out, bytes, pool_of(pool), stream);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle)
{
	struct soft_stream *stream;
	ENTER(cuMemFreeAsync);
	NEED_POOLS();
	NEED_STREAM(stream, handle);
	REQUIRE(address);
	return cuda_result(soft_free_ordered(address, stream));
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice ordinal)
{
	struct soft_device *device;
	ENTER(cuDeviceGetDefaultMemPool);
	REQUIRE(out);
	NEED_DEVICE(device, ordinal);
	NEED_POOLS();
	*out = handle_of(device->default_pool);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice ordinal)
{
	struct soft_device *device;
	ENTER(cuDeviceGetMemPool);
	REQUIRE(out);
	NEED_DEVICE(device, ordinal);
	NEED_POOLS();
	soft_lock();
	*out = handle_of(device->current_pool);
	soft_unlock();
	return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool pool)
{
	struct soft_device *device;
	ENTER(cuDeviceSetMemPool);
	NEED_DEVICE(device, ordinal);
	NEED_POOLS();
	return cuda_result(soft_pool_make_current(device, pool_of(pool)));
}

CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props)
{
	struct soft_device *device;
	ENTER(cuMemPoolCreate);
	REQUIRE(out && props);
	NEED_POOLS();
	/* Memory on a device, not shared with other processes, is all there is. */
	if ((int)props->allocType != V_CU_MEM_ALLOCATION_TYPE_PINNED || (int)props->location.type != V_CU_MEM_LOCATION_TYPE_DEVICE ||
	    (int)props->handleTypes)
		return (CUresult)V_CUDA_ERROR_NOT_SUPPORTED;
	NEED_DEVICE(device, props->location.id);
	*out = handle_of(soft_pool_create(device, props->maxSize));
	return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	ENTER(cuMemPoolDestroy);
	return cuda_result(soft_pool_destroy(pool_of(pool)));
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	ENTER(cuMemPoolTrimTo);
	return cuda_result(soft_pool_trim(pool_of(pool), keep));
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	ENTER(cuMemPoolSetAttribute);
	REQUIRE(value);
	switch ((int)attribute) {
	case V_CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case V_CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case V_CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		return cuda_result(soft_pool_set(pool_of(pool), (enum soft_pool_attribute)attribute, *(const int *)value != 0));
	default:
		return cuda_result(soft_pool_set(pool_of(pool), (enum soft_pool_attribute)attribute, *(const cuuint64_t *)value));
	}
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *out)
{
	uint64_t value = 0;
	ENTER(cuMemPoolGetAttribute);
	REQUIRE(out);
	enum soft_result result = soft_pool_get(pool_of(pool), (enum soft_pool_attribute)attribute, &value);
	if (!result && (int)attribute <= V_CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
		*(int *)out = (int)value;
	else if (!result)
		*(cuuint64_t *)out = value;
	return cuda_result(result);
}

/* The engine's attributes have the vendors' numbers (CUDA's and HIP's agree). */
#define SAME(ours, theirs) _Static_assert((int)ours == (int)theirs, #ours)
SAME(SOFT_POOL_REUSE_FOLLOWED, V_CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES);
SAME(SOFT_POOL_REUSE_DONE, V_CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC);
SAME(SOFT_POOL_REUSE_BY_WAITING, V_CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES);
SAME(SOFT_POOL_THRESHOLD, V_CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
SAME(SOFT_POOL_RESERVED, V_CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
SAME(SOFT_POOL_RESERVED_HIGH, V_CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH);
SAME(SOFT_POOL_USED, V_CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
SAME(SOFT_POOL_USED_HIGH, V_CU_MEMPOOL_ATTR_USED_MEM_HIGH);

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)
{
	struct soft_device *owner, *asker;
	ENTER(cuMemPoolGetAccess);
	REQUIRE(flags && location && (int)location->type == V_CU_MEM_LOCATION_TYPE_DEVICE);
	NEED_DEVICE(asker, location->id);
	enum soft_result result = soft_pool_owner(pool_of(pool), &owner);
	if (!result)
		*flags = (CUmemAccess_flags)(owner == asker ? V_CU_MEM_ACCESS_FLAGS_PROT_READWRITE : V_CU_MEM_ACCESS_FLAGS_PROT_NONE);
	return cuda_result(result);
}

/* A pool's own device always has access, and no other device can. */
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count)
{
	struct soft_device *owner, *asker;
	ENTER(cuMemPoolSetAccess);
	REQUIRE(access || !count);
	enum soft_result result = soft_pool_owner(pool_of(pool), &owner);
	for (size_t i = 0; i < count && !result; i++) {
		NEED_DEVICE(asker, access[i].location.id);
		int wanted = (int)access[i].flags != V_CU_MEM_ACCESS_FLAGS_PROT_NONE;
		if (asker == owner && !wanted)
			return (CUresult)V_CUDA_ERROR_NOT_SUPPORTED;
		if (asker != owner && wanted)
			return (CUresult)V_CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	}
	return cuda_result(result);
}

/* ---- host memory ---- */

static CUresult host_allocate(void **out, size_t bytes, unsigned flags)
{
	struct soft_device *device;
	REQUIRE(out && bytes);
	NEED_CONTEXT(device);
	return cuda_result(soft_host_allocate(bytes, flags, out));
}

CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned int flags)
{
	ENTER(cuMemHostAlloc);
	return host_allocate(out, bytes, flags);
}

CUresult cuMemAllocHost_v2(void **out, size_t bytes)
{
	ENTER(cuMemAllocHost_v2);
	return host_allocate(out, bytes, 0);
}

CUresult cuMemFreeHost(void *address)
{
	struct soft_device *device;
	ENTER(cuMemFreeHost);
	NEED_CONTEXT(device);
	REQUIRE(address);
	return cuda_result(soft_host_free(address));
}

CUresult cuMemHostRegister_v2(void *address, size_t bytes, unsigned int flags)
{
	struct soft_device *device;
	ENTER(cuMemHostRegister_v2);
	REQUIRE(address && bytes);
	NEED_CONTEXT(device);
	return cuda_result(soft_host_register(address, bytes, flags));
}

CUresult cuMemHostUnregister(void *address)
{
	struct soft_device *device;
	ENTER(cuMemHostUnregister);
	NEED_CONTEXT(device);
	REQUIRE(address);
	return cuda_result(soft_host_unregister(address));
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *address, unsigned int flags)
{
	struct soft_device *device;
	struct soft_host_range range;
	ENTER(cuMemHostGetDevicePointer_v2);
	REQUIRE(out && flags == 0);
	NEED_CONTEXT(device);
	REQUIRE(soft_host_find((uint64_t)(uintptr_t)address, &range));
	*out = (CUdeviceptr)(uintptr_t)address;
	return CUDA_SUCCESS;
}

/* ---- facts about pointers ---- */

/* Of any allocation, as the documentation says: pinned host memory is in the same space of addresses. */
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
	struct soft_device *device;
	struct soft_block_info info;
	struct soft_host_range host;
	ENTER(cuMemGetAddressRange_v2);
	NEED_CONTEXT(device);
	int is_block = soft_block_info(address, &info);
	if (!is_block && !soft_host_find(address, &host))
		return (CUresult)V_CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = is_block ? info.address : host.address;
	if (bytes)
		*bytes = is_block ? info.size : host.bytes;
	return CUDA_SUCCESS;
}

/* Writes one attribute. INVALID_VALUE: the pointer is neither device memory nor pinned host memory. */
static enum soft_result pointer_attribute(void *out, int attribute, CUdeviceptr address)
{
	struct soft_block_info block;
	struct soft_host_range host;
	int is_block = soft_block_info(address, &block);
	if (!is_block && !soft_host_find(address, &host))
		return SOFT_INVALID_VALUE;
	struct soft_device *device = is_block ? block.device : soft_device(0);
	switch (attribute) {
	case V_CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)out = (CUcontext)(void *)&device->context;
		return SOFT_OK;
	case V_CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)out = is_block ? V_CU_MEMORYTYPE_DEVICE : V_CU_MEMORYTYPE_HOST;
		return SOFT_OK;
	case V_CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)out = address;
		return SOFT_OK;
	case V_CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (is_block)
			return SOFT_INVALID_VALUE;
		*(void **)out = (void *)(uintptr_t)address;
		return SOFT_OK;
	case V_CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case V_CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned *)out = 0;
		return SOFT_OK;
	case V_CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)out = is_block ? block.id : 0;
		return SOFT_OK;
	case V_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)out = device->ordinal;
		return SOFT_OK;
	case V_CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)out = is_block ? block.address : host.address;
		return SOFT_OK;
	case V_CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)out = is_block ? block.size : host.bytes;
		return SOFT_OK;
	case V_CU_POINTER_ATTRIBUTE_MAPPED:
		*(unsigned *)out = 1;
		return SOFT_OK;
	case V_CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(CUmemoryPool *)out = is_block ? handle_of(block.pool) : NULL;
		return SOFT_OK;
	}
	return SOFT_NOT_SUPPORTED;
}

CUresult cuPointerGetAttribute(void *out, CUpointer_attribute attribute, CUdeviceptr address)
{
	ENTER(cuPointerGetAttribute);
	REQUIRE(out);
	return cuda_result(pointer_attribute(out, (int)attribute, address));
}

/* Asked for several, an unknown pointer is no error: each attribute gets its default. */
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **out, CUdeviceptr address)
{
	static const unsigned char sizes[] = { [1] = 8, 4, 8, 8, 16, 4, 8, 4, 4, 4, 8, 8, 4, 8, 4, 8, 8 };
	ENTER(cuPointerGetAttributes);
	REQUIRE(count && attributes && out);
	for (unsigned i = 0; i < count; i++) {
		unsigned attribute = (unsigned)attributes[i];
		if (!pointer_attribute(out[i], (int)attribute, address))
			continue;
		if (attribute < sizeof sizes)
			memset(out[i], 0, sizes[attribute]);
		if (attribute == V_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
			*(int *)out[i] = -2;
	}
	return CUDA_SUCCESS;
}
