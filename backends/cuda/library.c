#include "device.h"
#include <string.h>

/* Questions that need no context. */

#define TRY(function, ...) tmc_tried((int)api->function(__VA_ARGS__), TMC_CALL_##function)

tmc_status tmc_init(const tmc_api *api, int *version) {
	tmc_status status = TRY(cuDriverGetVersion, version);
	return status.code ? status : TRY(cuInit, 0);
}

tmc_status tmc_count(const tmc_api *api, int *count) { return TRY(cuDeviceGetCount, count); }

const char *tmc_error_name(const tmc_api *api, int code) {
	const char *name = NULL;
	return api->cuGetErrorName && !api->cuGetErrorName((CUresult)code, &name) ? name : NULL;
}

tmc_status tmc_ask(const tmc_api *api, int ordinal, tmc_facts *facts) {
	*facts = (tmc_facts){ 0 };
	CUuuid uuid, gpu;
	size_t total = 0;
	tmc_status status = TRY(cuDeviceGet, &facts->device, ordinal);
	if (!status.code) status = TRY(cuDeviceGetName, facts->name, sizeof facts->name - 1, facts->device);
	if (!status.code) status = TRY(cuDeviceTotalMem_v2, &total, facts->device);
	if (!status.code) status = TRY(cuDeviceGetAttribute, &facts->integrated, TMC_ATTRIBUTE_INTEGRATED, facts->device);
	if (status.code) return status;
	facts->total = total;
	/* A driver from before memory pools does not know the attribute. */
	status = TRY(cuDeviceGetAttribute, &facts->pools, TMC_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, facts->device);
	if (status.code == TMC_INVALID_VALUE) {
		facts->pools = 0;
		status = TMC_OK;
	}
	if (status.code) return status;
	if (api->cuDeviceGetUuid_v2) {
		if ((status = TRY(cuDeviceGetUuid_v2, &uuid, facts->device)).code) return status;
		facts->has_uuid = true;
	}
	if (api->cuDeviceGetUuid) {  /* always the whole GPU's */
		if ((status = TRY(cuDeviceGetUuid, &gpu, facts->device)).code) return status;
		if (!facts->has_uuid) uuid = gpu;
		facts->partition = facts->has_uuid && memcmp(&uuid, &gpu, sizeof uuid);
		facts->has_uuid = true;
	}
	if (facts->has_uuid) memcpy(facts->uuid, &uuid, sizeof facts->uuid);
	return status;
}
