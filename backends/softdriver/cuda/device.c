/* Devices and contexts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "../engine/visible.h"
#include "abi.h"

CUresult cuDeviceGet(CUdevice *out, int ordinal)
{
	struct soft_device *device;
	ENTER(cuDeviceGet);
	REQUIRE(out);
	NEED_DEVICE(device, ordinal);
	*out = ordinal;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
	ENTER(cuDeviceGetCount);
	REQUIRE(count);
	*count = soft_device_count();
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int room, CUdevice ordinal)
{
	struct soft_device *device;
	ENTER(cuDeviceGetName);
	REQUIRE(name && room > 0);
	NEED_DEVICE(device, ordinal);
	snprintf(name, (size_t)room, "Software CUDA device");
	return CUDA_SUCCESS;
}

static void write_uuid(char bytes[16], int number)
{
	memcpy(bytes, "softcuda-device", 15);
	bytes[15] = (char)('A' + number);
}

/* An ordinal, or enough of a UUID's beginning to tell it from the others, as nvidia-smi writes it. */
static int entry(const char *text, unsigned length, int devices)
{
	int found = -1;
	if (length < 5 || strncmp(text, "GPU-", 4))
		return soft_entry_ordinal(text, length, devices);
	for (int number = 0; number < devices; number++) {
		char bytes[16], name[48] = "GPU-";
		write_uuid(bytes, number);
		for (unsigned i = 0, at = 4; i < sizeof bytes; i++)
			at += (unsigned)snprintf(name + at, sizeof name - at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned char)bytes[i]);
		if (length > strlen(name) || strncasecmp(text, name, length))
			continue;
		if (found >= 0)
			return -1;
		found = number;
	}
	return found;
}

/* Set and empty hides them all. */
void cuda_visible(struct soft_visible *visible, int devices)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	if (list)
		soft_visible_list(visible, list, devices, entry, SOFT_AGAIN_ENDS);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice ordinal)
{
	struct soft_device *device;
	ENTER(cuDeviceGetUuid_v2);
	REQUIRE(uuid);
	NEED_DEVICE(device, ordinal);
	write_uuid(uuid->bytes, device->number);
	return CUDA_SUCCESS;
}

/* The older call tells the UUID of the whole GPU even of a part of one. There are no parts here. */
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice ordinal)
{
	struct soft_device *device;
	ENTER(cuDeviceGetUuid);
	REQUIRE(uuid);
	NEED_DEVICE(device, ordinal);
	write_uuid(uuid->bytes, device->number);
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal)
{
	struct soft_device *device;
	uint64_t unused, total;
	ENTER(cuDeviceTotalMem_v2);
	REQUIRE(bytes);
	NEED_DEVICE(device, ordinal);
	soft_memory_info(device, &unused, &total);
	*bytes = total;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *out, int room, CUdevice ordinal)
{
	struct soft_device *device;
	ENTER(cuDeviceGetPCIBusId);
	REQUIRE(out && room > 0);
	NEED_DEVICE(device, ordinal);
	snprintf(out, (size_t)room, "0000:%02x:00.0", 1 + device->number);
	return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice from, CUdevice to)
{
	struct soft_device *device;
	ENTER(cuDeviceCanAccessPeer);
	REQUIRE(can);
	NEED_DEVICE(device, from);
	NEED_DEVICE(device, to);
	*can = 0;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice ordinal)
{
	struct soft_device *device;
	ENTER(cuDeviceGetAttribute);
	REQUIRE(value);
	NEED_DEVICE(device, ordinal);
	switch ((int)attribute) {
	case V_CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
		*value = (int)soft_setting(&soft_settings.pools);
		break;
	case V_CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case V_CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
	case V_CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
	case V_CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
	case V_CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
	case V_CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
		*value = 1;
		break;
	case V_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		*value = 8;
		break;
	case V_CU_DEVICE_ATTRIBUTE_WARP_SIZE:
		*value = 32;
		break;
	case V_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		*value = 4;
		break;
	case V_CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = 1024;
		break;
	case V_CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
		*value = 1 + device->number;
		break;
	default: /* every other capability: absent */
		*value = 0;
	}
	return CUDA_SUCCESS;
}

/* ---- contexts ---- */

static CUcontext handle_of(struct soft_context *context) { return (CUcontext)(void *)context; }
static struct soft_context *context_of(CUcontext handle) { return (struct soft_context *)(void *)handle; }

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice ordinal)
{
	struct soft_device *device;
	ENTER(cuDevicePrimaryCtxRetain);
	REQUIRE(out);
	NEED_DEVICE(device, ordinal);
	*out = handle_of(soft_context_retain(device));
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
	struct soft_device *device;
	ENTER(cuDevicePrimaryCtxRelease_v2);
	NEED_DEVICE(device, ordinal);
	return cuda_result(soft_context_release(device));
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal)
{
	struct soft_device *device;
	ENTER(cuDevicePrimaryCtxReset_v2);
	NEED_DEVICE(device, ordinal);
	soft_context_reset(device);
	return cuda_result(SOFT_OK);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int *flags, int *active)
{
	struct soft_device *device;
	ENTER(cuDevicePrimaryCtxGetState);
	REQUIRE(flags && active);
	NEED_DEVICE(device, ordinal);
	soft_context_state(device, flags, active);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned int flags)
{
	struct soft_device *device;
	ENTER(cuDevicePrimaryCtxSetFlags_v2);
	NEED_DEVICE(device, ordinal);
	soft_context_set_flags(device, flags);
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
	ENTER(cuCtxSetCurrent);
	return cuda_result(soft_context_set(context_of(context)));
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
	ENTER(cuCtxGetCurrent);
	REQUIRE(context);
	*context = handle_of(soft_context_current());
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
	ENTER(cuCtxPushCurrent_v2);
	return cuda_result(soft_context_push(context_of(context)));
}

CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
	struct soft_context *context;
	ENTER(cuCtxPopCurrent_v2);
	enum soft_result result = soft_context_pop(&context);
	if (!result && out)
		*out = handle_of(context);
	return cuda_result(result);
}

CUresult cuCtxGetDevice(CUdevice *out)
{
	struct soft_device *device;
	ENTER(cuCtxGetDevice);
	REQUIRE(out);
	NEED_CONTEXT(device);
	*out = device->ordinal;
	return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
	struct soft_device *device;
	ENTER(cuCtxSynchronize);
	NEED_CONTEXT(device);
	return cuda_result(soft_device_synchronize(device));
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned int *version)
{
	struct soft_device *device;
	ENTER(cuCtxGetApiVersion);
	REQUIRE(version);
	if (context && !soft_context_known(context_of(context)))
		return (CUresult)V_CUDA_ERROR_INVALID_CONTEXT;
	if (!context)
		NEED_CONTEXT(device);
	*version = 3020;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	struct soft_device *device;
	ENTER(cuCtxGetStreamPriorityRange);
	NEED_CONTEXT(device);
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return CUDA_SUCCESS;
}
