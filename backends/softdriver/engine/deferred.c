/* Frees that wait for queued work: a driver does not know what a kernel that is queued will touch, so they wait for all of it. */
#include "device.h"
#include "host.h"
#include "lock.h"
#include "stream.h"

/* Calls run (without the lock) when everything that is queued now is done: at once where nothing is. */
static void after_everything(struct soft_device *device, struct soft_operation *operation)
{
	if (!device->reaper) {
		device->reaper = soft_stream_new(device);
		device->reaper->non_blocking = 1;
	}
	struct soft_stream *reaper = device->reaper;
	for (int i = 0; i < soft_device_count(); i++)
		for (struct soft_stream *stream = soft_device(i)->streams; stream; stream = stream->next)
			if (stream != reaper && stream->done < stream->last)
				soft_stream_after(reaper, stream, stream->last);
	operation->internal = 1;
	uint64_t sequence = soft_stream_push(reaper, operation, 0);
	if (sequence == reaper->done + 1)
		soft_stream_wait(reaper, sequence);
}

static void wait_for_everything(void)
{
	for (int i = 0; i < soft_device_count(); i++)
		soft_stream_wait_all(soft_device(i), 0);
}

/* The live block that begins there, or NULL. */
static struct soft_block *live_block(uint64_t address)
{
	struct soft_block *block;
	int live = soft_place(address, &block) == SOFT_PLACE_BLOCK && block->state == SOFT_BLOCK_LIVE && block->address == address && !block->pool;
	return live ? block : NULL;
}

static void run_free(struct soft_operation *operation)
{
	soft_lock();
	soft_block_device(operation->end.block)->deferred--;
	soft_block_drop(operation->end.block);
	soft_unlock();
}

enum soft_result soft_free_deferred(uint64_t address)
{
	soft_lock();
	struct soft_block *block = live_block(address);
	if (block) {
		struct soft_operation *operation = soft_operation_new(run_free);
		operation->end.block = block;
		block->state = SOFT_BLOCK_FREED;
		soft_block_device(block)->deferred++;
		after_everything(soft_block_device(block), operation);
	}
	soft_unlock();
	return block ? SOFT_OK : SOFT_INVALID_VALUE;
}

enum soft_result soft_free_waiting(uint64_t address)
{
	soft_lock();
	struct soft_block *block = live_block(address);
	if (block) {
		block->state = SOFT_BLOCK_FREED; /* nobody else frees it, or begins to use it, meanwhile */
		wait_for_everything();
		soft_block_drop(block);
	}
	soft_unlock();
	return block ? SOFT_OK : SOFT_INVALID_VALUE;
}

static void run_host_free(struct soft_operation *operation)
{
	soft_lock();
	soft_host_end((uint64_t)(uintptr_t)operation->host.data);
	soft_unlock();
}

enum soft_result soft_host_drop_deferred(void *address)
{
	soft_lock();
	enum soft_result result = soft_host_ending((uint64_t)(uintptr_t)address);
	if (!result) {
		struct soft_operation *operation = soft_operation_new(run_host_free);
		operation->host.data = address;
		after_everything(soft_device(0), operation);
	}
	soft_unlock();
	return result;
}

enum soft_result soft_host_drop_waiting(void *address)
{
	soft_lock();
	enum soft_result result = soft_host_ending((uint64_t)(uintptr_t)address);
	if (!result) {
		wait_for_everything();
		soft_host_end((uint64_t)(uintptr_t)address);
	}
	soft_unlock();
	return result;
}
