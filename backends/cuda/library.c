#include "api.h"
#include "../ordered/uuid.h"
#include <string.h>

const tmc_symbol tmc_symbols[TMC_CALLS] = {
#define F(name, since, need, parameters) { #name, since, TMC_NEED_##need },
#include "symbols.def"
#undef F
};

enum tmo_meaning tmc_meaning(int code) {
	switch (code) {
	case TMC_OUT_OF_MEMORY: return TMO_FULL;
	case TMC_NOT_READY: return TMO_NOT_READY;
	case TMC_INVALID_VALUE: return TMO_INVALID;
	case TMC_INVALID_CONTEXT:
	case TMC_INVALID_HANDLE: return TMO_STALE;
	case TMC_NOT_SUPPORTED: return TMO_UNSUPPORTED;
	case TMC_NO_DEVICE: return TMO_NO_DEVICE;
	case TMC_DEINITIALIZED:
	case TMC_ECC_UNCORRECTABLE:
	case TMC_NVLINK_UNCORRECTABLE:
	case TMC_CONTAINED:
	case TMC_ILLEGAL_ADDRESS:
	case TMC_LAUNCH_TIMEOUT:
	case TMC_CONTEXT_IS_DESTROYED:
	case TMC_ASSERT:
	case TMC_HARDWARE_STACK_ERROR:
	case TMC_ILLEGAL_INSTRUCTION:
	case TMC_MISALIGNED_ADDRESS:
	case TMC_INVALID_ADDRESS_SPACE:
	case TMC_INVALID_PC:
	case TMC_LAUNCH_FAILED:
	case TMC_TENSOR_MEMORY_LEAK:
	case TMC_MPS_CLIENT_TERMINATED:
	case TMC_EXTERNAL_DEVICE: return TMO_LOST;
	}
	return code >= TMC_STREAM_CAPTURE_UNSUPPORTED && code <= TMC_CAPTURED_EVENT ? TMO_CAPTURING : TMO_OTHER;
}

tmo_status tmc_init(const void *api, int *version) {
	tmo_status status = TMC_TRY(api, cuDriverGetVersion, version);
	return status.code ? status : TMC_TRY(api, cuInit, 0);
}

tmo_status tmc_count(const void *api, int *count) { return TMC_TRY(api, cuDeviceGetCount, count); }

const char *tmc_error_name(const void *api, int code) {
	const tmc_api *library = api;
	const char *name = NULL;
	return library->cuGetErrorName && !library->cuGetErrorName((CUresult)code, &name) ? name : NULL;
}

/* Without a UUID, because the driver has no function for it or that one fails, the device is as good as any. */
static tmo_status ask_uuid(const tmc_api *api, CUdevice device, tmo_facts *facts) {
	CUuuid uuid = { 0 }, gpu = { 0 };
	tmo_status newer = TMO_OK, older = TMO_OK;
	if (api->cuDeviceGetUuid_v2) newer = TMC_TRY(api, cuDeviceGetUuid_v2, &uuid, device);
	if (tmc_meaning(newer.code) == TMO_LOST) return newer;
	if (api->cuDeviceGetUuid) older = TMC_TRY(api, cuDeviceGetUuid, &gpu, device);  /* always the whole GPU's */
	if (tmc_meaning(older.code) == TMO_LOST) return older;
	bool told = api->cuDeviceGetUuid_v2 && !newer.code, whole = api->cuDeviceGetUuid && !older.code;
	bool partition = told && whole && memcmp(&uuid, &gpu, sizeof uuid);
	if (told || whole) tmo_write_uuid(facts->uuid, sizeof facts->uuid, partition ? "MIG" : "GPU", told ? &uuid : &gpu);
	return TMO_OK;
}

tmo_status tmc_ask(const void *api, int ordinal, tmo_facts *facts) {
	CUdevice device = 0;
	size_t total = 0;
	int integrated = 0, pools = 0;
	tmo_status status = TMC_TRY(api, cuDeviceGet, &device, ordinal);
	if (!status.code) status = TMC_TRY(api, cuDeviceGetName, facts->name, sizeof facts->name - 1, device);
	if (!status.code) status = TMC_TRY(api, cuDeviceTotalMem_v2, &total, device);
	if (!status.code) status = TMC_TRY(api, cuDeviceGetAttribute, &integrated, TMC_ATTRIBUTE_INTEGRATED, device);
	if (status.code) return status;
	/* A driver from before memory pools does not know the attribute. */
	status = TMC_TRY(api, cuDeviceGetAttribute, &pools, TMC_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device);
	if (status.code && status.code != TMC_INVALID_VALUE) return status;
	facts->device = device;
	facts->total = total;
	facts->integrated = integrated;
	facts->pools = !status.code && pools;
	return ask_uuid(api, device, facts);
}
