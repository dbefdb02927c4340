/* Streams, events; and a tour of all functions. */
#include "client.h"

TEST(streams)
{
	hipStream_t plain, non_blocking, urgent;
	unsigned flags;
	int priority;
	load();
	OK(hip.hipStreamCreate(&plain));
	OK(hip.hipStreamCreateWithFlags(&non_blocking, V_hipStreamNonBlocking));
	OK(hip.hipStreamCreateWithPriority(&urgent, V_hipStreamDefault, -7));
	OK(hip.hipStreamGetFlags(plain, &flags));
	EQUAL(flags, V_hipStreamDefault);
	OK(hip.hipStreamGetFlags(non_blocking, &flags));
	EQUAL(flags, V_hipStreamNonBlocking);
	OK(hip.hipStreamGetPriority(urgent, &priority));
	EQUAL(priority, -1); /* cut to the range */
	OK(hip.hipStreamGetPriority(NULL, &priority));
	EQUAL(priority, 0);
	RETURNS(V_hipErrorInvalidValue, hip.hipStreamCreateWithFlags(&plain, 2));
	OK(hip.hipStreamDestroy(urgent));
	RETURNS(V_hipErrorInvalidHandle, hip.hipStreamDestroy(urgent));
	RETURNS(V_hipErrorInvalidHandle, hip.hipStreamQuery(urgent));
}

TEST(the_null_stream_and_its_order)
{
	struct gate gate;
	hipStream_t blocking, legacy = (hipStream_t)1, per_thread = (hipStream_t)2;
	load();
	OK(hip.hipStreamCreate(&blocking));
	hipStream_t free_one = new_stream();
	close_gate(&gate, NULL);
	RETURNS(V_hipErrorNotReady, hip.hipStreamQuery(NULL));
	RETURNS(V_hipErrorNotReady, hip.hipStreamQuery(legacy)); /* its other name */
	RETURNS(V_hipErrorNotReady, hip.hipStreamQuery(per_thread)); /* waits for it */
	void *block = new_block(8);
	OK(hip.hipMemsetAsync(block, 1, 8, blocking));
	RETURNS(V_hipErrorNotReady, hip.hipStreamQuery(blocking)); /* waits for it */
	OK(hip.hipMemsetAsync(block, 1, 8, free_one));
	OK(hip.hipStreamSynchronize(free_one)); /* does not */
	open_gate(&gate);
	OK(hip.hipStreamSynchronize(NULL));
	close_gate(&gate, blocking);
	RETURNS(V_hipErrorNotReady, hip.hipStreamQuery(NULL)); /* and it waits for those */
	open_gate(&gate);
	OK(hip.hipDeviceSynchronize());
	OK(hip.hipStreamQuery(NULL));
}

#define PER_THREAD ((hipStream_t)2)

struct there {
	unsigned char *block;
	struct gate *gate; /* what this thread's stream stands at when it ends; NULL: nothing */
};

/* Another thread, which uses its own default stream while the first one's is busy. */
static void *use_there(void *data)
{
	struct there *there = data;
	OK(hip.hipStreamQuery(PER_THREAD)); /* idle */
	OK(hip.hipMemsetAsync(there->block, 5, 8, PER_THREAD));
	OK(hip.hipStreamSynchronize(PER_THREAD));
	EQUAL(there->block[7], 5);
	if (there->gate) {
		close_gate(there->gate, PER_THREAD);
		OK(hip.hipMemsetAsync(there->block, 6, 8, PER_THREAD));
	}
	return NULL;
}

TEST(each_thread_has_a_default_stream_of_its_own)
{
	struct gate here, elsewhere;
	pthread_t thread;
	unsigned flags = 1;
	load_devices(2);
	hipStream_t free_one = new_stream();
	unsigned char *block = new_block(8);
	struct there there = { block, &elsewhere };
	OK(hip.hipStreamGetFlags(PER_THREAD, &flags));
	EQUAL(flags, V_hipStreamDefault);
	RETURNS(V_hipErrorInvalidHandle, hip.hipStreamDestroy(PER_THREAD));
	close_gate(&here, PER_THREAD);
	RETURNS(V_hipErrorNotReady, hip.hipStreamQuery(PER_THREAD));
	CHECK(!pthread_create(&thread, NULL, use_there, &there));
	CHECK(!pthread_join(thread, NULL));
	OK(hip.hipSetDevice(1));
	OK(hip.hipStreamQuery(PER_THREAD)); /* one for each device, too */
	OK(hip.hipSetDevice(0));
	OK(hip.hipStreamQuery(free_one));
	open_gate(&here);
	OK(hip.hipStreamSynchronize(PER_THREAD));
	EQUAL(block[7], 5);
	RETURNS(V_hipErrorNotReady, hip.hipStreamQuery(NULL)); /* the null stream comes after those of all threads, also of one that has ended */
	open_gate(&elsewhere);
	OK(hip.hipStreamSynchronize(NULL));
	EQUAL(block[7], 6);
	OK(hip.hipDeviceReset()); /* it ends with the device's other streams, and is made anew */
	OK(hip.hipStreamQuery(PER_THREAD));
}

TEST(a_destroyed_stream_runs_what_is_queued)
{
	struct gate gate;
	load();
	hipStream_t stream = new_stream();
	unsigned char *block = new_block(8);
	close_gate(&gate, stream);
	OK(hip.hipMemsetAsync(block, 3, 8, stream));
	OK(hip.hipStreamDestroy(stream));
	open_gate(&gate);
	OK(hip.hipDeviceSynchronize());
	EQUAL(block[7], 3);
}

TEST(events)
{
	struct gate gate;
	hipEvent_t event, untimed, never;
	float ms = -1;
	static const unsigned wrong[] = { 4, 4 | V_hipEventDisableTiming, 8, 0x60000000u, 0xc0000000u };
	static const unsigned right[] = { 0, 1, 2, 3, 0x20000000u, 0x40000000u, 0x80000000u | V_hipEventDisableTiming };
	load();
	hipStream_t one = new_stream(), two = new_stream();
	OK(hip.hipEventCreate(&event));
	OK(hip.hipEventCreateWithFlags(&untimed, V_hipEventDisableTiming));
	OK(hip.hipEventCreate(&never));
	for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
		RETURNS(V_hipErrorInvalidValue, hip.hipEventCreateWithFlags(&event, wrong[i]));
	for (unsigned i = 0; i < sizeof right / sizeof *right; i++) {
		hipEvent_t fine;
		OK(hip.hipEventCreateWithFlags(&fine, right[i]));
		OK(hip.hipEventDestroy(fine));
	}
	OK(hip.hipEventQuery(never)); /* recorded nowhere: true */
	OK(hip.hipEventSynchronize(never));
	RETURNS(V_hipErrorInvalidHandle, hip.hipEventElapsedTime(&ms, event, never));
	unsigned char *block = new_block(8);
	close_gate(&gate, one);
	OK(hip.hipEventRecord(event, one));
	OK(hip.hipEventRecord(untimed, one));
	OK(hip.hipStreamWaitEvent(two, event, 0));
	OK(hip.hipMemsetAsync(block, 1, 8, two));
	RETURNS(V_hipErrorNotReady, hip.hipEventQuery(event));
	RETURNS(V_hipErrorNotReady, hip.hipStreamQuery(two)); /* it waits for the event */
	open_gate(&gate);
	OK(hip.hipEventSynchronize(event));
	OK(hip.hipStreamSynchronize(two));
	OK(hip.hipEventRecord(never, two));
	OK(hip.hipEventSynchronize(never));
	OK(hip.hipEventElapsedTime(&ms, event, never));
	CHECK(ms >= 0);
	RETURNS(V_hipErrorInvalidHandle, hip.hipEventElapsedTime(&ms, event, untimed));
	OK(hip.hipEventDestroy(event));
}

/* ---- everything once ---- */

static void set_flag(void *flag) { *(_Atomic int *)flag = 1; }

/* Each function does its work at least once here, so none is in the table for show. */
TEST(a_tour_of_all_functions)
{
	static const char *const functions[] = {
#define F(symbol, since, result, parameters) #symbol,
#include "../../hip/functions.def"
#undef F
	};
	static char page[4096];
	_Atomic int flag = 0;
	char text[64];
	int number, other;
	unsigned flags;
	size_t bytes, total;
	uint64_t value = 0;
	float ms;
	void *block, *pinned, *alias;
	hipUUID uuid;
	hipStream_t stream, second, third;
	hipEvent_t event, later;
	hipMemPool_t pool, preset;
	hipGraph_t graph;
	hipStreamCaptureStatus status;
	hipStreamCaptureMode mode = (hipStreamCaptureMode)V_hipStreamCaptureModeGlobal;
	hipPointerAttribute_t attributes;
	hipMemAccessFlags access;
	hipMemLocation place = { V_hipMemLocationTypeDevice, 0 };
	hipMemAccessDesc grant = { { V_hipMemLocationTypeDevice, 0 }, V_hipMemAccessFlagsProtReadWrite };
	const hipMemcpyKind any_way = (hipMemcpyKind)V_hipMemcpyDefault;
	load();
	OK(hip.hipInit(0));
	OK(hip.hipDriverGetVersion(&number));
	OK(hip.hipRuntimeGetVersion(&number));
	CHECK(hip.hipGetErrorName((hipError_t)1) && hip.hipGetErrorString((hipError_t)1));
	OK(hip.hipGetLastError());
	OK(hip.hipPeekAtLastError());
	OK(hip.hipGetDeviceCount(&number));
	OK(hip.hipSetDevice(0));
	OK(hip.hipGetDevice(&number));
	OK(hip.hipDeviceGet(&number, 0));
	OK(hip.hipDeviceGetName(text, sizeof text, 0));
	OK(hip.hipDeviceGetUuid(&uuid, 0));
	OK(hip.hipDeviceTotalMem(&total, 0));
	OK(hip.hipDeviceGetAttribute(&number, (hipDeviceAttribute_t)88, 0));
	OK(hip.hipDeviceGetPCIBusId(text, sizeof text, 0));
	OK(hip.hipDeviceCanAccessPeer(&number, 0, 0));
	OK(hip.hipDeviceGetStreamPriorityRange(&number, &other));
	OK(hip.hipStreamCreate(&stream));
	OK(hip.hipStreamCreateWithFlags(&second, 0));
	OK(hip.hipStreamCreateWithPriority(&third, 0, 0));
	OK(hip.hipStreamGetFlags(stream, &flags));
	OK(hip.hipStreamGetPriority(stream, &number));
	OK(hip.hipStreamGetDevice(stream, &number));
	OK(hip.hipEventCreate(&event));
	OK(hip.hipEventCreateWithFlags(&later, 0));
	OK(hip.hipEventRecord(event, stream));
	OK(hip.hipStreamWaitEvent(second, event, 0));
	OK(hip.hipLaunchHostFunc(stream, set_flag, &flag));
	OK(hip.hipEventRecord(later, stream));
	OK(hip.hipEventSynchronize(later));
	EQUAL(flag, 1);
	OK(hip.hipEventQuery(later));
	OK(hip.hipEventElapsedTime(&ms, event, later));
	OK(hip.hipEventDestroy(event));
	OK(hip.hipStreamIsCapturing(stream, &status));
	OK(hip.hipStreamBeginCapture(stream, (hipStreamCaptureMode)V_hipStreamCaptureModeRelaxed));
	OK(hip.hipStreamEndCapture(stream, &graph));
	OK(hip.hipThreadExchangeStreamCaptureMode(&mode));
	OK(hip.hipGraphDestroy(graph));
	OK(hip.hipMalloc(&block, 64));
	OK(hip.hipMemGetInfo(&bytes, &total));
	OK(hip.hipMemGetAddressRange(&alias, &bytes, block));
	OK(hip.hipPointerGetAttributes(&attributes, block));
	OK(hip.hipHostMalloc(&pinned, 64, 0));
	OK(hip.hipHostGetDevicePointer(&alias, pinned, 0));
	OK(hip.hipHostGetFlags(&flags, pinned));
	OK(hip.hipHostRegister(page, sizeof page, 0));
	OK(hip.hipMemcpy(block, page, 64, any_way));
	OK(hip.hipMemcpyAsync(pinned, block, 64, any_way, stream));
	OK(hip.hipMemcpyWithStream(block, pinned, 64, any_way, stream));
	OK(hip.hipMemset(block, 1, 64));
	OK(hip.hipMemsetD8(block, 1, 64));
	OK(hip.hipMemsetD16(block, 1, 32));
	OK(hip.hipMemsetD32(block, 1, 16));
	OK(hip.hipMemsetAsync(block, 1, 64, stream));
	OK(hip.hipMemsetD8Async(block, 1, 64, stream));
	OK(hip.hipMemsetD16Async(block, 1, 32, stream));
	OK(hip.hipMemsetD32Async(block, 1, 16, stream));
	OK(hip.hipStreamSynchronize(stream));
	OK(hip.hipStreamQuery(stream));
	OK(hip.hipFree(block));
	OK(hip.hipHostUnregister(page));
	OK(hip.hipHostFree(pinned));
	OK(hip.hipDeviceGetDefaultMemPool(&preset, 0));
	OK(hip.hipDeviceGetMemPool(&pool, 0));
	OK(hip.hipDeviceSetMemPool(0, preset));
	pool = new_pool(0);
	OK(hip.hipMemPoolSetAttribute(pool, (hipMemPoolAttr)V_hipMemPoolAttrReleaseThreshold, &value));
	OK(hip.hipMemPoolGetAttribute(pool, (hipMemPoolAttr)V_hipMemPoolAttrReleaseThreshold, &value));
	OK(hip.hipMemPoolGetAccess(&access, pool, &place));
	OK(hip.hipMemPoolSetAccess(pool, &grant, 1));
	OK(hip.hipMallocFromPoolAsync(&block, 64, pool, stream));
	OK(hip.hipFreeAsync(block, stream));
	OK(hip.hipMallocAsync(&block, 64, stream));
	OK(hip.hipFreeAsync(block, stream));
	OK(hip.hipDeviceSynchronize());
	OK(hip.hipMemPoolTrimTo(pool, 0));
	OK(hip.hipMemPoolDestroy(pool));
	OK(hip.hipStreamDestroy(stream));
	OK(hip.hipDeviceReset());
	for (unsigned i = 0; i < sizeof functions / sizeof *functions; i++)
		if (!soft.calls(functions[i]))
			failed(__FILE__, __LINE__, "%s is in the table, and not on the tour", functions[i]);
	EQUAL(soft.get("reserved"), 0);
}
