/* Capture: of a stream, and what other calls may do meanwhile. */
#include <pthread.h>

#include "client.h"

static int status_of(hipStream_t stream)
{
	hipStreamCaptureStatus status;
	OK(hip.hipStreamIsCapturing(stream, &status));
	return (int)status;
}

TEST(a_stream_under_capture)
{
	hipGraph_t graph;
	const hipStreamCaptureMode global = (hipStreamCaptureMode)V_hipStreamCaptureModeGlobal, relaxed = (hipStreamCaptureMode)V_hipStreamCaptureModeRelaxed;
	void *block;
	load();
	hipStream_t stream = new_stream();
	EQUAL(status_of(stream), V_hipStreamCaptureStatusNone);
	RETURNS(V_hipErrorStreamCaptureUnsupported, hip.hipStreamBeginCapture(NULL, global));
	RETURNS(V_hipErrorInvalidValue, hip.hipStreamBeginCapture(stream, (hipStreamCaptureMode)3));
	RETURNS(V_hipErrorIllegalState, hip.hipStreamEndCapture(stream, &graph)); /* not begun */
	OK(hip.hipStreamBeginCapture(stream, relaxed));
	EQUAL(status_of(stream), V_hipStreamCaptureStatusActive);
	RETURNS(V_hipErrorIllegalState, hip.hipStreamBeginCapture(stream, relaxed));
	OK(hip.hipFree(new_block(8))); /* a relaxed capture forbids nothing elsewhere */
	OK(hip.hipStreamEndCapture(stream, &graph));
	EQUAL(status_of(stream), V_hipStreamCaptureStatusNone);
	OK(hip.hipGraphDestroy(graph));
	RETURNS(V_hipErrorIllegalState, hip.hipGraphDestroy(graph));
	/* a global one does: whatever is refused breaks it */
	block = new_block(8);
	for (int call = 0; call < 4; call++) {
		void *other;
		OK(hip.hipStreamBeginCapture(stream, global));
		int code = (int)(call == 0   ? hip.hipMalloc(&other, 8)
		                 : call == 1 ? hip.hipFree(block)
		                 : call == 2 ? hip.hipDeviceSynchronize()
		                             : hip.hipStreamSynchronize(stream));
		EQUAL(code, V_hipErrorStreamCaptureUnsupported);
		EQUAL(status_of(stream), V_hipStreamCaptureStatusInvalidated);
		RETURNS(V_hipErrorStreamCaptureInvalidated, hip.hipStreamEndCapture(stream, &graph));
		CHECK(!graph);
	}
	EQUAL(soft.get("live"), 1);
	OK(hip.hipFree(block));
}

/* One call that no stream orders, each of those there are. */
static int unsafe(int way, void *block, hipEvent_t event, hipMemPool_t pool)
{
	void *other;
	uint64_t value;
	switch (way) {
	case 0: return (int)hip.hipMalloc(&other, 64);
	case 1: return (int)hip.hipFree(block);
	case 2: return (int)hip.hipHostMalloc(&other, 64, 0);
	case 3: return (int)hip.hipEventQuery(event);
	case 4: return (int)hip.hipEventSynchronize(event);
	case 5: return (int)hip.hipMemPoolGetAttribute(pool, (hipMemPoolAttr)V_hipMemPoolAttrReservedMemCurrent, &value);
	case 6: return (int)hip.hipMemPoolTrimTo(pool, 0);
	}
	return -1;
}

enum { UNSAFE = 7 };

struct captured {
	hipStream_t stream;
	hipStreamCaptureMode mode;
};

static void *begin_there(void *data)
{
	const struct captured *captured = data;
	OK(hip.hipStreamBeginCapture(captured->stream, captured->mode));
	return NULL;
}

/* Makes an unsafe call while a stream of this thread, or of another one, is captured; 1: it went through and the capture goes on. */
static int survives(int way, int capture, int mode, int other_thread)
{
	hipStreamCaptureMode exchanged = (hipStreamCaptureMode)mode;
	struct captured captured = { new_stream(), (hipStreamCaptureMode)capture };
	void *block = new_block(8);
	hipEvent_t event;
	hipMemPool_t pool;
	pthread_t thread;
	OK(hip.hipEventCreate(&event));
	OK(hip.hipDeviceGetDefaultMemPool(&pool, 0));
	if (other_thread) {
		CHECK(!pthread_create(&thread, NULL, begin_there, &captured));
		CHECK(!pthread_join(thread, NULL));
	} else {
		begin_there(&captured);
	}
	OK(hip.hipThreadExchangeStreamCaptureMode(&exchanged));
	EQUAL((int)exchanged, V_hipStreamCaptureModeGlobal);
	int code = unsafe(way, block, event, pool);
	OK(hip.hipThreadExchangeStreamCaptureMode(&exchanged));
	EQUAL((int)exchanged, mode);
	EQUAL(status_of(captured.stream), code ? V_hipStreamCaptureStatusInvalidated : V_hipStreamCaptureStatusActive);
	EQUAL(code, code ? V_hipErrorStreamCaptureUnsupported : 0);
	OK(hip.hipStreamDestroy(captured.stream));
	OK(hip.hipEventDestroy(event));
	return !code;
}

TEST(unsafe_calls_while_another_stream_is_captured)
{
	enum { GLOBAL = V_hipStreamCaptureModeGlobal, LOCAL = V_hipStreamCaptureModeThreadLocal, RELAXED = V_hipStreamCaptureModeRelaxed };
	load();
	for (int way = 0; way < UNSAFE; way++) {
		/* a capture of this thread forbids, unless it or the thread is relaxed */
		CHECK(!survives(way, GLOBAL, GLOBAL, 0));
		CHECK(!survives(way, GLOBAL, LOCAL, 0));
		CHECK(!survives(way, LOCAL, GLOBAL, 0));
		CHECK(!survives(way, LOCAL, LOCAL, 0));
		CHECK(survives(way, RELAXED, GLOBAL, 0));
		CHECK(survives(way, GLOBAL, RELAXED, 0));
		CHECK(survives(way, LOCAL, RELAXED, 0));
		/* one of another thread only where both are global */
		CHECK(!survives(way, GLOBAL, GLOBAL, 1));
		CHECK(survives(way, GLOBAL, LOCAL, 1));
		CHECK(survives(way, LOCAL, GLOBAL, 1));
		CHECK(survives(way, GLOBAL, RELAXED, 1));
	}
}

TEST(what_no_mode_allows)
{
	hipStreamCaptureMode mode = (hipStreamCaptureMode)V_hipStreamCaptureModeRelaxed, wrong = (hipStreamCaptureMode)3;
	hipStreamCaptureStatus status;
	hipMemPoolProps props = { 0 };
	hipMemPool_t pool;
	hipGraph_t graph;
	hipStream_t blocking;
	load();
	RETURNS(V_hipErrorInvalidValue, hip.hipThreadExchangeStreamCaptureMode(&wrong));
	RETURNS(V_hipErrorInvalidValue, hip.hipThreadExchangeStreamCaptureMode(NULL));
	OK(hip.hipThreadExchangeStreamCaptureMode(&mode));
	hipStream_t stream = new_stream();
	OK(hip.hipStreamBeginCapture(stream, (hipStreamCaptureMode)V_hipStreamCaptureModeRelaxed));
	/* pools: refused from HIP 7 on, and the capture goes on */
	props.allocType = (int)V_hipMemAllocationTypePinned;
	props.location.type = (int)V_hipMemLocationTypeDevice;
	OK(hip.hipMemPoolCreate(&pool, &props));
	soft.set("driver_version", 70000000);
	RETURNS(V_hipErrorStreamCaptureUnsupported, hip.hipMemPoolCreate(&pool, &props));
	RETURNS(V_hipErrorStreamCaptureUnsupported, hip.hipMemPoolDestroy(pool));
	RETURNS(V_hipErrorStreamCaptureUnsupported, hip.hipDeviceSetMemPool(0, pool));
	EQUAL(status_of(stream), V_hipStreamCaptureStatusActive);
	/* waiting for the device breaks it */
	RETURNS(V_hipErrorStreamCaptureUnsupported, hip.hipDeviceSynchronize());
	RETURNS(V_hipErrorStreamCaptureInvalidated, hip.hipDeviceSynchronize());
	RETURNS(V_hipErrorStreamCaptureInvalidated, hip.hipStreamEndCapture(stream, &graph));
	OK(hip.hipMemPoolDestroy(pool));
	/* asking the null stream tells of a blocking stream under capture, and breaks nothing */
	OK(hip.hipStreamIsCapturing(NULL, &status));
	OK(hip.hipStreamCreate(&blocking));
	OK(hip.hipStreamBeginCapture(blocking, (hipStreamCaptureMode)V_hipStreamCaptureModeRelaxed));
	RETURNS(V_hipErrorStreamCaptureImplicit, hip.hipStreamIsCapturing(NULL, &status));
	OK(hip.hipStreamEndCapture(blocking, &graph));
	OK(hip.hipGraphDestroy(graph));
	OK(hip.hipThreadExchangeStreamCaptureMode(&mode));
}
