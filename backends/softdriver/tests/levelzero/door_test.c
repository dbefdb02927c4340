/* What happens at every function's door: counting, injected faults, arguments that are no good, the uninitialised, poisoned or forked process; settings. */
#include <dlfcn.h>
#include <limits.h>
#include <sys/wait.h>

#include "client.h"

static const char *const functions[] = {
#define F(symbol, since, parameters) #symbol,
#include "../../levelzero/functions.def"
#undef F
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

enum { MOST_ARGUMENTS = 8 };
typedef ze_result_t (*any_function)(long, long, long, long, long, long, long, long);

static int call(const char *name, const long *a)
{
	any_function function;
	*(void **)&function = dlsym(library, name);
	CHECK(function);
	return (int)function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);
}

/* Calls a function that must refuse at its door, before it looks at its arguments. */
static int call_with_nothing(const char *name)
{
	static const long nothing[MOST_ARGUMENTS];
	return call(name, nothing);
}

static int starts(const char *name) { return !strcmp(name, "zeInit") || !strcmp(name, "zeInitDrivers") || !strcmp(name, "zesInit"); }
static int is_sysman(const char *name) { return !strncmp(name, "zes", 3); }

static void start_both(void)
{
	start();
	OK(ze.zesInit(0));
}

TEST(any_function_can_be_made_to_fail)
{
	static const char *const hidden[] = { "zexDriverImportExternalPointer", "zexDriverReleaseImportedPointer", "zexDriverGetHostPointerBaseAddress" };
	start_both();
	for (int i = 0; i < FUNCTIONS; i++) {
		unsigned long before = soft.calls(functions[i]), all = soft.calls("*");
		EQUAL(soft.fail(functions[i], 1, 4242), 0);
		RETURNS(4242, call_with_nothing(functions[i]));
		EQUAL(soft.calls(functions[i]), before + 1);
		EQUAL(soft.calls("*"), all + 1);
	}
	for (int i = 0; i < 3; i++) {
		ze_result_t (*function)(ze_driver_handle_t, void *, size_t);
		OK(ze.zeDriverGetExtensionFunctionAddress(driver, hidden[i], (void **)&function));
		CHECK(!dlsym(library, hidden[i])); /* told by the driver, exported by nobody */
		EQUAL(soft.fail(hidden[i], 1, 4242), 0);
		RETURNS(4242, function(NULL, NULL, 0));
		EQUAL(soft.calls(hidden[i]), 1);
	}
	EQUAL(soft.fail("zeMemAllocShared", 1, 2), -1); /* not exported */
	EQUAL(soft.calls("zeMemAllocShared"), 0);
}

TEST(a_device_that_is_lost_stays_lost)
{
	start_both();
	soft.fail("zeDeviceGetStatus", 2, V_ZE_RESULT_ERROR_DEVICE_LOST);
	OK(ze.zeDeviceGetStatus(device));
	OK(ze.zeContextGetStatus(context));
	RETURNS(V_ZE_RESULT_ERROR_DEVICE_LOST, ze.zeDeviceGetStatus(device));
	EQUAL(soft.get("sticky"), V_ZE_RESULT_ERROR_DEVICE_LOST);
	for (int i = 0; i < FUNCTIONS; i++)
		if (!starts(functions[i]))
			EQUAL(call_with_nothing(functions[i]), V_ZE_RESULT_ERROR_DEVICE_LOST);
	soft.reset();
	OK(ze.zeDeviceGetStatus(device));
	/* an error that says nothing of the device passes */
	soft.fail("zeDeviceGetStatus", 1, V_ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
	RETURNS(V_ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, ze.zeDeviceGetStatus(device));
	OK(ze.zeDeviceGetStatus(device));
}

TEST(nothing_works_before_initialisation)
{
	uint32_t count = 0;
	load();
	for (int i = 0; i < FUNCTIONS; i++)
		if (!starts(functions[i]))
			EQUAL(call_with_nothing(functions[i]), V_ZE_RESULT_ERROR_UNINITIALIZED);
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ENUMERATION, ze.zeInit(4));
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ENUMERATION, ze.zesInit(2));
	RETURNS(V_ZE_RESULT_ERROR_UNINITIALIZED, ze.zeInit(V_ZE_INIT_FLAG_VPU_ONLY)); /* there is none */
	OK(ze.zeInit(0));
	OK(ze.zeInit(V_ZE_INIT_FLAG_GPU_ONLY));
	OK(ze.zeDriverGet(&count, NULL));
	EQUAL(count, 1);
	/* each of the two is initialised on its own */
	for (int i = 0; i < FUNCTIONS; i++)
		if (!starts(functions[i]) && is_sysman(functions[i]))
			EQUAL(call_with_nothing(functions[i]), V_ZE_RESULT_ERROR_UNINITIALIZED);
}

TEST(sysman_alone_does_not_initialise_the_core)
{
	uint32_t count = 0;
	load();
	OK(ze.zesInit(0));
	OK(ze.zesDriverGet(&count, NULL));
	for (int i = 0; i < FUNCTIONS; i++)
		if (!starts(functions[i]) && !is_sysman(functions[i]))
			EQUAL(call_with_nothing(functions[i]), V_ZE_RESULT_ERROR_UNINITIALIZED);
}

TEST(no_device_is_no_driver)
{
	uint32_t count = 0;
	ze_init_driver_type_desc_t desc = { OF(INIT_DRIVER_TYPE_DESC), .flags = UINT32_MAX };
	load();
	soft.set("devices", 0);
	RETURNS(V_ZE_RESULT_ERROR_UNINITIALIZED, ze.zeInit(0));
	RETURNS(V_ZE_RESULT_ERROR_UNINITIALIZED, ze.zeDriverGet(&count, NULL));
	RETURNS(V_ZE_RESULT_ERROR_UNINITIALIZED, ze.zeInitDrivers(&count, NULL, &desc));
	RETURNS(V_ZE_RESULT_ERROR_UNINITIALIZED, ze.zesInit(0));
	EQUAL(count, 0);
	soft.set("devices", 1);
	OK(ze.zeInit(0));
}

/* ---- arguments ---- */

/* One row a function: a call that is in order, and what its arguments are: h a handle, s a structure, p a pointer that must be there, - anything else.
 * It is never made as it is. */
struct row {
	const char *name, *kinds;
	long arguments[MOST_ARGUMENTS];
};

static unsigned refused;

static void refuses(int code, const struct row *row, int at, long value)
{
	long arguments[MOST_ARGUMENTS];
	memcpy(arguments, row->arguments, sizeof arguments);
	arguments[at] = value;
	int got = call(row->name, arguments);
	if (got != code)
		failed(__FILE__, __LINE__, "%s with %#lx as argument %d returned %#x, not %#x", row->name, (unsigned long)value, at + 1, got, code);
	refused++;
}

static void refuses_what_is_wrong(const struct row *row, ze_event_handle_t destroyed)
{
	static char nothing[4096];
	CHECK(strlen(row->kinds) <= MOST_ARGUMENTS);
	for (int at = 0; row->kinds[at]; at++) {
		switch (row->kinds[at]) {
		case 'h':
			refuses(V_ZE_RESULT_ERROR_INVALID_NULL_HANDLE, row, at, 0);
			refuses(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, row, at, (long)(uintptr_t)nothing);
			refuses(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, row, at, (long)(uintptr_t)destroyed);
			refuses(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, row, at, 0x1230);
			break;
		case 's':
			refuses(V_ZE_RESULT_ERROR_INVALID_NULL_POINTER, row, at, 0);
			refuses(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, row, at, (long)(uintptr_t)nothing); /* its stype says nothing */
			break;
		case 'p': refuses(V_ZE_RESULT_ERROR_INVALID_NULL_POINTER, row, at, 0); break;
		}
	}
}

TEST(every_function_refuses_arguments_that_are_no_good)
{
	uint32_t one = 1;
	zes_driver_handle_t sysman;
	zes_device_handle_t unit;
	zes_mem_handle_t module;
	void *out = NULL;
	start_both();
	OK(ze.zesDriverGet(&one, &sysman));
	OK(ze.zesDeviceGet(sysman, &one, &unit));
	OK(ze.zesDeviceEnumMemoryModules(unit, &one, &module));
	ze_fence_handle_t fence;
	ze_event_pool_handle_t pool;
	ze_command_queue_handle_t queue = new_queue(V_ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
	ze_command_list_handle_t list = new_list(0), now = immediate_list(0);
	ze_event_handle_t event = new_event(), destroyed = new_event();
	void *memory = allocate(64);
	ze_init_driver_type_desc_t init = { OF(INIT_DRIVER_TYPE_DESC) };
	ze_driver_properties_t of_driver = { OF(DRIVER_PROPERTIES) };
	ze_device_properties_t of_device = { OF(DEVICE_PROPERTIES) };
	ze_device_memory_properties_t of_memory = { OF(DEVICE_MEMORY_PROPERTIES) };
	ze_command_queue_group_properties_t of_groups[1] = { { OF(COMMAND_QUEUE_GROUP_PROPERTIES) } };
	ze_context_desc_t context_desc = { OF(CONTEXT_DESC) };
	ze_command_queue_desc_t queue_desc = { OF(COMMAND_QUEUE_DESC) };
	ze_command_list_desc_t list_desc = { OF(COMMAND_LIST_DESC) };
	ze_fence_desc_t fence_desc = { OF(FENCE_DESC) };
	ze_event_pool_desc_t pool_desc = { OF(EVENT_POOL_DESC) };
	ze_event_desc_t event_desc = { OF(EVENT_DESC) };
	ze_device_mem_alloc_desc_t device_desc = { OF(DEVICE_MEM_ALLOC_DESC) };
	ze_host_mem_alloc_desc_t host_desc = { OF(HOST_MEM_ALLOC_DESC) };
	ze_memory_free_ext_desc_t free_desc = { OF(MEMORY_FREE_EXT_DESC) };
	ze_memory_allocation_properties_t of_allocation = { OF(MEMORY_ALLOCATION_PROPERTIES) };
	zes_device_properties_t of_unit = { ZES_OF(DEVICE_PROPERTIES) };
	zes_mem_properties_t of_module = { ZES_OF(MEM_PROPERTIES) };
	zes_mem_state_t state = { ZES_OF(MEM_STATE) };
	init.flags = pool_desc.count = 1;
	OK(ze.zeFenceCreate(queue, &fence_desc, &fence));
	OK(ze.zeEventPoolCreate(context, &pool_desc, 0, NULL, &pool));
	OK(ze.zeEventDestroy(destroyed)); /* last: else its place could be another's by now */
#define L(value) (long)(uintptr_t)(value)
#define R(name, kinds, ...) { #name, kinds, { __VA_ARGS__ } }
	const struct row rows[] = {
		R(zeInit, "-", 0),
		R(zesInit, "-", 0),
		R(zeInitDrivers, "p-s", L(&one), L(&out), L(&init)),
		R(zeDriverGet, "p-", L(&one), L(&out)),
		R(zeDriverGetApiVersion, "hp", L(driver), L(&out)),
		R(zeDriverGetProperties, "hs", L(driver), L(&of_driver)),
		R(zeDriverGetExtensionProperties, "hp-", L(driver), L(&one), 0),
		R(zeDriverGetExtensionFunctionAddress, "hpp", L(driver), L("zexDriverImportExternalPointer"), L(&out)),
		R(zeDeviceGet, "hp-", L(driver), L(&one), L(&out)),
		R(zeDeviceGetProperties, "hs", L(device), L(&of_device)),
		R(zeDeviceGetMemoryProperties, "hp-", L(device), L(&one), L(&of_memory)),
		R(zeDeviceGetCommandQueueGroupProperties, "hp-", L(device), L(&one), L(of_groups)),
		R(zeDeviceGetStatus, "h", L(device)),
		R(zeContextCreate, "hsp", L(driver), L(&context_desc), L(&out)),
		R(zeContextDestroy, "h", L(context)),
		R(zeContextGetStatus, "h", L(context)),
		R(zeCommandQueueCreate, "hhsp", L(context), L(device), L(&queue_desc), L(&out)),
		R(zeCommandQueueDestroy, "h", L(queue)),
		R(zeCommandQueueExecuteCommandLists, "h-p-", L(queue), 1, L(&list), 0),
		R(zeCommandQueueSynchronize, "h-", L(queue), 0),
		R(zeFenceCreate, "hsp", L(queue), L(&fence_desc), L(&out)),
		R(zeFenceDestroy, "h", L(fence)),
		R(zeFenceHostSynchronize, "h-", L(fence), 0),
		R(zeFenceQueryStatus, "h", L(fence)),
		R(zeFenceReset, "h", L(fence)),
		R(zeCommandListCreate, "hhsp", L(context), L(device), L(&list_desc), L(&out)),
		R(zeCommandListCreateImmediate, "hhsp", L(context), L(device), L(&queue_desc), L(&out)),
		R(zeCommandListDestroy, "h", L(list)),
		R(zeCommandListClose, "h", L(list)),
		R(zeCommandListReset, "h", L(list)),
		R(zeCommandListHostSynchronize, "h-", L(now), 0),
		R(zeCommandListIsImmediate, "hp", L(now), L(&out)),
		R(zeCommandListGetContextHandle, "hp", L(now), L(&out)),
		R(zeCommandListGetDeviceHandle, "hp", L(now), L(&out)),
		R(zeCommandListAppendMemoryCopy, "hpp----", L(now), L(memory), L(memory), 8, 0, 0, 0),
		R(zeCommandListAppendMemoryFill, "hpp-----", L(now), L(memory), L(&one), 1, 8, 0, 0, 0),
		R(zeCommandListAppendBarrier, "h---", L(now), 0, 0, 0),
		R(zeCommandListAppendSignalEvent, "hh", L(now), L(event)),
		R(zeCommandListAppendWaitOnEvents, "h-p", L(now), 1, L(&event)),
		R(zeCommandListAppendEventReset, "hh", L(now), L(event)),
		R(zeEventPoolCreate, "hs--p", L(context), L(&pool_desc), 0, 0, L(&out)),
		R(zeEventPoolDestroy, "h", L(pool)),
		R(zeEventCreate, "hsp", L(pool), L(&event_desc), L(&out)),
		R(zeEventDestroy, "h", L(event)),
		R(zeEventHostSignal, "h", L(event)),
		R(zeEventHostReset, "h", L(event)),
		R(zeEventQueryStatus, "h", L(event)),
		R(zeEventHostSynchronize, "h-", L(event), 0),
		R(zeMemAllocDevice, "hs--hp", L(context), L(&device_desc), 64, 0, L(device), L(&out)),
		R(zeMemAllocHost, "hs--p", L(context), L(&host_desc), 64, 0, L(&out)),
		R(zeMemFree, "hp", L(context), L(memory)),
		R(zeMemFreeExt, "hsp", L(context), L(&free_desc), L(memory)),
		R(zeMemGetAllocProperties, "hps-", L(context), L(memory), L(&of_allocation), 0),
		R(zeMemGetAddressRange, "hp--", L(context), L(memory), 0, 0),
		R(zesDriverGet, "p-", L(&one), L(&out)),
		R(zesDeviceGet, "hp-", L(sysman), L(&one), L(&out)),
		R(zesDriverGetDeviceByUuidExp, "h--ppp", L(sysman), 0, 0, L(&out), L(&out), L(&out)), /* the UUID takes two places */
		R(zesDeviceGetProperties, "hs", L(unit), L(&of_unit)),
		R(zesDeviceEnumMemoryModules, "hp-", L(unit), L(&one), L(&out)),
		R(zesMemoryGetProperties, "hs", L(module), L(&of_module)),
		R(zesMemoryGetState, "hs", L(module), L(&state)),
	};
	EQUAL(sizeof rows / sizeof *rows, FUNCTIONS);
	for (int i = 0; i < FUNCTIONS; i++) {
		int found = 0;
		for (int r = 0; r < FUNCTIONS; r++)
			found += !strcmp(rows[r].name, functions[i]);
		if (found != 1)
			failed(__FILE__, __LINE__, "%s has %d rows", functions[i], found);
	}
	for (int i = 0; i < FUNCTIONS; i++)
		refuses_what_is_wrong(&rows[i], destroyed);
	CHECK(refused > 250);
	EQUAL(soft.get("sticky"), 0);
	EQUAL(soft.get("live"), 1);
	/* structures in arrays */
	of_memory.stype = (ze_structure_type_t)1;
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeDeviceGetMemoryProperties(device, &one, &of_memory));
	of_groups[0].stype = (ze_structure_type_t)1;
	RETURNS(V_ZE_RESULT_ERROR_INVALID_ARGUMENT, ze.zeDeviceGetCommandQueueGroupProperties(device, &one, of_groups));
	/* and the rest, which only a later call would trip over */
	OK(ze.zeFenceDestroy(fence));
	OK(ze.zeCommandQueueDestroy(queue));
	OK(ze.zeCommandListDestroy(list));
	OK(ze.zeCommandListDestroy(now));
	OK(ze.zeEventPoolDestroy(pool));
}

/* ---- fork ---- */

static void in_child(void (*run)(void))
{
	int status;
	pid_t child = fork();
	if (!child) {
		alarm(60);
		run();
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void everything_is_refused(void)
{
	for (int i = 0; i < FUNCTIONS; i++)
		EQUAL(call_with_nothing(functions[i]), V_ZE_RESULT_ERROR_UNINITIALIZED);
	EQUAL(soft.get("live"), 1); /* figures can still be read */
}

TEST(a_forked_child_is_refused_and_never_hangs)
{
	start();
	void *memory = allocate(64);
	ze_command_list_handle_t list = immediate_list(0);
	for (int i = 0; i < 10; i++) {
		fill(list, memory, 1, 64);
		in_child(everything_is_refused);
	}
	synchronize(list);
	OK(ze.zeMemFree(context, memory)); /* the parent goes on */
}

static void start_anew(void)
{
	start();
	ze_command_list_handle_t list = immediate_list(V_ZE_COMMAND_QUEUE_FLAG_IN_ORDER);
	fill(list, allocate(8), 1, 8);
	synchronize(list);
}

TEST(a_child_forked_before_initialisation_can_start)
{
	load();
	in_child(start_anew);
	start_anew();
}

/* ---- settings ---- */

TEST(settings_of_this_driver)
{
	setenv("TMSOFT_API_VERSION", "0x10004", 1);
	setenv("TMSOFT_SYSMAN", "0", 1);
	setenv("TMSOFT_FREE_POLICIES", "4", 1); /* a complaint on stderr, and the default */
	load();
	EQUAL(soft.get("api_version"), 0x10004);
	EQUAL(soft.get("sysman"), 0);
	EQUAL(soft.get("free_policies"), 3);
	EQUAL(soft.get("overcommit"), 1); /* with this vendor */
	EQUAL(soft.get("reorder"), 1);
	EQUAL(soft.set("api_version", VERSION(2, 0)), -2);
	EQUAL(soft.set("memory_modules", 5), -2);
	EQUAL(soft.set("memory_modules.0", 1), -1);
	EQUAL(soft.set("sysman", 2), 0);
	soft.reset();
	EQUAL(soft.get("sysman"), 0);
	EQUAL(soft.get("colour"), LLONG_MIN);
	/* devices may hold more than they have: so a capacity may fall below that */
	soft.set("capacity", 1 << 20);
	start();
	(void)allocate(1 << 20);
	EQUAL(soft.set("capacity", 1 << 19), 0);
	EQUAL(soft.set("overcommit", 0), 0);
	EQUAL(soft.set("capacity", 1 << 18), -2);
}
