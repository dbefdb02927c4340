#include "api.h"
#include "../ordered/uuid.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

const tmh_symbol tmh_symbols[TMH_CALLS] = {
#define F(name, since, need, parameters) { #name, since, TMH_NEED_##need },
#include "symbols.def"
#undef F
	{ "hipGetErrorName", 40200000, TMH_NEED_NAMES },
};

enum tmo_meaning tmh_meaning(int code) {
	switch (code) {
	case TMH_OUT_OF_MEMORY: return TMO_FULL;
	case TMH_NOT_READY: return TMO_NOT_READY;
	case TMH_INVALID_VALUE:
	case TMH_INVALID_DEVICE_POINTER: return TMO_INVALID;
	case TMH_INVALID_CONTEXT:
	case TMH_INVALID_HANDLE:
	case TMH_CONTEXT_IS_DESTROYED: return TMO_STALE;  /* HIP has no contexts: this is its answer to a stream that is none */
	case TMH_NOT_SUPPORTED: return TMO_UNSUPPORTED;
	case TMH_NO_DEVICE:       /* hipGetDeviceCount's answer */
	case TMH_INVALID_DEVICE:  /* hipInit's, on the same machine */
		return TMO_NO_DEVICE;
	case TMH_DEINITIALIZED:
	case TMH_ECC_NOT_CORRECTABLE:
	case TMH_ILLEGAL_ADDRESS:
	case TMH_LAUNCH_TIME_OUT:
	case TMH_ASSERT:
	case TMH_LAUNCH_FAILURE: return TMO_LOST;
	}
	return code >= TMH_STREAM_CAPTURE_UNSUPPORTED && code <= TMH_STREAM_CAPTURE_WRONG_THREAD ? TMO_CAPTURING : TMO_OTHER;
}

tmo_status tmh_init(const void *api, int *version) {
	tmo_status status = TMH_TRY(api, hipRuntimeGetVersion, version);
	return status.code ? status : TMH_TRY(api, hipInit, 0);
}

tmo_status tmh_count(const void *api, int *count) { return TMH_TRY(api, hipGetDeviceCount, count); }

const char *tmh_error_name(const void *api, int code) {
	const tmh_api *library = api;
	return library->hipGetErrorName ? library->hipGetErrorName((hipError_t)code) : NULL;
}

/* AMD's unique number of a GPU comes as sixteen hexadecimal digits, and ROCR_VISIBLE_DEVICES takes it as "GPU-" and these. */
static void write_uuid(tmo_facts *facts, const hipUUID *uuid) {
	bool digits = true;
	for (size_t i = 0; i < sizeof uuid->bytes; i++) digits &= isxdigit((unsigned char)uuid->bytes[i]) != 0;
	if (digits) snprintf(facts->uuid, sizeof facts->uuid, "GPU-%.16s", uuid->bytes);
	else tmo_write_uuid(facts->uuid, sizeof facts->uuid, "GPU", uuid);
}

tmo_status tmh_ask(const void *api, int ordinal, tmo_facts *facts) {
	hipDevice_t device = 0;
	size_t total = 0;
	int integrated = 0, pools = 0;
	tmo_status status = TMH_TRY(api, hipDeviceGet, &device, ordinal);
	if (!status.code) status = TMH_TRY(api, hipDeviceGetName, facts->name, sizeof facts->name - 1, device);
	if (!status.code) status = TMH_TRY(api, hipDeviceTotalMem, &total, device);
	if (!status.code) status = TMH_TRY(api, hipDeviceGetAttribute, &integrated, TMH_ATTRIBUTE_INTEGRATED, device);
	if (status.code) return status;
	/* A runtime from before memory pools does not know the attribute. */
	status = TMH_TRY(api, hipDeviceGetAttribute, &pools, TMH_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device);
	if (status.code && status.code != TMH_INVALID_VALUE) return status;
	facts->device = device;
	facts->total = total;
	facts->integrated = integrated;
	facts->pools = !status.code && pools;
	if (!((const tmh_api *)api)->hipDeviceGetUuid) return TMO_OK;
	hipUUID uuid = { { 0 } };
	status = TMH_TRY(api, hipDeviceGetUuid, &uuid, device);
	if (tmh_meaning(status.code) == TMO_LOST) return status;
	if (!status.code) write_uuid(facts, &uuid);  /* else it has none, and is as good as any */
	return TMO_OK;
}
