#include "client.h"

struct api hip;

void load(void)
{
	open_library();
#define F(name, since, result, parameters) hip.name = (result(*) parameters)symbol(#name);
#include "../../hip/functions.def"
#undef F
}

void load_devices(int count)
{
	load();
	EQUAL(soft.set("devices", count), 0);
}

hipStream_t new_stream(void)
{
	hipStream_t stream;
	OK(hip.hipStreamCreateWithFlags(&stream, V_hipStreamNonBlocking));
	return stream;
}

void *new_block(size_t bytes)
{
	void *block;
	OK(hip.hipMalloc(&block, bytes));
	return block;
}

void *new_pinned(size_t bytes)
{
	void *pinned;
	OK(hip.hipHostMalloc(&pinned, bytes, 0));
	return pinned;
}

hipMemPool_t new_pool(size_t most)
{
	hipMemPool_t pool;
	hipMemPoolProps props;
	memset(&props, 0, sizeof props);
	props.allocType = V_hipMemAllocationTypePinned;
	props.location.type = V_hipMemLocationTypeDevice;
	props.maxSize = most;
	OK(hip.hipMemPoolCreate(&pool, &props));
	return pool;
}

void close_gate(struct gate *gate, hipStream_t stream)
{
	make_gate(gate);
	OK(hip.hipLaunchHostFunc(stream, stand_at_gate, gate));
}

struct opener {
	struct gate *gate;
	const char *function;
	unsigned long calls;
};

static void *wait_and_open(void *argument)
{
	struct opener opener = *(struct opener *)argument;
	free(argument);
	while (soft.calls(opener.function) < opener.calls)
		usleep(100);
	usleep(20000); /* whoever does not wait is through by now, mostly */
	open_gate(opener.gate);
	return NULL;
}

void open_gate_when_called(struct gate *gate, const char *function, unsigned long calls)
{
	pthread_t thread;
	struct opener *opener = malloc(sizeof *opener);
	CHECK(opener);
	*opener = (struct opener){ gate, function, calls };
	CHECK(!pthread_create(&thread, NULL, wait_and_open, opener));
	CHECK(!pthread_detach(thread));
}
