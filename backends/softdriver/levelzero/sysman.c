/* Sysman: how much memory is free, as the system sees it. */
#include "sysman.h"

#include <stdio.h>
#include <string.h>

#include "../engine/lock.h"
#include "abi.h"
#include "properties.h"

/* One part of a device's memory, as a card with several stacks has them. */
struct zes_module {
	struct soft_device *device;
	int index;
};
struct zes_device {
	struct soft_device *device;
	struct zes_module modules[ZES_MOST_MODULES];
};
static char driver; /* its address is the handle: one driver for all devices */
static struct zes_device devices[SOFT_MAX_DEVICES];
static _Atomic int with_core;

void zes_open_locked(void)
{
	soft_handle_add(&driver, (enum soft_kind)ZES_DRIVER);
	for (int i = 0; i < soft_device_count(); i++) {
		devices[i].device = soft_device(i);
		soft_handle_add(&devices[i], (enum soft_kind)ZES_DEVICE);
		for (int m = 0; m < ZES_MOST_MODULES; m++) {
			devices[i].modules[m] = (struct zes_module){ soft_device(i), m };
			soft_handle_add(&devices[i].modules[m], (enum soft_kind)ZES_MEMORY);
		}
	}
}

void zes_start_with_core(void)
{
	if (!atomic_load(&ze_started[ZE_SYSMAN])) {
		atomic_store(&with_core, 1);
		atomic_store(&ze_started[ZE_SYSMAN], 1);
	}
}

int zes_started_with_core(void) { return atomic_load(&with_core); }

/* A Sysman handle, or, where Sysman came up with the core, the core's. After zesInit a core handle here crashes real drivers: a client that
 * casts must not get away with it. */
static ze_result_t device_of(zes_device_handle_t handle, struct zes_device **out)
{
	REFUSE_UNLESS(handle, ERROR_INVALID_NULL_HANDLE);
	if (ze_handle_is(handle, ZE_DEVICE)) {
		if (!zes_started_with_core()) {
			fprintf(stderr, "%s: a core device handle was given to Sysman after zesInit\n", soft_abi.name);
			soft_poison(SOFT_ILLEGAL_ADDRESS);
			return ze_result(SOFT_OK);
		}
		*out = &devices[ZE_OBJECT(soft_device, handle)->ordinal];
		return ZE_RESULT_SUCCESS;
	}
	REFUSE_UNLESS(ze_handle_is(handle, ZES_DEVICE), ERROR_INVALID_ARGUMENT);
	*out = ZE_OBJECT(zes_device, handle);
	return ZE_RESULT_SUCCESS;
}

#define NEED_SYSMAN_DEVICE(out, handle) \
	do { \
		ze_result_t result_ = device_of(handle, &(out)); \
		if (result_) \
			return result_; \
	} while (0)
/* What only zesInit brings. */
#define NEED_ZES_INIT() REFUSE_UNLESS(!zes_started_with_core(), ERROR_UNINITIALIZED)

ze_result_t zesDriverGet(uint32_t *count, zes_driver_handle_t *out)
{
	ENTER_SYSMAN(zesDriverGet);
	NEED_ZES_INIT();
	NEED_POINTER(count);
	if (ze_fit(count, 1, out))
		out[0] = ZE_HANDLE(zes_driver_handle_t, &driver);
	return ze_result(SOFT_OK);
}

/* In another order than the core's, which nothing promises to be the same. */
ze_result_t zesDeviceGet(zes_driver_handle_t handle, uint32_t *count, zes_device_handle_t *out)
{
	ENTER_SYSMAN(zesDeviceGet);
	NEED_ZES_INIT();
	NEED_HANDLE(handle, ZES_DRIVER);
	NEED_POINTER(count);
	uint32_t total = (uint32_t)soft_device_count(), fit = ze_fit(count, total, out);
	for (uint32_t i = 0; i < fit; i++)
		out[i] = ZE_HANDLE(zes_device_handle_t, &devices[total - 1 - i]);
	return ze_result(SOFT_OK);
}

ze_result_t zesDriverGetDeviceByUuidExp(zes_driver_handle_t handle, zes_uuid_t uuid, zes_device_handle_t *out, ze_bool_t *on_subdevice, uint32_t *subdevice)
{
	ENTER_SYSMAN(zesDriverGetDeviceByUuidExp);
	NEED_ZES_INIT();
	NEED_HANDLE(handle, ZES_DRIVER);
	NEED_POINTER(out);
	NEED_POINTER(on_subdevice);
	NEED_POINTER(subdevice);
	for (int i = 0; i < soft_device_count(); i++) {
		uint8_t id[16];
		ze_device_uuid(devices[i].device, id);
		if (!memcmp(id, uuid.id, sizeof id)) {
			*out = ZE_HANDLE(zes_device_handle_t, &devices[i]);
			*on_subdevice = 0;
			*subdevice = 0;
			return ze_result(SOFT_OK);
		}
	}
	return (ze_result_t)V_ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

ze_result_t zesDeviceGetProperties(zes_device_handle_t handle, zes_device_properties_t *properties)
{
	struct zes_device *device;
	ENTER_SYSMAN(zesDeviceGetProperties);
	NEED_SYSMAN_DEVICE(device, handle);
	NEED_STRUCTURE(properties, ZES_STRUCTURE_TYPE_DEVICE_PROPERTIES);
	ze_describe(device->device, &properties->core);
	properties->numSubdevices = 0;
	strcpy(properties->serialNumber, "unknown");
	strcpy(properties->boardNumber, "unknown");
	strcpy(properties->brandName, "unknown");
	strcpy(properties->modelName, properties->core.name);
	strcpy(properties->vendorName, "unknown");
	snprintf(properties->driverVersion, sizeof properties->driverVersion, "%lld", soft_setting(&soft_settings.driver_version));
	return ze_result(SOFT_OK);
}

/* An integrated GPU has no module of its own; that is for the setting to say. */
ze_result_t zesDeviceEnumMemoryModules(zes_device_handle_t handle, uint32_t *count, zes_mem_handle_t *out)
{
	struct zes_device *device;
	ENTER_SYSMAN(zesDeviceEnumMemoryModules);
	NEED_SYSMAN_DEVICE(device, handle);
	NEED_POINTER(count);
	uint32_t fit = ze_fit(count, (uint32_t)soft_setting(&ze_settings.memory_modules), out);
	for (uint32_t i = 0; i < fit; i++)
		out[i] = ZE_HANDLE(zes_mem_handle_t, &device->modules[i]);
	return ze_result(SOFT_OK);
}

/* A module's share: what does not divide is the first one's. */
static uint64_t share(const struct zes_module *module, uint64_t bytes)
{
	uint64_t modules = (uint64_t)soft_setting(&ze_settings.memory_modules);
	if (!modules)
		modules = 1;
	return bytes / modules + (module->index ? 0 : bytes % modules);
}

ze_result_t zesMemoryGetProperties(zes_mem_handle_t handle, zes_mem_properties_t *properties)
{
	uint64_t available, total;
	ENTER_SYSMAN(zesMemoryGetProperties);
	NEED_HANDLE(handle, ZES_MEMORY);
	NEED_STRUCTURE(properties, ZES_STRUCTURE_TYPE_MEM_PROPERTIES);
	const struct zes_module *module = ZE_OBJECT(zes_module, handle);
	soft_memory_info(module->device, &available, &total);
	properties->type = (zes_mem_type_t)V_ZES_MEM_TYPE_HBM;
	properties->onSubdevice = 0;
	properties->subdeviceId = 0;
	properties->location = (zes_mem_loc_t)V_ZES_MEM_LOC_DEVICE;
	properties->physicalSize = share(module, total);
	properties->busWidth = -1;
	properties->numChannels = -1;
	return ze_result(SOFT_OK);
}

ze_result_t zesMemoryGetState(zes_mem_handle_t handle, zes_mem_state_t *state)
{
	enum { REFUSED_TO_USERS = 2 };
	uint64_t available, total;
	ENTER_SYSMAN(zesMemoryGetState);
	NEED_HANDLE(handle, ZES_MEMORY);
	NEED_STRUCTURE(state, ZES_STRUCTURE_TYPE_MEM_STATE);
	REFUSE_UNLESS(soft_setting(&ze_settings.sysman) != REFUSED_TO_USERS, ERROR_INSUFFICIENT_PERMISSIONS);
	const struct zes_module *module = ZE_OBJECT(zes_module, handle);
	soft_memory_info(module->device, &available, &total);
	state->health = (zes_mem_health_t)V_ZES_MEM_HEALTH_OK;
	state->free = share(module, available);
	state->size = share(module, total);
	return ze_result(SOFT_OK);
}
