/* Capture: of a stream, and what other calls may do meanwhile. */
#include <pthread.h>

#include "client.h"

TEST(a_stream_that_is_captured)
{
	CUdeviceptr a;
	CUgraph graph;
	CUstreamCaptureStatus status;
	void *host;
	start();
	CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING), other = new_stream(V_CU_STREAM_NON_BLOCKING);
	OK(cu.cuMemAlloc_v2(&a, 64));
	OK(cu.cuStreamIsCapturing(stream, &status));
	EQUAL(status, V_CU_STREAM_CAPTURE_STATUS_NONE);
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuStreamEndCapture(stream, &graph));
	RETURNS(V_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamBeginCapture_v2(NULL, (CUstreamCaptureMode)0));
	/* an empty capture */
	OK(cu.cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)V_CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cu.cuStreamIsCapturing(stream, &status));
	EQUAL(status, V_CU_STREAM_CAPTURE_STATUS_ACTIVE);
	OK(cu.cuMemsetD8Async(a, 1, 64, other)); /* relaxed: others go on */
	OK(cu.cuMemAllocHost_v2(&host, 64));
	OK(cu.cuStreamEndCapture(stream, &graph));
	CHECK(graph);
	OK(cu.cuGraphDestroy(graph));
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuGraphDestroy(graph));
	/* what is not allowed says so, and breaks it */
	for (int way = 0; way < 6; way++) {
		OK(cu.cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)V_CU_STREAM_CAPTURE_MODE_GLOBAL));
		switch (way) {
		case 0: RETURNS(V_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamSynchronize(stream)); break;
		case 1: RETURNS(V_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuCtxSynchronize()); break;
		case 2: RETURNS(V_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuMemAlloc_v2(&a, 64)); break;
		case 3: RETURNS(V_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuMemcpyHtoDAsync_v2(a, host, 64, stream)); break;
		case 4: RETURNS(V_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuMemFreeHost(host)); break;
		case 5: RETURNS(V_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamQuery(stream)); break;
		}
		OK(cu.cuStreamIsCapturing(stream, &status));
		EQUAL(status, V_CU_STREAM_CAPTURE_STATUS_INVALIDATED);
		RETURNS(V_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamSynchronize(stream));
		RETURNS(V_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(stream, &graph));
		OK(cu.cuStreamSynchronize(stream));
	}
	/* the legacy stream would have to wait for a blocking stream under capture */
	CUstream blocking = new_stream(0);
	OK(cu.cuStreamBeginCapture_v2(blocking, (CUstreamCaptureMode)V_CU_STREAM_CAPTURE_MODE_RELAXED));
	RETURNS(V_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cu.cuMemsetD8_v2(a, 1, 64));
	OK(cu.cuStreamDestroy_v2(blocking)); /* and a capture ends with its stream */
	OK(cu.cuMemsetD8_v2(a, 1, 64));
	OK(cu.cuMemFreeHost(host));
}

/* One call that no stream orders, each of those there are. */
static int unsafe(int way, CUdeviceptr block, CUevent event, CUmemoryPool pool)
{
	CUdeviceptr other;
	cuuint64_t value;
	void *host;
	switch (way) {
	case 0: return (int)cu.cuMemAlloc_v2(&other, 64);
	case 1: return (int)cu.cuMemFree_v2(block);
	case 2: return (int)cu.cuMemAllocHost_v2(&host, 64);
	case 3: return (int)cu.cuEventQuery(event);
	case 4: return (int)cu.cuEventSynchronize(event);
	case 5: return (int)cu.cuMemPoolGetAttribute(pool, (CUmemPool_attribute)V_CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value);
	case 6: return (int)cu.cuMemPoolTrimTo(pool, 0);
	}
	return -1;
}

enum { UNSAFE = 7 };

struct captured {
	CUstream stream;
	CUstreamCaptureMode mode;
	CUcontext context;
};

static void *begin_there(void *data)
{
	const struct captured *captured = data;
	OK(cu.cuCtxSetCurrent(captured->context));
	OK(cu.cuStreamBeginCapture_v2(captured->stream, captured->mode));
	return NULL;
}

/* Makes an unsafe call while a stream of this thread, or of another one, is captured; 1: it went through and the capture goes on. */
static int survives(int way, CUstreamCaptureMode capture, CUstreamCaptureMode mode, int other_thread)
{
	CUstreamCaptureStatus status;
	CUstreamCaptureMode exchanged = mode;
	struct captured captured = { new_stream(V_CU_STREAM_NON_BLOCKING), capture, NULL };
	CUdeviceptr block;
	CUevent event;
	CUmemoryPool pool;
	pthread_t thread;
	OK(cu.cuMemAlloc_v2(&block, 64));
	OK(cu.cuEventCreate(&event, 0));
	OK(cu.cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cu.cuCtxGetCurrent(&captured.context));
	if (other_thread) {
		CHECK(!pthread_create(&thread, NULL, begin_there, &captured));
		CHECK(!pthread_join(thread, NULL));
	} else {
		begin_there(&captured);
	}
	OK(cu.cuThreadExchangeStreamCaptureMode(&exchanged));
	EQUAL(exchanged, V_CU_STREAM_CAPTURE_MODE_GLOBAL);
	int code = unsafe(way, block, event, pool);
	OK(cu.cuThreadExchangeStreamCaptureMode(&exchanged));
	EQUAL(exchanged, mode);
	OK(cu.cuStreamIsCapturing(captured.stream, &status));
	EQUAL(status, code ? V_CU_STREAM_CAPTURE_STATUS_INVALIDATED : V_CU_STREAM_CAPTURE_STATUS_ACTIVE);
	EQUAL(code, code ? V_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : 0);
	OK(cu.cuStreamDestroy_v2(captured.stream));
	OK(cu.cuEventDestroy_v2(event));
	return !code;
}

TEST(unsafe_calls_while_another_stream_is_captured)
{
	const CUstreamCaptureMode global = (CUstreamCaptureMode)V_CU_STREAM_CAPTURE_MODE_GLOBAL, local = (CUstreamCaptureMode)V_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
	                          relaxed = (CUstreamCaptureMode)V_CU_STREAM_CAPTURE_MODE_RELAXED;
	start();
	for (int way = 0; way < UNSAFE; way++) {
		/* a capture of this thread forbids, unless it or the thread is relaxed */
		CHECK(!survives(way, global, global, 0));
		CHECK(!survives(way, global, local, 0));
		CHECK(!survives(way, local, global, 0));
		CHECK(!survives(way, local, local, 0));
		CHECK(survives(way, relaxed, global, 0));
		CHECK(survives(way, global, relaxed, 0));
		CHECK(survives(way, local, relaxed, 0));
		/* one of another thread only where both are global */
		CHECK(!survives(way, global, global, 1));
		CHECK(survives(way, global, local, 1));
		CHECK(survives(way, local, global, 1));
		CHECK(survives(way, global, relaxed, 1));
	}
}

TEST(what_no_mode_allows)
{
	CUstreamCaptureMode mode = (CUstreamCaptureMode)V_CU_STREAM_CAPTURE_MODE_RELAXED, wrong = (CUstreamCaptureMode)3;
	CUstreamCaptureStatus status;
	CUgraph graph;
	start();
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuThreadExchangeStreamCaptureMode(&wrong));
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuThreadExchangeStreamCaptureMode(NULL));
	OK(cu.cuThreadExchangeStreamCaptureMode(&mode));
	CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING), blocking = new_stream(0);
	OK(cu.cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)V_CU_STREAM_CAPTURE_MODE_RELAXED));
	RETURNS(V_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuCtxSynchronize()); /* "a broader handle which encompasses an active capture" */
	RETURNS(V_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuCtxSynchronize());
	RETURNS(V_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(stream, &graph));
	/* asking the legacy stream tells of a blocking stream under capture, and breaks nothing */
	OK(cu.cuStreamIsCapturing(NULL, &status));
	OK(cu.cuStreamBeginCapture_v2(blocking, (CUstreamCaptureMode)V_CU_STREAM_CAPTURE_MODE_RELAXED));
	RETURNS(V_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cu.cuStreamIsCapturing(NULL, &status));
	OK(cu.cuStreamEndCapture(blocking, &graph));
	OK(cu.cuGraphDestroy(graph));
	OK(cu.cuThreadExchangeStreamCaptureMode(&mode));
}
