/* Memory without pools: hipMalloc and hipFree with their waiting, capacity, pinned memory, facts about pointers. */
#include "client.h"

static size_t free_bytes(void)
{
	size_t bytes;
	OK(hip.hipMemGetInfo(&bytes, NULL));
	return bytes;
}

TEST(nothing_is_allocated_and_freed)
{
	void *block = (void *)1, *pinned = (void *)1;
	load();
	OK(hip.hipMalloc(&block, 0));
	CHECK(!block);
	OK(hip.hipFree(NULL));
	OK(hip.hipHostMalloc(&pinned, 0, 0));
	CHECK(!pinned);
	OK(hip.hipHostFree(NULL));
	EQUAL(soft.get("live"), 0);
}

TEST(memory_of_the_device)
{
	void *block = (void *)1;
	load();
	soft.set("capacity", 4 * MIB);
	void *a = new_block(1000);
	memset(a, 7, 1000);
	EQUAL(soft.get("in_use"), 1000);
	EQUAL(free_bytes(), 4 * MIB - 1024);
	RETURNS(V_hipErrorOutOfMemory, hip.hipMalloc(&block, 4 * MIB));
	CHECK(!block); /* as the real one: no stale address to go on with */
	RETURNS(V_hipErrorOutOfMemory, hip.hipMalloc(&block, SIZE_MAX));
	soft.set("taken", 4 * MIB - 2048); /* another process comes */
	EQUAL(free_bytes(), 1024);
	RETURNS(V_hipErrorOutOfMemory, hip.hipMalloc(&block, 2048));
	soft.set("taken", 0);
	OK(hip.hipMalloc(&block, 2048));
	RETURNS(V_hipErrorInvalidValue, hip.hipFree((char *)a + 8)); /* not its start */
	OK(hip.hipFree(a));
	RETURNS(V_hipErrorInvalidValue, hip.hipFree(a));
	CHECK(!readable((uint64_t)(uintptr_t)a));
	OK(hip.hipFree(block));
	EQUAL(free_bytes(), 4 * MIB);
}

/* ---- the implicit synchronise of hipFree ---- */

TEST(free_waits_for_the_work_of_the_device)
{
	struct gate gate;
	hipStreamCaptureStatus unused;
	load();
	hipStream_t stream = new_stream(), other = new_stream();
	void *block = new_block(MIB), *bystander = new_block(8);
	unsigned char *pinned = new_pinned(MIB);
	/* on any stream, on whatever memory: work on the block itself finds it alive, and is done when hipFree comes back */
	close_gate(&gate, stream);
	OK(hip.hipMemsetAsync(block, 9, MIB, stream));
	OK(hip.hipMemcpyAsync(pinned, block, MIB, (hipMemcpyKind)V_hipMemcpyDeviceToHost, stream));
	open_gate_when_called(&gate, "hipFree", 1);
	OK(hip.hipFree(bystander));
	OK(hip.hipStreamQuery(stream));
	EQUAL(pinned[MIB - 1], 9);
	close_gate(&gate, other);
	OK(hip.hipMemsetAsync(block, 9, MIB, other));
	open_gate_when_called(&gate, "hipFree", 2);
	OK(hip.hipFree(block));
	OK(hip.hipStreamQuery(other));
	OK(hip.hipDeviceSynchronize());
	EQUAL(soft.get("sticky"), 0);
	OK(hip.hipStreamIsCapturing(stream, &unused));
}

TEST(free_does_not_wait_for_other_devices)
{
	struct gate gate;
	load_devices(2);
	void *block = new_block(MIB);
	OK(hip.hipSetDevice(1));
	hipStream_t stream = new_stream();
	close_gate(&gate, stream);
	OK(hip.hipFree(block)); /* it is the block's device that counts, not the current one: this would hang */
	RETURNS(V_hipErrorNotReady, hip.hipStreamQuery(stream));
	open_gate(&gate);
	OK(hip.hipStreamSynchronize(stream));
}

TEST(free_can_be_made_to_wait_for_nothing)
{
	struct gate gate;
	load();
	EQUAL(soft.get("implicit_sync"), 1);
	soft.set("implicit_sync", 0);
	hipStream_t stream = new_stream();
	void *block = new_block(MIB);
	close_gate(&gate, stream);
	OK(hip.hipMemsetAsync(block, 9, MIB, stream));
	OK(hip.hipFree(block));
	RETURNS(V_hipErrorNotReady, hip.hipStreamQuery(stream));
	open_gate(&gate);
	RETURNS(V_hipErrorIllegalAddress, hip.hipStreamSynchronize(stream)); /* the fill came to memory that was gone */
	RETURNS(V_hipErrorIllegalAddress, hip.hipDeviceSynchronize());
	soft.reset();
	EQUAL(soft.get("implicit_sync"), 1);
}

TEST(an_implicit_synchronise_lets_pools_give_back)
{
	struct gate gate;
	void *block, *plain = NULL;
	load();
	hipStream_t stream = new_stream();
	OK(hip.hipMallocAsync(&block, MIB, stream));
	OK(hip.hipMalloc(&plain, 8));
	close_gate(&gate, stream);
	OK(hip.hipFreeAsync(block, stream));
	open_gate_when_called(&gate, "hipFree", 1);
	OK(hip.hipFree(plain));
	EQUAL(soft.get("reserved"), 0);
}

static void *free_it(void *block)
{
	return (void *)(intptr_t)hip.hipFree(block);
}

TEST(two_threads_free_the_same_block_and_one_is_told)
{
	for (int i = 0; i < 20; i++) {
		pthread_t thread;
		struct gate gate;
		void *other;
		if (!library)
			load();
		hipStream_t stream = new_stream();
		void *block = new_block(MIB);
		close_gate(&gate, stream); /* both are waiting when the gate opens */
		unsigned long calls = soft.calls("hipFree");
		CHECK(!pthread_create(&thread, NULL, free_it, block));
		open_gate_when_called(&gate, "hipFree", calls + 2);
		int mine = (int)hip.hipFree(block);
		CHECK(!pthread_join(thread, &other));
		EQUAL(mine + (int)(intptr_t)other, V_hipErrorInvalidValue);
		EQUAL(soft.get("live"), 0);
		OK(hip.hipStreamDestroy(stream));
	}
}

/* ---- freed memory that comes back late ---- */

TEST(memory_freed_late_is_there_after_a_synchronise)
{
	void *block;
	struct gate gate;
	load();
	soft.set("capacity", 4 * MIB);
	soft.set("late_free", 1);
	soft.set("implicit_sync", 0);
	void *a = new_block(3 * MIB);
	OK(hip.hipFree(a));
	EQUAL(soft.get("live"), 0);
	EQUAL(soft.get("used"), 0);
	EQUAL(soft.get("reserved"), 3 * MIB);
	EQUAL(free_bytes(), MIB);
	RETURNS(V_hipErrorOutOfMemory, hip.hipMalloc(&block, 2 * MIB)); /* "I just freed it" */
	OK(hip.hipStreamSynchronize(NULL));                             /* not a stream's */
	RETURNS(V_hipErrorOutOfMemory, hip.hipMalloc(&block, 2 * MIB));
	OK(hip.hipDeviceSynchronize());
	EQUAL(free_bytes(), 4 * MIB);
	OK(hip.hipMalloc(&block, 4 * MIB));
	OK(hip.hipFree(block));
	OK(hip.hipDeviceReset());
	EQUAL(free_bytes(), 4 * MIB);
	/* hipFree's own synchronise comes before its free: it brings back what others freed */
	soft.set("implicit_sync", 1);
	a = new_block(MIB);
	void *b = new_block(2 * MIB);
	OK(hip.hipFree(a));
	EQUAL(free_bytes(), MIB);
	OK(hip.hipFree(b));
	EQUAL(free_bytes(), 2 * MIB);
	/* pools are not concerned */
	OK(hip.hipMallocAsync(&block, MIB, NULL));
	OK(hip.hipFreeAsync(block, NULL));
	OK(hip.hipStreamSynchronize(NULL));
	EQUAL(free_bytes(), 2 * MIB);
	/* switched off with some of it outstanding, that still comes with the next synchronise */
	soft.set("late_free", 0);
	hipStream_t stream = new_stream();
	close_gate(&gate, stream);
	open_gate_when_called(&gate, "hipDeviceSynchronize", 1 + soft.calls("hipDeviceSynchronize"));
	EQUAL(free_bytes(), 2 * MIB);
	OK(hip.hipDeviceSynchronize());
	EQUAL(free_bytes(), 4 * MIB);
	EQUAL(soft.get("reserved"), 0);
}

/* ---- pinned memory ---- */

TEST(pinned_memory)
{
	void *pinned, *device;
	unsigned flags;
	static char page[8192];
	load();
	OK(hip.hipHostMalloc(&pinned, 4096, V_hipHostMallocPortable | V_hipHostMallocMapped));
	memset(pinned, 1, 4096);
	OK(hip.hipHostGetFlags(&flags, (char *)pinned + 100));
	EQUAL(flags, 3);
	OK(hip.hipHostGetDevicePointer(&device, pinned, 0));
	CHECK(device == pinned);
	RETURNS(V_hipErrorInvalidValue, hip.hipHostMalloc(&pinned, 4096, 0xc0000000u)); /* coherent and not */
	RETURNS(V_hipErrorInvalidValue, hip.hipHostGetDevicePointer(&pinned, page, 0));
	RETURNS(V_hipErrorInvalidValue, hip.hipHostGetFlags(&flags, page));
	RETURNS(V_hipErrorInvalidValue, hip.hipHostRegister(page, 4096, 16));
	RETURNS(V_hipErrorInvalidValue, hip.hipHostRegister(page, 0, 0));
	OK(hip.hipHostRegister(page, 4096, V_hipHostRegisterMapped));
	RETURNS(V_hipErrorHostMemoryAlreadyRegistered, hip.hipHostRegister(page + 100, 4096, 0));
	RETURNS(V_hipErrorInvalidValue, hip.hipHostFree(page)); /* the client's own memory */
	OK(hip.hipHostUnregister(page));
	RETURNS(V_hipErrorHostMemoryNotRegistered, hip.hipHostUnregister(page));
	OK(hip.hipHostFree(device));
	RETURNS(V_hipErrorInvalidValue, hip.hipHostFree(device));
	RETURNS(V_hipErrorInvalidValue, hip.hipHostRegister(new_block(4096), 4096, 0)); /* device memory is not the host's */
}

TEST(freeing_pinned_memory_waits_for_its_work)
{
	struct gate gate;
	load();
	hipStream_t stream = new_stream();
	void *block = new_block(4096), *pinned = new_pinned(4096);
	close_gate(&gate, stream);
	OK(hip.hipMemcpyAsync(block, pinned, 4096, (hipMemcpyKind)V_hipMemcpyHostToDevice, stream));
	open_gate_when_called(&gate, "hipHostFree", 1);
	OK(hip.hipHostFree(pinned));
	OK(hip.hipStreamQuery(stream));
	OK(hip.hipDeviceSynchronize());
}

/* ---- facts about pointers ---- */

static void expect_type(const void *address, int type, int device)
{
	hipPointerAttribute_t attributes;
	memset(&attributes, 0x55, sizeof attributes);
	OK(hip.hipPointerGetAttributes(&attributes, address));
	EQUAL(attributes.type, type);
	EQUAL(attributes.device, device);
	EQUAL(attributes.isManaged, 0);
}

TEST(what_a_pointer_is)
{
	hipPointerAttribute_t attributes;
	static char plain[8];
	hipDeviceptr_t base;
	size_t bytes;
	load_devices(2);
	OK(hip.hipSetDevice(1));
	char *block = new_block(1000), *pinned = new_pinned(100);
	expect_type(block + 999, V_hipMemoryTypeDevice, 1);
	expect_type(pinned + 99, V_hipMemoryTypeHost, 0);
	expect_type(plain, V_hipMemoryTypeUnregistered, -2);
	OK(hip.hipPointerGetAttributes(&attributes, block + 5));
	CHECK(attributes.devicePointer == block + 5 && !attributes.hostPointer);
	OK(hip.hipPointerGetAttributes(&attributes, pinned + 5));
	CHECK(attributes.devicePointer == pinned + 5 && attributes.hostPointer == pinned + 5);
	/* HIP 5 had other numbers, and called a pointer that it does not know an error */
	soft.set("driver_version", 50221153);
	expect_type(block, 1, 1);
	expect_type(pinned, 0, 0);
	RETURNS(V_hipErrorInvalidValue, hip.hipPointerGetAttributes(&attributes, plain));
	OK(hip.hipMemGetAddressRange(&base, &bytes, block + 500));
	CHECK(base == block);
	EQUAL(bytes, 1000);
	OK(hip.hipMemGetAddressRange(NULL, NULL, block));
	OK(hip.hipMemGetAddressRange(&base, &bytes, pinned + 99));
	CHECK(base == pinned);
	EQUAL(bytes, 100);
	RETURNS(V_hipErrorNotFound, hip.hipMemGetAddressRange(&base, &bytes, plain));
	OK(hip.hipFree(block));
	RETURNS(V_hipErrorNotFound, hip.hipMemGetAddressRange(&base, &bytes, block));
}
