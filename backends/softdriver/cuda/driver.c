/* Initialisation, versions, error texts, look-up of functions. */
#include <stdio.h>
#include <string.h>

#include "abi.h"

_Static_assert((int)CALLS <= (int)SOFT_MAX_CALLS, "raise SOFT_MAX_CALLS");

static const char *const names[CALLS] = {
#define F(symbol, base, version, parameters) #symbol,
#include "functions.def"
#undef F
};

int cuda_code(enum soft_result result)
{
	static const short codes[SOFT_RESULTS] = {
		[SOFT_OK] = 0,
		[SOFT_INVALID_VALUE] = V_CUDA_ERROR_INVALID_VALUE,
		[SOFT_OUT_OF_MEMORY] = V_CUDA_ERROR_OUT_OF_MEMORY,
		[SOFT_NOT_INITIALIZED] = V_CUDA_ERROR_NOT_INITIALIZED,
		[SOFT_NO_DEVICE] = V_CUDA_ERROR_NO_DEVICE,
		[SOFT_INVALID_DEVICE] = V_CUDA_ERROR_INVALID_DEVICE,
		[SOFT_INVALID_CONTEXT] = V_CUDA_ERROR_INVALID_CONTEXT,
		[SOFT_CONTEXT_DESTROYED] = V_CUDA_ERROR_CONTEXT_IS_DESTROYED,
		[SOFT_INVALID_HANDLE] = V_CUDA_ERROR_INVALID_HANDLE,
		[SOFT_NOT_FOUND] = V_CUDA_ERROR_NOT_FOUND,
		[SOFT_NOT_READY] = V_CUDA_ERROR_NOT_READY,
		[SOFT_ILLEGAL_ADDRESS] = V_CUDA_ERROR_ILLEGAL_ADDRESS,
		[SOFT_HOST_REGISTERED] = V_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
		[SOFT_HOST_NOT_REGISTERED] = V_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
		[SOFT_OPERATING_SYSTEM] = V_CUDA_ERROR_OPERATING_SYSTEM,
		[SOFT_NOT_SUPPORTED] = V_CUDA_ERROR_NOT_SUPPORTED,
		[SOFT_CAPTURE_UNSUPPORTED] = V_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
		[SOFT_CAPTURE_INVALIDATED] = V_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
		[SOFT_CAPTURE_IMPLICIT] = V_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
	};
	return codes[result];
}

static int is_sticky(int code)
{
	return code == V_CUDA_ERROR_ILLEGAL_ADDRESS || code == V_CUDA_ERROR_LAUNCH_FAILED || code == V_CUDA_ERROR_ECC_UNCORRECTABLE;
}

const struct soft_abi soft_abi = {
	.name = "software CUDA driver",
	.calls = names,
	.count = CALLS,
	.code = cuda_code,
	.sticky = is_sticky,
	.driver_version = 13000,
	.visible = cuda_visible,
};

CUresult cuInit(unsigned int flags)
{
	ENTER_AT(SOFT_DOOR_START, cuInit);
	REQUIRE(flags == 0);
	return cuda_result(soft_start());
}

CUresult cuDriverGetVersion(int *version)
{
	ENTER_AT(SOFT_DOOR_ANY, cuDriverGetVersion);
	REQUIRE(version);
	*version = (int)soft_setting(&soft_settings.driver_version);
	return CUDA_SUCCESS;
}

/* ---- texts ---- */

static const struct {
	int code;
	const char *name, *text;
} errors[] = {
	{ 0, "CUDA_SUCCESS", "no error" },
#define E(name, text) { V_##name, #name, text },
	E(CUDA_ERROR_INVALID_VALUE, "invalid argument")
	E(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")
	E(CUDA_ERROR_NOT_INITIALIZED, "initialization error")
	E(CUDA_ERROR_DEINITIALIZED, "driver shutting down")
	E(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library")
	E(CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable")
	E(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected")
	E(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal")
	E(CUDA_ERROR_INVALID_CONTEXT, "invalid device context")
	E(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered")
	E(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices")
	E(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS")
	E(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle")
	E(CUDA_ERROR_NOT_FOUND, "named symbol not found")
	E(CUDA_ERROR_NOT_READY, "device not ready")
	E(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")
	E(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed")
	E(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped")
	E(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region")
	E(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure")
	E(CUDA_ERROR_NOT_PERMITTED, "operation not permitted")
	E(CUDA_ERROR_NOT_SUPPORTED, "operation not supported")
	E(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized")
	E(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system has unsupported display driver / cuda driver combination")
	E(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, "forward compatibility was attempted on non supported HW")
	E(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing")
	E(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture")
	E(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "operation would make the legacy stream depend on a capturing blocking stream")
	E(CUDA_ERROR_UNKNOWN, "unknown error")
#undef E
};

static CUresult error_text(CUresult code, const char **out, int name)
{
	REQUIRE(out);
	for (unsigned i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].code == (int)code) {
			*out = name ? errors[i].name : errors[i].text;
			return CUDA_SUCCESS;
		}
	*out = NULL;
	return (CUresult)V_CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult code, const char **name)
{
	ENTER_AT(SOFT_DOOR_ANY, cuGetErrorName);
	return error_text(code, name, 1);
}

CUresult cuGetErrorString(CUresult code, const char **text)
{
	ENTER_AT(SOFT_DOOR_ANY, cuGetErrorString);
	return error_text(code, text, 0);
}

/* ---- look-up ---- */

struct version_of {
	const char *base;
	int version;
	void *function; /* NULL: an ABI that NVIDIA's headers know and we do not have */
};

static const struct version_of versions[] = {
#define F(symbol, base, version, parameters) { #base, version, (void *)symbol },
#include "functions.def"
#undef F
#define A(base, version, symbol) { #base, version, (void *)symbol },
#include "aliases.def"
#undef A
#define G(base, version) { #base, version, NULL },
#include "gaps.def"
#undef G
};

/* The newest ABI of that name which is not newer than version. Where that is one we lack, the answer is "none": the next older one takes other
 * arguments, and the caller would never know. */
static CUresult look_up(const char *name, void **function, int version, CUdriverProcAddressQueryResult *status)
{
	REQUIRE(name && function);
	*function = NULL;
	if (version > (int)soft_setting(&soft_settings.driver_version))
		return (CUresult)V_CUDA_ERROR_INVALID_VALUE;
	int known = 0, newest = -1;
	for (unsigned i = 0; i < sizeof versions / sizeof *versions; i++) {
		if (strcmp(versions[i].base, name))
			continue;
		known = 1;
		if (versions[i].version <= version && versions[i].version > newest) {
			newest = versions[i].version;
			*function = versions[i].function;
		}
	}
	int found = *function != NULL;
	if (status)
		*status = (CUdriverProcAddressQueryResult)(found   ? V_CU_GET_PROC_ADDRESS_SUCCESS
		                                           : known ? V_CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
		                                                   : V_CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	return found || status ? CUDA_SUCCESS : (CUresult)V_CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	ENTER_AT(SOFT_DOOR_ANY, cuGetProcAddress_v2);
	REQUIRE(flags <= V_CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
	return look_up(name, function, version, status);
}

/* The four-argument ABI of 11.3: the one un-suffixed old name that clients look for in the library itself. */
CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags)
{
	ENTER_AT(SOFT_DOOR_ANY, cuGetProcAddress);
	REQUIRE(flags <= V_CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
	return look_up(name, function, version, NULL);
}

/* Private tables of NVIDIA's own runtime. Their contents are not public, so there are none. */
CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
	ENTER_AT(SOFT_DOOR_ANY, cuGetExportTable);
	REQUIRE(table && id);
	*table = NULL;
	return (CUresult)V_CUDA_ERROR_NOT_FOUND;
}
