/* Device memory, host memory, facts about pointers. */
#include "../engine/host.h"
#include "../engine/pool.h"
#include "abi.h"

hipError_t hipMemGetInfo(size_t *free_bytes, size_t *total)
{
	uint64_t available, all;
	ENTER(hipMemGetInfo);
	soft_memory_info(hip_device(), &available, &all);
	if (free_bytes)
		*free_bytes = available;
	if (total)
		*total = all;
	return hip_result(SOFT_OK);
}

hipError_t hipMalloc(void **out, size_t bytes)
{
	uint64_t address = 0;
	ENTER(hipMalloc);
	REQUIRE(out);
	enum soft_result result = bytes ? soft_allocate(hip_device(), bytes, &address) : SOFT_OK;
	*out = result ? NULL : (void *)(uintptr_t)address;
	return hip_result(result);
}

/* Waits for the device's work first, unless the setting implicit_sync says otherwise: soft_free does. */
hipError_t hipFree(void *address)
{
	ENTER(hipFree);
	return hip_result(address ? soft_free(hip_address(address)) : SOFT_OK);
}

/* ---- host memory ---- */

enum { REGISTER_FLAGS = 15 };
static const unsigned both_coherences = 0xc0000000u; /* hipHostMallocCoherent and hipHostMallocNonCoherent */

hipError_t hipHostMalloc(void **out, size_t bytes, unsigned int flags)
{
	ENTER(hipHostMalloc);
	REQUIRE(out);
	*out = NULL;
	REQUIRE((flags & both_coherences) != both_coherences);
	return hip_result(bytes ? soft_host_allocate(bytes, flags, out) : SOFT_OK);
}

hipError_t hipHostFree(void *address)
{
	ENTER(hipHostFree);
	return hip_result(address ? soft_host_free(address) : SOFT_OK);
}

hipError_t hipHostRegister(void *address, size_t bytes, unsigned int flags)
{
	ENTER(hipHostRegister);
	REQUIRE(address && bytes && flags <= REGISTER_FLAGS);
	return hip_result(soft_host_register(address, bytes, flags));
}

hipError_t hipHostUnregister(void *address)
{
	ENTER(hipHostUnregister);
	REQUIRE(address);
	return hip_result(soft_host_unregister(address));
}

hipError_t hipHostGetDevicePointer(void **out, void *address, unsigned int flags)
{
	struct soft_host_range range;
	ENTER(hipHostGetDevicePointer);
	REQUIRE(out && address && flags == 0);
	REQUIRE(soft_host_find(hip_address(address), &range));
	*out = address;
	return hip_result(SOFT_OK);
}

hipError_t hipHostGetFlags(unsigned int *flags, void *address)
{
	struct soft_host_range range;
	ENTER(hipHostGetFlags);
	REQUIRE(flags && address && soft_host_find(hip_address(address), &range));
	*flags = range.flags;
	return hip_result(SOFT_OK);
}

/* ---- facts about pointers ---- */

/* AMD's runtime finds pinned host memory, too. */
hipError_t hipMemGetAddressRange(hipDeviceptr_t *base, size_t *bytes, hipDeviceptr_t address)
{
	struct soft_block_info info;
	struct soft_host_range host;
	ENTER(hipMemGetAddressRange);
	int is_block = soft_block_info(hip_address(address), &info);
	if (!is_block && !soft_host_find(hip_address(address), &host))
		return hip_result(SOFT_NOT_FOUND);
	if (base)
		*base = (hipDeviceptr_t)(uintptr_t)(is_block ? info.address : host.address);
	if (bytes)
		*bytes = is_block ? info.size : host.bytes;
	return hip_result(SOFT_OK);
}

/* The numbers of host and device memory were one lower before HIP 6, which made 0 "unregistered": before, such a pointer was an error. */
static hipError_t attributes_of(hipPointerAttribute_t *attributes, uint64_t address)
{
	struct soft_block_info block;
	struct soft_host_range host;
	int old = soft_setting(&soft_settings.driver_version) < 60000000;
	*attributes = (hipPointerAttribute_t){ 0 };
	if (soft_block_info(address, &block)) {
		attributes->type = (hipMemoryType)(V_hipMemoryTypeDevice - old);
		attributes->device = block.device->ordinal;
		attributes->devicePointer = (void *)(uintptr_t)address;
	} else if (soft_host_find(address, &host)) {
		attributes->type = (hipMemoryType)(V_hipMemoryTypeHost - old);
		attributes->devicePointer = attributes->hostPointer = (void *)(uintptr_t)address;
		attributes->allocationFlags = host.flags;
	} else if (old) {
		return hip_answer(V_hipErrorInvalidValue);
	} else {
		attributes->type = (hipMemoryType)V_hipMemoryTypeUnregistered;
		attributes->device = -2; /* no device */
	}
	return hip_result(SOFT_OK);
}

hipError_t hipPointerGetAttributes(hipPointerAttribute_t *attributes, const void *address)
{
	ENTER(hipPointerGetAttributes);
	REQUIRE(attributes && address);
	return attributes_of(attributes, hip_address(address));
}
