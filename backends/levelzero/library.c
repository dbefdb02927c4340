#include "device.h"
#include <stdlib.h>
#include <string.h>

/* Questions that need no context. */

const tml_symbol tml_symbols[TML_CALLS] = {
#define F(name, since, need, parameters) { #name, since, TML_NEED_##need },
#include "symbols.def"
#undef F
};

bool tml_lost(uint32_t code) { return code == TML_DEVICE_LOST || code == TML_DEVICE_REQUIRES_RESET || code == TML_SURVIVABILITY_MODE; }

bool tml_unavailable(uint32_t code) {
	return code == TML_UNINITIALIZED || code == TML_UNSUPPORTED_FEATURE || code == TML_UNSUPPORTED_VERSION || code == TML_NOT_AVAILABLE ||
	       code == TML_DEPENDENCY_UNAVAILABLE || code == TML_INSUFFICIENT_PERMISSIONS;
}

/* ---- which devices there are */

/* Without host memory for a list the answer is the code that the library itself would give. */
static tml_status no_memory(int call) { return (tml_status){ TML_OUT_OF_HOST_MEMORY, call }; }

/* The loader's drivers. The newer way starts drivers of GPUs only, and finds none that is older than it; then the older way is tried. Both
 * may be called again, and by others in the process. */
static tml_status find_drivers(const tml_api *api, ze_driver_handle_t **drivers, uint32_t *count) {
	ze_init_driver_type_desc_t desc = { .stype = TML_S_INIT_DRIVER, .flags = TML_INIT_DRIVER_GPU };
	bool newer = api->zeInitDrivers != NULL;
	*count = 0;
	*drivers = NULL;
	tml_status status = TML_OK;
	if (newer) {
		status = TML_TRY(api, zeInitDrivers, count, NULL, &desc);
		bool none = status.code == TML_UNINITIALIZED || status.code == TML_UNSUPPORTED_FEATURE || status.code == TML_UNSUPPORTED_VERSION;
		if (status.code && !none) return status;
		newer = !none && *count;
	}
	if (!newer) {
		status = TML_TRY(api, zeInit, TML_INIT_GPU_ONLY);
		if (!status.code) status = TML_TRY(api, zeDriverGet, count, NULL);
	}
	if (status.code || !*count) return status;
	if (!(*drivers = calloc(*count, sizeof **drivers))) return no_memory(TML_CALL_zeDriverGet);
	return newer ? TML_TRY(api, zeInitDrivers, count, *drivers, &desc) : TML_TRY(api, zeDriverGet, count, *drivers);
}

/* Adds the GPUs of one driver. */
static tml_status find_devices(const tml_api *api, ze_driver_handle_t driver, tml_list *list) {
	uint32_t count = 0, gpus = 0;
	ze_api_version_t version = (ze_api_version_t)0;
	tml_status status = TML_TRY(api, zeDriverGetApiVersion, driver, &version);
	if (!status.code) status = TML_TRY(api, zeDeviceGet, driver, &count, NULL);
	if (status.code || !count) return status;
	ze_device_handle_t *devices = calloc(count, sizeof *devices);
	if (!devices) return no_memory(TML_CALL_zeDeviceGet);
	status = TML_TRY(api, zeDeviceGet, driver, &count, devices);
	for (uint32_t i = 0; i < count && !status.code; i++) {
		ze_device_properties_t properties = { .stype = TML_S_DEVICE_PROPERTIES };
		status = TML_TRY(api, zeDeviceGetProperties, devices[i], &properties);
		if (!status.code && (uint32_t)properties.type == TML_DEVICE_TYPE_GPU) devices[gpus++] = devices[i];
	}
	tml_found *grown = status.code || !gpus ? NULL : realloc(list->devices, (list->count + gpus) * sizeof *grown);
	if (grown) {
		list->devices = grown;
		for (uint32_t i = 0; i < gpus; i++) grown[list->count++] = (tml_found){ driver, devices[i], (uint32_t)version };
	} else if (!status.code && gpus) {
		status = no_memory(TML_CALL_zeDeviceGet);
	}
	free(devices);
	return status;
}

tml_status tml_find(const tml_api *api, tml_list *list) {
	*list = (tml_list){ .skipped = TML_OK };
	ze_driver_handle_t *drivers;
	uint32_t count;
	tml_status status = find_drivers(api, &drivers, &count);
	for (uint32_t i = 0; i < count && !status.code; i++) {
		tml_status found = find_devices(api, drivers[i], list);
		if (found.code != TML_UNINITIALIZED) list->skipped = tml_first(list->skipped, found);
	}
	free(drivers);
	return status.code == TML_UNINITIALIZED ? TML_OK : status;
}

/* ---- what a device is */

static bool has(const ze_driver_extension_properties_t *extensions, uint32_t count, const char *name) {
	for (uint32_t i = 0; i < count; i++)
		if (!strncmp(extensions[i].name, name, sizeof extensions[i].name)) return true;
	return false;
}

static tml_status ask_extensions(const tml_api *api, ze_driver_handle_t driver, tml_facts *facts) {
	uint32_t count = 0;
	tml_status status = TML_TRY(api, zeDriverGetExtensionProperties, driver, &count, NULL);
	if (status.code || !count) return status;
	ze_driver_extension_properties_t *extensions = calloc(count, sizeof *extensions);
	if (!extensions) return no_memory(TML_CALL_zeDriverGetExtensionProperties);
	status = TML_TRY(api, zeDriverGetExtensionProperties, driver, &count, extensions);
	bool policies = false;
	if (!status.code) {
		policies = api->zeMemFreeExt && has(extensions, count, "ZE_extension_memory_free_policies");
		facts->tells_usable_size = has(extensions, count, "ZE_extension_device_usablemem_size_properties");
		if (has(extensions, count, "ZE_extension_relaxed_allocation_limits")) facts->relaxed = TML_S_RELAXED;
		else if (has(extensions, count, "ZE_experimental_relaxed_allocation_limits")) facts->relaxed = TML_S_RELAXED_EXP;
	}
	free(extensions);
	if (status.code || !policies) return status;
	ze_driver_memory_free_ext_properties_t frees = { .stype = TML_S_FREE_PROPERTIES };
	ze_driver_properties_t properties = { .stype = TML_S_DRIVER_PROPERTIES, .pNext = &frees };
	status = TML_TRY(api, zeDriverGetProperties, driver, &properties);
	facts->defers_frees = !status.code && (frees.freePolicies & TML_DEFER_FREE);
	return status;
}

/* The memory with ordinal 0, from which everything is allocated here. A device without memory of its own has none. */
static tml_status ask_memory(const tml_api *api, ze_device_handle_t device, tml_facts *facts) {
	uint32_t count = 0;
	tml_status status = TML_TRY(api, zeDeviceGetMemoryProperties, device, &count, NULL);
	if (status.code) return status;
	if (!count) {
		facts->integrated = true;
		return TML_OK;
	}
	ze_device_memory_properties_t memory = { .stype = TML_S_MEMORY_PROPERTIES };
	count = 1;
	status = TML_TRY(api, zeDeviceGetMemoryProperties, device, &count, &memory);
	facts->total = memory.totalSize;
	return status;
}

/* The first group of queues that can run kernels: a host's launches and our copies are of one kind then. */
static tml_status ask_groups(const tml_api *api, ze_device_handle_t device, tml_facts *facts) {
	uint32_t count = 0;
	tml_status status = TML_TRY(api, zeDeviceGetCommandQueueGroupProperties, device, &count, NULL);
	facts->longest_pattern = 1;
	if (status.code || !count) return status;
	ze_command_queue_group_properties_t *groups = calloc(count, sizeof *groups);
	if (!groups) return no_memory(TML_CALL_zeDeviceGetCommandQueueGroupProperties);
	for (uint32_t i = 0; i < count; i++) groups[i].stype = TML_S_GROUP_PROPERTIES;
	status = TML_TRY(api, zeDeviceGetCommandQueueGroupProperties, device, &count, groups);
	uint32_t group = 0;
	while (group < count && !(groups[group].flags & TML_GROUP_COMPUTE)) group++;
	if (group == count) group = 0;
	facts->group = group;
	while (!status.code && facts->longest_pattern < 16 && facts->longest_pattern * 2 <= groups[group].maxMemoryFillPatternSize) facts->longest_pattern *= 2;
	free(groups);
	return status;
}

tml_status tml_ask(const tml_api *api, tml_found found, tml_facts *facts) {
	*facts = (tml_facts){ 0 };
	ze_device_properties_t properties = { .stype = TML_S_DEVICE_PROPERTIES };
	tml_status status = TML_TRY(api, zeDeviceGetProperties, found.device, &properties);
	if (status.code) return status;
	memcpy(facts->name, properties.name, sizeof facts->name - 1);
	memcpy(facts->uuid, properties.uuid.id, sizeof facts->uuid);
	facts->largest = properties.maxMemAllocSize;
	facts->integrated = properties.flags & TML_DEVICE_INTEGRATED;
	/* Drivers before 1.7 take the flag for an error, or do not look at it. */
	facts->in_order = found.version >= (1u << 16 | 7) && api->zeCommandListHostSynchronize;
	status = ask_memory(api, found.device, facts);
	if (!status.code) status = ask_groups(api, found.device, facts);
	return status.code ? status : ask_extensions(api, found.driver, facts);
}

/* ---- the loader's own version. The function is the loader's, and not one of the interface: it stands in no ze_api.h, so it is not in symbols.def. */

typedef struct {
	char name[64];
	uint32_t specification;
	tml_version version;
} tml_component;
_Static_assert(sizeof(tml_component) == 80 && offsetof(tml_component, version) == 68, "zel_component_version_t of the loader's ze_loader.h");

bool tml_loader_version(uintptr_t function, tml_version *version) {
	ze_result_t (*versions)(size_t *, tml_component *) = (ze_result_t (*)(size_t *, tml_component *))function;
	size_t count = 0;
	if (versions(&count, NULL) || !count) return false;
	tml_component *components = calloc(count, sizeof *components);
	if (!components) return false;
	bool found = false;
	if (!versions(&count, components))
		for (size_t i = 0; i < count && !found; i++) {  /* its layers have versions, too */
			found = !strncmp(components[i].name, "loader", sizeof components[i].name);
			if (found) *version = components[i].version;
		}
	free(components);
	return found;
}
