/* Stream-ordered pools: what may be used again when, and when memory goes back to the system. */
#include "client.h"

static CUmemoryPool default_pool(void)
{
	CUmemoryPool pool;
	OK(cu.cuDeviceGetDefaultMemPool(&pool, 0));
	return pool;
}

static CUmemoryPool new_pool(size_t most)
{
	CUmemoryPool pool;
	CUmemPoolProps props;
	memset(&props, 0, sizeof props);
	props.allocType = V_CU_MEM_ALLOCATION_TYPE_PINNED;
	props.location.type = V_CU_MEM_LOCATION_TYPE_DEVICE;
	props.maxSize = most;
	OK(cu.cuMemPoolCreate(&pool, &props));
	return pool;
}

static uint64_t attribute(CUmemoryPool pool, int which)
{
	uint64_t value = 0;
	OK(cu.cuMemPoolGetAttribute(pool, (CUmemPool_attribute)which, &value));
	return value;
}

static void set_attribute(CUmemoryPool pool, int which, uint64_t value) { OK(cu.cuMemPoolSetAttribute(pool, (CUmemPool_attribute)which, &value)); }

static void keep_all(CUmemoryPool pool) { set_attribute(pool, V_CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX); }
static uint64_t reserved(CUmemoryPool pool) { return attribute(pool, V_CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT); }
static uint64_t used(CUmemoryPool pool) { return attribute(pool, V_CU_MEMPOOL_ATTR_USED_MEM_CURRENT); }

static void reuse(CUmemoryPool pool, int followed, int done, int by_waiting)
{
	int values[] = { followed, done, by_waiting };
	for (int i = 0; i < 3; i++)
		OK(cu.cuMemPoolSetAttribute(pool, (CUmemPool_attribute)(V_CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES + i), &values[i]));
}

TEST(a_freed_block_serves_the_same_stream_at_once)
{
	CUdeviceptr a, b;
	struct gate gate;
	for (int quarantine = 0; quarantine < 2; quarantine++) {
		if (!library)
			start();
		soft.set("quarantine", quarantine);
		CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING);
		CUmemoryPool pool = new_pool(0);
		keep_all(pool);
		OK(cu.cuMemAllocFromPoolAsync(&a, MIB, pool, stream));
		close_gate(&gate, stream); /* the free cannot have happened when the next request comes */
		OK(cu.cuMemFreeAsync(a, stream));
		EQUAL(used(pool), 0);
		EQUAL(reserved(pool), MIB);
		OK(cu.cuMemAllocFromPoolAsync(&b, MIB, pool, stream));
		EQUAL(reserved(pool), MIB);
		EQUAL(used(pool), MIB);
		CHECK(quarantine ? a != b : a == b);
		open_gate(&gate);
		OK(cu.cuStreamSynchronize(stream));
		EQUAL(readable(a), !quarantine);
		CHECK(readable(b));
		OK(cu.cuMemFreeAsync(b, stream));
		OK(cu.cuStreamSynchronize(stream));
		OK(cu.cuMemPoolTrimTo(pool, 0));
		EQUAL(reserved(pool), 0);
	}
}

TEST(work_queued_before_an_ordered_free_still_finds_its_memory)
{
	CUdeviceptr a;
	struct gate gate;
	unsigned char *host, stale;
	start();
	CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING);
	OK(cu.cuMemHostAlloc((void **)&host, 4096, 0));
	for (int quarantine = 0; quarantine < 2; quarantine++) {
		soft.set("quarantine", quarantine);
		memset(host, 0, 4096);
		OK(cu.cuMemAllocAsync(&a, 4096, stream));
		close_gate(&gate, stream);
		OK(cu.cuMemsetD8Async(a, 9, 4096, stream));
		OK(cu.cuMemcpyDtoHAsync_v2(host, a, 4096, stream));
		OK(cu.cuMemFreeAsync(a, stream));
		CHECK(readable(a)); /* it is freed when the stream gets there */
		open_gate(&gate);
		OK(cu.cuStreamSynchronize(stream));
		EQUAL(host[4095], 9);
	}
	CHECK(!readable(a));
	RETURNS(V_CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuMemcpyDtoH_v2(&stale, a, 1));
}

TEST(another_stream_gets_a_freed_block_by_the_three_rules_only)
{
	CUdeviceptr a, b;
	CUevent event;
	struct gate gate;
	load();
	soft.set("capacity", 3 * MIB);
	start();
	CUstream one = new_stream(V_CU_STREAM_NON_BLOCKING), two = new_stream(V_CU_STREAM_NON_BLOCKING);
	OK(cu.cuEventCreate(&event, V_CU_EVENT_DISABLE_TIMING));
	CUmemoryPool pool = new_pool(0);
	keep_all(pool);
	/* none of the rules: not even when it is done */
	reuse(pool, 0, 0, 0);
	OK(cu.cuMemAllocFromPoolAsync(&a, 2 * MIB, pool, one));
	OK(cu.cuMemFreeAsync(a, one));
	EQUAL(cu.cuStreamQuery(two), 0);
	RETURNS(V_CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAllocFromPoolAsync(&b, 2 * MIB, pool, two));
	/* done is enough (attribute 2) */
	reuse(pool, 0, 1, 0);
	OK(cu.cuMemAllocFromPoolAsync(&b, 2 * MIB, pool, two));
	EQUAL(reserved(pool), 2 * MIB);
	OK(cu.cuMemFreeAsync(b, two));
	/* not done: not by attribute 2 */
	close_gate(&gate, two);
	OK(cu.cuMemAllocFromPoolAsync(&b, 2 * MIB, pool, two));
	OK(cu.cuMemFreeAsync(b, two));
	RETURNS(V_CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAllocFromPoolAsync(&a, 2 * MIB, pool, one));
	/* an event that the stream waits for orders them (attribute 1) */
	reuse(pool, 1, 0, 0);
	RETURNS(V_CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAllocFromPoolAsync(&a, 2 * MIB, pool, one));
	OK(cu.cuEventRecord(event, two));
	OK(cu.cuStreamWaitEvent(one, event, 0));
	OK(cu.cuMemAllocFromPoolAsync(&a, 2 * MIB, pool, one));
	EQUAL(cu.cuStreamQuery(one), V_CUDA_ERROR_NOT_READY);
	open_gate(&gate);
	OK(cu.cuMemFreeAsync(a, one));
	OK(cu.cuCtxSynchronize());
	/* before it fails, the driver orders them itself (attribute 3) */
	OK(cu.cuMemPoolTrimTo(pool, 0));
	EQUAL(reserved(pool), 0);
	reuse(pool, 0, 0, 1);
	OK(cu.cuMemAllocFromPoolAsync(&a, 2 * MIB, pool, one));
	close_gate(&gate, one);
	OK(cu.cuMemFreeAsync(a, one));
	EQUAL(cu.cuStreamQuery(two), 0);
	OK(cu.cuMemAllocFromPoolAsync(&b, 2 * MIB, pool, two));
	EQUAL(cu.cuStreamQuery(two), V_CUDA_ERROR_NOT_READY);
	open_gate(&gate);
	OK(cu.cuStreamSynchronize(two));
	EQUAL(reserved(pool), 2 * MIB);
}

TEST(kept_pieces_are_joined_and_split)
{
	CUdeviceptr a[4], b, c;
	start();
	for (int quarantine = 0; quarantine < 2; quarantine++) {
		soft.set("quarantine", quarantine);
		CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING);
		CUmemoryPool pool = new_pool(0);
		keep_all(pool);
		for (int i = 0; i < 4; i++)
			OK(cu.cuMemAllocFromPoolAsync(&a[i], MIB, pool, stream));
		struct gate gate;
		close_gate(&gate, stream); /* none of the frees has happened, and still the same stream may have the bytes */
		for (int i = 0; i < 4; i++)
			OK(cu.cuMemFreeAsync(a[i], stream));
		OK(cu.cuMemAllocFromPoolAsync(&b, 3 * MIB + 512, pool, stream));
		EQUAL(reserved(pool), 4 * MIB);
		open_gate(&gate);
		OK(cu.cuMemAllocFromPoolAsync(&c, MIB - 512, pool, stream));
		EQUAL(reserved(pool), 4 * MIB);
		EQUAL(used(pool), 4 * MIB);
		memset((void *)(uintptr_t)b, 1, 3 * MIB + 512);
		memset((void *)(uintptr_t)c, 2, MIB - 512);
		EQUAL(((char *)(uintptr_t)b)[3 * MIB + 511], 1);
		OK(cu.cuMemFreeAsync(b, stream));
		OK(cu.cuMemFreeAsync(c, stream));
		OK(cu.cuStreamSynchronize(stream));
		OK(cu.cuMemPoolDestroy(pool));
		OK(cu.cuStreamDestroy_v2(stream));
	}
	EQUAL(soft.get("reserved"), 0);
}

TEST(a_joined_block_does_not_get_an_address_that_queued_work_still_uses)
{
	CUdeviceptr a, b, c;
	struct gate gate;
	start();
	soft.set("quarantine", 0);
	CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING);
	CUmemoryPool pool = new_pool(0);
	keep_all(pool);
	OK(cu.cuMemAllocFromPoolAsync(&a, 2 * MIB, pool, stream));
	close_gate(&gate, stream);
	OK(cu.cuMemsetD8Async(a, 1, 2 * MIB, stream));
	OK(cu.cuMemFreeAsync(a, stream));
	OK(cu.cuMemAllocFromPoolAsync(&b, MIB, pool, stream)); /* half of its bytes */
	OK(cu.cuMemAlloc_v2(&c, 2 * MIB));                     /* another's memory: not at the address that the fill still goes to */
	memset((void *)(uintptr_t)c, 5, 2 * MIB);
	open_gate(&gate);
	OK(cu.cuStreamSynchronize(stream));
	EQUAL(((char *)(uintptr_t)c)[0], 5);
	EQUAL(((char *)(uintptr_t)c)[2 * MIB - 1], 5);
}

TEST(a_synchronise_returns_what_is_above_the_threshold)
{
	CUdeviceptr a[4];
	size_t available, total;
	load();
	soft.set("capacity", 8 * MIB);
	start();
	CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING);
	CUmemoryPool pool = default_pool();
	EQUAL(attribute(pool, V_CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0);
	for (int round = 0; round < 3; round++) {
		uint64_t keep = round == 0 ? 0 : round == 1 ? 3 * MIB : UINT64_MAX;
		set_attribute(pool, V_CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, keep);
		for (int i = 0; i < 4; i++)
			OK(cu.cuMemAllocAsync(&a[i], MIB, stream));
		EQUAL(reserved(pool), 4 * MIB);
		for (int i = 0; i < 4; i++)
			OK(cu.cuMemFreeAsync(a[i], stream));
		EQUAL(reserved(pool), 4 * MIB); /* nobody has seen them to be free */
		OK(cu.cuMemGetInfo_v2(&available, &total));
		EQUAL(available, 4 * MIB); /* "free according to the system" */
		if (round == 1)
			OK(cu.cuCtxSynchronize());
		else
			OK(cu.cuStreamSynchronize(stream));
		EQUAL(reserved(pool), keep > 4 * MIB ? 4 * MIB : keep);
		OK(cu.cuMemGetInfo_v2(&available, &total));
		EQUAL(available, 8 * MIB - (keep > 4 * MIB ? 4 * MIB : keep));
	}
	soft.set("ignore_threshold", 1);
	OK(cu.cuStreamSynchronize(stream));
	EQUAL(reserved(pool), 0);
}

TEST(trim_returns_only_what_the_host_has_seen)
{
	CUdeviceptr a;
	CUevent event;
	start();
	CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING), other = new_stream(V_CU_STREAM_NON_BLOCKING);
	CUmemoryPool pool = default_pool();
	keep_all(pool);
	OK(cu.cuEventCreate(&event, V_CU_EVENT_DISABLE_TIMING));
	for (int way = 0; way < 5; way++) {
		OK(cu.cuMemAllocAsync(&a, MIB, stream));
		OK(cu.cuMemFreeAsync(a, stream)); /* done at once: the stream is idle; but not seen */
		OK(cu.cuMemPoolTrimTo(pool, 0));
		EQUAL(reserved(pool), MIB);
		OK(cu.cuStreamSynchronize(other)); /* another stream says nothing about this one */
		OK(cu.cuMemPoolTrimTo(pool, 0));
		EQUAL(reserved(pool), MIB);
		OK(cu.cuEventRecord(event, stream));
		switch (way) {
		case 0: OK(cu.cuStreamSynchronize(stream)); break;
		case 1: OK(cu.cuEventSynchronize(event)); break;
		case 2: OK(cu.cuEventQuery(event)); break;
		case 3: OK(cu.cuStreamQuery(stream)); break;
		case 4: /* by way of a stream that waited for it */
			OK(cu.cuStreamWaitEvent(other, event, 0));
			OK(cu.cuStreamSynchronize(other));
			break;
		}
		OK(cu.cuMemPoolTrimTo(pool, MIB));
		EQUAL(reserved(pool), MIB); /* not above what is to be kept */
		OK(cu.cuMemPoolTrimTo(pool, 0));
		EQUAL(reserved(pool), 0);
	}
}

TEST(a_free_on_the_null_stream_pins_memory_until_somebody_waits_for_it)
{
	CUdeviceptr a;
	start();
	CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING);
	CUmemoryPool pool = default_pool();
	OK(cu.cuMemAllocAsync(&a, MIB, stream));
	OK(cu.cuMemFreeAsync(a, NULL));
	for (int i = 0; i < 3; i++)
		OK(cu.cuStreamSynchronize(stream));
	EQUAL(reserved(pool), MIB);
	OK(cu.cuStreamSynchronize(NULL));
	EQUAL(reserved(pool), 0);
}

TEST(out_of_memory_though_the_pool_has_free_blocks)
{
	CUdeviceptr a, b;
	load();
	soft.set("capacity", 4 * MIB);
	start();
	CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING);
	CUmemoryPool pool = default_pool(), other = new_pool(0);
	keep_all(pool);
	OK(cu.cuMemAllocAsync(&a, 3 * MIB, stream));
	OK(cu.cuMemFreeAsync(a, stream));
	RETURNS(V_CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAlloc_v2(&b, 2 * MIB));
	RETURNS(V_CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAllocFromPoolAsync(&b, 2 * MIB, other, stream));
	EQUAL(reserved(other), 0);
	OK(cu.cuStreamSynchronize(stream));
	EQUAL(reserved(pool), 3 * MIB);
	OK(cu.cuMemAlloc_v2(&b, 2 * MIB)); /* seen to be free: the driver takes it back from the pool */
	EQUAL(reserved(pool), 0);
	OK(cu.cuMemFree_v2(b));
}

TEST(a_pool_has_a_maximum)
{
	CUdeviceptr a, b;
	start();
	CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING);
	CUmemoryPool pool = new_pool(2 * MIB);
	OK(cu.cuMemAllocFromPoolAsync(&a, MIB, pool, stream));
	RETURNS(V_CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAllocFromPoolAsync(&b, MIB + 1, pool, stream));
	OK(cu.cuMemAllocFromPoolAsync(&b, MIB, pool, stream));
	EQUAL(reserved(pool), 2 * MIB);
	OK(cu.cuMemFreeAsync(a, stream));
	OK(cu.cuMemAllocFromPoolAsync(&a, MIB, pool, stream));
}

TEST(pool_figures_and_their_high_marks)
{
	CUdeviceptr a, b;
	uint64_t one = 1;
	start();
	CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING);
	CUmemoryPool pool = new_pool(0);
	OK(cu.cuMemAllocFromPoolAsync(&a, 1000, pool, stream));
	OK(cu.cuMemAllocFromPoolAsync(&b, 100, pool, stream));
	EQUAL(used(pool), 1024 + 512);
	OK(cu.cuMemFreeAsync(a, stream));
	EQUAL(used(pool), 512);
	EQUAL(attribute(pool, V_CU_MEMPOOL_ATTR_USED_MEM_HIGH), 1536);
	EQUAL(attribute(pool, V_CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 1536);
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemPoolSetAttribute(pool, (CUmemPool_attribute)V_CU_MEMPOOL_ATTR_USED_MEM_HIGH, &one));
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemPoolSetAttribute(pool, (CUmemPool_attribute)V_CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &one));
	set_attribute(pool, V_CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
	EQUAL(attribute(pool, V_CU_MEMPOOL_ATTR_USED_MEM_HIGH), 512);
	OK(cu.cuStreamSynchronize(stream));
	set_attribute(pool, V_CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0);
	EQUAL(attribute(pool, V_CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 512);
	int reuse_value = 0;
	for (int i = 1; i <= 3; i++) {
		OK(cu.cuMemPoolGetAttribute(pool, (CUmemPool_attribute)i, &reuse_value));
		EQUAL(reuse_value, 1);
	}
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemPoolGetAttribute(pool, (CUmemPool_attribute)99, &one));
}

TEST(a_destroyed_pool_ends_with_its_last_block)
{
	CUdeviceptr a, b;
	CUmemoryPool current;
	start();
	CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING);
	CUmemoryPool pool = new_pool(0);
	OK(cu.cuDeviceSetMemPool(0, pool));
	OK(cu.cuMemAllocAsync(&a, MIB, stream));
	OK(cu.cuMemAllocAsync(&b, MIB, stream));
	EQUAL(used(pool), 2 * MIB);
	OK(cu.cuMemFreeAsync(a, stream));
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuMemPoolDestroy(default_pool()));
	OK(cu.cuMemPoolDestroy(pool));
	OK(cu.cuDeviceGetMemPool(&current, 0));
	CHECK(current == default_pool());
	RETURNS(V_CUDA_ERROR_INVALID_HANDLE, cu.cuMemPoolTrimTo(pool, 0));
	RETURNS(V_CUDA_ERROR_INVALID_HANDLE, cu.cuMemAllocFromPoolAsync(&a, 1, pool, stream));
	*(char *)(uintptr_t)b = 1; /* still the client's */
	EQUAL(soft.get("reserved"), MIB);
	OK(cu.cuMemFreeAsync(b, stream));
	EQUAL(soft.get("reserved"), 0);
}

TEST(devices_without_pools)
{
	CUdeviceptr a;
	CUmemoryPool pool;
	CUmemPoolProps props;
	int supported;
	load();
	soft.set("pools", 0);
	start();
	memset(&props, 0, sizeof props);
	props.allocType = props.location.type = 1;
	OK(cu.cuDeviceGetAttribute(&supported, (CUdevice_attribute)V_CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
	EQUAL(supported, 0);
	RETURNS(V_CUDA_ERROR_NOT_SUPPORTED, cu.cuMemAllocAsync(&a, 1, NULL));
	RETURNS(V_CUDA_ERROR_NOT_SUPPORTED, cu.cuMemPoolCreate(&pool, &props));
	RETURNS(V_CUDA_ERROR_NOT_SUPPORTED, cu.cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cu.cuMemAlloc_v2(&a, 1));
	RETURNS(V_CUDA_ERROR_NOT_SUPPORTED, cu.cuMemFreeAsync(a, NULL));
	OK(cu.cuMemFree_v2(a));
}

TEST(the_two_ways_to_free_fit_both_ways_to_allocate)
{
	CUdeviceptr a;
	struct gate gate;
	start();
	for (int quarantine = 0; quarantine < 2; quarantine++) {
		soft.set("quarantine", quarantine);
		CUstream stream = new_stream(V_CU_STREAM_NON_BLOCKING);
		OK(cu.cuMemAllocAsync(&a, MIB, stream));
		OK(cu.cuMemFree_v2(a)); /* no synchronise: the pool still reserves it */
		EQUAL(soft.get("live"), 0);
		EQUAL(reserved(default_pool()), MIB);
		OK(cu.cuCtxSynchronize());
		EQUAL(reserved(default_pool()), 0);
		OK(cu.cuMemAlloc_v2(&a, MIB));
		close_gate(&gate, stream);
		OK(cu.cuMemsetD8Async(a, 1, MIB, stream));
		OK(cu.cuMemFreeAsync(a, stream)); /* in stream order */
		CHECK(readable(a));
		EQUAL(soft.get("reserved"), MIB);
		open_gate(&gate);
		OK(cu.cuStreamSynchronize(stream));
		EQUAL(soft.get("reserved"), 0);
		OK(cu.cuMemAlloc_v2(&a, MIB));
		OK(cu.cuMemFreeAsync(a, stream)); /* nothing before it: at once */
		EQUAL(soft.get("reserved"), 0);
	}
}

TEST(ordered_calls_on_default_streams_need_a_context)
{
	CUdeviceptr a;
	CUcontext context;
	start();
	CUstream stream = new_stream(0);
	OK(cu.cuCtxPopCurrent_v2(&context));
	RETURNS(V_CUDA_ERROR_INVALID_CONTEXT, cu.cuMemAllocAsync(&a, 1, NULL));
	RETURNS(V_CUDA_ERROR_INVALID_CONTEXT, cu.cuMemAllocAsync(&a, 1, (CUstream)1));
	OK(cu.cuMemAllocAsync(&a, 1, stream));
	RETURNS(V_CUDA_ERROR_INVALID_CONTEXT, cu.cuMemFreeAsync(a, NULL));
	OK(cu.cuMemFreeAsync(a, stream));
}

TEST(what_a_pool_can_be)
{
	CUmemoryPool pool;
	CUmemPoolProps props;
	CUmemAccess_flags access;
	CUmemLocation location;
	load();
	soft.set("devices", 2);
	start();
	memset(&props, 0, sizeof props);
	RETURNS(V_CUDA_ERROR_NOT_SUPPORTED, cu.cuMemPoolCreate(&pool, &props));
	props.allocType = props.location.type = 1;
	props.location.id = 2;
	RETURNS(V_CUDA_ERROR_INVALID_DEVICE, cu.cuMemPoolCreate(&pool, &props));
	props.location.id = 1;
	props.handleTypes = 1;
	RETURNS(V_CUDA_ERROR_NOT_SUPPORTED, cu.cuMemPoolCreate(&pool, &props));
	props.handleTypes = 0;
	OK(cu.cuMemPoolCreate(&pool, &props));
	RETURNS(V_CUDA_ERROR_INVALID_VALUE, cu.cuDeviceSetMemPool(0, pool));
	OK(cu.cuDeviceSetMemPool(1, pool));
	memset(&location, 0, sizeof location);
	location.type = 1;
	OK(cu.cuMemPoolGetAccess(&access, pool, &location));
	EQUAL(access, V_CU_MEM_ACCESS_FLAGS_PROT_NONE);
	location.id = 1;
	OK(cu.cuMemPoolGetAccess(&access, pool, &location));
	EQUAL(access, V_CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CUmemAccessDesc wish = { { 1, 0 }, V_CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	RETURNS(V_CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cu.cuMemPoolSetAccess(pool, &wish, 1));
	wish.location.id = 1;
	OK(cu.cuMemPoolSetAccess(pool, &wish, 1));
}

/* Random frees and allocations on three streams that are busy now and then: a pool's figures add up at every moment, nothing of it is lost, and a block's
 * contents are its own from when the stream that allocated it gets there. */
TEST(random_history_of_a_pool)
{
	enum { STREAMS = 3, SLOTS = 60, STEPS = 6000 };
	static struct {
		CUdeviceptr address;
		size_t bytes;
		unsigned char mark;
		int stream;
	} slot[SLOTS];
	uint64_t state = 7;
	CUstream stream[STREAMS];
	load();
	soft.set("capacity", 64 * MIB);
	soft.set("jitter_us", 20);
	start();
	CUmemoryPool pool = new_pool(0);
	for (int i = 0; i < STREAMS; i++)
		stream[i] = new_stream(V_CU_STREAM_NON_BLOCKING);
	unsigned char *back;
	OK(cu.cuMemHostAlloc((void **)&back, 4 * MIB, 0));
	size_t in_use = 0;
	for (int step = 0; step < STEPS; step++) {
		state = state * 6364136223846793005ull + 1442695040888963407ull;
		uint64_t dice = state >> 32;
		int i = (int)(dice % SLOTS), s = (int)(dice / SLOTS % STREAMS);
		size_t bytes = 1 + dice / 512 % (1ull << (dice / 16 % 22));
		if (step % 997 == 0)
			soft.set("quarantine", step / 997 % 2);
		if (step % 501 == 0)
			set_attribute(pool, V_CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, step / 501 % 2 ? 8 * MIB : UINT64_MAX);
		if (!slot[i].address) {
			CUresult result = cu.cuMemAllocFromPoolAsync(&slot[i].address, bytes, pool, stream[s]);
			if ((int)result == V_CUDA_ERROR_OUT_OF_MEMORY) {
				slot[i].address = 0;
				continue;
			}
			OK(result);
			slot[i].bytes = bytes;
			slot[i].mark = (unsigned char)dice;
			slot[i].stream = s;
			in_use += bytes;
			OK(cu.cuMemsetD8Async(slot[i].address, slot[i].mark, bytes, stream[s]));
		} else {
			s = slot[i].stream;
			OK(cu.cuMemcpyDtoHAsync_v2(back, slot[i].address, slot[i].bytes, stream[s]));
			if (dice % 4 == 0) {
				OK(cu.cuStreamSynchronize(stream[s]));
				for (size_t k = 0; k < slot[i].bytes; k += 1 + k / 16)
					EQUAL(back[k], slot[i].mark);
			} else {
				OK(cu.cuStreamSynchronize(stream[s])); /* back is shared by the streams */
			}
			OK(cu.cuMemFreeAsync(slot[i].address, stream[s]));
			in_use -= slot[i].bytes;
			slot[i].address = 0;
		}
		EQUAL(soft.get("in_use"), in_use);
		CHECK(used(pool) >= in_use && used(pool) <= reserved(pool) && reserved(pool) <= 64 * MIB);
		EQUAL(reserved(pool), soft.get("reserved"));
	}
	for (int i = 0; i < SLOTS; i++)
		if (slot[i].address)
			OK(cu.cuMemFreeAsync(slot[i].address, stream[slot[i].stream]));
	OK(cu.cuCtxSynchronize());
	OK(cu.cuMemPoolTrimTo(pool, 0));
	EQUAL(reserved(pool), 0);
	EQUAL(used(pool), 0);
	EQUAL(soft.get("live"), 0);
}
