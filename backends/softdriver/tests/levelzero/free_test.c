/* Frees: at once and without a check, deferred, and waiting. */
#include <stdatomic.h>

#include "client.h"

enum { IN_ORDER = V_ZE_COMMAND_QUEUE_FLAG_IN_ORDER, BLOCKING = 1, DEFERRED = 2 };

static int free_policy(uint32_t policy, void *pointer)
{
	ze_memory_free_ext_desc_t desc = { OF(MEMORY_FREE_EXT_DESC), .freePolicy = policy };
	return ze.zeMemFreeExt(context, &desc, pointer);
}

/* A deferred free ends on a thread of the driver's: this waits for all of them. */
static void settle(void) { free_by(BLOCKING, allocate(1)); }

TEST(a_free_checks_nothing_and_queued_work_finds_the_memory_gone)
{
	for (int way = 0; way < 4; way++) {
		start();
		char *memory = allocate(64), *host = allocate_host(64);
		ze_command_list_handle_t list = immediate_list(IN_ORDER);
		ze_event_handle_t gate = close_gate(list);
		if (way == 0)
			fill(list, memory, 1, 64);
		else if (way == 1)
			copy(list, host, memory, 64);
		else if (way == 2)
			copy(list, memory, host, 64);
		else
			fill(list, host, 1, 64);
		long long live = soft.get("live");
		OK(ze.zeMemFree(context, way < 2 ? memory : host));
		EQUAL(soft.get("live"), live - (way < 2)); /* it waited for nothing */
		EQUAL(soft.get("sticky"), 0);
		(void)ze.zeEventHostSignal(gate); /* may already say what comes of it */
		RETURNS(V_ZE_RESULT_ERROR_DEVICE_LOST, ze.zeCommandListHostSynchronize(list, FOREVER));
		RETURNS(V_ZE_RESULT_ERROR_DEVICE_LOST, ze.zeDeviceGetStatus(device));
		soft.reset();
	}
}

TEST(a_free_while_work_runs_on_the_memory)
{
	start();
	char *memory = allocate(MIB), *host = allocate_host(MIB), *other = allocate_host(MIB);
	ze_command_list_handle_t list = immediate_list(IN_ORDER);
	ze_event_handle_t begun = new_event();
	for (int way = 0; way < 2; way++) {
		soft.set("copy_mib_s", 4);
		OK(ze.zeCommandListAppendSignalEvent(list, begun));
		if (way == 0)
			copy(list, host, memory, MIB);
		else
			copy(list, other, host, MIB);
		OK(ze.zeEventHostSynchronize(begun, FOREVER));
		(void)ze.zeMemFree(context, way == 0 ? memory : host); /* likewise */
		soft.set("copy_mib_s", 0);
		RETURNS(V_ZE_RESULT_ERROR_DEVICE_LOST, ze.zeCommandListHostSynchronize(list, FOREVER));
		soft.reset();
		OK(ze.zeEventHostReset(begun));
	}
	CHECK(!readable((uint64_t)(uintptr_t)memory) && !readable((uint64_t)(uintptr_t)host));
}

TEST(memory_that_is_gone_is_refused_when_the_command_comes)
{
	start();
	char *memory = allocate(64), host[64];
	ze_command_list_handle_t list = immediate_list(IN_ORDER);
	OK(ze.zeMemFree(context, memory));
	RETURNS(V_ZE_RESULT_ERROR_DEVICE_LOST, ze.zeCommandListAppendMemoryCopy(list, host, memory, 64, NULL, 0, NULL));
	soft.reset();
	memory = allocate(64);
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeCommandListAppendMemoryCopy(list, host, memory + 1, 64, NULL, 0, NULL)); /* beyond the end */
	EQUAL(soft.get("sticky"), 0);
}

TEST(a_deferred_free_lets_queued_work_finish)
{
	for (int quarantine = 0; quarantine < 2; quarantine++) {
		load();
		soft.set("quarantine", quarantine);
		start();
		char *memory = allocate(64), *host = allocate_host(64), seen[64];
		ze_command_list_handle_t list = immediate_list(IN_ORDER);
		ze_event_handle_t gate = close_gate(list);
		fill(list, memory, 5, 64);
		copy(list, host, memory, 64);
		copy(list, seen, host, 64);
		free_by(DEFERRED, memory);
		free_by(DEFERRED, host);
		/* it is the client's no more, and the device's still */
		EQUAL(soft.get("live"), 1);
		EQUAL(soft.get("deferred"), 1);
		EQUAL(soft.get("in_use"), 64);
		RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeMemFree(context, memory));
		RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, free_policy(DEFERRED, memory));
		RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeMemFree(context, host));
		OK(ze.zeEventHostSignal(gate));
		synchronize(list);
		EQUAL(seen[63], 5);
		settle();
		EQUAL(soft.get("live"), 0);
		EQUAL(soft.get("deferred"), 0);
		EQUAL(soft.get("reserved"), 0);
		CHECK(!quarantine || !readable((uint64_t)(uintptr_t)memory));
		CHECK(!quarantine || !readable((uint64_t)(uintptr_t)host));
		EQUAL(soft.get("sticky"), 0);
	}
}

/* The driver cannot know what a kernel will touch: so it waits for every list. */
TEST(a_deferred_free_waits_for_every_list)
{
	start();
	char *memory = allocate(64);
	ze_command_list_handle_t one = immediate_list(IN_ORDER), two = immediate_list(0);
	ze_event_handle_t gate = close_gate(one), other_gate = close_gate(two);
	free_by(DEFERRED, memory);
	OK(ze.zeEventHostSignal(gate));
	synchronize(one);
	EQUAL(soft.get("live"), 1);
	OK(ze.zeEventHostSignal(other_gate));
	settle();
	EQUAL(soft.get("live"), 0);
}

TEST(a_deferred_free_of_an_idle_device_is_done_when_it_returns)
{
	start();
	char *memory = allocate(64), *host = allocate_host(64);
	ze_command_list_handle_t list = immediate_list(0);
	fill(list, memory, 1, 64);
	synchronize(list);
	free_by(DEFERRED, memory);
	EQUAL(soft.get("live"), 0);
	free_by(DEFERRED, host);
	CHECK(!readable((uint64_t)(uintptr_t)host));
	memory = allocate(64);
	free_by(0, memory); /* the default is at once */
	EQUAL(soft.get("live"), 0);
}

struct waiter {
	void *memory;
	_Atomic int done;
};

static void *free_blocking(void *argument)
{
	struct waiter *waiter = argument;
	free_by(BLOCKING, waiter->memory);
	waiter->done = 1;
	return NULL;
}

TEST(a_blocking_free_waits)
{
	for (int of_host = 0; of_host < 2; of_host++) {
		pthread_t thread;
		start();
		char *memory = allocate(64), *host = allocate_host(64);
		struct waiter waiter = { of_host ? host : memory, 0 };
		ze_command_list_handle_t list = immediate_list(IN_ORDER);
		ze_event_handle_t gate = close_gate(list);
		copy(list, memory, host, 64);
		CHECK(!pthread_create(&thread, NULL, free_blocking, &waiter));
		for (int i = 0; i < 50; i++) {
			EQUAL(waiter.done, 0);
			usleep(1000);
		}
		OK(ze.zeEventHostSignal(gate));
		CHECK(!pthread_join(thread, NULL));
		synchronize(list);
		EQUAL(soft.get("sticky"), 0);
		EQUAL(soft.get("live"), of_host);
		CHECK(readable((uint64_t)(uintptr_t)host) == !of_host);
		OK(ze.zeMemFree(context, of_host ? memory : host));
	}
}

TEST(policies_that_a_driver_may_lack)
{
	ze_driver_memory_free_ext_properties_t policies = { OF(DRIVER_MEMORY_FREE_EXT_PROPERTIES), .freePolicies = 99 };
	ze_driver_properties_t properties = { OF(DRIVER_PROPERTIES), .pNext = &policies };
	start();
	void *memory = allocate(64);
	OK(ze.zeDriverGetProperties(driver, &properties));
	EQUAL(policies.freePolicies, BLOCKING | DEFERRED);
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ENUMERATION, free_policy(4, memory));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ENUMERATION, free_policy(BLOCKING | DEFERRED, memory));
	soft.set("free_policies", DEFERRED);
	OK(ze.zeDriverGetProperties(driver, &properties));
	EQUAL(policies.freePolicies, DEFERRED);
	RETURNS(V_ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION, free_policy(BLOCKING, memory));
	soft.set("free_policies", 0);
	policies.freePolicies = 99;
	OK(ze.zeDriverGetProperties(driver, &properties));
	EQUAL(policies.freePolicies, 99); /* nothing was said */
	RETURNS(V_ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, free_policy(DEFERRED, memory));
	soft.set("free_policies", 3);
	soft.set("api_version", VERSION(1, 2)); /* before there was the function */
	RETURNS(V_ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, free_policy(DEFERRED, memory));
	EQUAL(soft.get("live"), 1);
	OK(ze.zeMemFree(context, memory));
}
