/* Streams, events, threads. */
#include <stdatomic.h>
#include <time.h>

#include "client.h"

TEST(work_is_asynchronous_and_in_order)
{
	CUdeviceptr a;
	unsigned char *host;
	struct gate gate;
	start();
	CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING);
	OK(cu.cuMemAlloc_v2(&a, 4096));
	OK(cu.cuMemHostAlloc((void **)&host, 4096, 0));
	memset(host, 0, 4096);
	OK(cu.cuStreamQuery(stream));
	close_gate(&gate, stream);
	wait_entered(&gate);
	for (int i = 1; i <= 100; i++) {
		OK(cu.cuMemsetD8Async(a, (unsigned char)i, 4096, stream));
		OK(cu.cuMemcpyDtoHAsync_v2(host + i, a + 1, 1, stream));
	}
	RETURNS(V_CUDA_ERROR_NOT_READY, cu.cuStreamQuery(stream));
	EQUAL(host[1], 0);
	open_gate(&gate);
	OK(cu.cuStreamSynchronize(stream));
	for (int i = 1; i <= 100; i++)
		EQUAL(host[i], i);
	OK(cu.cuStreamQuery(stream));
}

#define PER_THREAD ((CUstream)2)

struct there {
	CUcontext context;
	CUdeviceptr block;
	struct gate *gate; /* what this thread's stream stands at when it ends */
};

/* Another thread, which uses its own default stream while the first one's is busy. */
static void *use_there(void *data)
{
	struct there *there = data;
	unsigned char byte = 0;
	OK(cu.cuCtxSetCurrent(there->context));
	OK(cu.cuStreamQuery(PER_THREAD)); /* idle */
	OK(cu.cuMemsetD8Async(there->block, 5, 64, PER_THREAD));
	OK(cu.cuMemcpyDtoHAsync_v2(&byte, there->block + 63, 1, PER_THREAD));
	OK(cu.cuStreamSynchronize(PER_THREAD));
	EQUAL(byte, 5);
	close_gate(there->gate, PER_THREAD);
	OK(cu.cuMemsetD8Async(there->block, 6, 64, PER_THREAD));
	return NULL;
}

TEST(each_thread_has_a_default_stream_of_its_own)
{
	struct gate here, elsewhere;
	struct there there = { .gate = &elsewhere };
	pthread_t thread;
	unsigned flags = 1;
	unsigned char byte = 0;
	start();
	CUstream free_one = new_stream(V_CU_STREAM_NON_BLOCKING);
	OK(cu.cuCtxGetCurrent(&there.context));
	OK(cu.cuMemAlloc_v2(&there.block, 64));
	OK(cu.cuStreamGetFlags(PER_THREAD, &flags));
	EQUAL(flags, 0);
	RETURNS(V_CUDA_ERROR_INVALID_HANDLE, cu.cuStreamDestroy_v2(PER_THREAD));
	close_gate(&here, PER_THREAD);
	RETURNS(V_CUDA_ERROR_NOT_READY, cu.cuStreamQuery(PER_THREAD));
	CHECK(!pthread_create(&thread, NULL, use_there, &there));
	CHECK(!pthread_join(thread, NULL));
	OK(cu.cuStreamQuery(free_one));
	open_gate(&here);
	OK(cu.cuStreamSynchronize(PER_THREAD)); /* the other thread's work is still under way */
	RETURNS(V_CUDA_ERROR_NOT_READY, cu.cuStreamQuery(NULL)); /* the legacy stream comes after that of all threads, also of one that has ended */
	open_gate(&elsewhere);
	OK(cu.cuStreamSynchronize(NULL));
	OK(cu.cuMemcpyDtoH_v2(&byte, there.block + 63, 1));
	EQUAL(byte, 6);
	close_gate(&here, NULL);
	OK(cu.cuMemsetD8Async(there.block, 7, 64, PER_THREAD));
	RETURNS(V_CUDA_ERROR_NOT_READY, cu.cuStreamQuery(PER_THREAD)); /* and it comes after the legacy stream */
	open_gate(&here);
	OK(cu.cuStreamSynchronize(PER_THREAD));
	OK(cu.cuDevicePrimaryCtxReset_v2(0)); /* it ends with the context's other streams, and is made anew */
	OK(cu.cuStreamQuery(PER_THREAD));
}

TEST(a_threads_default_stream_can_be_captured_and_the_legacy_stream_not)
{
	CUstreamCaptureStatus status;
	CUgraph graph;
	start();
	RETURNS(V_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamBeginCapture_v2(NULL, (CUstreamCaptureMode)V_CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cu.cuStreamBeginCapture_v2(PER_THREAD, (CUstreamCaptureMode)V_CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cu.cuStreamIsCapturing(PER_THREAD, &status));
	EQUAL(status, V_CU_STREAM_CAPTURE_STATUS_ACTIVE);
	OK(cu.cuStreamEndCapture(PER_THREAD, &graph));
	OK(cu.cuGraphDestroy(graph));
}

TEST(events_come_true_where_they_were_recorded)
{
	CUevent before, after, never;
	struct gate gate;
	float ms;
	start();
	CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING);
	OK(cu.cuEventCreate(&before, 0));
	OK(cu.cuEventCreate(&after, 0));
	OK(cu.cuEventCreate(&never, V_CU_EVENT_DISABLE_TIMING));
	OK(cu.cuEventQuery(never));
	OK(cu.cuEventSynchronize(never));
	OK(cu.cuEventRecord(before, stream));
	OK(cu.cuEventQuery(before));
	close_gate(&gate, stream);
	OK(cu.cuEventRecord(after, stream));
	RETURNS(V_CUDA_ERROR_NOT_READY, cu.cuEventQuery(after));
	RETURNS(V_CUDA_ERROR_NOT_READY, cu.cuEventElapsedTime_v2(&ms, before, after));
	struct timespec pause = { 0, 2000000 };
	nanosleep(&pause, NULL);
	open_gate(&gate);
	OK(cu.cuEventSynchronize(after));
	OK(cu.cuEventElapsedTime_v2(&ms, before, after));
	CHECK(ms >= 2.0f); /* at least the pause; how much more is the machine's affair */
	RETURNS(V_CUDA_ERROR_INVALID_HANDLE, cu.cuEventElapsedTime_v2(&ms, before, never));
	OK(cu.cuEventDestroy_v2(before));
	RETURNS(V_CUDA_ERROR_INVALID_HANDLE, cu.cuEventQuery(before));
	RETURNS(V_CUDA_ERROR_INVALID_HANDLE, cu.cuEventDestroy_v2(before));
	/* destroyed while it is still to come */
	close_gate(&gate, stream);
	OK(cu.cuEventRecord(after, stream));
	OK(cu.cuEventDestroy_v2(after));
	open_gate(&gate);
	OK(cu.cuStreamSynchronize(stream));
}

TEST(a_stream_waits_for_an_event_of_another)
{
	CUdeviceptr a;
	CUevent event;
	struct gate gate;
	unsigned char *host;
	start();
	CUstream one = new_stream(V_CU_STREAM_NON_BLOCKING), two = new_stream(V_CU_STREAM_NON_BLOCKING);
	OK(cu.cuEventCreate(&event, V_CU_EVENT_DISABLE_TIMING));
	OK(cu.cuMemAlloc_v2(&a, 64));
	OK(cu.cuMemHostAlloc((void **)&host, 64, 0));
	close_gate(&gate, one);
	OK(cu.cuMemsetD8Async(a, 3, 64, one));
	OK(cu.cuEventRecord(event, one));
	OK(cu.cuStreamWaitEvent(two, event, 0));
	OK(cu.cuMemcpyDtoHAsync_v2(host, a, 64, two));
	RETURNS(V_CUDA_ERROR_NOT_READY, cu.cuStreamQuery(two));
	OK(cu.cuEventRecord(event, two)); /* the wait was for the earlier place */
	open_gate(&gate);
	OK(cu.cuStreamSynchronize(two));
	EQUAL(host[63], 3);
}

TEST(the_legacy_stream_orders_blocking_streams_only)
{
	struct gate gate;
	CUdeviceptr a;
	start();
	CUstream blocking = new_stream(0), free_one = new_stream(V_CU_STREAM_NON_BLOCKING);
	OK(cu.cuMemAlloc_v2(&a, 64));
	close_gate(&gate, blocking);
	OK(cu.cuMemsetD8_v2(a, 1, 64)); /* on the legacy stream: after the gate */
	RETURNS(V_CUDA_ERROR_NOT_READY, cu.cuStreamQuery(NULL));
	OK(cu.cuStreamQuery(free_one));
	open_gate(&gate);
	OK(cu.cuStreamSynchronize(NULL));
	OK(cu.cuStreamQuery(blocking));
	/* and the other way round */
	close_gate(&gate, NULL);
	OK(cu.cuMemsetD8Async(a, 2, 64, blocking));
	RETURNS(V_CUDA_ERROR_NOT_READY, cu.cuStreamQuery(blocking));
	OK(cu.cuMemsetD8Async(a + 32, 2, 8, free_one));
	OK(cu.cuStreamSynchronize(free_one));
	open_gate(&gate);
	OK(cu.cuCtxSynchronize());
	OK(cu.cuStreamQuery(blocking));
	/* a non-blocking stream holds nobody up */
	close_gate(&gate, free_one);
	OK(cu.cuMemsetD8_v2(a, 3, 64));
	OK(cu.cuStreamSynchronize(NULL));
	OK(cu.cuStreamSynchronize(blocking));
	open_gate(&gate);
	OK(cu.cuStreamSynchronize(free_one));
}

static _Atomic int calls;
static void count_call(void *data) { atomic_fetch_add((_Atomic int *)data, 1); }

static void count_callback(CUstream stream, CUresult status, void *data)
{
	if (stream && status == CUDA_SUCCESS)
		atomic_fetch_add((_Atomic int *)data, 1);
}

static void note_thread(void *thread) { *(pthread_t *)thread = pthread_self(); }

TEST(host_functions_run_on_the_stream_s_own_thread)
{
	start();
	CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING);
	for (int i = 0; i < 300; i++) {
		pthread_t ran_on = pthread_self();
		OK(cu.cuLaunchHostFunc(stream, note_thread, &ran_on));
		OK(cu.cuStreamSynchronize(stream)); /* would run a copy itself */
		CHECK(!pthread_equal(ran_on, pthread_self()));
	}
}

TEST(a_destroyed_stream_still_does_what_was_queued)
{
	struct gate gate;
	start();
	CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING);
	close_gate(&gate, stream);
	for (int i = 0; i < 10; i++)
		OK(cu.cuLaunchHostFunc(stream, count_call, &calls));
	OK(cu.cuStreamAddCallback(stream, count_callback, &calls, 0));
	OK(cu.cuStreamDestroy_v2(stream));
	RETURNS(V_CUDA_ERROR_INVALID_HANDLE, cu.cuStreamSynchronize(stream));
	RETURNS(V_CUDA_ERROR_INVALID_HANDLE, cu.cuStreamDestroy_v2(stream));
	RETURNS(V_CUDA_ERROR_INVALID_HANDLE, cu.cuLaunchHostFunc(stream, count_call, &calls));
	open_gate(&gate);
	OK(cu.cuCtxSynchronize());
	EQUAL(calls, 11);
}

TEST(what_streams_say_about_themselves)
{
	CUstream stream;
	CUcontext context, current;
	CUdevice device = -1;
	unsigned flags;
	int least, greatest, priority;
	start();
	OK(cu.cuCtxGetStreamPriorityRange(&least, &greatest));
	CHECK(greatest <= least);
	OK(cu.cuStreamCreateWithPriority(&stream, V_CU_STREAM_NON_BLOCKING, greatest - 100));
	OK(cu.cuStreamGetPriority(stream, &priority));
	EQUAL(priority, greatest);
	OK(cu.cuStreamGetFlags(stream, &flags));
	EQUAL(flags, V_CU_STREAM_NON_BLOCKING);
	OK(cu.cuStreamGetFlags(NULL, &flags));
	EQUAL(flags, 0);
	OK(cu.cuStreamGetCtx(stream, &context));
	OK(cu.cuCtxGetCurrent(&current));
	CHECK(context == current);
	OK(cu.cuStreamGetDevice(stream, &device));
	EQUAL(device, 0);
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuStreamCreate(&stream, 2));
	RETURNS(V_CUDA_ERROR_INVALID_HANDLE, cu.cuStreamQuery((CUstream)(uintptr_t)0x12345670));
}

TEST(delays_hold_up_the_stream_and_not_the_caller)
{
	CUdeviceptr a;
	struct timespec from, to;
	start();
	CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING);
	OK(cu.cuMemAlloc_v2(&a, 64));
	soft.set("delay_us", 20000);
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int i = 0; i < 5; i++)
		OK(cu.cuMemsetD8Async(a, 1, 64, stream));
	RETURNS(V_CUDA_ERROR_NOT_READY, cu.cuStreamQuery(stream));
	OK(cu.cuStreamSynchronize(stream));
	clock_gettime(CLOCK_MONOTONIC, &to);
	CHECK((to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6 >= 100); /* sleeps never end early */
	soft.set("delay_us", 0);
}

/* ---- threads ---- */

enum { THREADS = 8, ROUNDS = 300 };

static void *storm(void *argument)
{
	CUcontext context;
	unsigned char number = (unsigned char)(uintptr_t)argument;
	OK(cu.cuDevicePrimaryCtxRetain(&context, 0));
	OK(cu.cuCtxPushCurrent_v2(context));
	CUstream stream = new_stream(number % 2 ? V_CU_STREAM_NON_BLOCKING : 0);
	unsigned char *pinned, *pageable = malloc(65536);
	OK(cu.cuMemHostAlloc((void **)&pinned, 65536, 0));
	for (int round = 0; round < ROUNDS; round++) {
		CUdeviceptr a, b;
		size_t bytes = 1 + (size_t)(round * 977 + number * 131) % 65536;
		OK(cu.cuMemAllocAsync(&a, bytes, stream));
		OK(cu.cuMemAlloc_v2(&b, bytes));
		memset(pinned, number + round, bytes);
		OK(cu.cuMemcpyHtoDAsync_v2(a, pinned, bytes, stream));
		OK(cu.cuMemcpyDtoDAsync_v2(b, a, bytes, stream));
		OK(cu.cuMemcpyDtoHAsync_v2(pageable, b, bytes, stream));
		OK(cu.cuMemFreeAsync(a, stream));
		OK(cu.cuStreamSynchronize(stream));
		for (size_t i = 0; i < bytes; i += 1 + i / 8)
			EQUAL(pageable[i], (unsigned char)(number + round));
		OK(cu.cuMemFree_v2(b));
		if (round % 50 == 0)
			OK(cu.cuCtxSynchronize());
		if (round % 70 == 0) {
			CUevent event;
			OK(cu.cuEventCreate(&event, 0));
			OK(cu.cuEventRecord(event, stream));
			OK(cu.cuStreamWaitEvent(NULL, event, 0));
			OK(cu.cuEventDestroy_v2(event));
			OK(cu.cuStreamDestroy_v2(stream));
			stream = new_stream(number % 2 ? V_CU_STREAM_NON_BLOCKING : 0);
		}
	}
	OK(cu.cuStreamDestroy_v2(stream));
	OK(cu.cuMemFreeHost(pinned));
	free(pageable);
	OK(cu.cuCtxPopCurrent_v2(NULL));
	OK(cu.cuDevicePrimaryCtxRelease_v2(0));
	return NULL;
}

TEST(threads)
{
	pthread_t threads[THREADS];
	start();
	for (int mode = 0; mode < 4; mode++) {
		soft.set("quarantine", mode & 1);
		soft.set("pageable", mode >> 1);
		soft.set("jitter_us", mode == 3 ? 30 : 0);
		for (uintptr_t i = 0; i < THREADS; i++)
			CHECK(!pthread_create(&threads[i], NULL, storm, (void *)i));
		for (int i = 0; i < THREADS; i++)
			CHECK(!pthread_join(threads[i], NULL));
		OK(cu.cuCtxSynchronize());
		EQUAL(soft.get("live"), 0);
		EQUAL(soft.get("sticky"), 0);
		EQUAL(soft.get("reserved"), 0);
	}
}
