/* Initialisation, versions, errors. */
#include "../engine/settings.h"
#include "abi.h"

_Static_assert((int)CALLS <= (int)SOFT_MAX_CALLS, "raise SOFT_MAX_CALLS");

static const char *const names[CALLS] = {
#define F(symbol, since, result, parameters) #symbol,
#include "functions.def"
#undef F
};

int hip_code(enum soft_result result)
{
	static const short codes[SOFT_RESULTS] = {
		[SOFT_OK] = 0,
		[SOFT_INVALID_VALUE] = V_hipErrorInvalidValue,
		[SOFT_OUT_OF_MEMORY] = V_hipErrorOutOfMemory,
		[SOFT_NOT_INITIALIZED] = V_hipErrorNotInitialized,
		[SOFT_NO_DEVICE] = V_hipErrorInvalidDevice, /* so the real runtime; only hipGetDeviceCount says "no device" */
		[SOFT_INVALID_DEVICE] = V_hipErrorInvalidDevice,
		[SOFT_INVALID_CONTEXT] = V_hipErrorInvalidContext,
		[SOFT_CONTEXT_DESTROYED] = V_hipErrorContextIsDestroyed,
		[SOFT_INVALID_HANDLE] = V_hipErrorInvalidHandle,
		[SOFT_NOT_FOUND] = V_hipErrorNotFound,
		[SOFT_NOT_READY] = V_hipErrorNotReady,
		[SOFT_ILLEGAL_ADDRESS] = V_hipErrorIllegalAddress,
		[SOFT_HOST_REGISTERED] = V_hipErrorHostMemoryAlreadyRegistered,
		[SOFT_HOST_NOT_REGISTERED] = V_hipErrorHostMemoryNotRegistered,
		[SOFT_OPERATING_SYSTEM] = V_hipErrorOperatingSystem,
		[SOFT_NOT_SUPPORTED] = V_hipErrorNotSupported,
		[SOFT_CAPTURE_UNSUPPORTED] = V_hipErrorStreamCaptureUnsupported,
		[SOFT_CAPTURE_INVALIDATED] = V_hipErrorStreamCaptureInvalidated,
		[SOFT_CAPTURE_IMPLICIT] = V_hipErrorStreamCaptureImplicit,
	};
	return codes[result];
}

static int is_sticky(int code)
{
	return code == V_hipErrorIllegalAddress || code == V_hipErrorLaunchFailure || code == V_hipErrorECCNotCorrectable;
}

static const struct soft_default defaults[] = { { "implicit_sync", 1 } };

const struct soft_abi soft_abi = {
	.name = "software HIP runtime",
	.calls = names,
	.count = CALLS,
	.code = hip_code,
	.sticky = is_sticky,
	.starts_itself = 1,
	.driver_version = 60241134, /* major * 10^7 + minor * 10^5 + patch; a library named .so.6 is a HIP 6 */
	.visible = hip_visible,
	.defaults = defaults,
	.default_count = sizeof defaults / sizeof *defaults,
};

/* ---- the last error ---- */

static __thread int last_error;

/* Before HIP 7 the "last error" is what the thread's last call returned, success included; from 7 on only a call that failed counts, and
 * "not ready" is no failure. */
hipError_t hip_answer(int code)
{
	if (soft_setting(&soft_settings.driver_version) < 70000000)
		last_error = code;
	else if (code && code != V_hipErrorNotReady)
		last_error = code;
	return (hipError_t)code;
}

hipError_t hip_result(enum soft_result result)
{
	if (__builtin_expect(atomic_load_explicit(&soft_gate, memory_order_relaxed) & SOFT_GATE_STICKY, 0))
		return hip_answer(soft_sticky_code());
	return hip_answer(hip_code(result));
}

hipError_t hipGetLastError(void)
{
	ENTER(hipGetLastError);
	int code = last_error;
	last_error = 0;
	return (hipError_t)code;
}

hipError_t hipPeekAtLastError(void)
{
	ENTER(hipPeekAtLastError);
	return (hipError_t)last_error;
}

/* ---- start and versions ---- */

hipError_t hipInit(unsigned int flags)
{
	ENTER(hipInit);
	REQUIRE(flags == 0);
	return hip_result(SOFT_OK);
}

hipError_t hipDriverGetVersion(int *version)
{
	ENTER_AT(SOFT_DOOR_ANY, hipDriverGetVersion);
	REQUIRE(version);
	*version = (int)soft_setting(&soft_settings.driver_version);
	return hip_answer(0);
}

hipError_t hipRuntimeGetVersion(int *version)
{
	ENTER_AT(SOFT_DOOR_ANY, hipRuntimeGetVersion);
	REQUIRE(version);
	*version = (int)soft_setting(&soft_settings.driver_version);
	return hip_answer(0);
}

/* ---- texts ---- */

static const struct {
	int code;
	const char *name, *text;
} errors[] = {
	{ 0, "hipSuccess", "no error" },
#define E(name, text) { V_##name, #name, text },
	E(hipErrorInvalidValue, "invalid argument")
	E(hipErrorOutOfMemory, "out of memory")
	E(hipErrorNotInitialized, "initialization error")
	E(hipErrorDeinitialized, "driver shutting down")
	E(hipErrorInvalidDevicePointer, "invalid device pointer")
	E(hipErrorInvalidMemcpyDirection, "invalid copy direction for memcpy")
	E(hipErrorInsufficientDriver, "driver version is insufficient for runtime version")
	E(hipErrorNoDevice, "no ROCm-capable device is detected")
	E(hipErrorInvalidDevice, "invalid device ordinal")
	E(hipErrorInvalidContext, "invalid device context")
	E(hipErrorECCNotCorrectable, "uncorrectable ECC error encountered")
	E(hipErrorPeerAccessUnsupported, "peer access is not supported between these two devices")
	E(hipErrorOperatingSystem, "OS call failed or operation not supported on this OS")
	E(hipErrorInvalidHandle, "invalid resource handle")
	E(hipErrorIllegalState, "the operation cannot be performed in the present state")
	E(hipErrorNotFound, "named symbol not found")
	E(hipErrorNotReady, "device not ready")
	E(hipErrorIllegalAddress, "an illegal memory access was encountered")
	E(hipErrorContextIsDestroyed, "context is destroyed")
	E(hipErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped")
	E(hipErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region")
	E(hipErrorLaunchFailure, "unspecified launch failure")
	E(hipErrorNotSupported, "operation not supported")
	E(hipErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing")
	E(hipErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture")
	E(hipErrorStreamCaptureImplicit, "operation would make the legacy stream depend on a capturing blocking stream")
	E(hipErrorUnknown, "unknown error")
#undef E
};
enum { ERRORS = sizeof errors / sizeof *errors };

/* The place of a code in the table; the last row ("unknown") for others. */
static int row_of(int code)
{
	int row = 0;
	while (row < ERRORS - 1 && errors[row].code != code)
		row++;
	return row;
}

/* These two return no error code, so no test can make them fail: they are counted, and answer in any process. */
const char *hipGetErrorName(hipError_t code)
{
	soft_count(CALL_hipGetErrorName);
	return errors[row_of((int)code)].name;
}

const char *hipGetErrorString(hipError_t code)
{
	soft_count(CALL_hipGetErrorString);
	return errors[row_of((int)code)].text;
}
