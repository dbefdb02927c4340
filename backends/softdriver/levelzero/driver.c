/* Initialisation, versions, extensions, and what happens at every function's door. */
#include <stdlib.h>
#include <string.h>

#include "../engine/lock.h"
#include "../engine/stream.h"
#include "abi.h"
#include "extension.h"
#include "properties.h"
#include "sysman.h"

_Static_assert((int)CALLS <= (int)SOFT_MAX_CALLS, "raise SOFT_MAX_CALLS");

static const char *const names[CALLS] = {
#define F(symbol, since, parameters) #symbol,
#include "functions.def"
#undef F
#define X(name, parameters) #name,
#include "extensions.def"
#undef X
};

enum {
	SINCE_1_0 = ZE_VERSION(1, 0),
	SINCE_1_1 = ZE_VERSION(1, 1),
	SINCE_1_3 = ZE_VERSION(1, 3),
	SINCE_1_5 = ZE_VERSION(1, 5),
	SINCE_1_6 = ZE_VERSION(1, 6),
	SINCE_1_8 = ZE_VERSION(1, 8),
	SINCE_1_10 = ZE_VERSION(1, 10),
};
static const int since_of[CALLS] = {
#define F(symbol, since, parameters) SINCE_##since,
#include "functions.def"
#undef F
#define X(name, parameters) SINCE_1_0,
#include "extensions.def"
#undef X
};

int ze_code(enum soft_result result)
{
	static const int codes[SOFT_RESULTS] = {
		[SOFT_OK] = 0,
		[SOFT_INVALID_VALUE] = V_ZE_RESULT_ERROR_INVALID_ARGUMENT,
		[SOFT_OUT_OF_MEMORY] = V_ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
		[SOFT_NOT_INITIALIZED] = V_ZE_RESULT_ERROR_UNINITIALIZED,
		[SOFT_NO_DEVICE] = V_ZE_RESULT_ERROR_UNINITIALIZED,
		[SOFT_INVALID_DEVICE] = V_ZE_RESULT_ERROR_INVALID_ARGUMENT,
		[SOFT_INVALID_CONTEXT] = V_ZE_RESULT_ERROR_INVALID_ARGUMENT,
		[SOFT_CONTEXT_DESTROYED] = V_ZE_RESULT_ERROR_INVALID_ARGUMENT,
		[SOFT_INVALID_HANDLE] = V_ZE_RESULT_ERROR_INVALID_ARGUMENT,
		[SOFT_NOT_FOUND] = V_ZE_RESULT_ERROR_INVALID_ARGUMENT,
		[SOFT_NOT_READY] = V_ZE_RESULT_NOT_READY,
		[SOFT_ILLEGAL_ADDRESS] = V_ZE_RESULT_ERROR_DEVICE_LOST,
		[SOFT_HOST_REGISTERED] = V_ZE_RESULT_ERROR_INVALID_ARGUMENT,
		[SOFT_HOST_NOT_REGISTERED] = V_ZE_RESULT_ERROR_INVALID_ARGUMENT,
		[SOFT_OPERATING_SYSTEM] = V_ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY,
		[SOFT_NOT_SUPPORTED] = V_ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
		[SOFT_CAPTURE_UNSUPPORTED] = V_ZE_RESULT_ERROR_UNKNOWN, /* no captures here */
		[SOFT_CAPTURE_INVALIDATED] = V_ZE_RESULT_ERROR_UNKNOWN,
		[SOFT_CAPTURE_IMPLICIT] = V_ZE_RESULT_ERROR_UNKNOWN,
	};
	return codes[result];
}

static int is_sticky(int code) { return code == V_ZE_RESULT_ERROR_DEVICE_LOST; }

struct ze_settings ze_settings;
enum { NEWEST = ZE_VERSION(1, 17), MOST_DRIVERS = 4 };

static const struct soft_key keys[] = {
	{ "api_version", &ze_settings.api_version, 0, NEWEST, ZE_VERSION(1, 0), NEWEST },
	{ "drivers", &ze_settings.drivers, 0, 1, 1, MOST_DRIVERS },
	{ "integrated", &ze_settings.integrated, 0, 0, 0, 1 },
	{ "max_alloc", &ze_settings.max_alloc, 0, 0, 0, 1LL << 46 },
	{ "fill_pattern", &ze_settings.fill_pattern, 0, SOFT_MAX_PATTERN, 1, SOFT_MAX_PATTERN },
	{ "sysman", &ze_settings.sysman, 0, 1, 0, 2 },
	{ "memory_modules", &ze_settings.memory_modules, 0, 1, 0, ZES_MOST_MODULES },
	{ "usablemem", &ze_settings.usablemem, 0, 1, 0, 1 },
	{ "free_policies", &ze_settings.free_policies, 0, 3, 0, 3 },
	{ "relaxed", &ze_settings.relaxed, 0, 1, 0, 1 },
	{ "import", &ze_settings.import, 0, 1, 0, 1 },
	{ "reorder", &ze_settings.reorder, 0, 1, 0, 1 },
};
static const struct soft_default defaults[] = { { "overcommit", 1 } };

const struct soft_abi soft_abi = {
	.name = "software Level Zero driver",
	.calls = names,
	.count = CALLS,
	.code = ze_code,
	.sticky = is_sticky,
	.driver_version = 1,
	.visible = ze_visible,
	.keys = keys,
	.key_count = sizeof keys / sizeof *keys,
	.defaults = defaults,
	.default_count = sizeof defaults / sizeof *defaults,
};

/* ---- handles ---- */

int ze_handle_is(const void *handle, enum ze_kind kind)
{
	soft_lock();
	int is = soft_handle_is(handle, (enum soft_kind)kind);
	soft_unlock();
	return is;
}

void ze_handle_add(const void *handle, enum ze_kind kind)
{
	soft_lock();
	soft_handle_add(handle, (enum soft_kind)kind);
	soft_unlock();
}

/* ---- the door ---- */

_Atomic int ze_started[2];

ze_result_t ze_refusal(enum ze_call call, enum soft_door door, enum ze_side side)
{
	int refused = soft_enter(call, door);
	if (refused)
		return (ze_result_t)refused;
	if (door == SOFT_DOOR_READY && !atomic_load_explicit(&ze_started[side], memory_order_acquire))
		return (ze_result_t)V_ZE_RESULT_ERROR_UNINITIALIZED;
	return (ze_result_t)(ze_knows(since_of[call]) ? 0 : V_ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
}

/* ---- drivers ---- */

static struct ze_driver drivers[MOST_DRIVERS];
static int driver_count; /* written once, before ze_started is */

struct ze_driver *ze_driver_of(const struct soft_device *device) { return &drivers[device->ordinal % driver_count]; }

/* The devices exist once for the core and Sysman; whoever is first makes them. */
static ze_result_t start(enum ze_side side)
{
	enum soft_result result = soft_start();
	if (result)
		return ze_result(result);
	soft_lock();
	if (!driver_count) {
		driver_count = (int)soft_setting(&ze_settings.drivers);
		for (int i = 0; i < driver_count; i++) {
			drivers[i].index = i;
			soft_handle_add(&drivers[i], (enum soft_kind)ZE_DRIVER);
		}
		for (int i = 0; i < soft_device_count(); i++)
			soft_handle_add(soft_device(i), (enum soft_kind)ZE_DEVICE);
		zes_open_locked();
	}
	soft_unlock();
	atomic_store_explicit(&ze_started[side], 1, memory_order_release);
	return ze_result(SOFT_OK);
}

/* The variable that once switched Sysman on together with the core. Where zesInit came first it is passed over: the two must not be mixed. */
static void start_sysman_by_variable(void)
{
	const char *wanted = getenv("ZES_ENABLE_SYSMAN");
	if (wanted && !strcmp(wanted, "1") && soft_setting(&ze_settings.sysman))
		zes_start_with_core();
}

static ze_result_t start_core(void)
{
	ze_result_t result = start(ZE_CORE);
	if (!result)
		start_sysman_by_variable();
	return result;
}

ze_result_t zeInit(ze_init_flags_t flags)
{
	ENTER_AT(SOFT_DOOR_START, ZE_CORE, zeInit);
	NEED_FLAGS(flags, V_ZE_INIT_FLAG_GPU_ONLY | V_ZE_INIT_FLAG_VPU_ONLY);
	REFUSE_UNLESS(flags != V_ZE_INIT_FLAG_VPU_ONLY, ERROR_UNINITIALIZED); /* our devices are GPUs */
	return start_core();
}

static ze_result_t tell_drivers(uint32_t *count, ze_driver_handle_t *out)
{
	uint32_t fit = ze_fit(count, (uint32_t)driver_count, out);
	for (uint32_t i = 0; i < fit; i++)
		out[i] = ZE_HANDLE(ze_driver_handle_t, &drivers[i]);
	return ze_result(SOFT_OK);
}

ze_result_t zeInitDrivers(uint32_t *count, ze_driver_handle_t *out, ze_init_driver_type_desc_t *desc)
{
	/* A loader that finds no driver new enough for this says that there is none. */
	int refused = soft_enter(CALL_zeInitDrivers, SOFT_DOOR_START);
	if (refused)
		return (ze_result_t)refused;
	REFUSE_UNLESS(ze_knows(since_of[CALL_zeInitDrivers]), ERROR_UNINITIALIZED);
	NEED_POINTER(count);
	NEED_STRUCTURE(desc, ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC);
	REFUSE_UNLESS(desc->flags, ERROR_INVALID_ENUMERATION);
	REFUSE_UNLESS(desc->flags & V_ZE_INIT_DRIVER_TYPE_FLAG_GPU, ERROR_UNINITIALIZED);
	ze_result_t result = start_core();
	return result ? result : tell_drivers(count, out);
}

ze_result_t zeDriverGet(uint32_t *count, ze_driver_handle_t *out)
{
	ENTER(zeDriverGet);
	NEED_POINTER(count);
	return tell_drivers(count, out);
}

ze_result_t zesInit(zes_init_flags_t flags)
{
	ENTER_AT(SOFT_DOOR_START, ZE_SYSMAN, zesInit);
	NEED_FLAGS(flags, 1);
	REFUSE_UNLESS(soft_setting(&ze_settings.sysman), ERROR_UNINITIALIZED);
	/* Sysman came up with the core: it cannot come up a second time on its own. */
	REFUSE_UNLESS(!zes_started_with_core(), ERROR_UNINITIALIZED);
	return start(ZE_SYSMAN);
}

ze_result_t zeDriverGetApiVersion(ze_driver_handle_t driver, ze_api_version_t *version)
{
	ENTER(zeDriverGetApiVersion);
	NEED_HANDLE(driver, ZE_DRIVER);
	NEED_POINTER(version);
	*version = (ze_api_version_t)soft_setting(&ze_settings.api_version);
	return ze_result(SOFT_OK);
}

ze_result_t zeDriverGetProperties(ze_driver_handle_t driver, ze_driver_properties_t *properties)
{
	ENTER(zeDriverGetProperties);
	NEED_HANDLE(driver, ZE_DRIVER);
	NEED_STRUCTURE(properties, ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES);
	memcpy(properties->uuid.id, "softlevelzerodrv", 16);
	properties->uuid.id[15] = (uint8_t)('0' + ZE_OBJECT(ze_driver, driver)->index);
	properties->driverVersion = (uint32_t)soft_setting(&soft_settings.driver_version);
	ze_driver_memory_free_ext_properties_t *free_ext = (void *)ze_extension(properties->pNext, V_ZE_STRUCTURE_TYPE_DRIVER_MEMORY_FREE_EXT_PROPERTIES);
	if (free_ext && ze_has_extension(ZE_FREE_POLICIES))
		free_ext->freePolicies = (uint32_t)soft_setting(&ze_settings.free_policies);
	return ze_result(SOFT_OK);
}

/* ---- extensions ---- */

static const struct {
	const char *name;
	long long since;
	_Atomic long long *setting; /* NULL: always there */
	uint32_t version;
} extensions[ZE_EXTENSIONS] = {
	[ZE_FREE_POLICIES] = { "ZE_extension_memory_free_policies", ZE_VERSION(1, 3), &ze_settings.free_policies, ZE_VERSION(1, 0) },
	[ZE_USABLE_MEMORY] = { "ZE_extension_device_usablemem_size_properties", ZE_VERSION(1, 15), &ze_settings.usablemem, ZE_VERSION(1, 0) },
	[ZE_SYSTEM_MEMORY_MAP] = { "ZE_extension_external_memmap_sysmem", ZE_VERSION(1, 14), NULL, ZE_VERSION(1, 0) },
	[ZE_RELAXED_LIMITS] = { "ZE_extension_relaxed_allocation_limits", ZE_VERSION(1, 16), &ze_settings.relaxed, ZE_VERSION(1, 0) },
	[ZE_RELAXED_LIMITS_EXP] = { "ZE_experimental_relaxed_allocation_limits", ZE_VERSION(1, 1), &ze_settings.relaxed, ZE_VERSION(1, 0) },
};

int ze_has_extension(enum ze_extension_id id)
{
	return ze_knows(extensions[id].since) && (!extensions[id].setting || soft_setting(extensions[id].setting));
}

const void *ze_extension(const void *next, uint32_t stype)
{
	for (const struct ze_base *base = next; base; base = base->pNext)
		if (base->stype == stype)
			return base;
	return NULL;
}

ze_result_t zeDriverGetExtensionProperties(ze_driver_handle_t driver, uint32_t *count, ze_driver_extension_properties_t *out)
{
	ENTER(zeDriverGetExtensionProperties);
	NEED_HANDLE(driver, ZE_DRIVER);
	NEED_POINTER(count);
	int have[ZE_EXTENSIONS], total = 0;
	for (int id = 0; id < ZE_EXTENSIONS; id++)
		if (ze_has_extension((enum ze_extension_id)id))
			have[total++] = id;
	uint32_t fit = ze_fit(count, (uint32_t)total, out);
	for (uint32_t i = 0; i < fit; i++) {
		memset(&out[i], 0, sizeof out[i]);
		strcpy(out[i].name, extensions[have[i]].name);
		out[i].version = extensions[have[i]].version;
	}
	return ze_result(SOFT_OK);
}

ze_result_t zeDriverGetExtensionFunctionAddress(ze_driver_handle_t driver, const char *name, void **function)
{
	static const struct {
		const char *name;
		void *function;
	} functions[] = {
#define X(name, parameters) { #name, (void *)ze_##name },
#include "extensions.def"
#undef X
	};
	ENTER(zeDriverGetExtensionFunctionAddress);
	NEED_HANDLE(driver, ZE_DRIVER);
	NEED_POINTER(name);
	NEED_POINTER(function);
	*function = NULL;
	for (unsigned i = 0; i < sizeof functions / sizeof *functions; i++)
		if (!strcmp(functions[i].name, name) && soft_setting(&ze_settings.import))
			*function = functions[i].function;
	REFUSE_UNLESS(*function, ERROR_INVALID_ARGUMENT);
	return ze_result(SOFT_OK);
}
