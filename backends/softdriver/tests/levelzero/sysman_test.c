/* Sysman: free memory as the system sees it, and the ways to lose the way to it. */
#include "client.h"

static zes_driver_handle_t sysman(void)
{
	uint32_t one = 1;
	zes_driver_handle_t handle;
	OK(ze.zesDriverGet(&one, &handle));
	EQUAL(one, 1);
	return handle;
}

static void both(int devices)
{
	load();
	soft.set("devices", devices);
	soft.set("capacity", 8 * MIB + 3);
	start();
	OK(ze.zesInit(0));
}

static zes_device_handle_t unit_of(ze_device_handle_t of)
{
	ze_device_properties_t properties = { OF(DEVICE_PROPERTIES) };
	zes_device_handle_t unit;
	zes_uuid_t uuid;
	ze_bool_t on_subdevice = 7;
	uint32_t subdevice = 7;
	OK(ze.zeDeviceGetProperties(of, &properties));
	memcpy(&uuid, &properties.uuid, sizeof uuid);
	OK(ze.zesDriverGetDeviceByUuidExp(sysman(), uuid, &unit, &on_subdevice, &subdevice));
	EQUAL(on_subdevice, 0);
	EQUAL(subdevice, 0);
	return unit;
}

struct sums {
	uint32_t modules;
	uint64_t free, size, physical;
};

static struct sums memory_of(zes_device_handle_t unit)
{
	struct sums sums = { 0, 0, 0, 0 };
	zes_mem_handle_t modules[8];
	OK(ze.zesDeviceEnumMemoryModules(unit, &sums.modules, NULL));
	uint32_t count = 8;
	OK(ze.zesDeviceEnumMemoryModules(unit, &count, modules));
	EQUAL(count, sums.modules);
	for (uint32_t i = 0; i < count; i++) {
		zes_mem_state_t state = { ZES_OF(MEM_STATE) };
		zes_mem_properties_t properties = { ZES_OF(MEM_PROPERTIES) };
		OK(ze.zesMemoryGetState(modules[i], &state));
		OK(ze.zesMemoryGetProperties(modules[i], &properties));
		EQUAL(properties.location, V_ZES_MEM_LOC_DEVICE);
		EQUAL(state.health, V_ZES_MEM_HEALTH_OK);
		CHECK(state.free <= state.size);
		sums.free += state.free;
		sums.size += state.size;
		sums.physical += properties.physicalSize;
	}
	return sums;
}

TEST(free_memory_is_the_sum_of_the_modules)
{
	both(1);
	(void)allocate(MIB);
	soft.set("taken", 2 * MIB);
	for (int modules = 1; modules <= 4; modules++) {
		soft.set("memory_modules", modules);
		struct sums sums = memory_of(unit_of(device));
		EQUAL(sums.modules, modules);
		EQUAL(sums.free, 5 * MIB + 3);
		EQUAL(sums.size, 8 * MIB + 3);
		EQUAL(sums.physical, 8 * MIB + 3);
	}
	soft.set("memory_modules", 0); /* as integrated GPUs have it */
	EQUAL(memory_of(unit_of(device)).modules, 0);
	soft.set("memory_modules", 1);
	soft.set("taken", 100 * MIB);
	EQUAL(memory_of(unit_of(device)).free, 0);
}

TEST(sysman_has_its_own_handles_in_its_own_order)
{
	ze_device_handle_t devices[2];
	zes_device_handle_t units[2];
	uint32_t two = 2;
	both(2);
	OK(ze.zeDeviceGet(driver, &two, devices));
	OK(ze.zesDeviceGet(sysman(), &two, units));
	EQUAL(two, 2);
	CHECK(units[0] != devices[0] && units[0] != devices[1]);
	CHECK(unit_of(devices[0]) == units[1] && unit_of(devices[1]) == units[0]);
	(void)allocate(MIB); /* of the core's first device */
	EQUAL(memory_of(units[1]).free, 7 * MIB + 3);
	EQUAL(memory_of(units[0]).free, 8 * MIB + 3);
	for (int i = 0; i < 2; i++) {
		ze_device_properties_t core = { OF(DEVICE_PROPERTIES) };
		zes_device_properties_t unit = { ZES_OF(DEVICE_PROPERTIES) };
		OK(ze.zeDeviceGetProperties(devices[i], &core));
		OK(ze.zesDeviceGetProperties(unit_of(devices[i]), &unit));
		CHECK(!memcmp(&core.uuid, &unit.core.uuid, sizeof core.uuid)); /* the way to match them before there was a function for it */
	}
	/* Sysman's handles are nothing for the core */
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeDeviceGetStatus(units[0]));
	zes_uuid_t nobody = { { 1, 2, 3 } };
	ze_bool_t on_subdevice;
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zesDriverGetDeviceByUuidExp(sysman(), nobody, &units[0], &on_subdevice, &two));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zesDriverGetDeviceByUuidExp(driver, nobody, &units[0], &on_subdevice, &two));
}

TEST(a_core_handle_cast_into_sysman_is_the_end)
{
	uint32_t count = 0;
	both(1);
	RETURNS(V_ZE_RESULT_ERROR_DEVICE_LOST, ze.zesDeviceEnumMemoryModules(device, &count, NULL));
	RETURNS(V_ZE_RESULT_ERROR_DEVICE_LOST, ze.zeDeviceGetStatus(device));
	soft.reset();
	zes_device_properties_t properties = { ZES_OF(DEVICE_PROPERTIES) };
	RETURNS(V_ZE_RESULT_ERROR_DEVICE_LOST, ze.zesDeviceGetProperties(device, &properties));
}

TEST(the_old_way_by_the_environment)
{
	uint32_t count = 0;
	setenv("ZES_ENABLE_SYSMAN", "1", 1);
	load();
	start();
	(void)allocate(MIB);
	struct sums sums = memory_of(device); /* here the core's handle is Sysman's */
	EQUAL(sums.free, soft.get("capacity") - (long long)MIB);
	/* and what came with zesInit is not to be had */
	RETURNS(V_ZE_RESULT_ERROR_UNINITIALIZED, ze.zesInit(0));
	RETURNS(V_ZE_RESULT_ERROR_UNINITIALIZED, ze.zesDriverGet(&count, NULL));
	RETURNS(V_ZE_RESULT_ERROR_UNINITIALIZED, ze.zesDeviceGet(driver, &count, NULL));
}

TEST(zes_init_first_and_the_environment_is_passed_over)
{
	setenv("ZES_ENABLE_SYSMAN", "1", 1);
	load();
	OK(ze.zesInit(0));
	start();
	EQUAL(memory_of(unit_of(device)).modules, 1);
}

TEST(systems_without_sysman)
{
	uint32_t one = 1;
	zes_mem_handle_t module;
	zes_mem_state_t state = { ZES_OF(MEM_STATE) };
	zes_mem_properties_t properties = { ZES_OF(MEM_PROPERTIES) };
	load();
	soft.set("sysman", 0);
	start();
	RETURNS(V_ZE_RESULT_ERROR_UNINITIALIZED, ze.zesInit(0));
	RETURNS(V_ZE_RESULT_ERROR_UNINITIALIZED, ze.zesDriverGet(&one, NULL));
	soft.set("sysman", 2); /* there, but not for everybody */
	OK(ze.zesInit(0));
	OK(ze.zesDeviceEnumMemoryModules(unit_of(device), &one, &module));
	OK(ze.zesMemoryGetProperties(module, &properties));
	RETURNS(V_ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS, ze.zesMemoryGetState(module, &state));
	soft.set("sysman", 1);
	OK(ze.zesMemoryGetState(module, &state));
}
