/* Streams, capture, events. */
#include "../engine/event.h"
#include "abi.h"

enum { PRIORITY_LOW = 1, PRIORITY_HIGH = -1 }; /* as hipDeviceGetStreamPriorityRange says */

static hipError_t create(hipStream_t *out, unsigned int flags, int priority)
{
	REQUIRE(out && flags <= V_hipStreamNonBlocking);
	*out = (hipStream_t)(void *)soft_stream_create(hip_device(), flags == V_hipStreamNonBlocking, priority);
	return hip_result(SOFT_OK);
}

hipError_t hipStreamCreate(hipStream_t *out)
{
	ENTER(hipStreamCreate);
	return create(out, V_hipStreamDefault, 0);
}

hipError_t hipStreamCreateWithFlags(hipStream_t *out, unsigned int flags)
{
	ENTER(hipStreamCreateWithFlags);
	return create(out, flags, 0);
}

hipError_t hipStreamCreateWithPriority(hipStream_t *out, unsigned int flags, int priority)
{
	ENTER(hipStreamCreateWithPriority);
	return create(out, flags, priority < PRIORITY_HIGH ? PRIORITY_HIGH : priority > PRIORITY_LOW ? PRIORITY_LOW : priority);
}

hipError_t hipDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	ENTER(hipDeviceGetStreamPriorityRange);
	if (least)
		*least = PRIORITY_LOW;
	if (greatest)
		*greatest = PRIORITY_HIGH;
	return hip_result(SOFT_OK);
}

hipError_t hipStreamDestroy(hipStream_t stream)
{
	ENTER(hipStreamDestroy);
	return hip_result(soft_stream_destroy((struct soft_stream *)(void *)stream));
}

hipError_t hipStreamSynchronize(hipStream_t stream)
{
	ENTER(hipStreamSynchronize);
	return hip_result(soft_stream_synchronize(hip_stream(stream)));
}

hipError_t hipStreamQuery(hipStream_t stream)
{
	ENTER(hipStreamQuery);
	return hip_result(soft_stream_query(hip_stream(stream)));
}

hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned int flags)
{
	ENTER(hipStreamWaitEvent);
	(void)flags;
	return hip_result(soft_stream_wait_event(hip_stream(stream), (struct soft_event *)(void *)event));
}

/* What a stream was created with; the null stream blocks and has priority 0. */
#define NEED_FACTS(handle) \
	struct soft_device *device; \
	int non_blocking, priority; \
	enum soft_result facts = soft_stream_facts(hip_stream(handle), &device, &non_blocking, &priority); \
	if (facts) \
	return hip_result(facts)

hipError_t hipStreamGetDevice(hipStream_t handle, hipDevice_t *out)
{
	ENTER(hipStreamGetDevice);
	REQUIRE(out);
	NEED_FACTS(handle);
	*out = device->ordinal;
	return hip_result(SOFT_OK);
}

hipError_t hipStreamGetFlags(hipStream_t handle, unsigned int *flags)
{
	ENTER(hipStreamGetFlags);
	REQUIRE(flags);
	NEED_FACTS(handle);
	*flags = non_blocking ? V_hipStreamNonBlocking : V_hipStreamDefault;
	return hip_result(SOFT_OK);
}

hipError_t hipStreamGetPriority(hipStream_t handle, int *out)
{
	ENTER(hipStreamGetPriority);
	REQUIRE(out);
	NEED_FACTS(handle);
	*out = priority;
	return hip_result(SOFT_OK);
}

hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void *data)
{
	ENTER(hipLaunchHostFunc);
	REQUIRE(function);
	return hip_result(soft_stream_call(hip_stream(stream), function, data));
}

/* ---- capture ---- */

hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus *status)
{
	enum soft_capture capture;
	ENTER(hipStreamIsCapturing);
	REQUIRE(status);
	enum soft_result result = soft_capture_status(hip_stream(stream), &capture);
	if (!result)
		*status = (hipStreamCaptureStatus)capture;
	return hip_result(result);
}

_Static_assert((int)SOFT_CAPTURE_ACTIVE == V_hipStreamCaptureStatusActive && (int)SOFT_CAPTURE_BROKEN == V_hipStreamCaptureStatusInvalidated, "status");
_Static_assert((int)SOFT_CAPTURE_THREAD == V_hipStreamCaptureModeThreadLocal && (int)SOFT_CAPTURE_RELAXED == V_hipStreamCaptureModeRelaxed, "mode");

/* The engine's answer to a stream that is, or is not, under capture already is "invalid value"; HIP has a code of its own for it. */
static hipError_t capture_result(enum soft_result result)
{
	return result == SOFT_INVALID_VALUE ? hip_answer(V_hipErrorIllegalState) : hip_result(result);
}

hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode)
{
	ENTER(hipStreamBeginCapture);
	REQUIRE((int)mode >= V_hipStreamCaptureModeGlobal && (int)mode <= V_hipStreamCaptureModeRelaxed);
	return capture_result(soft_capture_begin(hip_stream(stream), (enum soft_capture_mode)mode));
}

hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t *graph)
{
	ENTER(hipStreamEndCapture);
	REQUIRE(graph);
	return capture_result(soft_capture_end(hip_stream(stream), (void **)graph));
}

hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *mode)
{
	ENTER(hipThreadExchangeStreamCaptureMode);
	REQUIRE(mode && (int)*mode >= V_hipStreamCaptureModeGlobal && (int)*mode <= V_hipStreamCaptureModeRelaxed);
	*mode = (hipStreamCaptureMode)soft_capture_exchange((enum soft_capture_mode)*mode);
	return hip_result(SOFT_OK);
}

hipError_t hipGraphDestroy(hipGraph_t graph)
{
	ENTER(hipGraphDestroy);
	REQUIRE(graph);
	return capture_result(soft_graph_destroy(graph));
}

/* ---- events ---- */

static struct soft_event *event_of(hipEvent_t event) { return (struct soft_event *)(void *)event; }

/* The flags that say how caches are written back are taken, at most one of them; an event between processes cannot keep a time, and there is none. */
static const unsigned release_flags[] = { 0x20000000u, 0x40000000u, 0x80000000u };

static hipError_t create_event(hipEvent_t *out, unsigned flags)
{
	unsigned releases = 0;
	REQUIRE(out);
	for (unsigned i = 0; i < sizeof release_flags / sizeof *release_flags; i++)
		releases |= flags & release_flags[i];
	REQUIRE(!(releases & (releases - 1)) && !(flags & ~releases & ~(unsigned)(V_hipEventBlockingSync | V_hipEventDisableTiming)));
	*out = (hipEvent_t)(void *)soft_event_create(hip_device(), !(flags & V_hipEventDisableTiming));
	return hip_result(SOFT_OK);
}

hipError_t hipEventCreate(hipEvent_t *out)
{
	ENTER(hipEventCreate);
	return create_event(out, V_hipEventDefault);
}

hipError_t hipEventCreateWithFlags(hipEvent_t *out, unsigned int flags)
{
	ENTER(hipEventCreateWithFlags);
	return create_event(out, flags);
}

hipError_t hipEventDestroy(hipEvent_t event)
{
	ENTER(hipEventDestroy);
	return hip_result(soft_event_destroy(event_of(event)));
}

hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream)
{
	ENTER(hipEventRecord);
	return hip_result(soft_event_record(event_of(event), hip_stream(stream)));
}

hipError_t hipEventQuery(hipEvent_t event)
{
	ENTER(hipEventQuery);
	return hip_result(soft_event_query(event_of(event)));
}

hipError_t hipEventSynchronize(hipEvent_t event)
{
	ENTER(hipEventSynchronize);
	return hip_result(soft_event_synchronize(event_of(event)));
}

hipError_t hipEventElapsedTime(float *milliseconds, hipEvent_t from, hipEvent_t to)
{
	ENTER(hipEventElapsedTime);
	REQUIRE(milliseconds);
	return hip_result(soft_event_elapsed(event_of(from), event_of(to), milliseconds));
}
