/* Events and their pools; threads. */
#include <stdatomic.h>

#include "client.h"

enum { IN_ORDER = V_ZE_COMMAND_QUEUE_FLAG_IN_ORDER };

TEST(events_are_set_and_reset_by_the_host)
{
	start();
	ze_event_handle_t event = new_event();
	RETURNS(V_ZE_RESULT_NOT_READY, ze.zeEventQueryStatus(event));
	RETURNS(V_ZE_RESULT_NOT_READY, ze.zeEventHostSynchronize(event, 0));
	RETURNS(V_ZE_RESULT_NOT_READY, ze.zeEventHostSynchronize(event, 1000000));
	OK(ze.zeEventHostSignal(event));
	OK(ze.zeEventQueryStatus(event));
	OK(ze.zeEventHostSynchronize(event, FOREVER));
	OK(ze.zeEventHostSignal(event));
	OK(ze.zeEventHostReset(event));
	RETURNS(V_ZE_RESULT_NOT_READY, ze.zeEventQueryStatus(event));
	OK(ze.zeEventDestroy(event));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeEventQueryStatus(event));
}

TEST(pools_and_their_places)
{
	ze_event_pool_handle_t pool;
	ze_event_handle_t first, second;
	ze_event_pool_desc_t pool_desc = { OF(EVENT_POOL_DESC), .count = 2 };
	ze_event_desc_t desc = { OF(EVENT_DESC), .index = 1 };
	ze_device_handle_t wrong[2];
	start();
	wrong[0] = device;
	wrong[1] = NO_SUCH(ze_device_handle_t);
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeEventPoolCreate(context, &pool_desc, 2, wrong, &pool));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_SIZE, ze.zeEventPoolCreate(context, &pool_desc, 1, NULL, &pool));
	pool_desc.flags = 16;
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ENUMERATION, ze.zeEventPoolCreate(context, &pool_desc, 0, NULL, &pool));
	pool_desc.flags = pool_desc.count = 0;
	RETURNS(V_ZE_RESULT_ERROR_INVALID_SIZE, ze.zeEventPoolCreate(context, &pool_desc, 0, NULL, &pool));
	pool_desc.count = 2;
	OK(ze.zeEventPoolCreate(context, &pool_desc, 0, NULL, &pool));
	OK(ze.zeEventCreate(pool, &desc, &first));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeEventCreate(pool, &desc, &second)); /* the place is taken */
	desc.index = 2;
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeEventCreate(pool, &desc, &second));
	desc.index = 0;
	desc.wait = 8;
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ENUMERATION, ze.zeEventCreate(pool, &desc, &second));
	desc.wait = 0;
	OK(ze.zeEventCreate(pool, &desc, &second));
	/* a pool that is not visible to the host shows it nothing */
	RETURNS(V_ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, ze.zeEventQueryStatus(first));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, ze.zeEventHostSynchronize(first, FOREVER));
	RETURNS(V_ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, ze.zeEventPoolDestroy(pool));
	OK(ze.zeEventDestroy(first));
	desc.index = 1;
	OK(ze.zeEventCreate(pool, &desc, &first)); /* free again */
	OK(ze.zeEventDestroy(first));
	OK(ze.zeEventDestroy(second));
	OK(ze.zeEventPoolDestroy(pool));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeEventPoolDestroy(pool));
}

/* ---- threads ---- */

static void *signal_soon(void *event)
{
	usleep(2000);
	OK(ze.zeEventHostSignal((ze_event_handle_t)event));
	return NULL;
}

TEST(a_host_thread_waits_for_another)
{
	pthread_t thread;
	start();
	ze_event_handle_t event = new_event();
	CHECK(!pthread_create(&thread, NULL, signal_soon, event));
	OK(ze.zeEventHostSynchronize(event, FOREVER));
	CHECK(!pthread_join(thread, NULL));
}

static void *wait_until_lost(void *event)
{
	RETURNS(V_ZE_RESULT_ERROR_DEVICE_LOST, ze.zeEventHostSynchronize((ze_event_handle_t)event, FOREVER));
	return NULL;
}

static void *synchronise_until_lost(void *list)
{
	RETURNS(V_ZE_RESULT_ERROR_DEVICE_LOST, ze.zeCommandListHostSynchronize((ze_command_list_handle_t)list, FOREVER));
	return NULL;
}

/* Whoever would signal has given up: so a wait for ever must not be for ever. */
TEST(waits_end_when_the_device_is_lost)
{
	pthread_t threads[2];
	start();
	ze_command_list_handle_t list = immediate_list(IN_ORDER);
	ze_event_handle_t gate = close_gate(list);
	CHECK(!pthread_create(&threads[0], NULL, wait_until_lost, gate));
	CHECK(!pthread_create(&threads[1], NULL, synchronise_until_lost, list));
	usleep(5000);
	soft.fail("zeDeviceGetStatus", 1, V_ZE_RESULT_ERROR_DEVICE_LOST);
	RETURNS(V_ZE_RESULT_ERROR_DEVICE_LOST, ze.zeDeviceGetStatus(device));
	for (int i = 0; i < 2; i++)
		CHECK(!pthread_join(threads[i], NULL));
	soft.reset();
	synchronize(list); /* nothing is left on it */
	OK(ze.zeEventDestroy(gate));
	OK(ze.zeCommandListDestroy(list));
}

static _Atomic int stop;

static void *synchronise_all_the_time(void *list)
{
	while (!stop) {
		ze_result_t result = ze.zeCommandListHostSynchronize((ze_command_list_handle_t)list, 100000);
		CHECK(result == 0 || result == (ze_result_t)V_ZE_RESULT_NOT_READY);
	}
	return NULL;
}

/* Appending is one thread's; waiting is anybody's. */
TEST(a_list_is_waited_for_beside_its_user)
{
	pthread_t threads[3];
	for (int flags = 0; flags <= IN_ORDER; flags += IN_ORDER) {
		start();
		char *a = allocate(4096), *host = allocate_host(4096);
		ze_command_list_handle_t list = immediate_list((unsigned)flags);
		stop = 0;
		for (int i = 0; i < 3; i++)
			CHECK(!pthread_create(&threads[i], NULL, synchronise_all_the_time, list));
		for (int i = 0; i < 500; i++)
			copy(list, host + 8 * i, a + 8 * i, 8); /* apart: they may run at the same time */
		synchronize(list);
		stop = 1;
		for (int i = 0; i < 3; i++)
			CHECK(!pthread_join(threads[i], NULL));
		OK(ze.zeCommandListDestroy(list));
		EQUAL(soft.get("sticky"), 0);
	}
}

static void *append_all_the_time(void *list)
{
	ze_result_t result = 0;
	for (long i = 0; i < 10000000 && !result && !stop; i++)
		result = ze.zeCommandListAppendBarrier((ze_command_list_handle_t)list, NULL, 0, NULL);
	stop = 1;
	CHECK(!result || result == (ze_result_t)V_ZE_RESULT_ERROR_DEVICE_LOST);
	return NULL;
}

TEST(two_threads_in_one_list_are_the_end)
{
	pthread_t threads[2];
	start();
	ze_command_list_handle_t list = immediate_list(IN_ORDER);
	stop = 0;
	for (int i = 0; i < 2; i++)
		CHECK(!pthread_create(&threads[i], NULL, append_all_the_time, list));
	for (int i = 0; i < 2; i++)
		CHECK(!pthread_join(threads[i], NULL));
	EQUAL(soft.get("sticky"), V_ZE_RESULT_ERROR_DEVICE_LOST);
}

enum { THREADS = 6, ROUNDS = 150 };

static void *storm(void *argument)
{
	unsigned char number = (unsigned char)(uintptr_t)argument, *pageable = malloc(65536);
	ze_command_list_handle_t list = immediate_list(number % 2 ? IN_ORDER : 0), other = immediate_list(IN_ORDER);
	unsigned char *pinned = allocate_host(65536);
	ze_event_handle_t done = new_event();
	for (int round = 0; round < ROUNDS; round++) {
		size_t bytes = 1 + (size_t)(round * 977 + number * 131) % 65536;
		unsigned char *a = allocate(bytes), *b = allocate(bytes);
		memset(pinned, number + round, bytes);
		copy(list, a, pinned, bytes);
		OK(ze.zeCommandListAppendBarrier(list, NULL, 0, NULL));
		OK(ze.zeCommandListAppendMemoryCopy(list, b, a, bytes, done, 0, NULL));
		OK(ze.zeCommandListAppendMemoryCopy(other, pageable, b, bytes, NULL, 1, &done));
		free_by(round % 3 == 0 ? 1 : 2, a);
		free_by(2, b);
		synchronize(other);
		for (size_t i = 0; i < bytes; i += 1 + i / 8)
			EQUAL(pageable[i], (unsigned char)(number + round));
		synchronize(list);
		OK(ze.zeEventHostReset(done));
		if (round % 40 == 0) {
			OK(ze.zeCommandListDestroy(list));
			list = immediate_list(number % 2 ? IN_ORDER : 0);
		}
	}
	OK(ze.zeCommandListDestroy(list));
	OK(ze.zeCommandListDestroy(other));
	OK(ze.zeEventDestroy(done));
	OK(ze.zeMemFree(context, pinned));
	free(pageable);
	return NULL;
}

TEST(threads)
{
	pthread_t threads[THREADS];
	start();
	for (int mode = 0; mode < 3; mode++) {
		soft.set("quarantine", mode & 1);
		soft.set("jitter_us", mode == 2 ? 30 : 0);
		for (uintptr_t i = 0; i < THREADS; i++)
			CHECK(!pthread_create(&threads[i], NULL, storm, (void *)i));
		for (int i = 0; i < THREADS; i++)
			CHECK(!pthread_join(threads[i], NULL));
		free_by(1, allocate(1)); /* after all deferred frees */
		EQUAL(soft.get("live"), 0);
		EQUAL(soft.get("sticky"), 0);
		EQUAL(soft.get("reserved"), 0);
	}
}
