#include "client.h"

struct api ze;
ze_driver_handle_t driver;
ze_context_handle_t context;
ze_device_handle_t device;

void load(void)
{
	open_library();
#define F(name, since, parameters) ze.name = (ze_result_t(*) parameters)symbol(#name);
#include "../../levelzero/functions.def"
#undef F
}

void start(void)
{
	uint32_t one = 1;
	ze_context_desc_t desc = { OF(CONTEXT_DESC) };
	if (!library)
		load();
	OK(ze.zeInit(0));
	OK(ze.zeDriverGet(&one, &driver));
	EQUAL(one, 1);
	OK(ze.zeDeviceGet(driver, &one, &device));
	EQUAL(one, 1);
	OK(ze.zeContextCreate(driver, &desc, &context));
}

void *allocate(size_t bytes)
{
	void *pointer;
	ze_device_mem_alloc_desc_t desc = { OF(DEVICE_MEM_ALLOC_DESC) };
	OK(ze.zeMemAllocDevice(context, &desc, bytes, 0, device, &pointer));
	return pointer;
}

void *allocate_host(size_t bytes)
{
	void *pointer;
	ze_host_mem_alloc_desc_t desc = { OF(HOST_MEM_ALLOC_DESC) };
	OK(ze.zeMemAllocHost(context, &desc, bytes, 0, &pointer));
	return pointer;
}

void free_by(int policy, void *pointer)
{
	ze_memory_free_ext_desc_t desc = { OF(MEMORY_FREE_EXT_DESC), .freePolicy = (uint32_t)policy };
	OK(ze.zeMemFreeExt(context, &desc, pointer));
}

ze_command_list_handle_t immediate_list(unsigned flags)
{
	ze_command_list_handle_t list;
	ze_command_queue_desc_t desc = { OF(COMMAND_QUEUE_DESC), .flags = flags, .mode = V_ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS };
	OK(ze.zeCommandListCreateImmediate(context, device, &desc, &list));
	return list;
}

ze_command_list_handle_t new_list(unsigned flags)
{
	ze_command_list_handle_t list;
	ze_command_list_desc_t desc = { OF(COMMAND_LIST_DESC), .flags = flags };
	OK(ze.zeCommandListCreate(context, device, &desc, &list));
	return list;
}

ze_command_queue_handle_t new_queue(int mode)
{
	ze_command_queue_handle_t queue;
	ze_command_queue_desc_t desc = { OF(COMMAND_QUEUE_DESC), .mode = mode };
	OK(ze.zeCommandQueueCreate(context, device, &desc, &queue));
	return queue;
}

ze_event_handle_t new_event(void)
{
	ze_event_pool_handle_t pool;
	ze_event_handle_t event;
	ze_event_pool_desc_t pool_desc = { OF(EVENT_POOL_DESC), .flags = V_ZE_EVENT_POOL_FLAG_HOST_VISIBLE, .count = 1 };
	ze_event_desc_t desc = { OF(EVENT_DESC), .signal = V_ZE_EVENT_SCOPE_FLAG_HOST, .wait = V_ZE_EVENT_SCOPE_FLAG_HOST };
	OK(ze.zeEventPoolCreate(context, &pool_desc, 1, &device, &pool));
	OK(ze.zeEventCreate(pool, &desc, &event));
	return event;
}

void synchronize(ze_command_list_handle_t list) { OK(ze.zeCommandListHostSynchronize(list, FOREVER)); }

void copy(ze_command_list_handle_t list, void *to, const void *from, size_t bytes)
{
	OK(ze.zeCommandListAppendMemoryCopy(list, to, from, bytes, NULL, 0, NULL));
}

void fill(ze_command_list_handle_t list, void *to, unsigned char value, size_t bytes)
{
	OK(ze.zeCommandListAppendMemoryFill(list, to, &value, 1, bytes, NULL, 0, NULL));
}

ze_event_handle_t close_gate(ze_command_list_handle_t list)
{
	ze_event_handle_t gate = new_event();
	OK(ze.zeCommandListAppendWaitOnEvents(list, 1, &gate));
	return gate;
}
