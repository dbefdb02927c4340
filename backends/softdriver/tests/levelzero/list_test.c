/* Immediate lists: order and its absence, barriers, waits, fills. */
#include "client.h"

enum { IN_ORDER = V_ZE_COMMAND_QUEUE_FLAG_IN_ORDER };

static int pending(ze_command_list_handle_t list) { return ze.zeCommandListHostSynchronize(list, 0) == (ze_result_t)V_ZE_RESULT_NOT_READY; }

/* A copy that begins when the event is signaled, and signals another when it is done. Either may be NULL. */
static void copy_between(ze_command_list_handle_t list, void *to, const void *from, size_t bytes, ze_event_handle_t after, ze_event_handle_t then)
{
	OK(ze.zeCommandListAppendMemoryCopy(list, to, from, bytes, then, after != NULL, after ? &after : NULL));
}

TEST(a_list_in_order_is_asynchronous_and_in_order)
{
	start();
	unsigned char *a = allocate(4096), *host = allocate_host(4096);
	ze_command_list_handle_t list = immediate_list(IN_ORDER);
	OK(ze.zeCommandListHostSynchronize(list, 0));
	ze_event_handle_t gate = close_gate(list);
	for (int i = 1; i <= 100; i++) {
		fill(list, a, (unsigned char)i, 4096);
		copy(list, host + i, a + 1, 1);
	}
	RETURNS(V_ZE_RESULT_NOT_READY, ze.zeCommandListHostSynchronize(list, 0));
	RETURNS(V_ZE_RESULT_NOT_READY, ze.zeCommandListHostSynchronize(list, 1000000)); /* and the wait comes back */
	EQUAL(host[1], 0);
	OK(ze.zeEventHostSignal(gate));
	synchronize(list);
	for (int i = 1; i <= 100; i++)
		EQUAL(host[i], i);
	OK(ze.zeCommandListHostSynchronize(list, 0));
	OK(ze.zeCommandListHostSynchronize(list, 5000000000));
}

/* A command that waits for its own events holds up nobody but, in order, those behind it. */
TEST(without_the_flag_a_later_command_overtakes)
{
	start();
	char *a = allocate(64), *host = allocate_host(64);
	ze_event_handle_t gate = new_event(), overtook = new_event();
	ze_command_list_handle_t list = immediate_list(0);
	copy_between(list, a, host, 64, gate, NULL);
	copy_between(list, host, a, 64, NULL, overtook);
	OK(ze.zeEventHostSynchronize(overtook, FOREVER));
	CHECK(pending(list)); /* the first has not even begun */
	OK(ze.zeEventHostSignal(gate));
	synchronize(list);

	ze_command_list_handle_t ordered = immediate_list(IN_ORDER);
	OK(ze.zeEventHostReset(gate));
	OK(ze.zeEventHostReset(overtook));
	copy_between(ordered, a, host, 64, gate, NULL);
	copy_between(ordered, host, a, 64, NULL, overtook);
	RETURNS(V_ZE_RESULT_NOT_READY, ze.zeEventHostSynchronize(overtook, 20000000));
	OK(ze.zeEventHostSignal(gate));
	OK(ze.zeEventHostSynchronize(overtook, FOREVER));
	synchronize(ordered);

	soft.set("reorder", 0); /* as drivers may happen to be */
	ze_command_list_handle_t lucky = immediate_list(0);
	OK(ze.zeEventHostReset(gate));
	OK(ze.zeEventHostReset(overtook));
	copy_between(lucky, a, host, 64, gate, NULL);
	copy_between(lucky, host, a, 64, NULL, overtook);
	RETURNS(V_ZE_RESULT_NOT_READY, ze.zeEventHostSynchronize(overtook, 20000000));
	OK(ze.zeEventHostSignal(gate));
	synchronize(lucky);
}

TEST(a_signal_without_an_order_says_nothing_of_what_was_before)
{
	start();
	char *a = allocate(64), *host = allocate_host(64);
	ze_event_handle_t gate = new_event(), signaled = new_event();
	ze_command_list_handle_t list = immediate_list(0);
	copy_between(list, a, host, 64, gate, NULL);
	OK(ze.zeCommandListAppendSignalEvent(list, signaled));
	OK(ze.zeEventHostSynchronize(signaled, FOREVER));
	CHECK(pending(list));
	/* a barrier makes it say so */
	OK(ze.zeEventHostReset(signaled));
	OK(ze.zeCommandListAppendBarrier(list, NULL, 0, NULL));
	OK(ze.zeCommandListAppendSignalEvent(list, signaled));
	RETURNS(V_ZE_RESULT_NOT_READY, ze.zeEventHostSynchronize(signaled, 20000000));
	OK(ze.zeEventHostSignal(gate));
	OK(ze.zeEventHostSynchronize(signaled, FOREVER));
	synchronize(list);
	/* and so does its own event */
	OK(ze.zeEventHostReset(signaled));
	OK(ze.zeEventHostReset(gate));
	copy_between(list, a, host, 64, gate, NULL);
	OK(ze.zeCommandListAppendBarrier(list, signaled, 0, NULL));
	RETURNS(V_ZE_RESULT_NOT_READY, ze.zeEventHostSynchronize(signaled, 20000000));
	OK(ze.zeEventHostSignal(gate));
	OK(ze.zeEventHostSynchronize(signaled, FOREVER));
	synchronize(list);
}

TEST(barriers_order_a_list_that_is_in_no_order)
{
	start();
	unsigned char *a = allocate(65536), *host = allocate_host(65536);
	ze_command_list_handle_t list = immediate_list(0);
	soft.set("jitter_us", 200);
	for (int i = 1; i <= 100; i++) {
		fill(list, a, (unsigned char)i, 65536);
		OK(ze.zeCommandListAppendBarrier(list, NULL, 0, NULL));
		copy(list, host, a, 65536);
		OK(ze.zeCommandListAppendBarrier(list, NULL, 0, NULL));
		if (i % 10 == 0) {
			synchronize(list);
			EQUAL(host[0], i);
			EQUAL(host[65535], i);
		}
	}
	soft.set("jitter_us", 0);
	synchronize(list);
}

TEST(events_order_a_list_that_is_in_no_order)
{
	start();
	unsigned char *a = allocate(65536), *host = allocate_host(65536);
	ze_command_list_handle_t list = immediate_list(0);
	ze_event_handle_t filled = new_event();
	soft.set("jitter_us", 200);
	for (int i = 1; i <= 50; i++) {
		unsigned char value = (unsigned char)i;
		OK(ze.zeCommandListAppendMemoryFill(list, a, &value, 1, 65536, filled, 0, NULL));
		copy_between(list, host, a, 65536, filled, NULL);
		synchronize(list);
		EQUAL(host[65535], i);
		OK(ze.zeEventHostReset(filled));
	}
	soft.set("jitter_us", 0);
}

TEST(a_barrier_with_events_waits_for_them_only_and_holds_up_all_that_follows)
{
	start();
	char *a = allocate(64), *host = allocate_host(64);
	ze_event_handle_t gate = new_event(), go = new_event(), passed = new_event(), after = new_event();
	ze_command_list_handle_t list = immediate_list(0);
	copy_between(list, a, host, 64, gate, NULL); /* still waiting all along, on one of the lanes */
	OK(ze.zeEventHostSignal(go));
	OK(ze.zeCommandListAppendBarrier(list, NULL, 1, &go));
	OK(ze.zeCommandListAppendSignalEvent(list, passed));
	OK(ze.zeEventHostSynchronize(passed, FOREVER));
	CHECK(pending(list));
	ze_event_handle_t second = new_event();
	OK(ze.zeCommandListAppendWaitOnEvents(list, 1, &second));
	OK(ze.zeCommandListAppendSignalEvent(list, after));
	RETURNS(V_ZE_RESULT_NOT_READY, ze.zeEventHostSynchronize(after, 20000000));
	OK(ze.zeEventHostSignal(second));
	OK(ze.zeEventHostSignal(gate));
	OK(ze.zeEventHostSynchronize(after, FOREVER));
	synchronize(list);
}

TEST(lists_wait_for_each_other_through_events)
{
	start();
	unsigned char *a = allocate(64), *host = allocate_host(64);
	ze_command_list_handle_t one = immediate_list(IN_ORDER), two = immediate_list(IN_ORDER);
	ze_event_handle_t done = new_event(), all[2] = { done, new_event() };
	/* the waiter may come first */
	OK(ze.zeCommandListAppendMemoryCopy(two, host, a, 64, NULL, 2, all));
	fill(one, a, 3, 64);
	OK(ze.zeCommandListAppendSignalEvent(one, done));
	synchronize(one);
	CHECK(pending(two)); /* one of the two is not enough */
	OK(ze.zeEventHostSignal(all[1]));
	synchronize(two);
	EQUAL(host[63], 3);
	/* a device resets, too; and a list goes on from a wait as a whole, or not at all */
	ze_command_list_handle_t list = immediate_list(0);
	for (int i = 0; i < 200; i++) {
		OK(ze.zeEventHostSignal(done));
		OK(ze.zeCommandListAppendWaitOnEvents(list, 1, &done));
		OK(ze.zeCommandListAppendEventReset(list, done));
		synchronize(list);
		RETURNS(V_ZE_RESULT_NOT_READY, ze.zeEventQueryStatus(done));
	}
	OK(ze.zeEventHostSignal(done));
	OK(ze.zeCommandListAppendEventReset(one, done));
	synchronize(one);
	RETURNS(V_ZE_RESULT_NOT_READY, ze.zeEventQueryStatus(done));
}

TEST(a_synchronous_list_returns_when_the_work_is_done)
{
	start();
	unsigned char *a = allocate(MIB), *host = allocate_host(MIB);
	ze_command_list_handle_t list;
	ze_command_queue_desc_t desc = { OF(COMMAND_QUEUE_DESC), .mode = V_ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS };
	OK(ze.zeCommandListCreateImmediate(context, device, &desc, &list));
	soft.set("delay_us", 2000);
	fill(list, a, 6, MIB);
	EQUAL(a[MIB - 1], 6);
	copy(list, host, a, MIB);
	EQUAL(host[MIB - 1], 6);
	soft.set("delay_us", 0);
	CHECK(!pending(list));
}

TEST(fills_repeat_a_pattern)
{
	start();
	unsigned char *a = allocate(100000), pattern[256];
	ze_command_list_handle_t list = immediate_list(IN_ORDER);
	for (int i = 0; i < 256; i++)
		pattern[i] = (unsigned char)(i * 37 + 1);
	for (size_t width = 1; width <= 128; width *= 2) {
		size_t bytes = 100000 / width * width;
		OK(ze.zeCommandListAppendMemoryFill(list, a, pattern, width, bytes, NULL, 0, NULL));
		synchronize(list);
		for (size_t i = 0; i < bytes; i++)
			if (a[i] != pattern[i % width])
				failed(__FILE__, __LINE__, "width %zu: byte %zu is %d", width, i, a[i]);
		OK(ze.zeCommandListAppendMemoryFill(list, a, pattern, width, 0, NULL, 0, NULL));
	}
	memset(pattern, 0, sizeof pattern); /* the pattern was copied */
	RETURNS(V_ZE_RESULT_ERROR_INVALID_SIZE, ze.zeCommandListAppendMemoryFill(list, a, pattern, 256, 256, NULL, 0, NULL));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_SIZE, ze.zeCommandListAppendMemoryFill(list, a, pattern, 3, 9, NULL, 0, NULL));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_SIZE, ze.zeCommandListAppendMemoryFill(list, a, pattern, 0, 8, NULL, 0, NULL));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_SIZE, ze.zeCommandListAppendMemoryFill(list, a, pattern, 4, 6, NULL, 0, NULL));
	RETURNS(V_ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, ze.zeCommandListAppendMemoryFill(list, a + 2, pattern, 4, 8, NULL, 0, NULL));
	soft.set("fill_pattern", 4);
	RETURNS(V_ZE_RESULT_ERROR_INVALID_SIZE, ze.zeCommandListAppendMemoryFill(list, a, pattern, 8, 8, NULL, 0, NULL));
	OK(ze.zeCommandListAppendMemoryFill(list, a, pattern, 4, 8, NULL, 0, NULL));
	synchronize(list);
}

/* Nothing of a command that is refused happens: no wait is left behind, no event comes true. */
TEST(a_refused_command_leaves_nothing)
{
	start();
	char *a = allocate(64);
	ze_event_handle_t never = new_event(), then = new_event(), wrong[2] = { never, NO_SUCH(ze_event_handle_t) };
	ze_command_list_handle_t list = immediate_list(IN_ORDER);
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeCommandListAppendMemoryCopy(list, a, a, 65, then, 1, &never));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, ze.zeCommandListAppendMemoryCopy(list, a, a, 64, then, 2, wrong));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, ze.zeCommandListAppendMemoryCopy(list, a, a, 64, wrong[1], 1, &never));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, ze.zeCommandListAppendBarrier(list, NULL, 2, wrong));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, ze.zeCommandListAppendWaitOnEvents(list, 2, wrong));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_SIZE, ze.zeCommandListAppendMemoryCopy(list, a, a, 64, NULL, 1, NULL));
	OK(ze.zeCommandListHostSynchronize(list, 0));
	RETURNS(V_ZE_RESULT_NOT_READY, ze.zeEventQueryStatus(then));
	OK(ze.zeEventDestroy(never)); /* nobody uses it */
	OK(ze.zeCommandListDestroy(list));
}

TEST(lists_say_what_they_are_and_are_not_destroyed_under_their_work)
{
	ze_bool_t immediate = 9;
	ze_context_handle_t its_context;
	ze_device_handle_t its_device;
	start();
	ze_command_list_handle_t now = immediate_list(0), later = new_list(0);
	OK(ze.zeCommandListIsImmediate(now, &immediate));
	EQUAL(immediate, 1);
	OK(ze.zeCommandListIsImmediate(later, &immediate));
	EQUAL(immediate, 0);
	OK(ze.zeCommandListGetContextHandle(now, &its_context));
	OK(ze.zeCommandListGetDeviceHandle(later, &its_device));
	CHECK(its_context == context && its_device == device);
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeCommandListHostSynchronize(later, 0));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeCommandListClose(now));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeCommandListReset(now));
	ze_event_handle_t gate = close_gate(now);
	RETURNS(V_ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, ze.zeCommandListDestroy(now));
	RETURNS(V_ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, ze.zeEventDestroy(gate));
	OK(ze.zeEventHostSignal(gate));
	synchronize(now);
	OK(ze.zeEventDestroy(gate));
	OK(ze.zeCommandListDestroy(now));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeCommandListDestroy(now));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeCommandListHostSynchronize(now, 0));
	/* descriptions that are no good */
	ze_command_queue_desc_t desc = { OF(COMMAND_QUEUE_DESC), .flags = 8 };
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ENUMERATION, ze.zeCommandListCreateImmediate(context, device, &desc, &now));
	desc.flags = 0;
	desc.mode = 3;
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ENUMERATION, ze.zeCommandListCreateImmediate(context, device, &desc, &now));
	desc.mode = 0;
	desc.priority = 3;
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ENUMERATION, ze.zeCommandListCreateImmediate(context, device, &desc, &now));
	desc.priority = 0;
	desc.ordinal = 2;
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeCommandListCreateImmediate(context, device, &desc, &now));
	desc.ordinal = 1;
	desc.index = 4;
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeCommandListCreateImmediate(context, device, &desc, &now));
	ze_command_list_desc_t other = { OF(COMMAND_LIST_DESC), .commandQueueGroupOrdinal = 2 };
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeCommandListCreate(context, device, &other, &now));
}
