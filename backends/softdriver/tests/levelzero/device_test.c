/* Drivers, devices, what they say about themselves, extensions, old versions. */
#include "client.h"

TEST(a_device_describes_itself)
{
	ze_device_usablemem_size_ext_properties_t usable = { OF(DEVICE_USABLEMEM_SIZE_EXT_PROPERTIES) };
	struct ze_base unknown = { 0x4711, &usable }; /* what the driver does not know in between, it passes over */
	ze_device_properties_t properties = { OF(DEVICE_PROPERTIES), .pNext = &unknown };
	ze_device_memory_properties_t memory = { OF(DEVICE_MEMORY_PROPERTIES) };
	ze_command_queue_group_properties_t groups[3] = { { OF(COMMAND_QUEUE_GROUP_PROPERTIES) }, { OF(COMMAND_QUEUE_GROUP_PROPERTIES) }, { OF(COMMAND_QUEUE_GROUP_PROPERTIES) } };
	uint32_t count = 0;
	load();
	soft.set("capacity", 8 * MIB);
	soft.set("taken", MIB);
	start();
	(void)allocate(2 * MIB);
	OK(ze.zeDeviceGetProperties(device, &properties));
	EQUAL(properties.type, V_ZE_DEVICE_TYPE_GPU);
	EQUAL(properties.flags, 0);
	CHECK(strlen(properties.name) > 0);
	EQUAL(usable.currUsableMemSize, 5 * MIB);
	soft.set("integrated", 1);
	OK(ze.zeDeviceGetProperties(device, &properties));
	EQUAL(properties.flags, V_ZE_DEVICE_PROPERTY_FLAG_INTEGRATED);
	OK(ze.zeDeviceGetMemoryProperties(device, &count, NULL));
	EQUAL(count, 1);
	count = 5;
	OK(ze.zeDeviceGetMemoryProperties(device, &count, &memory));
	EQUAL(count, 1);
	EQUAL(memory.totalSize, 8 * MIB);
	count = 3;
	OK(ze.zeDeviceGetCommandQueueGroupProperties(device, &count, groups));
	EQUAL(count, 2);
	CHECK(groups[0].flags & V_ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE && groups[1].flags == V_ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY);
	CHECK(groups[0].numQueues > 0);
	soft.set("fill_pattern", 16);
	count = 1;
	OK(ze.zeDeviceGetCommandQueueGroupProperties(device, &count, groups));
	EQUAL(count, 1);
	EQUAL(groups[0].maxMemoryFillPatternSize, 16);
}

static int lists(const char *name)
{
	ze_driver_extension_properties_t found[16];
	uint32_t count = 0, all;
	OK(ze.zeDriverGetExtensionProperties(driver, &count, NULL));
	all = count;
	count = 16;
	OK(ze.zeDriverGetExtensionProperties(driver, &count, found));
	EQUAL(count, all);
	for (uint32_t i = 0; i < count; i++)
		if (!strcmp(found[i].name, name)) {
			EQUAL(found[i].version, VERSION(1, 0));
			return 1;
		}
	return 0;
}

TEST(extensions_come_with_versions_and_go_with_settings)
{
	ze_device_usablemem_size_ext_properties_t usable = { OF(DEVICE_USABLEMEM_SIZE_EXT_PROPERTIES), .currUsableMemSize = 99 };
	ze_device_properties_t properties = { OF(DEVICE_PROPERTIES), .pNext = &usable };
	start();
	static const struct {
		const char *name, *key;
		int since;
	} extensions[] = {
		{ "ZE_extension_memory_free_policies", "free_policies", VERSION(1, 3) },
		{ "ZE_extension_device_usablemem_size_properties", "usablemem", VERSION(1, 15) },
		{ "ZE_extension_external_memmap_sysmem", NULL, VERSION(1, 14) },
		{ "ZE_extension_relaxed_allocation_limits", "relaxed", VERSION(1, 16) },
		{ "ZE_experimental_relaxed_allocation_limits", "relaxed", VERSION(1, 1) },
	};
	for (unsigned i = 0; i < sizeof extensions / sizeof *extensions; i++) {
		CHECK(lists(extensions[i].name));
		if (extensions[i].key) {
			soft.set(extensions[i].key, 0);
			CHECK(!lists(extensions[i].name));
			soft.reset();
		}
		soft.set("api_version", extensions[i].since);
		CHECK(lists(extensions[i].name));
		soft.set("api_version", extensions[i].since - 1);
		CHECK(!lists(extensions[i].name));
		soft.reset();
	}
	CHECK(!lists("ZE_extension_nothing"));
	soft.set("usablemem", 0);
	OK(ze.zeDeviceGetProperties(device, &properties));
	EQUAL(usable.currUsableMemSize, 99); /* untouched: that is how a client sees that nobody said anything */
}

TEST(a_driver_says_which_version_it_is)
{
	ze_api_version_t version;
	ze_driver_properties_t properties = { OF(DRIVER_PROPERTIES) };
	start();
	OK(ze.zeDriverGetApiVersion(driver, &version));
	EQUAL(version, soft.get("api_version"));
	soft.set("api_version", VERSION(1, 4));
	OK(ze.zeDriverGetApiVersion(driver, &version));
	EQUAL(version, VERSION(1, 4));
	soft.set("driver_version", 123456);
	OK(ze.zeDriverGetProperties(driver, &properties));
	EQUAL(properties.driverVersion, 123456);
}

/* What a driver of specification 1.4 knows nothing of; the loader may be as new as it likes. */
TEST(an_old_driver)
{
	uint32_t count = 0;
	ze_bool_t yes;
	ze_command_list_handle_t list;
	ze_device_handle_t its_device;
	ze_context_handle_t its_context;
	ze_command_queue_desc_t queue_desc = { OF(COMMAND_QUEUE_DESC), .flags = V_ZE_COMMAND_QUEUE_FLAG_IN_ORDER };
	ze_command_list_desc_t list_desc = { OF(COMMAND_LIST_DESC), .flags = V_ZE_COMMAND_LIST_FLAG_IN_ORDER };
	ze_event_pool_desc_t pool_desc = { OF(EVENT_POOL_DESC), .flags = V_ZE_EVENT_POOL_FLAG_KERNEL_MAPPED_TIMESTAMP, .count = 1 };
	ze_event_pool_handle_t pool;
	ze_init_driver_type_desc_t init = { OF(INIT_DRIVER_TYPE_DESC), .flags = 1 };
	load();
	soft.set("api_version", VERSION(1, 4));
	RETURNS(V_ZE_RESULT_ERROR_UNINITIALIZED, ze.zeInitDrivers(&count, NULL, &init)); /* as a loader that finds no driver with it */
	start();
	list = immediate_list(0);
	RETURNS(V_ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, ze.zesInit(0));
	RETURNS(V_ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, ze.zeCommandListHostSynchronize(list, 0));
	RETURNS(V_ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, ze.zeCommandListIsImmediate(list, &yes));
	RETURNS(V_ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, ze.zeCommandListGetContextHandle(list, &its_context));
	RETURNS(V_ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, ze.zeCommandListGetDeviceHandle(list, &its_device));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ENUMERATION, ze.zeCommandListCreateImmediate(context, device, &queue_desc, &list));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ENUMERATION, ze.zeCommandListCreate(context, device, &list_desc, &list));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ENUMERATION, ze.zeEventPoolCreate(context, &pool_desc, 0, NULL, &pool));
	soft.set("api_version", VERSION(1, 6));
	synchronize(list);
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ENUMERATION, ze.zeCommandListCreateImmediate(context, device, &queue_desc, &list));
	OK(ze.zeEventPoolCreate(context, &pool_desc, 0, NULL, &pool));
	soft.set("api_version", VERSION(1, 7));
	OK(ze.zeCommandListCreateImmediate(context, device, &queue_desc, &list));
	OK(ze.zeCommandListCreate(context, device, &list_desc, &list));
	queue_desc.flags = V_ZE_COMMAND_QUEUE_FLAG_COPY_OFFLOAD_HINT;
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ENUMERATION, ze.zeCommandListCreateImmediate(context, device, &queue_desc, &list));
	list_desc.flags = V_ZE_COMMAND_LIST_FLAG_EXP_CLONEABLE;
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ENUMERATION, ze.zeCommandListCreate(context, device, &list_desc, &list));
	soft.reset();
	OK(ze.zeCommandListCreateImmediate(context, device, &queue_desc, &list));
	OK(ze.zeCommandListCreate(context, device, &list_desc, &list));
	OK(ze.zeInitDrivers(&count, NULL, &init));
	EQUAL(count, 1);
}

TEST(drivers_and_their_devices)
{
	ze_driver_handle_t drivers[4], again[4];
	ze_device_handle_t devices[4], other;
	ze_device_properties_t first = { OF(DEVICE_PROPERTIES) }, second = first;
	ze_driver_properties_t one = { OF(DRIVER_PROPERTIES) }, two = one;
	ze_init_driver_type_desc_t init = { OF(INIT_DRIVER_TYPE_DESC), .flags = V_ZE_INIT_DRIVER_TYPE_FLAG_GPU };
	uint32_t count = 0;
	void *p;
	load();
	soft.set("devices", 3);
	soft.set("drivers", 2);
	OK(ze.zeInitDrivers(&count, NULL, &init));
	EQUAL(count, 2);
	count = 4;
	OK(ze.zeInitDrivers(&count, drivers, &init));
	EQUAL(count, 2);
	start();
	count = 1;
	OK(ze.zeDriverGet(&count, again));
	EQUAL(count, 1);
	CHECK(again[0] == drivers[0]);
	init.flags = V_ZE_INIT_DRIVER_TYPE_FLAG_NPU;
	RETURNS(V_ZE_RESULT_ERROR_UNINITIALIZED, ze.zeInitDrivers(&count, drivers, &init));
	init.flags = 0;
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ENUMERATION, ze.zeInitDrivers(&count, drivers, &init));
	OK(ze.zeDriverGetProperties(drivers[0], &one));
	OK(ze.zeDriverGetProperties(drivers[1], &two));
	CHECK(memcmp(&one.uuid, &two.uuid, sizeof one.uuid));
	/* the first has two of the three devices */
	count = 4;
	OK(ze.zeDeviceGet(drivers[0], &count, devices));
	EQUAL(count, 2);
	OK(ze.zeDeviceGetProperties(devices[0], &first));
	OK(ze.zeDeviceGetProperties(devices[1], &second));
	CHECK(memcmp(&first.uuid, &second.uuid, sizeof first.uuid));
	count = 4;
	OK(ze.zeDeviceGet(drivers[1], &count, &other));
	EQUAL(count, 1);
	/* what is of one driver is not for the devices of another */
	ze_device_mem_alloc_desc_t memory = { OF(DEVICE_MEM_ALLOC_DESC) };
	ze_command_queue_desc_t queue = { OF(COMMAND_QUEUE_DESC) };
	ze_command_list_desc_t list = { OF(COMMAND_LIST_DESC) };
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeMemAllocDevice(context, &memory, 64, 0, other, &p));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeCommandListCreateImmediate(context, other, &queue, (void *)&p));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeCommandListCreate(context, other, &list, (void *)&p));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeCommandQueueCreate(context, other, &queue, (void *)&p));
	OK(ze.zeMemAllocDevice(context, &memory, 64, 0, devices[1], &p));
	EQUAL(soft.get("live.2"), 1); /* the driver's second is the third of all */
	ze_device_handle_t owner;
	ze_memory_allocation_properties_t allocation = { OF(MEMORY_ALLOCATION_PROPERTIES) };
	OK(ze.zeMemGetAllocProperties(context, p, &allocation, &owner));
	CHECK(owner == devices[1]);
}
