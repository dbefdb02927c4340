/* One way through everything, as a client that wants all of it goes: every function of the table is called, and succeeds. */
#include "client.h"

static const char *const functions[] = {
#define F(symbol, since, parameters) #symbol,
#include "../../levelzero/functions.def"
#undef F
};

static void ask_the_drivers(void)
{
	ze_init_driver_type_desc_t init = { OF(INIT_DRIVER_TYPE_DESC), .flags = V_ZE_INIT_DRIVER_TYPE_FLAG_GPU };
	ze_driver_properties_t properties = { OF(DRIVER_PROPERTIES) };
	ze_driver_extension_properties_t extensions[16];
	ze_api_version_t version;
	ze_driver_handle_t same;
	uint32_t count = 1;
	void *function;
	OK(ze.zeInitDrivers(&count, &same, &init));
	CHECK(same == driver);
	OK(ze.zeDriverGetApiVersion(driver, &version));
	OK(ze.zeDriverGetProperties(driver, &properties));
	count = 16;
	OK(ze.zeDriverGetExtensionProperties(driver, &count, extensions));
	OK(ze.zeDriverGetExtensionFunctionAddress(driver, "zexDriverImportExternalPointer", &function));
}

static void ask_the_device(void)
{
	ze_device_properties_t properties = { OF(DEVICE_PROPERTIES) };
	ze_device_memory_properties_t memory = { OF(DEVICE_MEMORY_PROPERTIES) };
	ze_command_queue_group_properties_t group = { OF(COMMAND_QUEUE_GROUP_PROPERTIES) };
	uint32_t one = 1;
	OK(ze.zeDeviceGetProperties(device, &properties));
	OK(ze.zeDeviceGetMemoryProperties(device, &one, &memory));
	OK(ze.zeDeviceGetCommandQueueGroupProperties(device, &one, &group));
	OK(ze.zeDeviceGetStatus(device));
	OK(ze.zeContextGetStatus(context));
}

static void ask_sysman(void)
{
	zes_device_properties_t properties = { ZES_OF(DEVICE_PROPERTIES) };
	zes_mem_properties_t of_module = { ZES_OF(MEM_PROPERTIES) };
	zes_mem_state_t state = { ZES_OF(MEM_STATE) };
	zes_driver_handle_t sysman;
	zes_device_handle_t unit, same;
	zes_mem_handle_t module;
	zes_uuid_t uuid;
	ze_bool_t on_subdevice;
	uint32_t one = 1, subdevice;
	OK(ze.zesInit(0));
	OK(ze.zesDriverGet(&one, &sysman));
	OK(ze.zesDeviceGet(sysman, &one, &unit));
	OK(ze.zesDeviceGetProperties(unit, &properties));
	memcpy(&uuid, &properties.core.uuid, sizeof uuid);
	OK(ze.zesDriverGetDeviceByUuidExp(sysman, uuid, &same, &on_subdevice, &subdevice));
	CHECK(same == unit);
	OK(ze.zesDeviceEnumMemoryModules(unit, &one, &module));
	OK(ze.zesMemoryGetProperties(module, &of_module));
	OK(ze.zesMemoryGetState(module, &state));
	EQUAL(state.free, soft.get("capacity"));
}

static void work_at_once(char *memory, char *host)
{
	ze_event_pool_desc_t pool_desc = { OF(EVENT_POOL_DESC), .flags = V_ZE_EVENT_POOL_FLAG_HOST_VISIBLE, .count = 1 };
	ze_event_desc_t event_desc = { OF(EVENT_DESC) };
	ze_event_pool_handle_t pool;
	ze_event_handle_t event;
	ze_bool_t immediate;
	ze_context_handle_t its_context;
	ze_device_handle_t its_device;
	OK(ze.zeEventPoolCreate(context, &pool_desc, 0, NULL, &pool));
	OK(ze.zeEventCreate(pool, &event_desc, &event));
	ze_command_list_handle_t list = immediate_list(0);
	OK(ze.zeCommandListIsImmediate(list, &immediate));
	OK(ze.zeCommandListGetContextHandle(list, &its_context));
	OK(ze.zeCommandListGetDeviceHandle(list, &its_device));
	fill(list, memory, 3, 64);
	OK(ze.zeCommandListAppendBarrier(list, NULL, 0, NULL));
	copy(list, host, memory, 64);
	OK(ze.zeCommandListAppendBarrier(list, NULL, 0, NULL));
	OK(ze.zeCommandListAppendSignalEvent(list, event));
	OK(ze.zeEventHostSynchronize(event, FOREVER));
	EQUAL(host[63], 3);
	OK(ze.zeCommandListAppendWaitOnEvents(list, 1, &event));
	OK(ze.zeCommandListAppendEventReset(list, event));
	synchronize(list);
	RETURNS(V_ZE_RESULT_NOT_READY, ze.zeEventQueryStatus(event));
	OK(ze.zeEventHostSignal(event));
	OK(ze.zeEventQueryStatus(event));
	OK(ze.zeEventHostReset(event));
	OK(ze.zeEventDestroy(event));
	OK(ze.zeEventPoolDestroy(pool));
	OK(ze.zeCommandListDestroy(list));
}

static void work_through_a_queue(char *memory, char *host)
{
	ze_fence_desc_t desc = { OF(FENCE_DESC) };
	ze_fence_handle_t fence;
	ze_command_queue_handle_t queue = new_queue(V_ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
	ze_command_list_handle_t list = new_list(0);
	OK(ze.zeFenceCreate(queue, &desc, &fence));
	copy(list, memory, host, 64);
	OK(ze.zeCommandListClose(list));
	OK(ze.zeCommandQueueExecuteCommandLists(queue, 1, &list, fence));
	OK(ze.zeFenceHostSynchronize(fence, FOREVER));
	OK(ze.zeFenceQueryStatus(fence));
	OK(ze.zeFenceReset(fence));
	OK(ze.zeCommandListReset(list));
	OK(ze.zeCommandQueueSynchronize(queue, FOREVER));
	OK(ze.zeFenceDestroy(fence));
	OK(ze.zeCommandQueueDestroy(queue));
	OK(ze.zeCommandListDestroy(list));
}

TEST(every_function_is_called_and_succeeds)
{
	ze_memory_allocation_properties_t properties = { OF(MEMORY_ALLOCATION_PROPERTIES) };
	void *base;
	size_t bytes;
	start();
	ask_the_drivers();
	ask_the_device();
	ask_sysman();
	char *memory = allocate(64), *host = allocate_host(64);
	OK(ze.zeMemGetAllocProperties(context, memory, &properties, NULL));
	OK(ze.zeMemGetAddressRange(context, memory, &base, &bytes));
	work_at_once(memory, host);
	work_through_a_queue(memory, host);
	OK(ze.zeMemFree(context, host));
	free_by(V_ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE, memory);
	OK(ze.zeContextDestroy(context));
	for (unsigned i = 0; i < sizeof functions / sizeof *functions; i++)
		if (!soft.calls(functions[i]))
			failed(__FILE__, __LINE__, "%s was never called", functions[i]);
	EQUAL(soft.get("live"), 0);
	EQUAL(soft.get("reserved"), 0);
	EQUAL(soft.get("sticky"), 0);
}
