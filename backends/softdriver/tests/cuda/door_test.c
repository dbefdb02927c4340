/* What happens at every function's door: counting, injected faults, the uninitialised, poisoned or forked process; settings; look-ups; contexts. */
#include <dlfcn.h>
#include <limits.h>
#include <sys/wait.h>

#include "client.h"

static const struct {
	const char *name;
	int door; /* 0: any process; 1: the initialising call; 2: an initialised process only */
} functions[] = {
#define F(symbol, base, version, parameters) { #symbol, 2 },
#include "../../cuda/functions.def"
#undef F
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

static int door(const char *name)
{
	static const char *const open[] = { "cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString", "cuGetProcAddress_v2", "cuGetProcAddress", "cuGetExportTable" };
	for (unsigned i = 0; i < sizeof open / sizeof *open; i++)
		if (!strcmp(name, open[i]))
			return 0;
	return strcmp(name, "cuInit") ? 2 : 1;
}

/* Calls a function that must refuse at its door, before it looks at its arguments. All zero, as many as any function has. */
static int call(const char *name)
{
	typedef CUresult (*any)(long, long, long, long, long, long);
	any function;
	*(void **)&function = dlsym(library, name);
	CHECK(function);
	return (int)function(0, 0, 0, 0, 0, 0);
}

TEST(any_function_can_be_made_to_fail)
{
	start();
	for (int i = 0; i < FUNCTIONS; i++) {
		const char *name = functions[i].name;
		unsigned long before = soft.calls(name), all = soft.calls("*"), live = (unsigned long)soft.get("live");
		EQUAL(soft.fail(name, 1, 4242), 0);
		RETURNS(4242, call(name));
		EQUAL(soft.calls(name), before + 1);
		EQUAL(soft.calls("*"), all + 1);
		EQUAL(soft.get("live"), live);
	}
	EQUAL(soft.fail("cuMemAlloc", 1, 2), -1); /* not exported */
	EQUAL(soft.calls("cuMemAlloc"), 0);
}

TEST(the_nth_next_call_fails_and_only_that)
{
	CUdeviceptr a;
	int version, count;
	start();
	EQUAL(soft.fail("cuMemAlloc_v2", 3, V_CUDA_ERROR_OUT_OF_MEMORY), 0);
	OK(cu.cuMemAlloc_v2(&a, 8));
	OK(cu.cuDeviceGetCount(&count));
	OK(cu.cuMemAlloc_v2(&a, 8));
	a = 77;
	RETURNS(V_CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAlloc_v2(&a, 8));
	EQUAL(a, 77);
	OK(cu.cuMemAlloc_v2(&a, 8));
	EQUAL(soft.get("live"), 3);
	/* any function */
	EQUAL(soft.fail("*", 2, V_CUDA_ERROR_UNKNOWN), 0);
	OK(cu.cuDriverGetVersion(&version));
	RETURNS(V_CUDA_ERROR_UNKNOWN, cu.cuDeviceGetCount(&count));
	OK(cu.cuDeviceGetCount(&count));
	/* cleared */
	soft.fail("cuDeviceGetCount", 1, 5);
	soft.fail("cuDeviceGetCount", 0, 5);
	soft.fail("*", 1, 5);
	soft.fail("*", 0, 0);
	OK(cu.cuDeviceGetCount(&count));
	soft.fail("cuDeviceGetCount", 1, 5);
	soft.reset();
	OK(cu.cuDeviceGetCount(&count));
	EQUAL(soft.calls("cuDeviceGetCount"), 1);
	/* a device that is lost stays lost */
	soft.fail("cuCtxSynchronize", 1, V_CUDA_ERROR_LAUNCH_FAILED);
	RETURNS(V_CUDA_ERROR_LAUNCH_FAILED, cu.cuCtxSynchronize());
	EQUAL(soft.get("sticky"), V_CUDA_ERROR_LAUNCH_FAILED);
	RETURNS(V_CUDA_ERROR_LAUNCH_FAILED, cu.cuMemAlloc_v2(&a, 8));
	soft.reset();
	OK(cu.cuMemAlloc_v2(&a, 8));
}

TEST(a_poisoned_process_answers_nothing_else)
{
	start();
	soft.fail("cuCtxSynchronize", 1, V_CUDA_ERROR_ILLEGAL_ADDRESS);
	RETURNS(V_CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuCtxSynchronize());
	for (int i = 0; i < FUNCTIONS; i++)
		if (door(functions[i].name) == 2)
			EQUAL(call(functions[i].name), V_CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(nothing_works_before_initialisation)
{
	int version;
	load();
	for (int i = 0; i < FUNCTIONS; i++)
		if (door(functions[i].name) == 2)
			EQUAL(call(functions[i].name), V_CUDA_ERROR_NOT_INITIALIZED);
	OK(cu.cuDriverGetVersion(&version));
	EQUAL(version, soft.get("driver_version"));
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuInit(1));
	OK(cu.cuInit(0));
	OK(cu.cuInit(0));
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

static void everything_is_refused(void)
{
	for (int i = 0; i < FUNCTIONS; i++)
		if (door(functions[i].name) > 0)
			EQUAL(call(functions[i].name), V_CUDA_ERROR_NOT_INITIALIZED);
	const char *name;
	OK(cu.cuGetErrorName((CUresult)V_CUDA_ERROR_NOT_INITIALIZED, &name));
	EQUAL(soft.get("live"), 1); /* figures can still be read */
}

struct busy {
	_Atomic int stop;
	CUdeviceptr address;
};

static void *keep_busy(void *argument)
{
	struct busy *busy = argument;
	CUcontext context;
	CUdeviceptr a;
	OK(cu.cuDevicePrimaryCtxRetain(&context, 0));
	OK(cu.cuCtxSetCurrent(context));
	while (!busy->stop) {
		OK(cu.cuMemGetAddressRange_v2(&a, NULL, busy->address));
		OK(cu.cuMemsetD8_v2(a, 1, 64));
	}
	return NULL;
}

TEST(a_forked_child_is_refused_and_never_hangs)
{
	struct busy busy = { 0, 0 };
	pthread_t thread;
	start();
	OK(cu.cuMemAlloc_v2(&busy.address, 64));
	CHECK(!pthread_create(&thread, NULL, keep_busy, &busy));
	for (int i = 0; i < 20; i++)
		in_child(everything_is_refused);
	busy.stop = 1;
	CHECK(!pthread_join(thread, NULL));
	OK(cu.cuCtxSynchronize()); /* the parent goes on */
	OK(cu.cuMemFree_v2(busy.address));
}

static void start_anew(void)
{
	CUdeviceptr a;
	start();
	OK(cu.cuMemAlloc_v2(&a, 8));
	OK(cu.cuMemsetD8_v2(a, 1, 8));
	OK(cu.cuCtxSynchronize());
}

TEST(a_child_forked_before_initialisation_can_start)
{
	load();
	in_child(start_anew);
	start_anew();
}

/* ---- settings ---- */

TEST(settings_of_the_environment)
{
	setenv("TMSOFT_CAPACITY", "1048576", 1);
	setenv("TMSOFT_CAPACITY_1", "0x200000", 1);
	setenv("TMSOFT_DEVICES", "3", 1);
	setenv("TMSOFT_QUARANTINE", "0", 1);
	setenv("TMSOFT_PAGEABLE", "perhaps", 1); /* a complaint on stderr, and the default */
	setenv("TMSOFT_POOLS", "7", 1);
	load();
	EQUAL(soft.get("capacity"), 1048576);
	EQUAL(soft.get("capacity.0"), 1048576);
	EQUAL(soft.get("capacity.1"), 0x200000);
	EQUAL(soft.get("devices"), 3);
	EQUAL(soft.get("quarantine"), 0);
	EQUAL(soft.get("pageable"), 0);
	EQUAL(soft.get("pools"), 1);
	EQUAL(soft.set("quarantine", 1), 0);
	EQUAL(soft.set("capacity.1", 5), 0);
	soft.reset();
	EQUAL(soft.get("quarantine"), 0);
	EQUAL(soft.get("capacity.1"), 0x200000);
}

TEST(settings_that_do_not_exist)
{
	load();
	EQUAL(soft.set("colour", 1), -1);
	EQUAL(soft.get("colour"), LLONG_MIN);
	EQUAL(soft.set("capacity.16", 1), -1);
	EQUAL(soft.set("capacity.x", 1), -1);
	EQUAL(soft.set("delay_us.0", 1), -1);
	EQUAL(soft.set("in_use", 1), -1); /* only to be read */
	EQUAL(soft.set("sticky", 700), -1);
	EQUAL(soft.set("pools", 2), -2);
	EQUAL(soft.set("delay_us", -1), -2);
	EQUAL(soft.set("capacity", -1), -2);
	EQUAL(soft.get("live.5"), 0);
}

/* ---- contexts ---- */

static void *without_context(void *unused)
{
	CUcontext context = (CUcontext)1;
	CUdeviceptr a;
	OK(cu.cuCtxGetCurrent(&context));
	CHECK(!context); /* the other thread's is not ours */
	RETURNS(V_CUDA_ERROR_INVALID_CONTEXT, cu.cuMemAlloc_v2(&a, 8));
	RETURNS(V_CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxSynchronize());
	RETURNS(V_CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxPopCurrent_v2(&context));
	return unused;
}

TEST(contexts_are_a_stack_of_each_thread)
{
	CUcontext one, two, got;
	CUdevice device;
	pthread_t thread;
	load();
	soft.set("devices", 2);
	OK(cu.cuInit(0));
	OK(cu.cuDevicePrimaryCtxRetain(&one, 0));
	OK(cu.cuDevicePrimaryCtxRetain(&two, 1));
	OK(cu.cuCtxPushCurrent_v2(one));
	OK(cu.cuCtxPushCurrent_v2(two));
	OK(cu.cuCtxGetDevice(&device));
	EQUAL(device, 1);
	OK(cu.cuCtxSetCurrent(one)); /* replaces the top */
	OK(cu.cuCtxGetDevice(&device));
	EQUAL(device, 0);
	CHECK(!pthread_create(&thread, NULL, without_context, NULL));
	CHECK(!pthread_join(thread, NULL));
	OK(cu.cuCtxPopCurrent_v2(&got));
	CHECK(got == one);
	OK(cu.cuCtxPopCurrent_v2(&got));
	CHECK(got == one);
	RETURNS(V_CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxPopCurrent_v2(&got));
	RETURNS(V_CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxSetCurrent((CUcontext)(uintptr_t)0x1230));
	OK(cu.cuCtxSetCurrent(two));
	OK(cu.cuCtxSetCurrent(NULL));
	OK(cu.cuCtxGetCurrent(&got));
	CHECK(!got);
}

TEST(the_last_release_ends_the_context_and_all_that_is_in_it)
{
	for (int quarantine = 0; quarantine < 2; quarantine++) {
		CUcontext context;
		CUdeviceptr a, b, c;
		CUevent event;
		CUmemoryPool pool;
		CUmemPoolProps props;
		struct gate gate;
		unsigned flags;
		int active;
		if (!library)
			load();
		soft.set("quarantine", quarantine);
		start();
		OK(cu.cuDevicePrimaryCtxRetain(&context, 0));
		CUstream stream = new_stream(0);
		memset(&props, 0, sizeof props);
		props.allocType = props.location.type = 1;
		OK(cu.cuMemPoolCreate(&pool, &props));
		OK(cu.cuEventCreate(&event, 0));
		OK(cu.cuMemAlloc_v2(&a, 100));
		OK(cu.cuMemAllocAsync(&b, MIB, stream));
		OK(cu.cuMemAllocFromPoolAsync(&c, 3 * MIB, pool, stream));
		OK(cu.cuMemFreeAsync(b, stream));
		close_gate(&gate, stream);
		wait_entered(&gate);
		OK(cu.cuEventRecord(event, stream));
		OK(cu.cuDevicePrimaryCtxRelease_v2(0));
		EQUAL(soft.get("live"), 2);
		open_gate(&gate);
		OK(cu.cuDevicePrimaryCtxRelease_v2(0));
		EQUAL(soft.get("live"), 0);
		EQUAL(soft.get("reserved"), 0);
		OK(cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
		EQUAL(active, 0);
		RETURNS(V_CUDA_ERROR_INVALID_CONTEXT, cu.cuDevicePrimaryCtxRelease_v2(0));
		RETURNS(V_CUDA_ERROR_CONTEXT_IS_DESTROYED, cu.cuMemAlloc_v2(&a, 8));
		RETURNS(V_CUDA_ERROR_INVALID_HANDLE, cu.cuStreamSynchronize(stream));
		RETURNS(V_CUDA_ERROR_INVALID_HANDLE, cu.cuEventQuery(event));
		RETURNS(V_CUDA_ERROR_INVALID_HANDLE, cu.cuMemPoolTrimTo(pool, 0));
		start();
		OK(cu.cuMemAlloc_v2(&a, 100));
		/* a reset empties it and releases nothing */
		OK(cu.cuDevicePrimaryCtxReset_v2(0));
		EQUAL(soft.get("live"), 0);
		OK(cu.cuMemAlloc_v2(&a, 100));
		OK(cu.cuMemFree_v2(a));
		OK(cu.cuDevicePrimaryCtxRelease_v2(0));
		RETURNS(V_CUDA_ERROR_INVALID_CONTEXT, cu.cuDevicePrimaryCtxRelease_v2(0));
	}
}

/* ---- look-ups ---- */

TEST(look_ups_by_name_and_version)
{
	void *function, *direct;
	CUdriverProcAddressQueryResult status;
	start();
	soft.set("driver_version", 13000);
	for (int i = 0; i < FUNCTIONS; i++) {
		static const struct {
			const char *symbol, *base;
			int version;
		} rows[] = {
#define F(symbol, base, version, parameters) { #symbol, #base, version },
#include "../../cuda/functions.def"
#undef F
		};
		direct = dlsym(library, rows[i].symbol);
		OK(cu.cuGetProcAddress_v2(rows[i].base, &function, rows[i].version, 0, &status));
		CHECK(function == direct);
		EQUAL(status, V_CU_GET_PROC_ADDRESS_SUCCESS);
	}
	/* an ABI that is newer than ours by its arguments: none, never a neighbour */
	OK(cu.cuGetProcAddress_v2("cuCtxGetDevice", &function, 12090, 0, &status));
	CHECK(function == (void *)cu.cuCtxGetDevice);
	OK(cu.cuGetProcAddress_v2("cuCtxGetDevice", &function, 13000, 0, &status));
	CHECK(!function);
	EQUAL(status, V_CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	/* an ABI that is older than ours by its arguments */
	OK(cu.cuGetProcAddress_v2("cuMemAlloc", &function, 3010, 0, &status));
	CHECK(!function);
	OK(cu.cuGetProcAddress_v2("cuDeviceGetUuid", &function, 9020, 0, &status));
	CHECK(function == (void *)cu.cuDeviceGetUuid);
	OK(cu.cuGetProcAddress_v2("cuDeviceGetUuid", &function, 11040, 0, &status));
	CHECK(function == (void *)cu.cuDeviceGetUuid_v2);
	/* older numbers of the same ABI */
	OK(cu.cuGetProcAddress("cuEventElapsedTime", &function, 11030, 0));
	CHECK(function == (void *)cu.cuEventElapsedTime_v2);
	/* unknown */
	OK(cu.cuGetProcAddress_v2("cuNothing", &function, 13000, 0, &status));
	EQUAL(status, V_CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	RETURNS(V_CUDA_ERROR_NOT_FOUND, cu.cuGetProcAddress_v2("cuNothing", &function, 13000, 0, NULL));
	/* a version of the future */
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuGetProcAddress_v2("cuInit", &function, 13001, 0, &status));
	soft.set("driver_version", 12000);
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuGetProcAddress_v2("cuInit", &function, 12010, 0, &status));
	/* per-thread default streams are asked for by a flag */
	OK(cu.cuGetProcAddress_v2("cuMemcpyAsync", &function, 12000, 2, &status));
	CHECK(function == (void *)cu.cuMemcpyAsync);
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuGetProcAddress_v2("cuInit", &function, 12000, 3, &status));
}

TEST(old_names_are_not_exported)
{
	static const char *const old[] = { "cuMemAlloc", "cuMemFree", "cuMemGetInfo", "cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemcpyDtoD", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync",
		                           "cuMemcpyDtoDAsync", "cuMemsetD8", "cuMemsetD16", "cuMemsetD32", "cuCtxPushCurrent", "cuCtxPopCurrent", "cuStreamDestroy",
		                           "cuEventDestroy", "cuDeviceTotalMem", "cuMemAllocHost", "cuMemHostRegister", "cuMemHostGetDevicePointer", "cuMemGetAddressRange",
		                           "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxSetFlags", "cuStreamBeginCapture",
		                           "cuEventElapsedTime", "cuMemAllocAsync_ptsz", "cuMemcpy_ptds", "soft_lock", "soft_allocate" };
	load();
	for (unsigned i = 0; i < sizeof old / sizeof *old; i++)
		if (dlsym(library, old[i]))
			failed(__FILE__, __LINE__, "%s is exported", old[i]);
}

TEST(names_and_texts)
{
	const char *text;
	char name[8];
	CUuuid uuid, second;
	load();
	soft.set("devices", 2);
	start();
	OK(cu.cuGetErrorName((CUresult)2, &text));
	CHECK(!strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY"));
	OK(cu.cuGetErrorString((CUresult)0, &text));
	CHECK(!strcmp(text, "no error"));
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuGetErrorName((CUresult)123456, &text));
	CHECK(!text);
	OK(cu.cuDeviceGetName(name, sizeof name, 0));
	EQUAL(strlen(name), 7); /* cut, and ended */
	OK(cu.cuDeviceGetUuid_v2(&uuid, 0));
	OK(cu.cuDeviceGetUuid_v2(&second, 1));
	CHECK(memcmp(&uuid, &second, sizeof uuid));
	OK(cu.cuDeviceGetUuid(&uuid, 1));
	CHECK(!memcmp(&uuid, &second, sizeof uuid));
	RETURNS(V_CUDA_ERROR_INVALID_DEVICE, cu.cuDeviceGetUuid_v2(&uuid, 2));
	RETURNS(V_CUDA_ERROR_INVALID_DEVICE, cu.cuDeviceGetUuid_v2(&uuid, -1));
}
