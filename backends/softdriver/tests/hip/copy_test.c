/* Copies and fills. */
#include "client.h"

static const hipMemcpyKind to_host = (hipMemcpyKind)V_hipMemcpyDeviceToHost, to_device = (hipMemcpyKind)V_hipMemcpyHostToDevice,
                           on_device = (hipMemcpyKind)V_hipMemcpyDeviceToDevice, on_host = (hipMemcpyKind)V_hipMemcpyHostToHost,
                           any_way = (hipMemcpyKind)V_hipMemcpyDefault;

TEST(copies_go_where_their_kind_says)
{
	unsigned char out[64], in[64];
	load();
	void *a = new_block(64), *b = new_block(64), *pinned = new_pinned(64);
	memset(out, 3, 64);
	for (int kind = 0; kind < 5; kind++) {
		static const struct {
			int to, from; /* on the device */
		} ends[] = { { 0, 0 }, { 1, 0 }, { 0, 1 }, { 1, 1 } };
		for (int e = 0; e < 4; e++) {
			int fits = kind == V_hipMemcpyDefault || kind == e;
			void *to = ends[e].to ? a : in, *from = ends[e].from ? b : out;
			RETURNS(fits ? 0 : V_hipErrorInvalidValue, hip.hipMemcpy(to, from, 64, (hipMemcpyKind)kind));
			RETURNS(fits ? 0 : V_hipErrorInvalidValue, hip.hipMemcpyAsync(to, from, 64, (hipMemcpyKind)kind, NULL));
			RETURNS(fits ? 0 : V_hipErrorInvalidValue, hip.hipMemcpyWithStream(to, from, 64, (hipMemcpyKind)kind, NULL));
		}
	}
	RETURNS(V_hipErrorInvalidMemcpyDirection, hip.hipMemcpy(a, out, 64, (hipMemcpyKind)5));
	RETURNS(V_hipErrorInvalidMemcpyDirection, hip.hipMemcpyAsync(a, out, 64, (hipMemcpyKind)-1, NULL));
	RETURNS(V_hipErrorInvalidMemcpyDirection, hip.hipMemcpyWithStream(a, out, 0, (hipMemcpyKind)7, NULL));
	/* round the whole way */
	OK(hip.hipMemcpy(a, out, 64, to_device));
	OK(hip.hipMemcpy(b, a, 64, on_device));
	OK(hip.hipMemcpy(pinned, b, 64, to_host)); /* pinned memory is the host's */
	OK(hip.hipMemcpy(in, pinned, 64, on_host));
	CHECK(!memcmp(in, out, 64));
	/* no further than the block goes */
	RETURNS(V_hipErrorInvalidValue, hip.hipMemcpy(a, out, 65, to_device));
	RETURNS(V_hipErrorInvalidValue, hip.hipMemcpy(in, (char *)a + 1, 64, any_way));
	RETURNS(V_hipErrorInvalidValue, hip.hipMemcpy(NULL, out, 8, any_way));
	OK(hip.hipMemcpy(NULL, NULL, 0, on_device));
	OK(hip.hipFree(a));
	RETURNS(V_hipErrorIllegalAddress, hip.hipMemcpy(in, a, 1, to_host)); /* after its free: it stays so */
	RETURNS(V_hipErrorIllegalAddress, hip.hipDeviceSynchronize());
}

TEST(copies_with_unpinned_memory_are_done_when_they_return)
{
	struct gate gate;
	unsigned char *plain = malloc(MIB);
	CHECK(plain);
	load();
	hipStream_t stream = new_stream();
	void *block = new_block(MIB);
	/* though the stream is not yet there: the copy waits for it */
	close_gate(&gate, stream);
	OK(hip.hipMemsetAsync(block, 5, MIB, stream));
	open_gate_when_called(&gate, "hipMemcpyAsync", 1);
	memset(plain, 0, MIB);
	OK(hip.hipMemcpyAsync(plain, block, MIB, to_host, stream));
	OK(hip.hipStreamQuery(stream));
	EQUAL(plain[MIB - 1], 5);
	/* it may not be counted on: the other way the call comes back before the stream is there, after staging */
	soft.set("pageable", 1);
	close_gate(&gate, stream);
	memset(plain, 6, MIB);
	OK(hip.hipMemcpyAsync(block, plain, MIB, to_device, stream));
	memset(plain, 7, MIB);
	open_gate(&gate);
	OK(hip.hipStreamSynchronize(stream));
	EQUAL(DEVICE_BYTES(block)[MIB - 1], 6);
	free(plain);
}

TEST(copies_with_pinned_memory_wait_for_nothing)
{
	struct gate gate;
	load();
	hipStream_t stream = new_stream();
	void *block = new_block(MIB);
	unsigned char *pinned = new_pinned(MIB);
	pinned[0] = 1;
	close_gate(&gate, stream);
	OK(hip.hipMemsetAsync(block, 5, MIB, stream));
	OK(hip.hipMemcpyAsync(pinned, block, MIB, to_host, stream));
	RETURNS(V_hipErrorNotReady, hip.hipStreamQuery(stream));
	EQUAL(pinned[0], 1);
	open_gate_when_called(&gate, "hipMemcpyWithStream", 1);
	OK(hip.hipMemcpyWithStream(pinned + 1, block, 8, to_host, stream)); /* this one waits, for all before it */
	OK(hip.hipStreamQuery(stream));
	EQUAL(pinned[0], 5);
}

TEST(a_synchronous_copy_inside_devices_is_not_waited_for)
{
	struct gate gate;
	unsigned char byte;
	load();
	void *a = new_block(64), *b = new_block(64);
	OK(hip.hipMemset(a, 1, 64));
	OK(hip.hipMemset(b, 2, 64));
	OK(hip.hipDeviceSynchronize());
	close_gate(&gate, NULL);
	OK(hip.hipMemcpy(a, b, 64, on_device));
	OK(hip.hipMemcpy(a, b, 64, any_way));
	EQUAL(*DEVICE_BYTES(a), 1);
	open_gate_when_called(&gate, "hipMemcpy", 3);
	OK(hip.hipMemcpy(&byte, a, 1, to_host)); /* with the host it is */
	EQUAL(byte, 2);
}

TEST(a_synchronous_copy_with_the_host_is_waited_for)
{
	struct gate gate;
	static unsigned char plain[64];
	load();
	soft.set("pageable", 1); /* only what must be done when it returns is */
	unsigned char *block = new_block(64), *pinned = new_pinned(64), *host[] = { pinned, plain };
	for (int i = 0; i < 2; i++) {
		close_gate(&gate, NULL);
		OK(hip.hipMemset(block, 8, 64));
		open_gate_when_called(&gate, "hipMemcpy", 1 + soft.calls("hipMemcpy"));
		OK(hip.hipMemcpy(host[i], block, 64, to_host));
		OK(hip.hipStreamQuery(NULL));
		EQUAL(host[i][63], 8);
	}
}

TEST(fills)
{
	unsigned char *a;
	uint32_t *words;
	uint16_t *halves;
	load();
	hipStream_t stream = new_stream();
	a = new_block(64);
	words = new_block(64);
	halves = new_block(64);
	OK(hip.hipMemset(a, 0x1ab, 64)); /* the low byte */
	OK(hip.hipMemsetD8((hipDeviceptr_t)(a + 1), 2, 1));
	OK(hip.hipMemsetD16(halves, 0x1234, 32));
	OK(hip.hipMemsetD32(words, -2, 16));
	OK(hip.hipDeviceSynchronize());
	EQUAL(a[0], 0xab);
	EQUAL(a[1], 2);
	EQUAL(a[63], 0xab);
	EQUAL(halves[31], 0x1234);
	EQUAL(words[15], 0xfffffffe);
	OK(hip.hipMemsetAsync(a, 3, 64, stream));
	OK(hip.hipMemsetD8Async(a, 4, 1, stream));
	OK(hip.hipMemsetD16Async(halves, 5, 32, stream));
	OK(hip.hipMemsetD32Async(words, 6, 16, stream));
	OK(hip.hipStreamSynchronize(stream));
	EQUAL(a[0], 4);
	EQUAL(a[63], 3);
	EQUAL(halves[0], 5);
	EQUAL(words[0], 6);
	static char plain[8];
	RETURNS(V_hipErrorInvalidValue, hip.hipMemset(plain, 1, 8)); /* memory that no device reaches */
	RETURNS(V_hipErrorInvalidValue, hip.hipMemset(a, 1, 65));
	RETURNS(V_hipErrorInvalidValue, hip.hipMemsetD32Async(words, 1, 17, stream));
}

/* Slow copies that race each other: each stream keeps its own order all the same. */
TEST(slow_and_racing_copies)
{
	enum { STREAMS = 4, ROUNDS = 20 };
	hipStream_t stream[STREAMS];
	unsigned char *block[STREAMS], *pinned[STREAMS];
	load();
	soft.set("jitter_us", 300);
	soft.set("delay_us", 20);
	for (int s = 0; s < STREAMS; s++) {
		stream[s] = new_stream();
		block[s] = new_block(4096);
		pinned[s] = new_pinned(4096 * ROUNDS);
	}
	for (int r = 0; r < ROUNDS; r++)
		for (int s = 0; s < STREAMS; s++) {
			OK(hip.hipMemsetAsync(block[s], r + s, 4096, stream[s]));
			OK(hip.hipMemcpyAsync(pinned[s] + 4096 * r, block[s], 4096, to_host, stream[s]));
		}
	OK(hip.hipDeviceSynchronize());
	for (int r = 0; r < ROUNDS; r++)
		for (int s = 0; s < STREAMS; s++) {
			EQUAL(pinned[s][4096 * r], r + s);
			EQUAL(pinned[s][4096 * r + 4095], r + s);
		}
}
