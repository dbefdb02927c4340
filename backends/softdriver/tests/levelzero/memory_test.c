/* Allocation, limits, over-commitment, owners, facts about pointers. */
#include "client.h"

enum { IN_ORDER = V_ZE_COMMAND_QUEUE_FLAG_IN_ORDER };

TEST(memory_is_counted_and_copied)
{
	for (int quarantine = 0; quarantine < 2; quarantine++) {
		unsigned char pageable[1000];
		if (!library)
			load();
		soft.set("quarantine", quarantine);
		start();
		unsigned char *a = allocate(100000), *b = allocate(100000), *host = allocate_host(100000);
		EQUAL(soft.get("in_use"), 200000);
		EQUAL(soft.get("live"), 2);
		ze_command_list_handle_t list = immediate_list(IN_ORDER);
		fill(list, a, 7, 100000);
		copy(list, b, a, 100000);
		copy(list, host, b, 100000);
		copy(list, pageable, b + 5, sizeof pageable);
		copy(list, a, pageable, 0); /* nothing, and no error */
		synchronize(list);
		EQUAL(host[99999], 7);
		EQUAL(pageable[999], 7);
		EQUAL(a[0], 7); /* the host reaches device memory by its address */
		OK(ze.zeMemFree(context, a));
		OK(ze.zeMemFree(context, b));
		OK(ze.zeMemFree(context, host));
		OK(ze.zeCommandListDestroy(list));
		EQUAL(soft.get("in_use"), 0);
		EQUAL(soft.get("reserved"), 0);
		RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeMemFree(context, a));
		RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeMemFree(context, host));
		CHECK(readable((uint64_t)(uintptr_t)a) == !quarantine);
		CHECK(!quarantine || !readable((uint64_t)(uintptr_t)host));
		EQUAL(soft.get("sticky"), 0);
	}
}

static int device_allocation(size_t bytes, size_t alignment, const void *next, void **out)
{
	ze_device_mem_alloc_desc_t desc = { OF(DEVICE_MEM_ALLOC_DESC), .pNext = next };
	return ze.zeMemAllocDevice(context, &desc, bytes, alignment, device, out);
}

TEST(requests_that_cannot_be_met)
{
	void *p = NULL;
	start();
	RETURNS(V_ZE_RESULT_ERROR_UNSUPPORTED_SIZE, device_allocation(0, 0, NULL, &p));
	RETURNS(V_ZE_RESULT_ERROR_UNSUPPORTED_SIZE, device_allocation((size_t)soft.get("capacity") + 1, 0, NULL, &p));
	RETURNS(V_ZE_RESULT_ERROR_UNSUPPORTED_SIZE, device_allocation(SIZE_MAX, 0, NULL, &p));
	RETURNS(V_ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, device_allocation(64, 3, NULL, &p));
	RETURNS(V_ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, device_allocation(64, 1024, NULL, &p));
	CHECK(!p);
	EQUAL(soft.get("live"), 0);
	for (size_t alignment = 1; alignment <= 512; alignment *= 2) {
		OK(device_allocation(3, alignment, NULL, &p));
		EQUAL((uintptr_t)p % alignment, 0);
	}
	ze_device_mem_alloc_desc_t desc = { OF(DEVICE_MEM_ALLOC_DESC), .flags = 8 };
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ENUMERATION, ze.zeMemAllocDevice(context, &desc, 64, 0, device, &p));
	desc.flags = 7;
	OK(ze.zeMemAllocDevice(context, &desc, 64, 0, device, &p));
	desc.ordinal = 1; /* there is one memory */
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeMemAllocDevice(context, &desc, 64, 0, device, &p));
}

TEST(the_largest_allocation)
{
	void *p;
	ze_device_properties_t properties = { OF(DEVICE_PROPERTIES) };
	ze_relaxed_allocation_limits_exp_desc_t experimental = { OF(RELAXED_ALLOCATION_LIMITS_EXP_DESC), .flags = V_ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE };
	ze_relaxed_allocation_limits_exp_desc_t relaxed = { OF(RELAXED_ALLOCATION_LIMITS_EXT_DESC), .flags = V_ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE };
	start();
	OK(ze.zeDeviceGetProperties(device, &properties));
	EQUAL(properties.maxMemAllocSize, soft.get("capacity"));
	soft.set("max_alloc", 1000);
	OK(ze.zeDeviceGetProperties(device, &properties));
	EQUAL(properties.maxMemAllocSize, 1000);
	OK(device_allocation(1000, 0, NULL, &p));
	RETURNS(V_ZE_RESULT_ERROR_UNSUPPORTED_SIZE, device_allocation(1001, 0, NULL, &p));
	OK(device_allocation(1001, 0, &experimental, &p));
	OK(device_allocation(1001, 0, &relaxed, &p));
	RETURNS(V_ZE_RESULT_ERROR_UNSUPPORTED_SIZE, device_allocation((size_t)soft.get("capacity") + 1, 0, &relaxed, &p));
	experimental.flags = 0;
	RETURNS(V_ZE_RESULT_ERROR_UNSUPPORTED_SIZE, device_allocation(1001, 0, &experimental, &p));
	soft.set("api_version", VERSION(1, 15)); /* knows only the first of the two */
	RETURNS(V_ZE_RESULT_ERROR_UNSUPPORTED_SIZE, device_allocation(1001, 0, &relaxed, &p));
	experimental.flags = V_ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE;
	OK(device_allocation(1001, 0, &experimental, &p));
	soft.set("relaxed", 0);
	RETURNS(V_ZE_RESULT_ERROR_UNSUPPORTED_SIZE, device_allocation(1001, 0, &experimental, &p));
}

/* ---- over-commitment ---- */

/* The device is lost as soon as it gets there: maybe before the call that put it there returns. */
static void use_and_lose(ze_command_list_handle_t list, void *memory)
{
	(void)ze.zeCommandListAppendMemoryFill(list, memory, "", 1, 64, NULL, 0, NULL);
	RETURNS(V_ZE_RESULT_ERROR_DEVICE_LOST, ze.zeCommandListHostSynchronize(list, FOREVER));
	RETURNS(V_ZE_RESULT_ERROR_DEVICE_LOST, ze.zeDeviceGetStatus(device));
	EQUAL(soft.get("sticky"), V_ZE_RESULT_ERROR_DEVICE_LOST);
}

TEST(a_device_takes_more_than_it_has_and_is_lost_when_that_is_used)
{
	start();
	soft.set("capacity", 2 * MIB);
	char *a = allocate(MIB), *b = allocate(MIB), *c = allocate(MIB);
	EQUAL(soft.get("in_use"), 3 * MIB);
	ze_command_list_handle_t list = immediate_list(IN_ORDER);
	fill(list, a, 1, MIB);
	fill(list, b, 2, MIB);
	synchronize(list); /* what fits is all right */
	EQUAL(soft.get("sticky"), 0);
	use_and_lose(list, c);
}

TEST(what_did_not_fit_has_a_place_once_others_went)
{
	start();
	soft.set("capacity", 2 * MIB);
	char *a = allocate(MIB), *b = allocate(MIB), *c = allocate(MIB);
	ze_command_list_handle_t list = immediate_list(IN_ORDER);
	OK(ze.zeMemFree(context, a));
	fill(list, c, 3, MIB);
	synchronize(list);
	EQUAL(c[MIB - 1], 3);
	(void)allocate(2 * MIB);
	fill(list, b, 2, MIB); /* they keep theirs */
	fill(list, c, 4, MIB);
	synchronize(list);
}

TEST(another_process_takes_memory_and_gives_it_back)
{
	start();
	soft.set("capacity", 2 * MIB);
	soft.set("taken", 2 * MIB);
	char *a = allocate(MIB);
	soft.set("taken", 0);
	ze_command_list_handle_t list = immediate_list(IN_ORDER);
	fill(list, a, 1, MIB);
	synchronize(list);
	use_and_lose(list, allocate(2 * MIB));
}

TEST(a_driver_that_does_not_over_commit)
{
	void *p;
	start();
	soft.set("overcommit", 0);
	soft.set("capacity", 2 * MIB);
	(void)allocate(MIB);
	OK(device_allocation(MIB, 0, NULL, &p));
	RETURNS(V_ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, device_allocation(1, 0, NULL, &p));
	EQUAL(soft.get("in_use"), 2 * MIB);
	OK(ze.zeMemFree(context, p));
	soft.set("taken", MIB);
	RETURNS(V_ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, device_allocation(MIB, 0, NULL, &p));
	soft.set("taken", 0);
	OK(device_allocation(MIB, 0, NULL, &p));
}

/* ---- owners ---- */

TEST(memory_belongs_to_a_context)
{
	ze_context_desc_t desc = { OF(CONTEXT_DESC) };
	ze_context_handle_t mine, other;
	ze_device_handle_t owner;
	ze_memory_allocation_properties_t properties = { OF(MEMORY_ALLOCATION_PROPERTIES) };
	start();
	mine = context;
	OK(ze.zeContextCreate(driver, &desc, &other));
	char *a = allocate(64), *host = allocate_host(64);
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeMemFree(other, a));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeMemFree(other, host));
	OK(ze.zeMemGetAllocProperties(other, a, &properties, &owner));
	EQUAL(properties.type, V_ZE_MEMORY_TYPE_UNKNOWN);
	CHECK(!owner);
	RETURNS(V_ZE_RESULT_ERROR_ADDRESS_NOT_FOUND, ze.zeMemGetAddressRange(other, a, NULL, NULL));
	/* a list works with the memory of its own context, and with the client's own */
	context = other;
	ze_command_list_handle_t list = immediate_list(IN_ORDER);
	char *b = allocate(64), own[64] = { 1 };
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeCommandListAppendMemoryCopy(list, b, a, 64, NULL, 0, NULL));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeCommandListAppendMemoryCopy(list, a, b, 64, NULL, 0, NULL));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeCommandListAppendMemoryFill(list, host, own, 1, 64, NULL, 0, NULL));
	copy(list, b, own, 64);
	synchronize(list);
	EQUAL(b[0], 1);
	/* and a context ends with its memory, once nothing else is left of it */
	RETURNS(V_ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, ze.zeContextDestroy(other));
	OK(ze.zeCommandListDestroy(list));
	void *gone = allocate_host(64);
	EQUAL(soft.get("live"), 2);
	OK(ze.zeContextDestroy(other));
	EQUAL(soft.get("live"), 1);
	CHECK(!readable((uint64_t)(uintptr_t)b) && !readable((uint64_t)(uintptr_t)gone));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeContextGetStatus(other));
	OK(ze.zeMemFree(mine, a));
	OK(ze.zeMemFree(mine, host));
}

/* ---- facts about pointers ---- */

TEST(what_pointers_are)
{
	ze_memory_allocation_properties_t first = { OF(MEMORY_ALLOCATION_PROPERTIES) }, properties = first;
	ze_device_handle_t owner;
	void *base;
	size_t bytes;
	start();
	char *a = allocate(100), *b = allocate(100), *host = allocate_host(100), own = 0;
	OK(ze.zeMemGetAllocProperties(context, a + 99, &first, &owner));
	EQUAL(first.type, V_ZE_MEMORY_TYPE_DEVICE);
	CHECK(owner == device && first.pageSize);
	OK(ze.zeMemGetAllocProperties(context, b, &properties, NULL));
	CHECK(properties.id != first.id);
	OK(ze.zeMemGetAllocProperties(context, host, &properties, &owner));
	EQUAL(properties.type, V_ZE_MEMORY_TYPE_HOST);
	CHECK(!owner);
	OK(ze.zeMemGetAllocProperties(context, &own, &properties, &owner));
	EQUAL(properties.type, V_ZE_MEMORY_TYPE_UNKNOWN);
	OK(ze.zeMemGetAddressRange(context, a + 99, &base, &bytes));
	CHECK(base == a);
	EQUAL(bytes, 100);
	OK(ze.zeMemGetAddressRange(context, host + 7, &base, NULL));
	CHECK(base == host);
	RETURNS(V_ZE_RESULT_ERROR_ADDRESS_NOT_FOUND, ze.zeMemGetAddressRange(context, a + 100, &base, &bytes));
	soft.set("api_version", VERSION(1, 13)); /* before there was a number for that */
	RETURNS(V_ZE_RESULT_ERROR_UNKNOWN, ze.zeMemGetAddressRange(context, &own, &base, &bytes));
	OK(ze.zeMemFree(context, a));
	OK(ze.zeMemGetAllocProperties(context, a, &properties, &owner));
	EQUAL(properties.type, V_ZE_MEMORY_TYPE_UNKNOWN);
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeMemFree(context, b + 1));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeMemFree(context, &own));
}
