/* Queues, the lists that they execute, and fences. */
#include "client.h"

static ze_fence_handle_t new_fence(ze_command_queue_handle_t queue, unsigned flags)
{
	ze_fence_handle_t fence;
	ze_fence_desc_t desc = { OF(FENCE_DESC), .flags = flags };
	OK(ze.zeFenceCreate(queue, &desc, &fence));
	return fence;
}

static ze_command_queue_handle_t asynchronous_queue(void) { return new_queue(V_ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS); }

static void barrier(ze_command_list_handle_t list) { OK(ze.zeCommandListAppendBarrier(list, NULL, 0, NULL)); }

static void execute(ze_command_queue_handle_t queue, ze_command_list_handle_t list, ze_fence_handle_t fence)
{
	OK(ze.zeCommandQueueExecuteCommandLists(queue, 1, &list, fence));
}

TEST(a_list_is_recorded_closed_executed_and_reset)
{
	start();
	unsigned char *a = allocate(4096), *host = allocate_host(4096);
	ze_command_queue_handle_t queue = asynchronous_queue();
	ze_command_list_handle_t list = new_list(0);
	fill(list, a, 5, 4096);
	barrier(list);
	copy(list, host, a, 4096);
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeCommandQueueExecuteCommandLists(queue, 1, &list, NULL)); /* open */
	OK(ze.zeCommandListClose(list));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeCommandListClose(list));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeCommandListAppendBarrier(list, NULL, 0, NULL)); /* closed */
	EQUAL(host[0], 0); /* nothing happened so far */
	execute(queue, list, NULL);
	OK(ze.zeCommandQueueSynchronize(queue, FOREVER));
	EQUAL(host[4095], 5);
	/* again, as it is */
	memset(host, 0, 4096);
	execute(queue, list, NULL);
	OK(ze.zeCommandQueueSynchronize(queue, FOREVER));
	EQUAL(host[4095], 5);
	OK(ze.zeCommandListReset(list));
	fill(list, a, 6, 4096);
	OK(ze.zeCommandListClose(list));
	execute(queue, list, NULL);
	OK(ze.zeCommandQueueSynchronize(queue, FOREVER));
	EQUAL(a[0], 6);
	EQUAL(host[0], 5);
	/* 100 commands, with events that are the list's by then */
	OK(ze.zeCommandListReset(list));
	ze_event_handle_t events[2] = { new_event(), new_event() };
	for (int i = 0; i < 50; i++) {
		unsigned char value = (unsigned char)i;
		OK(ze.zeCommandListAppendMemoryFill(list, a + i, &value, 1, 1, NULL, 2, events));
		copy(list, host + 100 + i, host, 1);
	}
	events[0] = NULL;
	OK(ze.zeCommandListClose(list));
	execute(queue, list, NULL);
	RETURNS(V_ZE_RESULT_NOT_READY, ze.zeCommandQueueSynchronize(queue, 1000000));
	OK(ze.zeEventHostSignal(events[1]));
	RETURNS(V_ZE_RESULT_NOT_READY, ze.zeCommandQueueSynchronize(queue, 0));
	RETURNS(V_ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, ze.zeCommandListReset(list));
	RETURNS(V_ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, ze.zeCommandListDestroy(list));
	RETURNS(V_ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, ze.zeCommandQueueDestroy(queue));
	RETURNS(V_ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, ze.zeCommandQueueExecuteCommandLists(queue, 1, &list, NULL));
}

TEST(lists_of_a_queue_run_side_by_side_unless_barriers_are_between)
{
	start();
	char *a = allocate(64), *host = allocate_host(64);
	ze_command_queue_handle_t queue = asynchronous_queue();
	ze_event_handle_t gate = new_event(), overtook = new_event(), ordered = new_event();
	ze_command_list_handle_t slow = new_list(0), quick = new_list(0), behind = new_list(0);
	OK(ze.zeCommandListAppendMemoryCopy(slow, a, host, 64, NULL, 1, &gate));
	OK(ze.zeCommandListAppendMemoryCopy(quick, host, a, 64, overtook, 0, NULL));
	barrier(behind);
	OK(ze.zeCommandListAppendMemoryCopy(behind, host, a, 64, ordered, 0, NULL));
	OK(ze.zeCommandListClose(slow));
	OK(ze.zeCommandListClose(quick));
	OK(ze.zeCommandListClose(behind));
	ze_command_list_handle_t all[] = { slow, quick, behind };
	OK(ze.zeCommandQueueExecuteCommandLists(queue, 3, all, NULL));
	OK(ze.zeEventHostSynchronize(overtook, FOREVER));
	RETURNS(V_ZE_RESULT_NOT_READY, ze.zeEventHostSynchronize(ordered, 20000000)); /* a barrier is for the queue, not for its list only */
	OK(ze.zeEventHostSignal(gate));
	OK(ze.zeEventHostSynchronize(ordered, FOREVER));
	OK(ze.zeCommandQueueSynchronize(queue, FOREVER));
}

TEST(a_list_in_order_is_so_on_a_queue)
{
	start();
	unsigned char *a = allocate(65536), *host = allocate_host(65536);
	ze_command_queue_handle_t queue = asynchronous_queue();
	ze_command_list_handle_t list = new_list(V_ZE_COMMAND_LIST_FLAG_IN_ORDER);
	soft.set("jitter_us", 200);
	for (int i = 1; i <= 20; i++) {
		fill(list, a, (unsigned char)i, 65536);
		copy(list, host + i * 100, a, 100);
	}
	OK(ze.zeCommandListClose(list));
	execute(queue, list, NULL);
	OK(ze.zeCommandQueueSynchronize(queue, FOREVER));
	for (int i = 1; i <= 20; i++)
		EQUAL(host[i * 100 + 99], i);
	soft.set("jitter_us", 0);
}

TEST(fences_tell_the_host)
{
	start();
	char *a = allocate(64), *host = allocate_host(64);
	ze_command_queue_handle_t queue = asynchronous_queue(), other = asynchronous_queue();
	ze_command_list_handle_t list = new_list(0), quick = new_list(0);
	ze_fence_handle_t fence = new_fence(queue, 0), born = new_fence(queue, V_ZE_FENCE_FLAG_SIGNALED);
	ze_event_handle_t gate = new_event();
	OK(ze.zeFenceQueryStatus(born));
	OK(ze.zeFenceHostSynchronize(born, FOREVER));
	RETURNS(V_ZE_RESULT_NOT_READY, ze.zeFenceQueryStatus(fence));
	RETURNS(V_ZE_RESULT_NOT_READY, ze.zeFenceHostSynchronize(fence, 0));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, ze.zeFenceHostSynchronize(fence, FOREVER)); /* nobody will signal it */
	OK(ze.zeCommandListAppendMemoryCopy(list, a, host, 64, NULL, 1, &gate));
	copy(quick, host, a, 64);
	OK(ze.zeCommandListClose(list));
	OK(ze.zeCommandListClose(quick));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, ze.zeCommandQueueExecuteCommandLists(queue, 1, &list, born)); /* not reset */
	RETURNS(V_ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, ze.zeCommandQueueExecuteCommandLists(other, 1, &list, fence)); /* another queue's */
	RETURNS(V_ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, ze.zeCommandQueueExecuteCommandLists(queue, 1, &list, NO_SUCH(ze_fence_handle_t)));
	OK(ze.zeCommandQueueSynchronize(queue, 0)); /* of all these, nothing was queued */
	execute(queue, list, NULL);
	execute(queue, quick, fence); /* the fence is for all that was submitted, the slow one too */
	RETURNS(V_ZE_RESULT_NOT_READY, ze.zeFenceHostSynchronize(fence, 20000000));
	RETURNS(V_ZE_RESULT_NOT_READY, ze.zeFenceQueryStatus(fence));
	RETURNS(V_ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, ze.zeFenceReset(fence));
	RETURNS(V_ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, ze.zeFenceDestroy(fence));
	OK(ze.zeEventHostSignal(gate));
	OK(ze.zeFenceHostSynchronize(fence, FOREVER));
	OK(ze.zeFenceQueryStatus(fence));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, ze.zeCommandQueueExecuteCommandLists(queue, 1, &quick, fence));
	OK(ze.zeFenceReset(fence));
	RETURNS(V_ZE_RESULT_NOT_READY, ze.zeFenceQueryStatus(fence));
	execute(queue, quick, fence);
	OK(ze.zeFenceHostSynchronize(fence, 60000000000));
	RETURNS(V_ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, ze.zeCommandQueueDestroy(queue)); /* its fences first */
	OK(ze.zeFenceDestroy(fence));
	OK(ze.zeFenceDestroy(born));
	OK(ze.zeCommandQueueDestroy(queue));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeFenceQueryStatus(fence));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeCommandQueueSynchronize(queue, 0));
	OK(ze.zeCommandListDestroy(list)); /* a list may outlive the queue that ran it */
}

TEST(what_a_queue_does_not_execute)
{
	ze_context_desc_t context_desc = { OF(CONTEXT_DESC) };
	ze_command_list_desc_t list_desc = { OF(COMMAND_LIST_DESC), .commandQueueGroupOrdinal = 1 };
	ze_command_list_handle_t wrong[2];
	ze_context_handle_t other;
	start();
	char *a = allocate(64);
	ze_command_queue_handle_t queue = asynchronous_queue();
	ze_command_list_handle_t good = new_list(0), now = immediate_list(0);
	ze_event_handle_t signal = new_event();
	OK(ze.zeCommandListAppendSignalEvent(good, signal));
	OK(ze.zeCommandListClose(good));
	wrong[0] = good;
	RETURNS(V_ZE_RESULT_ERROR_INVALID_SIZE, ze.zeCommandQueueExecuteCommandLists(queue, 0, wrong, NULL));
	wrong[1] = NULL;
	RETURNS(V_ZE_RESULT_ERROR_INVALID_NULL_HANDLE, ze.zeCommandQueueExecuteCommandLists(queue, 2, wrong, NULL));
	wrong[1] = NO_SUCH(ze_command_list_handle_t);
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeCommandQueueExecuteCommandLists(queue, 2, wrong, NULL));
	wrong[1] = now;
	RETURNS(V_ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE, ze.zeCommandQueueExecuteCommandLists(queue, 2, wrong, NULL));
	OK(ze.zeCommandListCreate(context, device, &list_desc, &wrong[1]));
	OK(ze.zeCommandListClose(wrong[1]));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE, ze.zeCommandQueueExecuteCommandLists(queue, 2, wrong, NULL)); /* another group's */
	OK(ze.zeContextCreate(driver, &context_desc, &other));
	list_desc.commandQueueGroupOrdinal = 0;
	OK(ze.zeCommandListCreate(other, device, &list_desc, &wrong[1]));
	OK(ze.zeCommandListClose(wrong[1]));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeCommandQueueExecuteCommandLists(queue, 2, wrong, NULL)); /* another context's */
	/* what was recorded is looked at when it is executed */
	ze_event_handle_t event = new_event();
	wrong[1] = new_list(0);
	copy(wrong[1], a, a + 32, 32);
	OK(ze.zeCommandListAppendSignalEvent(wrong[1], event));
	OK(ze.zeCommandListClose(wrong[1]));
	OK(ze.zeEventDestroy(event));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, ze.zeCommandQueueExecuteCommandLists(queue, 2, wrong, NULL));
	OK(ze.zeMemFree(context, a));
	RETURNS(V_ZE_RESULT_NOT_READY, ze.zeEventQueryStatus(signal)); /* none of these calls did half of its work */
	RETURNS(V_ZE_RESULT_ERROR_DEVICE_LOST, ze.zeCommandQueueExecuteCommandLists(queue, 2, wrong, NULL));
}

TEST(a_synchronous_queue)
{
	start();
	unsigned char *a = allocate(64);
	ze_command_queue_handle_t queue = new_queue(V_ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
	ze_command_list_handle_t list = new_list(0);
	fill(list, a, 7, 64);
	OK(ze.zeCommandListClose(list));
	soft.set("delay_us", 2000);
	execute(queue, list, NULL);
	EQUAL(a[63], 7);
}
