/* Devices, and which of them a thread works with. */
#include <limits.h>

#include "client.h"

static int attribute(int which, int device)
{
	int value = -1;
	OK(hip.hipDeviceGetAttribute(&value, (hipDeviceAttribute_t)which, device));
	return value;
}

TEST(facts_about_devices)
{
	int count, device, can;
	char name[64], cut[8], bus[32];
	size_t bytes;
	hipUUID uuid, second;
	load_devices(2);
	soft.set("capacity.1", 12345678);
	OK(hip.hipGetDeviceCount(&count));
	EQUAL(count, 2);
	OK(hip.hipDeviceGet(&device, 1));
	EQUAL(device, 1);
	RETURNS(V_hipErrorInvalidDevice, hip.hipDeviceGet(&device, 2));
	OK(hip.hipDeviceGetName(name, sizeof name, 0));
	CHECK(!strcmp(name, "Software HIP device"));
	OK(hip.hipDeviceGetName(cut, sizeof cut, 0));
	CHECK(!strcmp(cut, "Softwar")); /* cut, and ended */
	RETURNS(V_hipErrorInvalidValue, hip.hipDeviceGetName(name, 0, 0));
	OK(hip.hipDeviceTotalMem(&bytes, 1));
	EQUAL(bytes, 12345678);
	OK(hip.hipDeviceGetUuid(&uuid, 0));
	OK(hip.hipDeviceGetUuid(&second, 1));
	CHECK(memcmp(&uuid, &second, sizeof uuid));
	for (unsigned i = 0; i < sizeof uuid.bytes; i++)
		CHECK(strchr("0123456789abcdef", uuid.bytes[i]) && uuid.bytes[i]);
	OK(hip.hipDeviceGetPCIBusId(bus, sizeof bus, 1));
	CHECK(!strcmp(bus, "0000:02:00.0"));
	OK(hip.hipDeviceCanAccessPeer(&can, 0, 1));
	EQUAL(can, 0);
	for (int wrong = -1; wrong < 3; wrong += 3) {
		RETURNS(V_hipErrorInvalidDevice, hip.hipSetDevice(wrong));
		RETURNS(V_hipErrorInvalidDevice, hip.hipDeviceGetUuid(&uuid, wrong));
		RETURNS(V_hipErrorInvalidDevice, hip.hipDeviceTotalMem(&bytes, wrong));
		RETURNS(V_hipErrorInvalidDevice, hip.hipDeviceGetName(name, sizeof name, wrong));
		RETURNS(V_hipErrorInvalidDevice, hip.hipDeviceGetAttribute(&can, (hipDeviceAttribute_t)V_hipDeviceAttributeWarpSize, wrong));
		RETURNS(V_hipErrorInvalidDevice, hip.hipDeviceGetPCIBusId(bus, sizeof bus, wrong));
	}
	int least, greatest;
	OK(hip.hipDeviceGetStreamPriorityRange(&least, &greatest));
	EQUAL(least, 1);
	EQUAL(greatest, -1);
}

TEST(attributes)
{
	int value;
	load_devices(2);
	EQUAL(V_hipDeviceAttributeMemoryPoolsSupported, 88);
	EQUAL(attribute(88, 0), 1);
	soft.set("pools", 0);
	EQUAL(attribute(88, 1), 0);
	EQUAL(attribute(V_hipDeviceAttributeWarpSize, 0), 64);
	EQUAL(attribute(V_hipDeviceAttributePciBusId, 1), 2);
	EQUAL(attribute(V_hipDeviceAttributeUnifiedAddressing, 0), 1);
	EQUAL(attribute(V_hipDeviceAttributeIntegrated, 0), 0);
	EQUAL(attribute(V_hipDeviceAttributeAmdSpecificBegin, 0), 0);
	/* what is no attribute */
	RETURNS(V_hipErrorInvalidValue, hip.hipDeviceGetAttribute(&value, (hipDeviceAttribute_t)-1, 0));
	RETURNS(V_hipErrorInvalidValue, hip.hipDeviceGetAttribute(&value, (hipDeviceAttribute_t)V_hipDeviceAttributeCudaCompatibleEnd, 0));
	RETURNS(V_hipErrorInvalidValue, hip.hipDeviceGetAttribute(&value, (hipDeviceAttribute_t)20000, 0));
}

static int current(void)
{
	int device = -1;
	OK(hip.hipGetDevice(&device));
	return device;
}

static int device_of(void *block)
{
	hipPointerAttribute_t attributes;
	OK(hip.hipPointerGetAttributes(&attributes, block));
	return attributes.device;
}

static void *on_device_one(void *unused)
{
	int device;
	EQUAL(current(), 0); /* a new thread starts with device 0, whatever others chose */
	OK(hip.hipSetDevice(1));
	EQUAL(device_of(new_block(100)), 1);
	hipStream_t stream = new_stream();
	OK(hip.hipSetDevice(0));
	OK(hip.hipStreamGetDevice(stream, &device)); /* it stays where it was made */
	EQUAL(device, 1);
	OK(hip.hipSetDevice(1));
	return unused;
}

TEST(each_thread_has_a_current_device)
{
	pthread_t thread;
	load_devices(3);
	EQUAL(current(), 0);
	OK(hip.hipSetDevice(2));
	CHECK(!pthread_create(&thread, NULL, on_device_one, NULL));
	CHECK(!pthread_join(thread, NULL));
	EQUAL(current(), 2);
	EQUAL(device_of(new_block(100)), 2);
	RETURNS(V_hipErrorInvalidDevice, hip.hipSetDevice(3)); /* refused: nothing changes */
	EQUAL(current(), 2);
	EQUAL(soft.get("live.0"), 0);
	EQUAL(soft.get("live.1"), 1);
	EQUAL(soft.get("live.2"), 1);
}

TEST(what_has_no_device_argument_works_on_the_current_one)
{
	size_t free_bytes, total;
	int device;
	void *block;
	struct gate gate;
	load_devices(2);
	soft.set("capacity.0", 8 * MIB);
	soft.set("capacity.1", 4 * MIB);
	OK(hip.hipSetDevice(1));
	void *far = new_block(MIB);
	OK(hip.hipMemGetInfo(&free_bytes, &total));
	EQUAL(free_bytes, 3 * MIB);
	EQUAL(total, 4 * MIB);
	OK(hip.hipMemGetInfo(NULL, &total)); /* each may be left out */
	OK(hip.hipStreamGetDevice(NULL, &device));
	EQUAL(device, 1);
	OK(hip.hipMallocAsync(&block, MIB, NULL)); /* the null stream of the current device */
	EQUAL(device_of(block), 1);
	/* a synchronise is of the current device only */
	hipStream_t stream = new_stream();
	close_gate(&gate, stream);
	OK(hip.hipSetDevice(0));
	OK(hip.hipDeviceSynchronize());
	OK(hip.hipStreamSynchronize(NULL));
	OK(hip.hipMemGetInfo(&free_bytes, NULL));
	EQUAL(free_bytes, 8 * MIB);
	RETURNS(V_hipErrorNotReady, hip.hipStreamQuery(stream));
	open_gate(&gate);
	/* another device's memory is freed, copied and filled from here */
	char byte = 3;
	OK(hip.hipMemset(far, 5, MIB));
	OK(hip.hipMemcpy(&byte, far, 1, (hipMemcpyKind)V_hipMemcpyDeviceToHost));
	EQUAL(byte, 5);
	OK(hip.hipFree(far));
	OK(hip.hipFreeAsync(block, stream));
	OK(hip.hipStreamSynchronize(stream));
	EQUAL(soft.get("live"), 0);
}

TEST(a_reset_ends_what_is_on_the_device)
{
	struct gate gate;
	hipEvent_t event;
	load_devices(2);
	hipStream_t stream = new_stream();
	void *block = new_block(MIB), *other;
	OK(hip.hipEventCreate(&event));
	OK(hip.hipSetDevice(1));
	other = new_block(MIB);
	OK(hip.hipSetDevice(0));
	close_gate(&gate, stream);
	OK(hip.hipMemsetAsync(block, 1, MIB, stream));
	open_gate_when_called(&gate, "hipDeviceReset", 1);
	OK(hip.hipDeviceReset()); /* after its work */
	EQUAL(soft.get("live.0"), 0);
	EQUAL(soft.get("reserved.0"), 0);
	EQUAL(soft.get("live.1"), 1);
	RETURNS(V_hipErrorInvalidHandle, hip.hipStreamQuery(stream));
	RETURNS(V_hipErrorInvalidHandle, hip.hipEventQuery(event));
	RETURNS(V_hipErrorInvalidValue, hip.hipFree(block));
	OK(hip.hipFree(other));
	OK(hip.hipFree(new_block(MIB))); /* and one can go on */
}
