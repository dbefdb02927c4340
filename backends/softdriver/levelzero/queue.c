/* Command queues and fences. */
#include "queue.h"

#include <stdlib.h>

#include "../engine/lock.h"
#include "../engine/record.h"

struct ze_fence {
	struct ze_queue *queue;
	int signaled; /* by its creation; else by `execution`, once it was submitted */
	int submitted;
	struct ze_mark execution;
};

ze_result_t ze_queue_desc_check(ze_context_handle_t context, ze_device_handle_t device, const ze_command_queue_desc_t *desc)
{
	NEED_HANDLE(context, ZE_CONTEXT);
	NEED_HANDLE(device, ZE_DEVICE);
	NEED_STRUCTURE(desc, ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC);
	NEED_FLAGS(desc->flags, V_ZE_COMMAND_QUEUE_FLAG_EXPLICIT_ONLY | (ze_knows(ZE_VERSION(1, 7)) ? V_ZE_COMMAND_QUEUE_FLAG_IN_ORDER : 0) |
	                            (ze_knows(ZE_VERSION(1, 14)) ? V_ZE_COMMAND_QUEUE_FLAG_COPY_OFFLOAD_HINT : 0));
	REFUSE_UNLESS((unsigned)desc->mode <= V_ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS, ERROR_INVALID_ENUMERATION);
	REFUSE_UNLESS((unsigned)desc->priority <= V_ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH, ERROR_INVALID_ENUMERATION);
	REFUSE_UNLESS(desc->ordinal < ZE_QUEUE_GROUPS && desc->index < ZE_QUEUES_OF_A_GROUP, ERROR_INVALID_ARGUMENT);
	REFUSE_UNLESS(ze_driver_of(ZE_OBJECT(soft_device, device)) == ZE_OBJECT(ze_context, context)->driver, ERROR_INVALID_ARGUMENT);
	return ZE_RESULT_SUCCESS;
}

ze_result_t zeCommandQueueCreate(ze_context_handle_t context, ze_device_handle_t device, const ze_command_queue_desc_t *desc, ze_command_queue_handle_t *out)
{
	ENTER(zeCommandQueueCreate);
	ze_result_t result = ze_queue_desc_check(context, device, desc);
	if (result)
		return result;
	NEED_POINTER(out);
	struct ze_queue *queue = soft_records(1, sizeof *queue);
	queue->context = ZE_OBJECT(ze_context, context);
	queue->ordinal = desc->ordinal;
	queue->synchronous = (int)desc->mode == V_ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
	soft_lock();
	ze_lanes_open(&queue->lanes, ZE_OBJECT(soft_device, device), 0); /* the flag IN_ORDER is for immediate lists only */
	soft_handle_add(queue, (enum soft_kind)ZE_QUEUE);
	queue->context->objects++;
	soft_unlock();
	*out = ZE_HANDLE(ze_command_queue_handle_t, queue);
	return ze_result(SOFT_OK);
}

ze_result_t zeCommandQueueDestroy(ze_command_queue_handle_t handle)
{
	ENTER(zeCommandQueueDestroy);
	NEED_HANDLE(handle, ZE_QUEUE);
	struct ze_queue *queue = ZE_OBJECT(ze_queue, handle);
	soft_lock();
	int in_use = queue->fences || !ze_lanes_idle(&queue->lanes);
	if (!in_use) {
		soft_handle_remove(queue);
		queue->context->objects--;
		ze_lanes_close(&queue->lanes);
	}
	soft_unlock();
	REFUSE_UNLESS(!in_use, ERROR_HANDLE_OBJECT_IN_USE);
	free(queue);
	return ze_result(SOFT_OK);
}

/* Before anything is queued: every list can be executed here, and every command of it can. */
static ze_result_t executable_locked(const struct ze_queue *queue, const struct ze_list *list)
{
	REFUSE_UNLESS(list, ERROR_INVALID_NULL_HANDLE);
	REFUSE_UNLESS(soft_handle_is(list, (enum soft_kind)ZE_LIST), ERROR_INVALID_ARGUMENT);
	REFUSE_UNLESS(!list->immediate && list->ordinal == queue->ordinal, ERROR_INVALID_COMMAND_LIST_TYPE);
	REFUSE_UNLESS(list->closed && list->context == queue->context && list->device == queue->lanes.lane[0]->device, ERROR_INVALID_ARGUMENT);
	REFUSE_UNLESS(ze_mark_passed(&list->execution), ERROR_HANDLE_OBJECT_IN_USE);
	for (unsigned i = 0; i < list->count; i++) {
		ze_result_t result = ze_command_check(&list->commands[i], list->context);
		if (result)
			return result;
	}
	return ZE_RESULT_SUCCESS;
}

static void execute_locked(struct ze_queue *queue, struct ze_list *list)
{
	ze_lanes_turn(&queue->lanes);
	queue->lanes.held = list->in_order;
	for (unsigned i = 0; i < list->count; i++)
		ze_command_put(&list->commands[i], &queue->lanes);
	queue->lanes.held = 0;
	ze_mark_set(&list->execution, &queue->lanes);
}

static ze_result_t submit_locked(struct ze_queue *queue, uint32_t count, ze_command_list_handle_t *lists, struct ze_fence *fence)
{
	REFUSE_UNLESS(!fence || soft_handle_is(fence, (enum soft_kind)ZE_FENCE), ERROR_INVALID_SYNCHRONIZATION_OBJECT);
	/* A fence that was not reset tells the host of work that is long done. */
	REFUSE_UNLESS(!fence || (fence->queue == queue && !fence->signaled && !fence->submitted), ERROR_INVALID_SYNCHRONIZATION_OBJECT);
	for (uint32_t i = 0; i < count; i++) {
		ze_result_t result = executable_locked(queue, ZE_OBJECT(ze_list, lists[i]));
		if (result)
			return result;
	}
	for (uint32_t i = 0; i < count; i++)
		execute_locked(queue, ZE_OBJECT(ze_list, lists[i]));
	if (fence) {
		fence->submitted = 1;
		ze_mark_set(&fence->execution, &queue->lanes);
	}
	return ze_result(SOFT_OK);
}

ze_result_t zeCommandQueueExecuteCommandLists(ze_command_queue_handle_t handle, uint32_t count, ze_command_list_handle_t *lists, ze_fence_handle_t fence)
{
	ENTER(zeCommandQueueExecuteCommandLists);
	NEED_HANDLE(handle, ZE_QUEUE);
	NEED_POINTER(lists);
	REFUSE_UNLESS(count, ERROR_INVALID_SIZE);
	struct ze_queue *queue = ZE_OBJECT(ze_queue, handle);
	soft_lock();
	ze_result_t result = submit_locked(queue, count, lists, ZE_OBJECT(ze_fence, fence));
	soft_unlock();
	if (!result && queue->synchronous) {
		ze_lanes_wait(&queue->lanes, UINT64_MAX);
		result = ze_result(SOFT_OK);
	}
	return result;
}

ze_result_t zeCommandQueueSynchronize(ze_command_queue_handle_t handle, uint64_t nanoseconds)
{
	ENTER(zeCommandQueueSynchronize);
	NEED_HANDLE(handle, ZE_QUEUE);
	return ze_result(ze_lanes_wait(&ZE_OBJECT(ze_queue, handle)->lanes, nanoseconds) ? SOFT_OK : SOFT_NOT_READY);
}

/* ---- fences ---- */

ze_result_t zeFenceCreate(ze_command_queue_handle_t handle, const ze_fence_desc_t *desc, ze_fence_handle_t *out)
{
	ENTER(zeFenceCreate);
	NEED_HANDLE(handle, ZE_QUEUE);
	NEED_STRUCTURE(desc, ZE_STRUCTURE_TYPE_FENCE_DESC);
	NEED_FLAGS(desc->flags, V_ZE_FENCE_FLAG_SIGNALED);
	NEED_POINTER(out);
	struct ze_fence *fence = soft_records(1, sizeof *fence);
	fence->queue = ZE_OBJECT(ze_queue, handle);
	fence->signaled = desc->flags == V_ZE_FENCE_FLAG_SIGNALED;
	soft_lock();
	fence->queue->fences++;
	soft_handle_add(fence, (enum soft_kind)ZE_FENCE);
	soft_unlock();
	*out = ZE_HANDLE(ze_fence_handle_t, fence);
	return ze_result(SOFT_OK);
}

ze_result_t zeFenceDestroy(ze_fence_handle_t handle)
{
	ENTER(zeFenceDestroy);
	NEED_HANDLE(handle, ZE_FENCE);
	struct ze_fence *fence = ZE_OBJECT(ze_fence, handle);
	soft_lock();
	int in_use = !ze_mark_passed(&fence->execution);
	if (!in_use) {
		soft_handle_remove(fence);
		fence->queue->fences--;
		ze_mark_clear(&fence->execution);
	}
	soft_unlock();
	REFUSE_UNLESS(!in_use, ERROR_HANDLE_OBJECT_IN_USE);
	free(fence);
	return ze_result(SOFT_OK);
}

static ze_result_t status(const struct ze_fence *fence)
{
	soft_lock();
	int signaled = fence->signaled || (fence->submitted && ze_mark_passed(&fence->execution));
	soft_unlock();
	return ze_result(signaled ? SOFT_OK : SOFT_NOT_READY);
}

ze_result_t zeFenceQueryStatus(ze_fence_handle_t handle)
{
	ENTER(zeFenceQueryStatus);
	NEED_HANDLE(handle, ZE_FENCE);
	return status(ZE_OBJECT(ze_fence, handle));
}

ze_result_t zeFenceHostSynchronize(ze_fence_handle_t handle, uint64_t nanoseconds)
{
	ENTER(zeFenceHostSynchronize);
	NEED_HANDLE(handle, ZE_FENCE);
	struct ze_fence *fence = ZE_OBJECT(ze_fence, handle);
	soft_lock();
	int signaled = fence->signaled, submitted = fence->submitted;
	soft_unlock();
	if (signaled || !nanoseconds)
		return status(fence);
	REFUSE_UNLESS(submitted, ERROR_INVALID_SYNCHRONIZATION_OBJECT); /* nobody would ever signal it */
	return ze_result(ze_mark_wait(&fence->execution, nanoseconds) ? SOFT_OK : SOFT_NOT_READY);
}

ze_result_t zeFenceReset(ze_fence_handle_t handle)
{
	ENTER(zeFenceReset);
	NEED_HANDLE(handle, ZE_FENCE);
	struct ze_fence *fence = ZE_OBJECT(ze_fence, handle);
	soft_lock();
	int in_use = !ze_mark_passed(&fence->execution);
	if (!in_use) {
		fence->signaled = fence->submitted = 0;
		ze_mark_clear(&fence->execution);
	}
	soft_unlock();
	REFUSE_UNLESS(!in_use, ERROR_HANDLE_OBJECT_IN_USE);
	return ze_result(SOFT_OK);
}
