/* Host memory: the driver's, and the client's that it is told of. */
#include <sys/mman.h>

#include "client.h"

enum { PAGE = 4096, IN_ORDER = V_ZE_COMMAND_QUEUE_FLAG_IN_ORDER };

static int host_allocation(size_t bytes, size_t alignment, const void *next, void **out)
{
	ze_host_mem_alloc_desc_t desc = { OF(HOST_MEM_ALLOC_DESC), .pNext = next };
	return ze.zeMemAllocHost(context, &desc, bytes, alignment, out);
}

static void *pages(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	return p;
}

TEST(host_memory_of_the_driver)
{
	void *p = NULL;
	start();
	RETURNS(V_ZE_RESULT_ERROR_UNSUPPORTED_SIZE, host_allocation(0, 0, NULL, &p));
	RETURNS(V_ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, host_allocation(64, 24, NULL, &p));
	RETURNS(V_ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, host_allocation(64, 2 * PAGE, NULL, &p));
	RETURNS(V_ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, host_allocation(1ull << 62, 0, NULL, &p));
	CHECK(!p);
	OK(host_allocation(100, PAGE, NULL, &p));
	EQUAL((uintptr_t)p % PAGE, 0);
	EQUAL(soft.get("in_use"), 0); /* none of a device's */
	ze_host_mem_alloc_desc_t desc = { OF(HOST_MEM_ALLOC_DESC), .flags = V_ZE_HOST_MEM_ALLOC_FLAG_MEM_READ_ONLY };
	OK(ze.zeMemAllocHost(context, &desc, 64, 0, &p));
	soft.set("api_version", VERSION(1, 15));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ENUMERATION, ze.zeMemAllocHost(context, &desc, 64, 0, &p));
}

TEST(the_client_s_pages_become_host_memory)
{
	void *p;
	start();
	char *own = pages(4 * PAGE);
	ze_external_memmap_sysmem_ext_desc_t map = { OF(EXTERNAL_MEMMAP_SYSMEM_EXT_DESC), .pSystemMemory = own, .size = 4 * PAGE };
	ze_memory_allocation_properties_t properties = { OF(MEMORY_ALLOCATION_PROPERTIES) };
	OK(host_allocation(4 * PAGE, 0, &map, &p));
	CHECK(p == own);
	OK(ze.zeMemGetAllocProperties(context, own + PAGE, &properties, NULL));
	EQUAL(properties.type, V_ZE_MEMORY_TYPE_HOST);
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, host_allocation(4 * PAGE, 0, &map, &p)); /* it is already */
	OK(ze.zeMemFree(context, own));
	own[0] = 1; /* still the client's */
	OK(ze.zeMemGetAllocProperties(context, own, &properties, NULL));
	EQUAL(properties.type, V_ZE_MEMORY_TYPE_UNKNOWN);
	map.pSystemMemory = own + 1;
	RETURNS(V_ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, host_allocation(PAGE, 0, &map, &p));
	map.pSystemMemory = own;
	map.size = PAGE + 1;
	RETURNS(V_ZE_RESULT_ERROR_UNSUPPORTED_SIZE, host_allocation(PAGE, 0, &map, &p));
	map.pSystemMemory = NULL;
	RETURNS(V_ZE_RESULT_ERROR_INVALID_NULL_POINTER, host_allocation(PAGE, 0, &map, &p));
	/* a driver without the extension does not look at it */
	soft.set("api_version", VERSION(1, 13));
	map.pSystemMemory = own;
	map.size = PAGE;
	OK(host_allocation(PAGE, 0, &map, &p));
	CHECK(p != own);
}

TEST(pointers_are_imported_through_the_driver_s_own_functions)
{
	ze_result_t (*import)(ze_driver_handle_t, void *, size_t), (*release)(ze_driver_handle_t, void *), (*base_of)(ze_driver_handle_t, void *, void **);
	void *base, *none = &base;
	ze_memory_allocation_properties_t properties = { OF(MEMORY_ALLOCATION_PROPERTIES) };
	start();
	OK(ze.zeDriverGetExtensionFunctionAddress(driver, "zexDriverImportExternalPointer", (void **)&import));
	OK(ze.zeDriverGetExtensionFunctionAddress(driver, "zexDriverReleaseImportedPointer", (void **)&release));
	OK(ze.zeDriverGetExtensionFunctionAddress(driver, "zexDriverGetHostPointerBaseAddress", (void **)&base_of));
	char *own = pages(4 * PAGE);
	OK(import(driver, own, 4 * PAGE));
	OK(base_of(driver, own + 5000, &base));
	CHECK(base == own);
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, import(driver, own + PAGE, PAGE));
	OK(ze.zeMemGetAllocProperties(context, own, &properties, NULL));
	EQUAL(properties.type, V_ZE_MEMORY_TYPE_UNKNOWN); /* no allocation of a context */
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeMemFree(context, own));
	ze_command_list_handle_t list = immediate_list(IN_ORDER);
	char *memory = allocate(4 * PAGE);
	fill(list, own, 9, 4 * PAGE); /* a device reaches it */
	copy(list, memory, own, 4 * PAGE);
	synchronize(list);
	EQUAL(memory[4 * PAGE - 1], 9);
	OK(release(driver, own));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, release(driver, own));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, base_of(driver, own, &base));
	own[0] = 1;
	/* wrong arguments */
	RETURNS(V_ZE_RESULT_ERROR_INVALID_NULL_HANDLE, import(NULL, own, PAGE));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, release(NO_SUCH(ze_driver_handle_t), own));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_NULL_POINTER, import(driver, NULL, PAGE));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_SIZE, import(driver, own, 0));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_NULL_POINTER, base_of(driver, own, NULL));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, import(driver, memory, PAGE)); /* a device's */
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeDriverGetExtensionFunctionAddress(driver, "zexNothing", &none));
	CHECK(!none);
	soft.set("import", 0);
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeDriverGetExtensionFunctionAddress(driver, "zexDriverImportExternalPointer", &none));
}

TEST(pageable_memory_is_read_when_the_device_gets_there)
{
	start();
	static char own[100];
	char *memory = allocate(100);
	ze_command_list_handle_t list = immediate_list(IN_ORDER);
	memset(own, 1, sizeof own);
	ze_event_handle_t gate = close_gate(list);
	copy(list, memory, own, sizeof own); /* returns at once, and nothing was staged */
	memset(own, 2, sizeof own);
	OK(ze.zeEventHostSignal(gate));
	synchronize(list);
	EQUAL(memory[50], 2);
	char value = 3;
	/* but a device does not write there by itself */
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeCommandListAppendMemoryFill(list, own, &value, 1, sizeof own, NULL, 0, NULL));
}
