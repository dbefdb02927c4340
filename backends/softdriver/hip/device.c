/* Devices, and which of them a thread works with. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../engine/context.h"
#include "../engine/visible.h"
#include "abi.h"

static __thread int current;

struct soft_device *hip_device(void) { return soft_device(current); }

hipError_t hipGetDeviceCount(int *count)
{
	ENTER_AT(SOFT_DOOR_START, hipGetDeviceCount);
	(void)soft_start(); /* all that can go wrong is that there is no device, which this function says in its own way */
	REQUIRE(count);
	*count = soft_device_count();
	return *count ? hip_result(SOFT_OK) : hip_answer(V_hipErrorNoDevice);
}

hipError_t hipSetDevice(int ordinal)
{
	struct soft_device *device;
	ENTER(hipSetDevice);
	NEED_DEVICE(device, ordinal);
	current = device->ordinal;
	return hip_result(SOFT_OK);
}

hipError_t hipGetDevice(int *ordinal)
{
	ENTER(hipGetDevice);
	REQUIRE(ordinal);
	*ordinal = current;
	return hip_result(SOFT_OK);
}

hipError_t hipDeviceGet(hipDevice_t *out, int ordinal)
{
	struct soft_device *device;
	ENTER(hipDeviceGet);
	REQUIRE(out);
	NEED_DEVICE(device, ordinal);
	*out = device->ordinal;
	return hip_result(SOFT_OK);
}

hipError_t hipDeviceGetName(char *name, int room, hipDevice_t ordinal)
{
	struct soft_device *device;
	ENTER(hipDeviceGetName);
	NEED_DEVICE(device, ordinal);
	REQUIRE(name && room > 0);
	snprintf(name, (size_t)room, "Software HIP device");
	return hip_result(SOFT_OK);
}

enum { UUID_DIGITS = 16 };
static void write_uuid(char digits[UUID_DIGITS + 1], int number) { snprintf(digits, UUID_DIGITS + 1, "50f7a3e00000%04x", (unsigned)number & 0xffff); }

static int entry(const char *text, unsigned length, int devices)
{
	if (strncmp(text, "GPU-", 4))
		return soft_entry_ordinal(text, length, devices);
	for (int number = 0; number < devices; number++) {
		char digits[UUID_DIGITS + 1];
		write_uuid(digits, number);
		if (length == 4 + UUID_DIGITS && !strncmp(text + 4, digits, UUID_DIGITS))
			return number;
	}
	return -1;
}

/* An empty variable is as good as none, which is not so with CUDA; then CUDA's is looked at. */
void hip_visible(struct soft_visible *visible, int devices)
{
	const char *list = getenv("HIP_VISIBLE_DEVICES");
	if (!list || !*list)
		list = getenv("CUDA_VISIBLE_DEVICES");
	if (list && *list)
		soft_visible_list(visible, list, devices, entry, SOFT_AGAIN_PASSES);
}

/* As AMD's are: sixteen hexadecimal digits in ASCII, no ending zero. */
hipError_t hipDeviceGetUuid(hipUUID *uuid, hipDevice_t ordinal)
{
	struct soft_device *device;
	char digits[UUID_DIGITS + 1];
	ENTER(hipDeviceGetUuid);
	NEED_DEVICE(device, ordinal);
	REQUIRE(uuid);
	write_uuid(digits, device->number);
	memcpy(uuid->bytes, digits, sizeof uuid->bytes);
	return hip_result(SOFT_OK);
}

hipError_t hipDeviceTotalMem(size_t *bytes, hipDevice_t ordinal)
{
	struct soft_device *device;
	uint64_t unused, total;
	ENTER(hipDeviceTotalMem);
	NEED_DEVICE(device, ordinal);
	REQUIRE(bytes);
	soft_memory_info(device, &unused, &total);
	*bytes = total;
	return hip_result(SOFT_OK);
}

hipError_t hipDeviceGetPCIBusId(char *out, int room, int ordinal)
{
	struct soft_device *device;
	ENTER(hipDeviceGetPCIBusId);
	NEED_DEVICE(device, ordinal);
	REQUIRE(out && room > 0);
	snprintf(out, (size_t)room, "0000:%02x:00.0", 1 + device->number);
	return hip_result(SOFT_OK);
}

hipError_t hipDeviceCanAccessPeer(int *can, int from, int to)
{
	struct soft_device *device;
	ENTER(hipDeviceCanAccessPeer);
	REQUIRE(can);
	NEED_DEVICE(device, from);
	NEED_DEVICE(device, to);
	*can = 0;
	return hip_result(SOFT_OK);
}

hipError_t hipDeviceGetAttribute(int *value, hipDeviceAttribute_t attribute, int ordinal)
{
	struct soft_device *device;
	ENTER(hipDeviceGetAttribute);
	REQUIRE(value);
	NEED_DEVICE(device, ordinal);
	switch ((int)attribute) {
	case V_hipDeviceAttributeMemoryPoolsSupported:
		*value = (int)soft_setting(&soft_settings.pools);
		break;
	case V_hipDeviceAttributeUnifiedAddressing:
	case V_hipDeviceAttributeCanMapHostMemory:
	case V_hipDeviceAttributeConcurrentKernels:
	case V_hipDeviceAttributeAsyncEngineCount:
		*value = 1;
		break;
	case V_hipDeviceAttributeComputeCapabilityMajor:
		*value = 9;
		break;
	case V_hipDeviceAttributeWarpSize:
		*value = 64;
		break;
	case V_hipDeviceAttributeMultiprocessorCount:
		*value = 4;
		break;
	case V_hipDeviceAttributeMaxThreadsPerBlock:
		*value = 1024;
		break;
	case V_hipDeviceAttributePciBusId:
		*value = 1 + device->number;
		break;
	default:
		/* every other capability: absent. What is no attribute at all is an error. */
		REQUIRE((int)attribute >= 0 && (int)attribute < V_hipDeviceAttributeAmdSpecificEnd && (int)attribute != V_hipDeviceAttributeCudaCompatibleEnd);
		*value = 0;
	}
	return hip_result(SOFT_OK);
}

hipError_t hipDeviceSynchronize(void)
{
	ENTER(hipDeviceSynchronize);
	return hip_result(soft_device_synchronize(hip_device()));
}

hipError_t hipDeviceReset(void)
{
	ENTER(hipDeviceReset);
	soft_context_reset(hip_device());
	return hip_result(SOFT_OK);
}
