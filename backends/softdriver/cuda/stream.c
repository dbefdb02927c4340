/* Streams, capture, events. */
#include <stdlib.h>

#include "../engine/event.h"
#include "../engine/record.h"
#include "abi.h"

enum soft_result cuda_stream(CUstream handle, struct soft_stream **stream)
{
	if ((uintptr_t)handle > 2) {
		*stream = (struct soft_stream *)(void *)handle; /* the engine checks it under its lock */
		return SOFT_OK;
	}
	struct soft_device *device;
	enum soft_result result = soft_context_device(&device);
	if (!result)
		*stream = (uintptr_t)handle == 2 ? soft_stream_per_thread(device) : device->legacy;
	return result;
}

static CUresult create(CUstream *out, unsigned int flags, int priority)
{
	struct soft_device *device;
	REQUIRE(out && flags <= V_CU_STREAM_NON_BLOCKING);
	NEED_CONTEXT(device);
	*out = (CUstream)(void *)soft_stream_create(device, flags == V_CU_STREAM_NON_BLOCKING, priority);
	return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
	ENTER(cuStreamCreate);
	return create(out, flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
	ENTER(cuStreamCreateWithPriority);
	return create(out, flags, priority < -5 ? -5 : priority > 0 ? 0 : priority);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
	ENTER(cuStreamDestroy_v2);
	return cuda_result(soft_stream_destroy((struct soft_stream *)(void *)stream));
}

CUresult cuStreamSynchronize(CUstream handle)
{
	struct soft_stream *stream;
	ENTER(cuStreamSynchronize);
	NEED_STREAM(stream, handle);
	return cuda_result(soft_stream_synchronize(stream));
}

CUresult cuStreamQuery(CUstream handle)
{
	struct soft_stream *stream;
	ENTER(cuStreamQuery);
	NEED_STREAM(stream, handle);
	return cuda_result(soft_stream_query(stream));
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags)
{
	struct soft_stream *stream;
	ENTER(cuStreamWaitEvent);
	(void)flags;
	NEED_STREAM(stream, handle);
	return cuda_result(soft_stream_wait_event(stream, (struct soft_event *)(void *)event));
}

/* What a stream was created with; the legacy stream blocks and has priority 0. */
#define NEED_FACTS(handle) \
	struct soft_stream *stream; \
	struct soft_device *device; \
	int non_blocking, priority; \
	NEED_STREAM(stream, handle); \
	enum soft_result facts = soft_stream_facts(stream, &device, &non_blocking, &priority); \
	if (facts) \
	return cuda_result(facts)

CUresult cuStreamGetCtx(CUstream handle, CUcontext *context)
{
	ENTER(cuStreamGetCtx);
	REQUIRE(context);
	NEED_FACTS(handle);
	*context = (CUcontext)(void *)&device->context;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice *out)
{
	ENTER(cuStreamGetDevice);
	REQUIRE(out);
	NEED_FACTS(handle);
	*out = device->ordinal;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int *flags)
{
	ENTER(cuStreamGetFlags);
	REQUIRE(flags);
	NEED_FACTS(handle);
	*flags = non_blocking ? V_CU_STREAM_NON_BLOCKING : 0;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream handle, int *out)
{
	ENTER(cuStreamGetPriority);
	REQUIRE(out);
	NEED_FACTS(handle);
	*out = priority;
	return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data)
{
	struct soft_stream *stream;
	ENTER(cuLaunchHostFunc);
	REQUIRE(function);
	NEED_STREAM(stream, handle);
	return cuda_result(soft_stream_call(stream, function, data));
}

/* The engine knows neither the vendor's handle type nor its result type. */
struct callback {
	CUstreamCallback function;
	void *data;
};

static void call_back(void *stream, int code, void *data)
{
	struct callback callback = *(struct callback *)data;
	free(data);
	callback.function((CUstream)stream, (CUresult)code, callback.data);
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback function, void *data, unsigned int flags)
{
	struct soft_stream *stream;
	ENTER(cuStreamAddCallback);
	REQUIRE(function && flags == 0);
	NEED_STREAM(stream, handle);
	struct callback *callback = soft_records(1, sizeof *callback);
	*callback = (struct callback){ function, data };
	enum soft_result result = soft_stream_callback(stream, call_back, handle, callback);
	if (result)
		free(callback);
	return cuda_result(result);
}

/* ---- capture ---- */

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
	struct soft_stream *stream;
	enum soft_capture capture;
	ENTER(cuStreamIsCapturing);
	REQUIRE(status);
	NEED_STREAM(stream, handle);
	enum soft_result result = soft_capture_status(stream, &capture);
	if (!result)
		*status = (CUstreamCaptureStatus)capture;
	return cuda_result(result);
}

_Static_assert((int)SOFT_CAPTURE_ACTIVE == V_CU_STREAM_CAPTURE_STATUS_ACTIVE && (int)SOFT_CAPTURE_BROKEN == V_CU_STREAM_CAPTURE_STATUS_INVALIDATED, "status");
_Static_assert((int)SOFT_CAPTURE_THREAD == V_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && (int)SOFT_CAPTURE_RELAXED == V_CU_STREAM_CAPTURE_MODE_RELAXED, "mode");

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
	struct soft_stream *stream;
	ENTER(cuStreamBeginCapture_v2);
	REQUIRE((int)mode >= V_CU_STREAM_CAPTURE_MODE_GLOBAL && (int)mode <= V_CU_STREAM_CAPTURE_MODE_RELAXED);
	NEED_STREAM(stream, handle);
	return cuda_result(soft_capture_begin(stream, (enum soft_capture_mode)mode));
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
	struct soft_stream *stream;
	ENTER(cuStreamEndCapture);
	REQUIRE(graph);
	NEED_STREAM(stream, handle);
	return cuda_result(soft_capture_end(stream, (void **)graph));
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	ENTER(cuThreadExchangeStreamCaptureMode);
	REQUIRE(mode && (int)*mode >= V_CU_STREAM_CAPTURE_MODE_GLOBAL && (int)*mode <= V_CU_STREAM_CAPTURE_MODE_RELAXED);
	*mode = (CUstreamCaptureMode)soft_capture_exchange((enum soft_capture_mode)*mode);
	return cuda_result(SOFT_OK);
}

CUresult cuGraphDestroy(CUgraph graph)
{
	ENTER(cuGraphDestroy);
	return cuda_result(soft_graph_destroy(graph));
}

/* ---- events ---- */

static struct soft_event *event_of(CUevent event) { return (struct soft_event *)(void *)event; }

CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
	struct soft_device *device;
	ENTER(cuEventCreate);
	REQUIRE(out && flags <= (V_CU_EVENT_BLOCKING_SYNC | V_CU_EVENT_DISABLE_TIMING));
	NEED_CONTEXT(device);
	*out = (CUevent)(void *)soft_event_create(device, !(flags & V_CU_EVENT_DISABLE_TIMING));
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event)
{
	ENTER(cuEventDestroy_v2);
	return cuda_result(soft_event_destroy(event_of(event)));
}

CUresult cuEventRecord(CUevent event, CUstream handle)
{
	struct soft_stream *stream;
	ENTER(cuEventRecord);
	NEED_STREAM(stream, handle);
	return cuda_result(soft_event_record(event_of(event), stream));
}

CUresult cuEventQuery(CUevent event)
{
	ENTER(cuEventQuery);
	return cuda_result(soft_event_query(event_of(event)));
}

CUresult cuEventSynchronize(CUevent event)
{
	ENTER(cuEventSynchronize);
	return cuda_result(soft_event_synchronize(event_of(event)));
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent from, CUevent to)
{
	ENTER(cuEventElapsedTime_v2);
	REQUIRE(milliseconds);
	return cuda_result(soft_event_elapsed(event_of(from), event_of(to), milliseconds));
}
