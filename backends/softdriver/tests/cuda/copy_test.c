/* Copies, fills, host memory. */
#include <sys/mman.h>
#include <time.h>

#include "client.h"

TEST(every_copy_moves_just_its_bytes)
{
	CUdeviceptr a, b;
	unsigned char from[256], to[256];
	start();
	CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING);
	OK(cu.cuMemAlloc_v2(&a, 256));
	OK(cu.cuMemAlloc_v2(&b, 256));
	for (int way = 0; way < 4; way++) {
		for (int i = 0; i < 256; i++)
			from[i] = (unsigned char)(i + way);
		memset(to, 0xee, sizeof to);
		OK(cu.cuMemsetD8_v2(a, 0xaa, 256));
		OK(cu.cuMemsetD8_v2(b, 0xbb, 256));
		OK(cu.cuCtxSynchronize());
		switch (way) {
		case 0:
			OK(cu.cuMemcpyHtoD_v2(a + 10, from, 100));
			OK(cu.cuMemcpyDtoD_v2(b + 20, a + 10, 90));
			OK(cu.cuMemcpyDtoH_v2(to + 5, b + 20, 80));
			break;
		case 1:
			OK(cu.cuMemcpyHtoDAsync_v2(a + 10, from, 100, stream));
			OK(cu.cuMemcpyDtoDAsync_v2(b + 20, a + 10, 90, stream));
			OK(cu.cuMemcpyDtoHAsync_v2(to + 5, b + 20, 80, stream));
			break;
		case 2:
			OK(cu.cuMemcpy(a + 10, (CUdeviceptr)(uintptr_t)from, 100));
			OK(cu.cuMemcpy(b + 20, a + 10, 90));
			OK(cu.cuMemcpy((CUdeviceptr)(uintptr_t)(to + 5), b + 20, 80));
			break;
		case 3:
			OK(cu.cuMemcpyAsync(a + 10, (CUdeviceptr)(uintptr_t)from, 100, stream));
			OK(cu.cuMemcpyAsync(b + 20, a + 10, 90, stream));
			OK(cu.cuMemcpyAsync((CUdeviceptr)(uintptr_t)(to + 5), b + 20, 80, stream));
			break;
		}
		OK(cu.cuCtxSynchronize());
		const unsigned char *on_a = (unsigned char *)(uintptr_t)a, *on_b = (unsigned char *)(uintptr_t)b;
		for (int i = 0; i < 256; i++) {
			EQUAL(on_a[i], i >= 10 && i < 110 ? from[i - 10] : 0xaa);
			EQUAL(on_b[i], i >= 20 && i < 110 ? from[i - 20] : 0xbb);
			EQUAL(to[i], i >= 5 && i < 85 ? from[i - 5] : 0xee);
		}
	}
	/* overlapping, as memmove does */
	for (int i = 0; i < 256; i++)
		((unsigned char *)(uintptr_t)a)[i] = (unsigned char)i;
	OK(cu.cuMemcpyDtoDAsync_v2(a + 1, a, 255, stream));
	OK(cu.cuStreamSynchronize(stream));
	for (int i = 1; i < 256; i++)
		EQUAL(((unsigned char *)(uintptr_t)a)[i], i - 1);
	/* nothing is nothing */
	OK(cu.cuMemcpyHtoD_v2(a, NULL, 0));
	OK(cu.cuMemsetD8_v2(a, 1, 0));
	/* wrong ends */
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoD_v2((CUdeviceptr)(uintptr_t)to, from, 8));
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoH_v2(to, (CUdeviceptr)(uintptr_t)from, 8));
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoD_v2(a, (CUdeviceptr)(uintptr_t)from, 8));
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoD_v2(a, NULL, 8));
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoD_v2(0, from, 8));
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8_v2((CUdeviceptr)(uintptr_t)to, 1, 8));
}

TEST(fills_of_one_two_and_four_bytes)
{
	CUdeviceptr a;
	start();
	CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING);
	OK(cu.cuMemAlloc_v2(&a, 64));
	const unsigned char *at = (unsigned char *)(uintptr_t)a;
	for (int now = 0; now < 2; now++) {
		OK(cu.cuMemsetD8_v2(a, 0x11, 64));
		OK(cu.cuCtxSynchronize());
		OK(now ? cu.cuMemsetD16_v2(a + 2, 0x2233, 5) : cu.cuMemsetD16Async(a + 2, 0x2233, 5, stream));
		OK(now ? cu.cuMemsetD32_v2(a + 16, 0x44556677, 3) : cu.cuMemsetD32Async(a + 16, 0x44556677, 3, stream));
		OK(now ? cu.cuMemsetD8_v2(a + 40, 0x88, 3) : cu.cuMemsetD8Async(a + 40, 0x88, 3, stream));
		OK(cu.cuCtxSynchronize());
		for (int i = 0; i < 64; i++) {
			int want = 0x11;
			if (i >= 2 && i < 12)
				want = i % 2 ? 0x22 : 0x33;
			if (i >= 16 && i < 28)
				want = 0x77 - 0x11 * (i % 4);
			if (i >= 40 && i < 43)
				want = 0x88;
			EQUAL(at[i], want);
		}
	}
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD16Async(a + 1, 0, 1, stream));
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD32Async(a + 2, 0, 1, stream));
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD32Async(a, 0, SIZE_MAX / 2, stream));
}

TEST(pinned_copies_are_asynchronous_both_ways)
{
	CUdeviceptr a;
	struct gate gate;
	unsigned char *pinned, *registered = malloc(8192);
	start();
	CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING);
	OK(cu.cuMemAlloc_v2(&a, 8192));
	OK(cu.cuMemHostAlloc((void **)&pinned, 8192, 0));
	OK(cu.cuMemHostRegister_v2(registered, 8192, V_CU_MEMHOSTREGISTER_PORTABLE));
	memset(pinned, 1, 8192);
	memset(registered, 2, 8192);
	close_gate(&gate, stream);
	OK(cu.cuMemcpyHtoDAsync_v2(a, pinned, 8192, stream));
	OK(cu.cuMemcpyDtoHAsync_v2(registered, a, 8192, stream));
	EQUAL(registered[0], 2);
	memset(pinned, 3, 8192); /* the source is read when the stream gets there */
	open_gate(&gate);
	OK(cu.cuStreamSynchronize(stream));
	EQUAL(registered[8191], 3);
	OK(cu.cuMemHostUnregister(registered));
	OK(cu.cuMemFreeHost(pinned));
	free(registered);
}

static void *open_later(void *argument)
{
	struct timespec pause = { 0, 5000000 };
	nanosleep(&pause, NULL);
	open_gate(argument);
	return NULL;
}

TEST(pageable_copies_return_late_or_early)
{
	CUdeviceptr a;
	struct gate gate;
	pthread_t thread;
	unsigned char *host = malloc(8192);
	start();
	CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING);
	OK(cu.cuMemAlloc_v2(&a, 8192));
	EQUAL(soft.get("pageable"), 0);
	/* late: the call ends with the copy */
	OK(cu.cuMemsetD8Async(a, 4, 8192, stream));
	close_gate(&gate, stream);
	CHECK(!pthread_create(&thread, NULL, open_later, &gate));
	memset(host, 0, 8192);
	OK(cu.cuMemcpyDtoHAsync_v2(host, a, 8192, stream));
	EQUAL(host[8191], 4);
	CHECK(!pthread_join(thread, NULL));
	/* early: the source was put aside, the target comes by the time of a synchronise */
	soft.set("pageable", 1);
	close_gate(&gate, stream);
	memset(host, 5, 8192);
	OK(cu.cuMemcpyHtoDAsync_v2(a, host, 8192, stream));
	memset(host, 6, 8192);
	OK(cu.cuMemcpyDtoHAsync_v2(host, a, 8192, stream));
	EQUAL(host[0], 6);
	open_gate(&gate);
	OK(cu.cuStreamSynchronize(stream));
	EQUAL(host[0], 5);
	EQUAL(host[8191], 5);
	/* calls without "Async" are never early */
	memset(host, 7, 8192);
	OK(cu.cuMemcpyHtoD_v2(a, host, 8192));
	memset(host, 0, 8192);
	OK(cu.cuMemcpyDtoH_v2(host, a, 8192));
	EQUAL(host[8191], 7);
	free(host);
}

TEST(copies_can_be_slowed_down)
{
	CUdeviceptr a;
	struct timespec from, to;
	void *host = malloc(4 * MIB);
	memset(host, 1, 4 * MIB);
	start();
	OK(cu.cuMemAlloc_v2(&a, 4 * MIB));
	soft.set("copy_mib_s", 80);
	clock_gettime(CLOCK_MONOTONIC, &from);
	OK(cu.cuMemcpyHtoD_v2(a, host, 4 * MIB));
	clock_gettime(CLOCK_MONOTONIC, &to);
	CHECK((to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6 >= 50); /* never faster */
	free(host);
}

TEST(host_memory_registration)
{
	unsigned char *memory = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *ours;
	CUdeviceptr device, a;
	size_t bytes;
	unsigned type;
	start();
	OK(cu.cuMemHostRegister_v2(memory + 4096, 8192, 0));
	RETURNS(V_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cu.cuMemHostRegister_v2(memory + 4096, 8192, 0));
	RETURNS(V_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cu.cuMemHostRegister_v2(memory, 4097, 0));
	RETURNS(V_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cu.cuMemHostRegister_v2(memory + 12287, 1, 0));
	OK(cu.cuMemHostRegister_v2(memory, 4096, 0));
	OK(cu.cuMemHostRegister_v2(memory + 12288, 4096, 0));
	RETURNS(V_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cu.cuMemHostUnregister(memory + 1));
	OK(cu.cuMemHostUnregister(memory + 4096));
	RETURNS(V_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cu.cuMemHostUnregister(memory + 4096));
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemHostRegister_v2(NULL, 1, 0));
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemHostRegister_v2(memory, 0, 0));
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemHostRegister_v2(memory + 20000, SIZE_MAX, 0));
	OK(cu.cuMemAlloc_v2(&a, 64));
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemHostRegister_v2((void *)(uintptr_t)a, 64, 0));
	OK(cu.cuMemAllocHost_v2(&ours, 100));
	RETURNS(V_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cu.cuMemHostUnregister(ours));
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeHost(memory));
	OK(cu.cuMemHostGetDevicePointer_v2(&device, ours, 0));
	EQUAL(device, (uintptr_t)ours);
	OK(cu.cuPointerGetAttribute(&type, (CUpointer_attribute)V_CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device + 99));
	EQUAL(type, V_CU_MEMORYTYPE_HOST);
	OK(cu.cuMemGetAddressRange_v2(&a, &bytes, device + 99)); /* an allocation, though not of device memory */
	EQUAL(a, device);
	EQUAL(bytes, 100);
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemHostGetDevicePointer_v2(&device, memory + 30000, 0));
	OK(cu.cuMemFreeHost(ours));
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeHost(ours));
	CHECK(!readable((uintptr_t)ours));
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemHostAlloc(&ours, 0, 0));
	munmap(memory, 65536);
}

TEST(freeing_host_memory_waits_for_the_copies_that_use_it)
{
	CUdeviceptr a;
	struct gate gate;
	pthread_t thread;
	unsigned char *pinned;
	start();
	CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING);
	OK(cu.cuMemAlloc_v2(&a, 8192));
	OK(cu.cuMemHostAlloc((void **)&pinned, 8192, 0));
	memset(pinned, 8, 8192);
	close_gate(&gate, stream);
	OK(cu.cuMemcpyHtoDAsync_v2(a, pinned, 8192, stream));
	CHECK(!pthread_create(&thread, NULL, open_later, &gate));
	OK(cu.cuMemFreeHost(pinned));
	EQUAL(((unsigned char *)(uintptr_t)a)[8191], 8);
	CHECK(!pthread_join(thread, NULL));
}

TEST(facts_about_pointers)
{
	CUdeviceptr a, base;
	size_t bytes;
	CUmemoryPool pool, want;
	unsigned long long id, other;
	char local;
	start();
	OK(cu.cuMemAllocAsync(&a, 1000, NULL));
	OK(cu.cuMemGetAddressRange_v2(&base, &bytes, a + 999));
	EQUAL(base, a);
	EQUAL(bytes, 1000);
	RETURNS(V_CUDA_ERROR_NOT_FOUND, cu.cuMemGetAddressRange_v2(&base, &bytes, a + 1000));
	RETURNS(V_CUDA_ERROR_NOT_FOUND, cu.cuMemGetAddressRange_v2(&base, &bytes, (CUdeviceptr)(uintptr_t)&local));
	OK(cu.cuPointerGetAttribute(&pool, (CUpointer_attribute)V_CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a));
	OK(cu.cuDeviceGetDefaultMemPool(&want, 0));
	CHECK(pool == want);
	OK(cu.cuPointerGetAttribute(&id, (CUpointer_attribute)V_CU_POINTER_ATTRIBUTE_BUFFER_ID, a));
	OK(cu.cuMemFreeAsync(a, NULL));
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuPointerGetAttribute(&id, (CUpointer_attribute)V_CU_POINTER_ATTRIBUTE_BUFFER_ID, a));
	soft.set("quarantine", 0);
	for (int i = 0; i < 3; i++) {
		OK(cu.cuMemAlloc_v2(&a, 1000));
		OK(cu.cuPointerGetAttribute(&other, (CUpointer_attribute)V_CU_POINTER_ATTRIBUTE_BUFFER_ID, a));
		CHECK(other != id); /* though the address may be the same */
		id = other;
		OK(cu.cuMemFree_v2(a));
	}
	/* several at once: unknown pointers get defaults */
	CUpointer_attribute which[] = { (CUpointer_attribute)V_CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUpointer_attribute)V_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL };
	unsigned type = 9;
	int ordinal = 9;
	void *out[] = { &type, &ordinal };
	OK(cu.cuPointerGetAttributes(2, which, out, (CUdeviceptr)(uintptr_t)&local));
	EQUAL(type, 0);
	EQUAL(ordinal, -2);
}
