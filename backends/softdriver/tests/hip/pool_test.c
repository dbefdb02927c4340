/* Stream-ordered memory and its pools under HIP's names. What the engine does with pieces, streams and thresholds is tested with the CUDA driver. */
#include "client.h"

static uint64_t attribute(hipMemPool_t pool, int which)
{
	uint64_t value = 0;
	OK(hip.hipMemPoolGetAttribute(pool, (hipMemPoolAttr)which, &value));
	return value;
}

static uint64_t reserved(hipMemPool_t pool) { return attribute(pool, V_hipMemPoolAttrReservedMemCurrent); }

static void keep(hipMemPool_t pool, uint64_t bytes)
{
	OK(hip.hipMemPoolSetAttribute(pool, (hipMemPoolAttr)V_hipMemPoolAttrReleaseThreshold, &bytes));
}

static void *from_pool(hipMemPool_t pool, size_t bytes, hipStream_t stream)
{
	void *block;
	OK(hip.hipMallocFromPoolAsync(&block, bytes, pool, stream));
	return block;
}

TEST(a_device_without_pools)
{
	hipMemPool_t pool = NULL;
	hipMemPoolProps props;
	void *block = (void *)1;
	int value;
	load();
	soft.set("pools", 0);
	memset(&props, 0, sizeof props);
	props.allocType = props.location.type = 1;
	OK(hip.hipDeviceGetAttribute(&value, (hipDeviceAttribute_t)V_hipDeviceAttributeMemoryPoolsSupported, 0));
	EQUAL(value, 0);
	RETURNS(V_hipErrorNotSupported, hip.hipMallocAsync(&block, 8, NULL));
	RETURNS(V_hipErrorNotSupported, hip.hipFreeAsync(block, NULL));
	RETURNS(V_hipErrorNotSupported, hip.hipMallocFromPoolAsync(&block, 8, (hipMemPool_t)8, NULL));
	RETURNS(V_hipErrorNotSupported, hip.hipMemPoolCreate(&pool, &props));
	RETURNS(V_hipErrorNotSupported, hip.hipDeviceGetDefaultMemPool(&pool, 0));
	RETURNS(V_hipErrorNotSupported, hip.hipDeviceGetMemPool(&pool, 0));
	RETURNS(V_hipErrorNotSupported, hip.hipDeviceSetMemPool(0, (hipMemPool_t)8));
	CHECK(!pool);
	EQUAL(soft.get("live"), 0);
	OK(hip.hipFree(new_block(8))); /* the rest works */
}

TEST(ordered_frees_and_reuse)
{
	struct gate gate;
	load();
	hipStream_t stream = new_stream();
	unsigned char *pinned = new_pinned(MIB);
	hipMemPool_t pool = new_pool(0);
	keep(pool, UINT64_MAX);
	void *block = from_pool(pool, MIB, stream);
	close_gate(&gate, stream);
	OK(hip.hipMemsetAsync(block, 4, MIB, stream));
	OK(hip.hipMemcpyAsync(pinned, block, MIB, (hipMemcpyKind)V_hipMemcpyDeviceToHost, stream));
	OK(hip.hipFreeAsync(block, stream)); /* waits for nothing */
	EQUAL(attribute(pool, V_hipMemPoolAttrUsedMemCurrent), 0);
	from_pool(pool, MIB, stream); /* the same stream has it at once */
	EQUAL(reserved(pool), MIB);
	EQUAL(attribute(pool, V_hipMemPoolAttrReservedMemHigh), MIB);
	EQUAL(attribute(pool, V_hipMemPoolAttrUsedMemHigh), MIB);
	RETURNS(V_hipErrorNotReady, hip.hipStreamQuery(stream));
	open_gate(&gate);
	OK(hip.hipStreamSynchronize(stream));
	EQUAL(pinned[MIB - 1], 4);
	EQUAL(soft.get("sticky"), 0);
	RETURNS(V_hipErrorInvalidValue, hip.hipFreeAsync(block, stream));
}

TEST(memory_goes_back_when_it_was_seen_to_be_free)
{
	struct gate gate;
	load();
	hipStream_t stream = new_stream();
	hipMemPool_t pool = new_pool(0);
	keep(pool, UINT64_MAX);
	void *block = from_pool(pool, MIB, stream);
	close_gate(&gate, stream);
	OK(hip.hipFreeAsync(block, stream));
	OK(hip.hipMemPoolTrimTo(pool, 0)); /* too early: nobody has seen the free to be done */
	EQUAL(reserved(pool), MIB);
	open_gate(&gate);
	OK(hip.hipStreamSynchronize(stream));
	EQUAL(reserved(pool), MIB); /* below the threshold */
	OK(hip.hipMemPoolTrimTo(pool, 0));
	EQUAL(reserved(pool), 0);
}

TEST(the_release_threshold_can_be_ignored)
{
	load();
	hipStream_t stream = new_stream();
	hipMemPool_t pool = new_pool(0);
	for (int ignored = 0; ignored < 2; ignored++) {
		soft.set("ignore_threshold", ignored);
		keep(pool, UINT64_MAX);
		EQUAL(attribute(pool, V_hipMemPoolAttrReleaseThreshold), -1); /* it says yes in both cases */
		OK(hip.hipFreeAsync(from_pool(pool, MIB, stream), stream));
		OK(hip.hipStreamSynchronize(stream));
		EQUAL(reserved(pool), ignored ? 0 : MIB);
	}
}

TEST(an_allocation_fails_though_the_pool_has_free_blocks)
{
	struct gate gate;
	void *block = (void *)1;
	int no = 0;
	load();
	soft.set("capacity", 4 * MIB);
	hipStream_t one = new_stream(), two = new_stream();
	hipMemPool_t pool = new_pool(0);
	for (int which = V_hipMemPoolReuseFollowEventDependencies; which <= V_hipMemPoolReuseAllowInternalDependencies; which++)
		OK(hip.hipMemPoolSetAttribute(pool, (hipMemPoolAttr)which, &no));
	void *a = from_pool(pool, 3 * MIB, one);
	close_gate(&gate, one);
	OK(hip.hipFreeAsync(a, one));
	RETURNS(V_hipErrorOutOfMemory, hip.hipMallocFromPoolAsync(&block, 3 * MIB, pool, two));
	CHECK(!block);
	RETURNS(V_hipErrorOutOfMemory, hip.hipMalloc(&block, 3 * MIB));
	open_gate(&gate);
	OK(hip.hipStreamSynchronize(one));
	OK(hip.hipMallocFromPoolAsync(&block, 3 * MIB, pool, two));
	int value = 7;
	OK(hip.hipMemPoolGetAttribute(pool, (hipMemPoolAttr)V_hipMemPoolReuseAllowOpportunistic, &value));
	EQUAL(value, 0);
}

TEST(free_async_of_plain_memory_is_a_free_with_its_waiting)
{
	struct gate gate;
	load();
	hipStream_t stream = new_stream(), other = new_stream();
	void *block = new_block(MIB);
	close_gate(&gate, other);
	OK(hip.hipMemsetAsync(block, 1, MIB, other));
	open_gate_when_called(&gate, "hipFreeAsync", 1);
	OK(hip.hipFreeAsync(block, stream)); /* on another stream than its work: a free in order would not wait for that */
	OK(hip.hipStreamQuery(other));
	OK(hip.hipDeviceSynchronize());
	EQUAL(soft.get("sticky"), 0);
	EQUAL(soft.get("live"), 0);
}

TEST(free_of_a_pools_block_waits_too)
{
	struct gate gate;
	void *block;
	load();
	hipStream_t stream = new_stream();
	OK(hip.hipMallocAsync(&block, MIB, stream));
	close_gate(&gate, stream);
	OK(hip.hipMemsetAsync(block, 1, MIB, stream));
	open_gate_when_called(&gate, "hipFree", 1);
	OK(hip.hipFree(block));
	OK(hip.hipStreamQuery(stream));
	EQUAL(soft.get("sticky"), 0);
	EQUAL(soft.get("live"), 0);
}

TEST(pools_and_the_current_one)
{
	hipMemPool_t preset, current, own;
	hipMemPoolProps props;
	void *block;
	uint64_t zero = 0, one = 1;
	load_devices(2);
	OK(hip.hipDeviceGetDefaultMemPool(&preset, 0));
	OK(hip.hipDeviceGetMemPool(&current, 0));
	CHECK(preset == current);
	own = new_pool(2 * MIB);
	OK(hip.hipDeviceSetMemPool(0, own));
	OK(hip.hipDeviceGetMemPool(&current, 0));
	CHECK(current == own);
	RETURNS(V_hipErrorInvalidValue, hip.hipDeviceSetMemPool(1, own)); /* another device's */
	OK(hip.hipMallocAsync(&block, MIB, NULL));
	EQUAL(reserved(own), MIB);
	EQUAL(reserved(preset), 0);
	RETURNS(V_hipErrorOutOfMemory, hip.hipMallocAsync(&block, 2 * MIB, NULL)); /* its maximum */
	/* figures are only read, but for the highs, which go back to what is now */
	RETURNS(V_hipErrorInvalidValue, hip.hipMemPoolSetAttribute(own, (hipMemPoolAttr)V_hipMemPoolAttrUsedMemCurrent, &zero));
	RETURNS(V_hipErrorInvalidValue, hip.hipMemPoolSetAttribute(own, (hipMemPoolAttr)V_hipMemPoolAttrUsedMemHigh, &one));
	OK(hip.hipMemPoolSetAttribute(own, (hipMemPoolAttr)V_hipMemPoolAttrUsedMemHigh, &zero));
	RETURNS(V_hipErrorInvalidValue, hip.hipMemPoolGetAttribute(own, (hipMemPoolAttr)9, &zero));
	OK(hip.hipMemPoolDestroy(own)); /* the default is current again */
	OK(hip.hipDeviceGetMemPool(&current, 0));
	CHECK(current == preset);
	RETURNS(V_hipErrorInvalidValue, hip.hipMemPoolDestroy(preset));
	RETURNS(V_hipErrorInvalidDevice, hip.hipDeviceGetDefaultMemPool(&preset, 2));
	/* what a pool cannot be */
	memset(&props, 0, sizeof props);
	props.allocType = V_hipMemAllocationTypePinned;
	props.location.type = V_hipMemLocationTypeDevice;
	props.location.id = 2;
	RETURNS(V_hipErrorInvalidValue, hip.hipMemPoolCreate(&own, &props));
	props.location.id = 0;
	props.handleTypes = 1;
	RETURNS(V_hipErrorInvalidValue, hip.hipMemPoolCreate(&own, &props));
	props.handleTypes = 0;
	props.allocType = 0;
	RETURNS(V_hipErrorInvalidValue, hip.hipMemPoolCreate(&own, &props));
	OK(hip.hipMallocAsync(&block, 0, NULL)); /* nothing, as hipMalloc */
	CHECK(!block);
}

TEST(who_may_use_a_pool)
{
	hipMemLocation here = { V_hipMemLocationTypeDevice, 0 }, there = { V_hipMemLocationTypeDevice, 1 };
	hipMemAccessDesc access = { { V_hipMemLocationTypeDevice, 0 }, V_hipMemAccessFlagsProtReadWrite };
	hipMemAccessFlags flags;
	load_devices(2);
	hipMemPool_t pool = new_pool(0);
	OK(hip.hipMemPoolGetAccess(&flags, pool, &here));
	EQUAL(flags, V_hipMemAccessFlagsProtReadWrite);
	OK(hip.hipMemPoolGetAccess(&flags, pool, &there));
	EQUAL(flags, V_hipMemAccessFlagsProtNone);
	OK(hip.hipMemPoolSetAccess(pool, &access, 1));
	access.flags = V_hipMemAccessFlagsProtNone;
	RETURNS(V_hipErrorInvalidDevice, hip.hipMemPoolSetAccess(pool, &access, 1));
	access.flags = 2;
	RETURNS(V_hipErrorInvalidValue, hip.hipMemPoolSetAccess(pool, &access, 1));
	access = (hipMemAccessDesc){ there, V_hipMemAccessFlagsProtRead };
	RETURNS(V_hipErrorPeerAccessUnsupported, hip.hipMemPoolSetAccess(pool, &access, 1));
	access.location.id = 5;
	RETURNS(V_hipErrorInvalidDevice, hip.hipMemPoolSetAccess(pool, &access, 1));
	there.id = 5;
	RETURNS(V_hipErrorInvalidValue, hip.hipMemPoolGetAccess(&flags, pool, &there));
}
