/* Device and host memory. */
#include <string.h>

#include "../engine/host.h"
#include "abi.h"
#include "extension.h"

enum { PAGE = 4096 };

static uint64_t address_of(const void *pointer) { return (uint64_t)(uintptr_t)pointer; }

static int power_of_two_or_zero(size_t n) { return !(n & (n - 1)); }

/* Whether the client asks for more than maxMemAllocSize knowingly. Both descriptions look the same. */
static int wants_relaxed_limits(const void *next)
{
	const ze_relaxed_allocation_limits_exp_desc_t *relaxed = NULL;
	if (ze_has_extension(ZE_RELAXED_LIMITS))
		relaxed = ze_extension(next, V_ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXT_DESC);
	if (!relaxed && ze_has_extension(ZE_RELAXED_LIMITS_EXP))
		relaxed = ze_extension(next, V_ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC);
	return relaxed && (relaxed->flags & V_ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE);
}

ze_result_t zeMemAllocDevice(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *desc, size_t bytes, size_t alignment, ze_device_handle_t handle,
                             void **out)
{
	uint64_t address;
	ENTER(zeMemAllocDevice);
	NEED_HANDLE(context, ZE_CONTEXT);
	NEED_HANDLE(handle, ZE_DEVICE);
	NEED_STRUCTURE(desc, ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC);
	NEED_POINTER(out);
	NEED_FLAGS(desc->flags, V_ZE_DEVICE_MEM_ALLOC_FLAG_BIAS_CACHED | V_ZE_DEVICE_MEM_ALLOC_FLAG_BIAS_UNCACHED | V_ZE_DEVICE_MEM_ALLOC_FLAG_BIAS_INITIAL_PLACEMENT);
	struct soft_device *device = ZE_OBJECT(soft_device, handle);
	REFUSE_UNLESS(desc->ordinal == 0 && ze_driver_of(device) == ZE_OBJECT(ze_context, context)->driver, ERROR_INVALID_ARGUMENT);
	REFUSE_UNLESS(power_of_two_or_zero(alignment) && alignment <= SOFT_GRANULE, ERROR_UNSUPPORTED_ALIGNMENT);
	uint64_t most = wants_relaxed_limits(desc->pNext) ? (uint64_t)soft_setting(&soft_settings.capacity[device->ordinal]) : ze_largest_allocation(device);
	REFUSE_UNLESS(bytes && bytes <= most, ERROR_UNSUPPORTED_SIZE);
	enum soft_result result = soft_allocate(device, bytes, &address);
	if (!result) {
		soft_own(address, context);
		*out = (void *)(uintptr_t)address;
	}
	return ze_result(result);
}

/* Memory of the client that becomes host memory of the context as it is. */
static ze_result_t map_system_memory(const ze_external_memmap_sysmem_ext_desc_t *system, ze_context_handle_t context, unsigned flags, void **out)
{
	NEED_POINTER(system->pSystemMemory);
	REFUSE_UNLESS(address_of(system->pSystemMemory) % PAGE == 0, ERROR_UNSUPPORTED_ALIGNMENT);
	REFUSE_UNLESS(system->size && system->size % PAGE == 0, ERROR_UNSUPPORTED_SIZE);
	enum soft_result result = soft_host_register(system->pSystemMemory, system->size, flags);
	if (!result) {
		soft_own(address_of(system->pSystemMemory), context);
		*out = system->pSystemMemory;
	}
	return ze_result(result);
}

ze_result_t zeMemAllocHost(ze_context_handle_t context, const ze_host_mem_alloc_desc_t *desc, size_t bytes, size_t alignment, void **out)
{
	ENTER(zeMemAllocHost);
	NEED_HANDLE(context, ZE_CONTEXT);
	NEED_STRUCTURE(desc, ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC);
	NEED_POINTER(out);
	NEED_FLAGS(desc->flags, V_ZE_HOST_MEM_ALLOC_FLAG_BIAS_CACHED | V_ZE_HOST_MEM_ALLOC_FLAG_BIAS_UNCACHED | V_ZE_HOST_MEM_ALLOC_FLAG_BIAS_WRITE_COMBINED |
	                            V_ZE_HOST_MEM_ALLOC_FLAG_BIAS_INITIAL_PLACEMENT | (ze_knows(ZE_VERSION(1, 16)) ? V_ZE_HOST_MEM_ALLOC_FLAG_MEM_READ_ONLY : 0));
	REFUSE_UNLESS(power_of_two_or_zero(alignment) && alignment <= PAGE, ERROR_UNSUPPORTED_ALIGNMENT);
	REFUSE_UNLESS(bytes, ERROR_UNSUPPORTED_SIZE);
	const void *system = ze_extension(desc->pNext, V_ZE_STRUCTURE_TYPE_EXTERNAL_MEMMAP_SYSMEM_EXT_DESC);
	if (system && ze_has_extension(ZE_SYSTEM_MEMORY_MAP))
		return map_system_memory(system, context, (unsigned)desc->flags, out);
	enum soft_result result = soft_host_allocate(bytes, (unsigned)desc->flags, out);
	if (!result)
		soft_own(address_of(*out), context);
	return ze_result(result == SOFT_OUT_OF_MEMORY ? SOFT_OPERATING_SYSTEM : result);
}

/* ---- frees ---- */

enum memory_kind { NO_MEMORY, DEVICE_MEMORY, HOST_MEMORY };

/* What begins there and belongs to this context. */
static enum memory_kind kind_of(ze_context_handle_t context, const void *pointer)
{
	struct soft_block_info block;
	struct soft_host_range host;
	if (soft_block_info(address_of(pointer), &block))
		return block.address == address_of(pointer) && block.owner == (void *)context ? DEVICE_MEMORY : NO_MEMORY;
	if (soft_host_find(address_of(pointer), &host))
		return host.address == address_of(pointer) && host.owner == (void *)context ? HOST_MEMORY : NO_MEMORY;
	return NO_MEMORY;
}

static ze_result_t free_by(ze_context_handle_t context, void *pointer, enum soft_result (*device)(uint64_t), enum soft_result (*host)(void *))
{
	switch (kind_of(context, pointer)) {
	case DEVICE_MEMORY: return ze_result(device(address_of(pointer)));
	case HOST_MEMORY: return ze_result(host(pointer));
	case NO_MEMORY: break;
	}
	return ze_result(SOFT_INVALID_VALUE);
}

/* Without any check, as the specification has it: what still uses the memory finds it gone. */
ze_result_t zeMemFree(ze_context_handle_t context, void *pointer)
{
	ENTER(zeMemFree);
	NEED_HANDLE(context, ZE_CONTEXT);
	NEED_POINTER(pointer);
	return free_by(context, pointer, soft_free, soft_host_drop);
}

ze_result_t zeMemFreeExt(ze_context_handle_t context, const ze_memory_free_ext_desc_t *desc, void *pointer)
{
	enum { BLOCKING = V_ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE, DEFERRED = V_ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE };
	ENTER(zeMemFreeExt);
	NEED_HANDLE(context, ZE_CONTEXT);
	REFUSE_UNLESS(ze_has_extension(ZE_FREE_POLICIES), ERROR_UNSUPPORTED_FEATURE);
	NEED_STRUCTURE(desc, ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC);
	NEED_POINTER(pointer);
	NEED_FLAGS(desc->freePolicy, BLOCKING | DEFERRED);
	REFUSE_UNLESS(desc->freePolicy != (BLOCKING | DEFERRED), ERROR_INVALID_ENUMERATION); /* one or the other */
	REFUSE_UNLESS(!(desc->freePolicy & ~(unsigned)soft_setting(&ze_settings.free_policies)), ERROR_UNSUPPORTED_ENUMERATION);
	if (desc->freePolicy == BLOCKING)
		return free_by(context, pointer, soft_free_waiting, soft_host_drop_waiting);
	if (desc->freePolicy == DEFERRED)
		return free_by(context, pointer, soft_free_deferred, soft_host_drop_deferred);
	return free_by(context, pointer, soft_free, soft_host_drop);
}

/* ---- facts ---- */

/* Any pointer may be asked about; one that is not this context's is of unknown type. */
ze_result_t zeMemGetAllocProperties(ze_context_handle_t context, const void *pointer, ze_memory_allocation_properties_t *properties, ze_device_handle_t *device)
{
	struct soft_block_info block;
	struct soft_host_range host;
	ENTER(zeMemGetAllocProperties);
	NEED_HANDLE(context, ZE_CONTEXT);
	NEED_POINTER(pointer);
	NEED_STRUCTURE(properties, ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES);
	int is_block = soft_block_info(address_of(pointer), &block) && block.owner == (void *)context;
	int is_host = !is_block && soft_host_find(address_of(pointer), &host) && host.owner == (void *)context;
	properties->type = (ze_memory_type_t)(is_block ? V_ZE_MEMORY_TYPE_DEVICE : is_host ? V_ZE_MEMORY_TYPE_HOST : V_ZE_MEMORY_TYPE_UNKNOWN);
	properties->id = is_block ? block.id : 0;
	properties->pageSize = is_block || is_host ? PAGE : 0;
	if (device)
		*device = is_block ? ZE_HANDLE(ze_device_handle_t, block.device) : NULL;
	return ze_result(SOFT_OK);
}

ze_result_t zeMemGetAddressRange(ze_context_handle_t context, const void *pointer, void **base, size_t *bytes)
{
	struct soft_block_info block;
	struct soft_host_range host;
	ENTER(zeMemGetAddressRange);
	NEED_HANDLE(context, ZE_CONTEXT);
	NEED_POINTER(pointer);
	int is_block = soft_block_info(address_of(pointer), &block) && block.owner == (void *)context;
	int is_host = !is_block && soft_host_find(address_of(pointer), &host) && host.owner == (void *)context;
	if (!is_block && !is_host)
		return (ze_result_t)(ze_knows(ZE_VERSION(1, 14)) ? V_ZE_RESULT_ERROR_ADDRESS_NOT_FOUND : V_ZE_RESULT_ERROR_UNKNOWN);
	if (base)
		*base = (void *)(uintptr_t)(is_block ? block.address : host.address);
	if (bytes)
		*bytes = is_block ? block.size : host.bytes;
	return ze_result(SOFT_OK);
}

/* ---- memory of the client that devices may reach directly: of a driver, in no header ---- */

ze_result_t ze_zexDriverImportExternalPointer(ze_driver_handle_t driver, void *pointer, size_t bytes)
{
	ENTER(zexDriverImportExternalPointer);
	NEED_HANDLE(driver, ZE_DRIVER);
	NEED_POINTER(pointer);
	REFUSE_UNLESS(bytes, ERROR_INVALID_SIZE);
	enum soft_result result = soft_host_register(pointer, bytes, 0);
	if (!result)
		soft_own(address_of(pointer), driver);
	return ze_result(result);
}

ze_result_t ze_zexDriverReleaseImportedPointer(ze_driver_handle_t driver, void *pointer)
{
	struct soft_host_range host;
	ENTER(zexDriverReleaseImportedPointer);
	NEED_HANDLE(driver, ZE_DRIVER);
	NEED_POINTER(pointer);
	REFUSE_UNLESS(soft_host_find(address_of(pointer), &host) && host.owner == (void *)driver, ERROR_INVALID_ARGUMENT);
	return ze_result(soft_host_drop(pointer));
}

ze_result_t ze_zexDriverGetHostPointerBaseAddress(ze_driver_handle_t driver, void *pointer, void **base)
{
	struct soft_host_range host;
	ENTER(zexDriverGetHostPointerBaseAddress);
	NEED_HANDLE(driver, ZE_DRIVER);
	NEED_POINTER(pointer);
	NEED_POINTER(base);
	REFUSE_UNLESS(soft_host_find(address_of(pointer), &host) && host.owner == (void *)driver, ERROR_INVALID_ARGUMENT);
	*base = (void *)(uintptr_t)host.address;
	return ze_result(SOFT_OK);
}
