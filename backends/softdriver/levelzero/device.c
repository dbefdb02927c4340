/* Devices and contexts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../engine/lock.h"
#include "../engine/record.h"
#include "../engine/visible.h"
#include "abi.h"
#include "extension.h"
#include "properties.h"
#include "queue.h"

void ze_device_uuid(const struct soft_device *device, uint8_t id[16])
{
	memcpy(id, "softlevelzerodev", 16);
	id[15] = (uint8_t)('A' + device->number);
}

/* The mask is a set: devices stay in their order. An entry "N.M" names a part of a device, and there are no parts here. */
void ze_visible(struct soft_visible *visible, int devices)
{
	const char *mask = getenv("ZE_AFFINITY_MASK");
	if (!mask || !*mask)
		return;
	int seen[SOFT_MAX_DEVICES] = { 0 };
	for (size_t length; *mask; mask += length + (mask[length] == ',')) {
		mask += strspn(mask, " ");
		length = strcspn(mask, ",");
		int number = soft_entry_ordinal(mask, (unsigned)length, devices);
		if (number >= 0)
			seen[number] = 1;
	}
	visible->count = 0;
	for (int number = 0; number < devices; number++)
		if (seen[number])
			visible->numbers[visible->count++] = number;
}

uint64_t ze_largest_allocation(const struct soft_device *device)
{
	uint64_t capacity = (uint64_t)soft_setting(&soft_settings.capacity[device->ordinal]), most = (uint64_t)soft_setting(&ze_settings.max_alloc);
	return most && most < capacity ? most : capacity;
}

void ze_describe(struct soft_device *device, ze_device_properties_t *properties)
{
	properties->type = (ze_device_type_t)V_ZE_DEVICE_TYPE_GPU;
	properties->vendorId = 0;
	properties->deviceId = (uint32_t)device->number;
	properties->flags = soft_setting(&ze_settings.integrated) ? V_ZE_DEVICE_PROPERTY_FLAG_INTEGRATED : 0;
	properties->subdeviceId = 0;
	properties->coreClockRate = 1000;
	properties->maxMemAllocSize = ze_largest_allocation(device);
	properties->maxHardwareContexts = 1024;
	properties->maxCommandQueuePriority = 0;
	properties->numThreadsPerEU = 8;
	properties->physicalEUSimdWidth = 16;
	properties->numEUsPerSubslice = 8;
	properties->numSubslicesPerSlice = 1;
	properties->numSlices = 1;
	properties->timerResolution = 1;
	properties->timestampValidBits = 64;
	properties->kernelTimestampValidBits = 64;
	ze_device_uuid(device, properties->uuid.id);
	snprintf(properties->name, sizeof properties->name, "Software Level Zero device");
}

ze_result_t zeDeviceGet(ze_driver_handle_t driver, uint32_t *count, ze_device_handle_t *out)
{
	ENTER(zeDeviceGet);
	NEED_HANDLE(driver, ZE_DRIVER);
	NEED_POINTER(count);
	struct soft_device *have[SOFT_MAX_DEVICES];
	uint32_t total = 0;
	for (int i = 0; i < soft_device_count(); i++)
		if (ze_driver_of(soft_device(i)) == ZE_OBJECT(ze_driver, driver))
			have[total++] = soft_device(i);
	uint32_t fit = ze_fit(count, total, out);
	for (uint32_t i = 0; i < fit; i++)
		out[i] = ZE_HANDLE(ze_device_handle_t, have[i]);
	return ze_result(SOFT_OK);
}

ze_result_t zeDeviceGetProperties(ze_device_handle_t handle, ze_device_properties_t *properties)
{
	uint64_t available, total;
	ENTER(zeDeviceGetProperties);
	NEED_HANDLE(handle, ZE_DEVICE);
	NEED_STRUCTURE(properties, ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES);
	struct soft_device *device = ZE_OBJECT(soft_device, handle);
	ze_describe(device, properties);
	ze_device_usablemem_size_ext_properties_t *usable = (void *)ze_extension(properties->pNext, V_ZE_STRUCTURE_TYPE_DEVICE_USABLEMEM_SIZE_EXT_PROPERTIES);
	if (usable && ze_has_extension(ZE_USABLE_MEMORY)) {
		soft_memory_info(device, &available, &total);
		usable->currUsableMemSize = available;
	}
	return ze_result(SOFT_OK);
}

ze_result_t zeDeviceGetMemoryProperties(ze_device_handle_t handle, uint32_t *count, ze_device_memory_properties_t *out)
{
	uint64_t available, total;
	ENTER(zeDeviceGetMemoryProperties);
	NEED_HANDLE(handle, ZE_DEVICE);
	NEED_POINTER(count);
	if (ze_fit(count, 1, out)) {
		NEED_STRUCTURE(out, ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES);
		soft_memory_info(ZE_OBJECT(soft_device, handle), &available, &total);
		out->flags = 0;
		out->maxClockRate = 1000;
		out->maxBusWidth = 64;
		out->totalSize = total;
		snprintf(out->name, sizeof out->name, "host memory");
	}
	return ze_result(SOFT_OK);
}

/* One group that can do everything, and one that can only copy. */
ze_result_t zeDeviceGetCommandQueueGroupProperties(ze_device_handle_t handle, uint32_t *count, ze_command_queue_group_properties_t *out)
{
	ENTER(zeDeviceGetCommandQueueGroupProperties);
	NEED_HANDLE(handle, ZE_DEVICE);
	NEED_POINTER(count);
	uint32_t fit = ze_fit(count, ZE_QUEUE_GROUPS, out);
	for (uint32_t i = 0; i < fit; i++) {
		NEED_STRUCTURE(&out[i], ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES);
		out[i].flags = V_ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY | (i == 0 ? V_ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE : 0);
		out[i].maxMemoryFillPatternSize = (size_t)soft_setting(&ze_settings.fill_pattern);
		out[i].numQueues = ZE_QUEUES_OF_A_GROUP;
	}
	return ze_result(SOFT_OK);
}

ze_result_t zeDeviceGetStatus(ze_device_handle_t handle)
{
	ENTER(zeDeviceGetStatus); /* a device that is lost says so here */
	NEED_HANDLE(handle, ZE_DEVICE);
	return ze_result(SOFT_OK);
}

/* ---- contexts ---- */

ze_result_t zeContextCreate(ze_driver_handle_t driver, const ze_context_desc_t *desc, ze_context_handle_t *out)
{
	ENTER(zeContextCreate);
	NEED_HANDLE(driver, ZE_DRIVER);
	NEED_STRUCTURE(desc, ZE_STRUCTURE_TYPE_CONTEXT_DESC);
	NEED_FLAGS(desc->flags, 1);
	NEED_POINTER(out);
	struct ze_context *context = soft_records(1, sizeof *context);
	context->driver = ZE_OBJECT(ze_driver, driver);
	ze_handle_add(context, ZE_CONTEXT);
	*out = ZE_HANDLE(ze_context_handle_t, context);
	return ze_result(SOFT_OK);
}

/* Its memory goes with it, at once, whoever still uses it. Its queues, lists and events must have been destroyed before. */
ze_result_t zeContextDestroy(ze_context_handle_t handle)
{
	ENTER(zeContextDestroy);
	NEED_HANDLE(handle, ZE_CONTEXT);
	struct ze_context *context = ZE_OBJECT(ze_context, handle);
	soft_lock();
	int in_use = context->objects != 0;
	if (!in_use) {
		soft_handle_remove(context);
		soft_owner_end(context);
	}
	soft_unlock();
	REFUSE_UNLESS(!in_use, ERROR_HANDLE_OBJECT_IN_USE);
	free(context);
	return ze_result(SOFT_OK);
}

ze_result_t zeContextGetStatus(ze_context_handle_t handle)
{
	ENTER(zeContextGetStatus);
	NEED_HANDLE(handle, ZE_CONTEXT);
	return ze_result(SOFT_OK);
}
