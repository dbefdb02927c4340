/* What happens at every function's door: counting, injected faults, the start that needs no call, the poisoned or forked process, the last error. */
#include <dlfcn.h>
#include <sys/wait.h>

#include "client.h"

static const char *const functions[] = {
#define F(symbol, since, result, parameters) #symbol,
#include "../../hip/functions.def"
#undef F
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

static int is_one_of(const char *name, const char *const *names, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (!strcmp(name, names[i]))
			return 1;
	return 0;
}
#define ONE_OF(name, ...) \
	is_one_of(name, (const char *const[]){ __VA_ARGS__ }, sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *))

static int returns_text(const char *name) { return ONE_OF(name, "hipGetErrorName", "hipGetErrorString"); }
static int asks_for_version(const char *name) { return ONE_OF(name, "hipDriverGetVersion", "hipRuntimeGetVersion"); }

/* Calls a function with so many arguments that are all zero, as many as any function has. */
static int call(const char *name)
{
	typedef hipError_t (*any)(long, long, long, long, long, long);
	any function;
	*(void **)&function = dlsym(library, name);
	CHECK(function);
	return (int)function(0, 0, 0, 0, 0, 0);
}

TEST(any_function_with_a_code_can_be_made_to_fail)
{
	load();
	OK(hip.hipInit(0));
	for (int i = 0; i < FUNCTIONS; i++) {
		const char *name = functions[i];
		unsigned long before = soft.calls(name), all = soft.calls("*");
		if (returns_text(name))
			continue;
		EQUAL(soft.fail(name, 1, 4242), 0);
		RETURNS(4242, call(name));
		EQUAL(soft.calls(name), before + 1);
		EQUAL(soft.calls("*"), all + 1);
	}
	EQUAL(soft.get("live"), 0);
	EQUAL(soft.fail("hipGetDeviceProperties", 1, 2), -1); /* not exported */
	/* a text is given whatever was asked for, and does not use up the fault of another call */
	soft.fail("*", 1, V_hipErrorUnknown);
	CHECK(!strcmp(hip.hipGetErrorName((hipError_t)V_hipErrorOutOfMemory), "hipErrorOutOfMemory"));
	RETURNS(V_hipErrorUnknown, hip.hipDeviceSynchronize());
}

/* NULL and zero everywhere: an error, or a success that HIP documents, and never a crash. */
TEST(every_function_answers_null_arguments)
{
	load();
	for (int i = 0; i < FUNCTIONS; i++) {
		const char *name = functions[i];
		if (returns_text(name))
			continue;
		int fine = ONE_OF(name, "hipInit", "hipSetDevice", "hipGetLastError", "hipPeekAtLastError", "hipDeviceSynchronize", "hipDeviceReset",
		                  "hipDeviceGetStreamPriorityRange", "hipMemGetInfo",                        /* nothing is asked for */
		                  "hipStreamSynchronize", "hipStreamQuery",                                  /* the null stream */
		                  "hipFree", "hipHostFree",                                                  /* of nothing */
		                  "hipMemcpy", "hipMemcpyAsync", "hipMemcpyWithStream", "hipMemset", "hipMemsetAsync", "hipMemsetD8", "hipMemsetD16",
		                  "hipMemsetD32", "hipMemsetD8Async", "hipMemsetD16Async", "hipMemsetD32Async"); /* no bytes */
		(void)hip.hipGetLastError();
		int code = call(name);
		if ((code == 0) != fine)
			failed(__FILE__, __LINE__, "%s returned %d", name, code);
		if (!fine && code != V_hipErrorInvalidValue && code != V_hipErrorInvalidHandle && code != V_hipErrorNotFound &&
		    code != V_hipErrorStreamCaptureUnsupported) /* of the null stream */
			failed(__FILE__, __LINE__, "%s returned %d", name, code);
		EQUAL(hip.hipPeekAtLastError(), code);
	}
	EQUAL(soft.get("live"), 0);
	EQUAL(soft.get("sticky"), 0);
}

TEST(handles_that_are_none)
{
	long long stone[16] = { 0 };
	hipStream_t stream = (hipStream_t)stone;
	hipEvent_t event = (hipEvent_t)stone, real;
	hipMemPool_t pool = (hipMemPool_t)stone;
	hipStreamCaptureStatus status;
	hipGraph_t graph;
	unsigned flags;
	int number;
	uint64_t value = 0;
	float ms;
	void *block = NULL;
	load();
	OK(hip.hipEventCreate(&real));
	RETURNS(V_hipErrorInvalidHandle, hip.hipStreamDestroy(stream));
	RETURNS(V_hipErrorInvalidHandle, hip.hipStreamSynchronize(stream));
	RETURNS(V_hipErrorInvalidHandle, hip.hipStreamQuery(stream));
	RETURNS(V_hipErrorInvalidHandle, hip.hipStreamWaitEvent(stream, real, 0));
	RETURNS(V_hipErrorInvalidHandle, hip.hipStreamWaitEvent(NULL, event, 0));
	RETURNS(V_hipErrorInvalidHandle, hip.hipStreamGetFlags(stream, &flags));
	RETURNS(V_hipErrorInvalidHandle, hip.hipStreamGetPriority(stream, &number));
	RETURNS(V_hipErrorInvalidHandle, hip.hipStreamGetDevice(stream, &number));
	RETURNS(V_hipErrorInvalidHandle, hip.hipStreamIsCapturing(stream, &status));
	RETURNS(V_hipErrorInvalidHandle, hip.hipStreamBeginCapture(stream, (hipStreamCaptureMode)0));
	RETURNS(V_hipErrorInvalidHandle, hip.hipStreamEndCapture(stream, &graph));
	RETURNS(V_hipErrorIllegalState, hip.hipGraphDestroy((hipGraph_t)stone));
	RETURNS(V_hipErrorInvalidHandle, hip.hipLaunchHostFunc(stream, stand_at_gate, NULL));
	RETURNS(V_hipErrorInvalidHandle, hip.hipEventRecord(event, NULL));
	RETURNS(V_hipErrorInvalidHandle, hip.hipEventRecord(real, stream));
	RETURNS(V_hipErrorInvalidHandle, hip.hipEventQuery(event));
	RETURNS(V_hipErrorInvalidHandle, hip.hipEventSynchronize(event));
	RETURNS(V_hipErrorInvalidHandle, hip.hipEventElapsedTime(&ms, event, real));
	RETURNS(V_hipErrorInvalidHandle, hip.hipEventDestroy(event));
	RETURNS(V_hipErrorInvalidHandle, hip.hipMallocAsync(&block, 8, stream));
	RETURNS(V_hipErrorInvalidHandle, hip.hipMallocFromPoolAsync(&block, 8, pool, NULL));
	RETURNS(V_hipErrorInvalidHandle, hip.hipMemPoolDestroy(pool));
	RETURNS(V_hipErrorInvalidHandle, hip.hipMemPoolTrimTo(pool, 0));
	RETURNS(V_hipErrorInvalidHandle, hip.hipMemPoolGetAttribute(pool, (hipMemPoolAttr)V_hipMemPoolAttrUsedMemCurrent, &value));
	RETURNS(V_hipErrorInvalidHandle, hip.hipMemPoolSetAttribute(pool, (hipMemPoolAttr)V_hipMemPoolAttrReleaseThreshold, &value));
	RETURNS(V_hipErrorInvalidValue, hip.hipDeviceSetMemPool(0, pool));
	RETURNS(V_hipErrorInvalidHandle, hip.hipMemcpyAsync(stone, stone + 8, 8, (hipMemcpyKind)V_hipMemcpyDefault, stream));
	RETURNS(V_hipErrorInvalidHandle, hip.hipMemsetAsync(new_block(8), 1, 8, stream));
	RETURNS(V_hipErrorInvalidValue, hip.hipFreeAsync(stone, NULL));
	RETURNS(V_hipErrorInvalidValue, hip.hipFree(stone));
	RETURNS(V_hipErrorInvalidValue, hip.hipHostFree(stone));
	RETURNS(V_hipErrorHostMemoryNotRegistered, hip.hipHostUnregister(stone));
	/* what was destroyed is no handle any more */
	OK(hip.hipEventDestroy(real));
	RETURNS(V_hipErrorInvalidHandle, hip.hipEventRecord(real, NULL));
	RETURNS(V_hipErrorInvalidHandle, hip.hipStreamDestroy(NULL));
	EQUAL(soft.get("live"), 1);
}

/* ---- the start ---- */

TEST(the_first_call_starts_the_runtime)
{
	for (int i = 0; i < FUNCTIONS; i++) {
		if (returns_text(functions[i]) || asks_for_version(functions[i]))
			continue;
		int status;
		pid_t child = fork(); /* a process of its own: it starts once */
		if (!child) {
			load_devices(3);
			(void)call(functions[i]);
			EQUAL(soft.set("devices", 5), 0); /* too late */
			int count;
			OK(hip.hipGetDeviceCount(&count));
			if (count != 3)
				failed(__FILE__, __LINE__, "%s did not start the runtime", functions[i]);
			_exit(0);
		}
		CHECK(child > 0 && waitpid(child, &status, 0) == child);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
}

TEST(without_a_device)
{
	int count = 7, version;
	load_devices(0);
	RETURNS(V_hipErrorInvalidDevice, hip.hipInit(0));
	RETURNS(V_hipErrorNoDevice, hip.hipGetDeviceCount(&count));
	EQUAL(count, 0);
	EQUAL(soft.get("driver_version"), 60241134);
	OK(hip.hipRuntimeGetVersion(&version));
	EQUAL(version, 60241134);
	OK(hip.hipDriverGetVersion(&version));
	EQUAL(version, 60241134);
	for (int i = 0; i < FUNCTIONS; i++)
		if (!returns_text(functions[i]) && !asks_for_version(functions[i]) && strcmp(functions[i], "hipGetDeviceCount"))
			EQUAL(call(functions[i]), V_hipErrorInvalidDevice);
	CHECK(!strcmp(hip.hipGetErrorString((hipError_t)V_hipErrorNoDevice), "no ROCm-capable device is detected"));
}

static void everything_is_refused(void)
{
	for (int i = 0; i < FUNCTIONS; i++)
		if (!returns_text(functions[i]) && !asks_for_version(functions[i]))
			EQUAL(call(functions[i]), V_hipErrorNotInitialized);
	EQUAL(soft.get("live"), 1); /* figures can still be read */
}

static void start_anew(void)
{
	int count;
	OK(hip.hipGetDeviceCount(&count));
	OK(hip.hipMemset(new_block(8), 1, 8));
	OK(hip.hipDeviceSynchronize());
}

static void in_child(void (*run)(void))
{
	int status;
	pid_t child = fork();
	if (!child) {
		alarm(60);
		run();
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(a_forked_child)
{
	load();
	in_child(start_anew); /* forked before the start: it can */
	void *block = new_block(8);
	in_child(everything_is_refused);
	OK(hip.hipFree(block)); /* the parent goes on */
}

/* ---- errors that stay ---- */

TEST(a_poisoned_process_answers_nothing_else)
{
	static const int codes[] = { V_hipErrorIllegalAddress, V_hipErrorLaunchFailure };
	load();
	for (unsigned c = 0; c < 2; c++) {
		soft.fail("hipDeviceSynchronize", 1, codes[c]);
		RETURNS(codes[c], hip.hipDeviceSynchronize());
		EQUAL(soft.get("sticky"), codes[c]);
		for (int i = 0; i < FUNCTIONS; i++)
			if (!returns_text(functions[i]) && !asks_for_version(functions[i]) && strcmp(functions[i], "hipGetDeviceCount"))
				EQUAL(call(functions[i]), codes[c]);
		int count;
		RETURNS(codes[c], hip.hipGetDeviceCount(&count));
		soft.reset();
		OK(hip.hipDeviceSynchronize());
	}
	/* one that does not stay */
	soft.fail("hipDeviceSynchronize", 1, V_hipErrorUnknown);
	RETURNS(V_hipErrorUnknown, hip.hipDeviceSynchronize());
	OK(hip.hipDeviceSynchronize());
}

/* ---- the last error ---- */

static void *with_a_clean_slate(void *unused)
{
	EQUAL(hip.hipPeekAtLastError(), 0); /* the other thread's is not ours */
	RETURNS(V_hipErrorInvalidDevice, hip.hipSetDevice(77));
	return unused;
}

TEST(the_last_error_is_the_threads_own)
{
	pthread_t thread;
	load();
	RETURNS(V_hipErrorInvalidValue, hip.hipGetDevice(NULL));
	CHECK(!pthread_create(&thread, NULL, with_a_clean_slate, NULL));
	CHECK(!pthread_join(thread, NULL));
	EQUAL(hip.hipPeekAtLastError(), V_hipErrorInvalidValue);
	EQUAL(hip.hipPeekAtLastError(), V_hipErrorInvalidValue); /* looking changes nothing */
	EQUAL(hip.hipGetLastError(), V_hipErrorInvalidValue);    /* taking it does */
	EQUAL(hip.hipGetLastError(), 0);
	/* an injected fault counts as well */
	soft.fail("hipDeviceSynchronize", 1, V_hipErrorUnknown);
	RETURNS(V_hipErrorUnknown, hip.hipDeviceSynchronize());
	EQUAL(hip.hipGetLastError(), V_hipErrorUnknown);
}

TEST(a_success_clears_the_last_error_before_hip_7_only)
{
	struct gate gate;
	int device;
	load();
	hipStream_t stream = new_stream();
	close_gate(&gate, stream);
	for (int seven = 0; seven < 2; seven++) {
		soft.set("driver_version", seven ? 70125424 : 60241134);
		RETURNS(V_hipErrorInvalidValue, hip.hipGetDevice(NULL));
		OK(hip.hipGetDevice(&device));
		EQUAL(hip.hipPeekAtLastError(), seven ? V_hipErrorInvalidValue : 0);
		RETURNS(V_hipErrorNotReady, hip.hipStreamQuery(stream));
		EQUAL(hip.hipGetLastError(), seven ? V_hipErrorInvalidValue : V_hipErrorNotReady);
		EQUAL(hip.hipGetLastError(), 0);
	}
	open_gate(&gate);
	OK(hip.hipStreamSynchronize(stream));
}

/* ---- names ---- */

TEST(names_and_texts)
{
	load();
	CHECK(!strcmp(hip.hipGetErrorName((hipError_t)0), "hipSuccess"));
	CHECK(!strcmp(hip.hipGetErrorString((hipError_t)0), "no error"));
	CHECK(!strcmp(hip.hipGetErrorName((hipError_t)V_hipErrorNotSupported), "hipErrorNotSupported"));
	CHECK(!strcmp(hip.hipGetErrorString((hipError_t)V_hipErrorOutOfMemory), "out of memory"));
	CHECK(!strcmp(hip.hipGetErrorName((hipError_t)123456), "hipErrorUnknown"));
	CHECK(!strcmp(hip.hipGetErrorString((hipError_t)-1), "unknown error"));
	EQUAL(soft.calls("hipGetErrorName"), 3);
	EQUAL(soft.calls("hipGetErrorString"), 3);
}

TEST(names_whose_meaning_changed_are_not_exported)
{
	static const char *const others[] = { "hipGetDeviceProperties", "hipGetDevicePropertiesR0600", "hipChooseDevice", "hipChooseDeviceR0600", "hipMemcpyHtoD",
		                              "hipMemcpyHtoDAsync", "hipMemcpyAsync_spt", "hipMallocManaged", "cuMemAlloc_v2", "soft_lock", "soft_allocate" };
	load();
	for (unsigned i = 0; i < sizeof others / sizeof *others; i++)
		if (dlsym(library, others[i]))
			failed(__FILE__, __LINE__, "%s is exported", others[i]);
}
