/* Device memory without pools: counting, capacity, quarantine, addresses used again. */
#include <fcntl.h>

#include "client.h"

static size_t free_bytes(void)
{
	size_t available, total;
	OK(cu.cuMemGetInfo_v2(&available, &total));
	CHECK(available <= total);
	return available;
}

TEST(memory_is_counted_in_granules)
{
	CUdeviceptr a, b;
	load();
	soft.set("capacity", 1 * MIB);
	start();
	EQUAL(free_bytes(), MIB);
	OK(cu.cuMemAlloc_v2(&a, 1));
	OK(cu.cuMemAlloc_v2(&b, 513));
	EQUAL(a % 512, 0);
	EQUAL(b % 512, 0);
	EQUAL(free_bytes(), MIB - 512 - 1024);
	EQUAL(soft.get("live"), 2);
	EQUAL(soft.get("in_use"), 514);
	EQUAL(soft.get("used"), 1536);
	EQUAL(soft.get("reserved"), 1536);
	OK(cu.cuMemFree_v2(a));
	OK(cu.cuMemFree_v2(b));
	EQUAL(free_bytes(), MIB);
	EQUAL(soft.get("live") + soft.get("in_use") + soft.get("used") + soft.get("reserved"), 0);
}

TEST(sizes_and_addresses_that_are_refused)
{
	CUdeviceptr a, b;
	for (int quarantine = 0; quarantine < 2; quarantine++) {
		if (!library)
			load();
		soft.set("quarantine", quarantine);
		soft.set("capacity", 4 * MIB);
		if (!quarantine)
			start();
		RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemAlloc_v2(&a, 0));
		RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemAlloc_v2(NULL, 1));
		RETURNS(V_CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAlloc_v2(&a, 4 * MIB + 1));
		RETURNS(V_CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAlloc_v2(&a, SIZE_MAX));
		RETURNS(V_CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAlloc_v2(&a, SIZE_MAX - 600));
		OK(cu.cuMemFree_v2(0));
		OK(cu.cuMemAlloc_v2(&a, 4096));
		OK(cu.cuMemAlloc_v2(&b, 4096));
		RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2(a + 1));
		RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2((CUdeviceptr)(uintptr_t)&a));
		RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2(a + (1ull << 30)));
		OK(cu.cuMemFree_v2(a));
		RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2(a));
		OK(cu.cuMemFree_v2(b));
		EQUAL(soft.get("live"), 0);
		EQUAL(soft.get("sticky"), 0);
	}
}

TEST(a_full_device_says_so_and_serves_again)
{
	CUdeviceptr block[5];
	load();
	soft.set("capacity", 4 * MIB);
	start();
	for (int i = 0; i < 4; i++)
		OK(cu.cuMemAlloc_v2(&block[i], MIB));
	RETURNS(V_CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAlloc_v2(&block[4], 1));
	EQUAL(free_bytes(), 0);
	OK(cu.cuMemFree_v2(block[2]));
	OK(cu.cuMemAlloc_v2(&block[2], MIB));
	EQUAL(soft.get("live"), 4);
}

TEST(capacity_and_what_others_take_can_change_while_running)
{
	CUdeviceptr a, b;
	load();
	soft.set("capacity", 4 * MIB);
	start();
	OK(cu.cuMemAlloc_v2(&a, 2 * MIB));
	EQUAL(soft.set("capacity", 2 * MIB - 1), -2);
	EQUAL(soft.get("capacity"), 4 * MIB);
	EQUAL(soft.set("capacity", 2 * MIB), 0);
	RETURNS(V_CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAlloc_v2(&b, 1));
	EQUAL(soft.set("capacity.0", 8 * MIB), 0);
	EQUAL(free_bytes(), 6 * MIB);
	EQUAL(soft.set("taken", 5 * MIB), 0);
	EQUAL(free_bytes(), 1 * MIB);
	RETURNS(V_CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAlloc_v2(&b, MIB + 1));
	EQUAL(soft.set("taken", 7 * MIB), 0); /* more than is left: nothing is free, and what is held stays */
	EQUAL(free_bytes(), 0);
	EQUAL(soft.set("taken", 0), 0);
	OK(cu.cuMemAlloc_v2(&b, 6 * MIB));
	OK(cu.cuMemFree_v2(a));
	OK(cu.cuMemFree_v2(b));
}

TEST(the_host_may_read_and_write_live_memory)
{
	CUdeviceptr a;
	unsigned char back[64];
	start();
	for (int quarantine = 0; quarantine < 2; quarantine++)
		for (size_t bytes = 1; bytes <= 8 * MIB; bytes *= 8) {
			soft.set("quarantine", quarantine);
			OK(cu.cuMemAlloc_v2(&a, bytes));
			memset((void *)(uintptr_t)a, 0x5a, bytes);
			size_t part = bytes < sizeof back ? bytes : sizeof back;
			OK(cu.cuMemcpyDtoH_v2(back, a + bytes - part, part));
			for (size_t i = 0; i < part; i++)
				EQUAL(back[i], 0x5a);
			OK(cu.cuMemFree_v2(a));
		}
}

TEST(devices_have_capacities_of_their_own_and_no_peer_access)
{
	CUcontext contexts[2];
	CUdeviceptr a, b;
	size_t available, total;
	int count, can = 1;
	load();
	soft.set("devices", 2);
	soft.set("capacity.0", 4 * MIB);
	soft.set("capacity.1", 1 * MIB);
	OK(cu.cuInit(0));
	OK(cu.cuDeviceGetCount(&count));
	EQUAL(count, 2);
	OK(cu.cuDeviceCanAccessPeer(&can, 0, 1));
	EQUAL(can, 0);
	RETURNS(V_CUDA_ERROR_INVALID_DEVICE, cu.cuDevicePrimaryCtxRetain(&contexts[0], 2));
	for (int i = 0; i < 2; i++)
		OK(cu.cuDevicePrimaryCtxRetain(&contexts[i], i));
	CHECK(contexts[0] != contexts[1]);
	OK(cu.cuCtxPushCurrent_v2(contexts[1]));
	RETURNS(V_CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAlloc_v2(&b, 2 * MIB));
	OK(cu.cuMemAlloc_v2(&b, MIB));
	OK(cu.cuMemGetInfo_v2(&available, &total));
	EQUAL(available, 0);
	EQUAL(total, MIB);
	OK(cu.cuCtxPushCurrent_v2(contexts[0]));
	OK(cu.cuMemAlloc_v2(&a, 2 * MIB));
	OK(cu.cuMemGetInfo_v2(&available, &total));
	EQUAL(available, 2 * MIB);
	EQUAL(soft.get("reserved.0"), 2 * MIB);
	EQUAL(soft.get("reserved.1"), MIB);
	EQUAL(soft.get("reserved"), 3 * MIB);
	int ordinal = -1;
	OK(cu.cuPointerGetAttribute(&ordinal, (CUpointer_attribute)V_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, b));
	EQUAL(ordinal, 1);
	/* a copy between devices needs no peer access */
	memset((void *)(uintptr_t)a, 7, MIB);
	OK(cu.cuMemcpyDtoD_v2(b, a, MIB));
	OK(cu.cuCtxSynchronize());
	EQUAL(((unsigned char *)(uintptr_t)b)[MIB - 1], 7);
	OK(cu.cuMemFree_v2(b)); /* an address names its device */
	EQUAL(soft.get("reserved.1"), 0);
}

TEST(no_devices)
{
	load();
	soft.set("devices", 0);
	RETURNS(V_CUDA_ERROR_NO_DEVICE, cu.cuInit(0));
	int count;
	RETURNS(V_CUDA_ERROR_NOT_INITIALIZED, cu.cuDeviceGetCount(&count));
}

/* ---- quarantine ---- */

TEST(quarantine_never_gives_an_address_twice_and_makes_it_inaccessible)
{
	enum { N = 300 };
	CUdeviceptr seen[N];
	size_t bytes[N];
	start();
	EQUAL(soft.get("quarantine"), 1);
	for (int i = 0; i < N; i++) {
		bytes[i] = i % 3 ? (size_t)(1 + i * 37) : 2 * MIB + (size_t)i;
		OK(cu.cuMemAlloc_v2(&seen[i], bytes[i]));
		CHECK(readable(seen[i]) && readable(seen[i] + bytes[i] - 1));
		OK(cu.cuMemFree_v2(seen[i]));
		CHECK(!readable(seen[i]) && !readable(seen[i] + bytes[i] - 1));
		for (int j = 0; j < i; j++)
			CHECK(seen[i] + bytes[i] <= seen[j] || seen[j] + bytes[j] <= seen[i]);
	}
	EQUAL(soft.get("sticky"), 0);
}

TEST(use_after_free_is_sticky_in_quarantine)
{
	CUdeviceptr a, b;
	char host[16] = { 0 };
	int count;
	start();
	OK(cu.cuMemAlloc_v2(&a, 64));
	OK(cu.cuMemFree_v2(a));
	RETURNS(V_CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuMemcpyDtoH_v2(host, a, 16));
	RETURNS(V_CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuMemAlloc_v2(&b, 64));
	RETURNS(V_CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuDeviceGetCount(&count));
	RETURNS(V_CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuCtxSynchronize());
	EQUAL(soft.get("sticky"), V_CUDA_ERROR_ILLEGAL_ADDRESS);
	const char *name;
	OK(cu.cuGetErrorName((CUresult)V_CUDA_ERROR_ILLEGAL_ADDRESS, &name));
	CHECK(!strcmp(name, "CUDA_ERROR_ILLEGAL_ADDRESS"));
	soft.reset();
	OK(cu.cuMemAlloc_v2(&b, 64));
	RETURNS(V_CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuMemsetD8_v2(a, 1, 8));
}

TEST(beyond_the_end_is_an_error_and_not_sticky)
{
	CUdeviceptr a;
	char host[64] = { 0 };
	start();
	for (int quarantine = 0; quarantine < 2; quarantine++) {
		soft.set("quarantine", quarantine);
		OK(cu.cuMemAlloc_v2(&a, 32));
		RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoD_v2(a, host, 33));
		RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoD_v2(a + 31, host, 2));
		RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD32_v2(a, 0, 9));
		RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoD_v2(a, host, SIZE_MAX - 5));
		OK(cu.cuMemcpyHtoD_v2(a + 31, host, 1));
		OK(cu.cuMemFree_v2(a));
	}
}

TEST(work_that_is_queued_on_memory_freed_without_order_is_sticky)
{
	CUdeviceptr a;
	struct gate gate;
	start();
	CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING);
	OK(cu.cuMemAlloc_v2(&a, 1024));
	close_gate(&gate, stream);
	OK(cu.cuMemsetD8Async(a, 1, 1024, stream));
	OK(cu.cuMemFree_v2(a)); /* waits for nothing */
	open_gate(&gate);
	RETURNS(V_CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuStreamSynchronize(stream));
}

/* Reads a byte that an operation may be writing: through the kernel, since in C that would be a data race. */
static unsigned char peek(const unsigned char *address)
{
	unsigned char byte = 0;
	int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	CHECK(memory >= 0);
	EQUAL(pread(memory, &byte, 1, (off_t)(uintptr_t)address), 1);
	close(memory);
	return byte;
}

/* A copy that is at work: its bytes have arrived, and it ends when the limit of its speed is lifted. */
static CUstream copy_at_work(CUdeviceptr from, size_t bytes, unsigned char *pinned)
{
	CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING);
	pinned[bytes - 1] = 0;
	((unsigned char *)(uintptr_t)from)[bytes - 1] = 1;
	soft.set("copy_mib_s", 1);
	OK(cu.cuMemcpyDtoHAsync_v2(pinned, from, bytes, stream));
	while (!peek(&pinned[bytes - 1]))
		usleep(100);
	return stream;
}

TEST(memory_freed_under_an_operation_lives_until_the_operation_ends)
{
	enum { BYTES = 128 * 1024 * 1024 }; /* at work for two minutes, if nobody lifts the limit */
	CUdeviceptr a, b;
	unsigned char *pinned;
	start();
	OK(cu.cuMemHostAlloc((void **)&pinned, BYTES, 0));
	soft.set("quarantine", 0);
	OK(cu.cuMemAlloc_v2(&a, BYTES));
	CUstream stream = copy_at_work(a, BYTES, pinned);
	OK(cu.cuMemFree_v2(a));
	EQUAL(soft.get("reserved"), 0);
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2(a));
	OK(cu.cuMemAlloc_v2(&b, BYTES));
	CHECK(a != b);
	soft.set("copy_mib_s", 0);
	OK(cu.cuStreamSynchronize(stream));
	OK(cu.cuMemFree_v2(b));
	OK(cu.cuMemAlloc_v2(&b, BYTES)); /* from now on it may be used again */
	EQUAL(a, b);
	OK(cu.cuMemFree_v2(b));

	soft.set("quarantine", 1);
	OK(cu.cuMemAlloc_v2(&a, BYTES));
	stream = copy_at_work(a, BYTES, pinned);
	OK(cu.cuMemFree_v2(a));
	CHECK(readable(a));
	soft.set("copy_mib_s", 0);
	RETURNS(V_CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuStreamSynchronize(stream));
	CHECK(!readable(a));
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) /* they keep memory of their own for every mapping */
static long resident_kib(void)
{
	long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	CHECK(file && fscanf(file, "%*d %ld", &pages) == 1);
	fclose(file);
	return pages * 4;
}

TEST(what_died_in_quarantine_costs_next_to_nothing)
{
	CUdeviceptr a;
	long before = 0;
	start();
	for (int i = 0; i < 210000; i++) {
		if (i == 10000)
			before = resident_kib();
		OK(cu.cuMemAlloc_v2(&a, 100));
		OK(cu.cuMemFree_v2(a));
	}
	CHECK(resident_kib() - before < 8192); /* some 8 bytes each */
}
#endif

/* Blocks that get huge pages, too: the dead ones and the guard pages between them are one mapping. */
TEST(dead_blocks_of_every_size_join)
{
	start();
	unsigned long before = mappings();
	for (int round = 0; round < 1000; round++)
		for (uint64_t size = 64 * 1024; size <= 4 * MIB; size *= 4) {
			CUdeviceptr address;
			OK(cu.cuMemAlloc_v2(&address, size));
			*(volatile char *)(uintptr_t)address = 1;
			OK(cu.cuMemFree_v2(address));
		}
	CHECK(mappings() < before + 50);
}

TEST(quarantine_stays_below_the_limit_of_mappings)
{
	enum { N = 100000 };
	CUdeviceptr *block = malloc(N * sizeof *block);
	load();
	soft.set("capacity", 1ll << 30);
	start();
	unsigned long before = mappings();
	for (int i = 0; i < N; i++) {
		OK(cu.cuMemAlloc_v2(&block[i], 1024));
		*(int *)(uintptr_t)block[i] = i;
	}
	CHECK(mappings() < 50000);
	for (int i = 0; i < N; i += 2) /* every second: as many gaps as can be */
		OK(cu.cuMemFree_v2(block[i]));
	CHECK(mappings() < 50000);
	for (int i = 1; i < N; i += 2)
		EQUAL(*(int *)(uintptr_t)block[i], i);
	EQUAL(soft.get("live"), N / 2);
	CUdeviceptr large;
	OK(cu.cuMemAlloc_v2(&large, 16 * MIB)); /* the process can still map */
	OK(cu.cuMemFree_v2(large));
	/* a block that had to stay mapped is dead for every call all the same */
	char byte;
	RETURNS(V_CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuMemcpyDtoH_v2(&byte, block[N - 2], 1));
	soft.reset();
	for (int i = 1; i < N; i += 2)
		OK(cu.cuMemFree_v2(block[i]));
	for (int i = 0; i < N; i += 97)
		CHECK(!readable(block[i])); /* with its neighbours gone, none is mapped */
	CHECK(mappings() < before + 200);
	free(block);
}

/* ---- addresses used again ---- */

TEST(without_quarantine_an_address_is_used_again_at_once)
{
	CUdeviceptr a, b;
	start();
	soft.set("quarantine", 0);
	for (size_t bytes = 1; bytes <= 64 * MIB; bytes = bytes * 3 + 5) {
		OK(cu.cuMemAlloc_v2(&a, bytes));
		OK(cu.cuMemFree_v2(a));
		OK(cu.cuMemAlloc_v2(&b, bytes));
		EQUAL(b, a);
		OK(cu.cuMemFree_v2(b));
	}
}

TEST(freed_neighbours_become_one)
{
	CUdeviceptr block[5], joined;
	start();
	soft.set("quarantine", 0);
	for (int order = 0; order < 6; order++) {
		static const int orders[6][3] = { { 1, 2, 3 }, { 1, 3, 2 }, { 2, 1, 3 }, { 2, 3, 1 }, { 3, 1, 2 }, { 3, 2, 1 } };
		for (int i = 0; i < 5; i++) {
			OK(cu.cuMemAlloc_v2(&block[i], 4096));
			EQUAL(block[i], block[0] + 4096ull * (unsigned)i);
		}
		for (int i = 0; i < 3; i++)
			OK(cu.cuMemFree_v2(block[orders[order][i]]));
		OK(cu.cuMemAlloc_v2(&joined, 3 * 4096));
		EQUAL(joined, block[1]);
		OK(cu.cuMemFree_v2(joined));
		OK(cu.cuMemFree_v2(block[0]));
		OK(cu.cuMemFree_v2(block[4]));
	}
}

TEST(a_million_small_blocks)
{
	enum { N = 1000000 };
	CUdeviceptr *block = malloc(N * sizeof *block);
	load();
	soft.set("capacity", 4ll << 30);
	soft.set("quarantine", 0);
	start();
	unsigned long before = mappings();
	for (int i = 0; i < N; i++)
		OK(cu.cuMemAlloc_v2(&block[i], 256 + (size_t)(i % 8) * 64));
	EQUAL(soft.get("live"), N);
	CHECK(mappings() < before + 50);
	CUdeviceptr base;
	size_t bytes;
	for (int i = 0; i < N; i += 1013) {
		OK(cu.cuMemGetAddressRange_v2(&base, &bytes, block[i] + 200));
		EQUAL(base, block[i]);
		EQUAL(bytes, 256 + (i % 8) * 64);
	}
	for (int i = 0; i < N; i++)
		OK(cu.cuMemFree_v2(block[i]));
	EQUAL(soft.get("live"), 0);
	EQUAL(soft.get("reserved"), 0);
	free(block);
}

static uint64_t state = 1;
static uint64_t draw(uint64_t below)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (state >> 33) % below;
}

static size_t draw_size(void)
{
	size_t order = draw(23);
	return 1 + draw(1ull << order);
}

/* A random history against a plain list: blocks never overlap, contents stay, every address is found, and figures are sums. */
TEST(random_history_of_allocations)
{
	enum { SLOTS = 400, STEPS = 40000 };
	static struct {
		CUdeviceptr address;
		size_t bytes;
		unsigned char mark;
	} slot[SLOTS];
	const char *seed = getenv("SOFT_TEST_SEED");
	state = seed ? strtoull(seed, NULL, 0) : 20240611;
	printf("     seed %llu (SOFT_TEST_SEED)\n", (unsigned long long)state);
	load();
	soft.set("capacity", 512 * MIB);
	start();
	size_t in_use = 0, used = 0, live = 0;
	for (int step = 0; step < STEPS; step++) {
		int i = (int)draw(SLOTS);
		if (!draw(500))
			soft.set("quarantine", (long long)draw(2));
		if (!slot[i].address) {
			size_t bytes = draw_size();
			CUresult result = cu.cuMemAlloc_v2(&slot[i].address, bytes);
			if ((int)result == V_CUDA_ERROR_OUT_OF_MEMORY) {
				CHECK(used + bytes + 511 > 512 * MIB);
				slot[i].address = 0;
				continue;
			}
			OK(result);
			slot[i].bytes = bytes;
			slot[i].mark = (unsigned char)draw(256);
			memset((void *)(uintptr_t)slot[i].address, slot[i].mark, bytes < 4096 ? bytes : 4096);
			((unsigned char *)(uintptr_t)slot[i].address)[bytes - 1] = slot[i].mark;
			in_use += bytes;
			used += (bytes + 511) / 512 * 512;
			live++;
		} else {
			CUdeviceptr base;
			size_t bytes;
			OK(cu.cuMemGetAddressRange_v2(&base, &bytes, slot[i].address + draw(slot[i].bytes)));
			EQUAL(base, slot[i].address);
			EQUAL(bytes, slot[i].bytes);
			const unsigned char *at = (const unsigned char *)(uintptr_t)slot[i].address;
			for (size_t k = 0; k < slot[i].bytes && k < 4096; k += 1 + k / 8)
				EQUAL(at[k], slot[i].mark);
			EQUAL(at[slot[i].bytes - 1], slot[i].mark);
			OK(cu.cuMemFree_v2(slot[i].address));
			slot[i].address = 0;
			in_use -= bytes;
			used -= (bytes + 511) / 512 * 512;
			live--;
		}
		if (step % 64)
			continue;
		EQUAL(soft.get("in_use"), in_use);
		EQUAL(soft.get("used"), used);
		EQUAL(soft.get("reserved"), used);
		EQUAL(soft.get("live"), live);
		EQUAL(free_bytes(), 512 * MIB - used);
	}
	EQUAL(soft.get("sticky"), 0);
}
