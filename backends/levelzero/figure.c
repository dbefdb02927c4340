#include "device.h"
#include <stdlib.h>
#include <string.h>

/* How much memory of the device is free, whoever took the rest. Sysman tells it, where it was not kept from us; else a figure of the driver,
 * where it has that extension.
 *
 * Sysman's handles come from Sysman's own list of devices, by UUID: a handle of the core interface is no Sysman handle, and using it as one
 * crashes where Sysman was started by zesInit. */

/* Whether the loader has all of Sysman that is called here. */
static bool there(const tml_api *api) {
	return api->zesInit && api->zesDriverGet && api->zesDeviceGet && api->zesDeviceGetProperties && api->zesDeviceEnumMemoryModules &&
	       api->zesMemoryGetProperties && api->zesMemoryGetState;
}

typedef struct { zes_device_handle_t device; ze_bool_t part; uint32_t part_id; /* of a device with several parts only this one */ } place;

/* Asks each device of a driver for its UUID. */
static tml_status search(tml_device *d, zes_driver_handle_t driver, place *found) {
	const tml_api *api = d->api;
	uint32_t count = 0;
	tml_status status = TML_TRY(api, zesDeviceGet, driver, &count, NULL);
	if (status.code || !count) return status;
	zes_device_handle_t *devices = calloc(count, sizeof *devices);
	if (!devices) return (tml_status){ TML_OUT_OF_HOST_MEMORY, TML_CALL_zesDeviceGet };
	status = TML_TRY(api, zesDeviceGet, driver, &count, devices);
	for (uint32_t i = 0; i < count && !status.code && !found->device; i++) {
		zes_device_properties_t properties = { .stype = TML_S_SYSMAN_DEVICE };
		properties.core.stype = TML_S_DEVICE_PROPERTIES;
		status = TML_TRY(api, zesDeviceGetProperties, devices[i], &properties);
		if (!status.code && !memcmp(properties.core.uuid.id, d->facts.uuid, sizeof d->facts.uuid)) found->device = devices[i];
	}
	free(devices);
	return status;
}

static tml_status find_in(tml_device *d, zes_driver_handle_t driver, place *found) {
	if (d->api->zesDriverGetDeviceByUuidExp) {
		zes_uuid_t uuid;
		memcpy(uuid.id, d->facts.uuid, sizeof uuid.id);
		tml_status status = TML_TRY(d->api, zesDriverGetDeviceByUuidExp, driver, uuid, &found->device, &found->part, &found->part_id);
		if (!status.code) return status;
		*found = (place){ 0 };
		if (status.code == TML_INVALID_ARGUMENT) return TML_OK;     /* it has no such device */
		if (!tml_unavailable(status.code)) return status;           /* else the loader has the function and the driver does not */
	}
	return search(d, driver, found);
}

static tml_status find(tml_device *d, place *found) {
	const tml_api *api = d->api;
	uint32_t count = 0;
	tml_status status = TML_TRY(api, zesInit, 0);
	if (!status.code) status = TML_TRY(api, zesDriverGet, &count, NULL);
	if (status.code || !count) return status;
	zes_driver_handle_t *drivers = calloc(count, sizeof *drivers);
	if (!drivers) return (tml_status){ TML_OUT_OF_HOST_MEMORY, TML_CALL_zesDriverGet };
	status = TML_TRY(api, zesDriverGet, &count, drivers);
	for (uint32_t i = 0; i < count && !status.code && !found->device; i++) status = find_in(d, drivers[i], found);
	free(drivers);
	return status;
}

/* Keeps the modules that lie on the device, or on the part of it that this device is. */
static tml_status keep_modules(tml_device *d, const place *found) {
	const tml_api *api = d->api;
	uint32_t count = 0, kept = 0;
	tml_status status = TML_TRY(api, zesDeviceEnumMemoryModules, found->device, &count, NULL);
	if (status.code || !count) return status;
	zes_mem_handle_t *modules = calloc(count, sizeof *modules);
	if (!modules) return (tml_status){ TML_OUT_OF_HOST_MEMORY, TML_CALL_zesDeviceEnumMemoryModules };
	status = TML_TRY(api, zesDeviceEnumMemoryModules, found->device, &count, modules);
	for (uint32_t i = 0; i < count && !status.code; i++) {
		zes_mem_properties_t properties = { .stype = TML_S_SYSMAN_MEMORY };
		status = TML_TRY(api, zesMemoryGetProperties, modules[i], &properties);
		bool here = !found->part || (properties.onSubdevice && properties.subdeviceId == found->part_id);
		if (!status.code && here && (uint32_t)properties.location == TML_MEMORY_ON_DEVICE) modules[kept++] = modules[i];
	}
	if (status.code || !kept) {
		free(modules);
		return status;
	}
	d->sysman.modules = modules;
	d->sysman.count = kept;
	return TML_OK;
}

static void settle(tml_sysman *s, tml_status why) {
	free(s->modules);
	s->modules = NULL;
	s->count = 0;
	s->why = why;
	s->settled = true;
}

/* Sums what is free on the modules; code 0 without a source: Sysman cannot tell. What will not change is asked once only. */
static void ask_sysman(tml_device *d, tml_figure *figure) {
	tml_sysman *s = &d->sysman;
	pthread_mutex_lock(&s->lock);
	if (!s->settled) {
		place found = { 0 };
		figure->status = find(d, &found);
		if (!figure->status.code && found.device) figure->status = keep_modules(d, &found);
		if (!figure->status.code) s->settled = true;
	}
	for (uint32_t i = 0; i < s->count && !figure->status.code; i++) {
		zes_mem_state_t state = { .stype = TML_S_SYSMAN_STATE };
		figure->status = TML_TRY(d->api, zesMemoryGetState, s->modules[i], &state);
		figure->free += state.free;
	}
	if (figure->status.code) figure->free = 0;
	else if (s->count) figure->source = TML_SOURCE_SYSMAN;
	if (tml_unavailable(figure->status.code)) {
		settle(s, figure->status);
		figure->status = TML_OK;
	}
	figure->why = s->settled ? s->why : TML_OK;
	figure->answer = figure->why.code ? TML_ANSWER_REFUSED : TML_ANSWER_NO_MEMORY;
	pthread_mutex_unlock(&s->lock);
}

tml_figure tml_memory(tml_device *d) {
	tml_figure figure = { .status = TML_OK, .why = TML_OK };
	if (!d->sysman_allowed) figure.answer = TML_ANSWER_FORBIDDEN;
	else if (!there(d->api)) figure.answer = TML_ANSWER_OLD;
	else ask_sysman(d, &figure);
	if (figure.source || tml_lost(figure.status.code) || !d->facts.tells_usable_size) return figure;
	ze_device_usablemem_size_ext_properties_t usable = { .stype = TML_S_USABLE_SIZE };
	ze_device_properties_t properties = { .stype = TML_S_DEVICE_PROPERTIES, .pNext = &usable };
	tml_status status = TML_TRY(d->api, zeDeviceGetProperties, d->found.device, &properties);
	if (status.code) {
		figure.status = tml_first(figure.status, status);
	} else {
		figure.free = usable.currUsableMemSize;
		figure.source = TML_SOURCE_USABLE_SIZE;
	}
	return figure;
}
