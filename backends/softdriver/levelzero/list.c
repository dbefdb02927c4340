/* Command lists: immediate ones, which are queues of their own, and the others, which record commands for a queue. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../engine/lock.h"
#include "../engine/record.h"
#include "queue.h"

static struct ze_list *list_of(ze_command_list_handle_t handle) { return ZE_OBJECT(ze_list, handle); }

static ze_command_list_handle_t open_list(ze_context_handle_t context, ze_device_handle_t device, uint32_t ordinal, int immediate, int in_order, int synchronous)
{
	struct ze_list *list = soft_records(1, sizeof *list);
	list->context = ZE_OBJECT(ze_context, context);
	list->device = ZE_OBJECT(soft_device, device);
	list->ordinal = ordinal;
	list->immediate = immediate;
	list->in_order = in_order;
	list->synchronous = synchronous;
	soft_lock();
	if (immediate)
		ze_lanes_open(&list->lanes, list->device, in_order);
	soft_handle_add(list, (enum soft_kind)ZE_LIST);
	list->context->objects++;
	soft_unlock();
	return ZE_HANDLE(ze_command_list_handle_t, list);
}

ze_result_t zeCommandListCreate(ze_context_handle_t context, ze_device_handle_t device, const ze_command_list_desc_t *desc, ze_command_list_handle_t *out)
{
	ENTER(zeCommandListCreate);
	NEED_HANDLE(context, ZE_CONTEXT);
	NEED_HANDLE(device, ZE_DEVICE);
	NEED_STRUCTURE(desc, ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC);
	NEED_POINTER(out);
	NEED_FLAGS(desc->flags, V_ZE_COMMAND_LIST_FLAG_RELAXED_ORDERING | V_ZE_COMMAND_LIST_FLAG_MAXIMIZE_THROUGHPUT | V_ZE_COMMAND_LIST_FLAG_EXPLICIT_ONLY |
	                            (ze_knows(ZE_VERSION(1, 7)) ? V_ZE_COMMAND_LIST_FLAG_IN_ORDER : 0) |
	                            (ze_knows(ZE_VERSION(1, 8)) ? V_ZE_COMMAND_LIST_FLAG_EXP_CLONEABLE : 0) |
	                            (ze_knows(ZE_VERSION(1, 15)) ? V_ZE_COMMAND_LIST_FLAG_COPY_OFFLOAD_HINT : 0));
	REFUSE_UNLESS(desc->commandQueueGroupOrdinal < ZE_QUEUE_GROUPS, ERROR_INVALID_ARGUMENT);
	REFUSE_UNLESS(ze_driver_of(ZE_OBJECT(soft_device, device)) == ZE_OBJECT(ze_context, context)->driver, ERROR_INVALID_ARGUMENT);
	*out = open_list(context, device, desc->commandQueueGroupOrdinal, 0, (desc->flags & V_ZE_COMMAND_LIST_FLAG_IN_ORDER) != 0, 0);
	return ze_result(SOFT_OK);
}

ze_result_t zeCommandListCreateImmediate(ze_context_handle_t context, ze_device_handle_t device, const ze_command_queue_desc_t *desc,
                                         ze_command_list_handle_t *out)
{
	ENTER(zeCommandListCreateImmediate);
	ze_result_t result = ze_queue_desc_check(context, device, desc);
	if (result)
		return result;
	NEED_POINTER(out);
	*out = open_list(context, device, desc->ordinal, 1, (desc->flags & V_ZE_COMMAND_QUEUE_FLAG_IN_ORDER) != 0,
	                 (int)desc->mode == V_ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
	return ze_result(SOFT_OK);
}

static void empty_locked(struct ze_list *list)
{
	for (unsigned i = 0; i < list->count; i++)
		free(list->commands[i].waits);
	list->count = 0;
	ze_mark_clear(&list->execution);
}

static int in_use_locked(const struct ze_list *list) { return list->immediate ? !ze_lanes_idle(&list->lanes) : !ze_mark_passed(&list->execution); }

ze_result_t zeCommandListDestroy(ze_command_list_handle_t handle)
{
	ENTER(zeCommandListDestroy);
	NEED_HANDLE(handle, ZE_LIST);
	struct ze_list *list = list_of(handle);
	soft_lock();
	int in_use = in_use_locked(list);
	if (!in_use) {
		soft_handle_remove(list);
		list->context->objects--;
		empty_locked(list);
		ze_lanes_close(&list->lanes);
	}
	soft_unlock();
	REFUSE_UNLESS(!in_use, ERROR_HANDLE_OBJECT_IN_USE);
	free(list->commands);
	free(list);
	return ze_result(SOFT_OK);
}

ze_result_t zeCommandListClose(ze_command_list_handle_t handle)
{
	ENTER(zeCommandListClose);
	NEED_HANDLE(handle, ZE_LIST);
	struct ze_list *list = list_of(handle);
	soft_lock();
	int open = !list->immediate && !list->closed;
	if (open)
		list->closed = 1;
	soft_unlock();
	REFUSE_UNLESS(open, ERROR_INVALID_ARGUMENT);
	return ze_result(SOFT_OK);
}

ze_result_t zeCommandListReset(ze_command_list_handle_t handle)
{
	ENTER(zeCommandListReset);
	NEED_HANDLE(handle, ZE_LIST);
	struct ze_list *list = list_of(handle);
	REFUSE_UNLESS(!list->immediate, ERROR_INVALID_ARGUMENT);
	soft_lock();
	int in_use = in_use_locked(list);
	if (!in_use) {
		empty_locked(list);
		list->closed = 0;
	}
	soft_unlock();
	REFUSE_UNLESS(!in_use, ERROR_HANDLE_OBJECT_IN_USE);
	return ze_result(SOFT_OK);
}

ze_result_t zeCommandListHostSynchronize(ze_command_list_handle_t handle, uint64_t nanoseconds)
{
	ENTER(zeCommandListHostSynchronize);
	NEED_HANDLE(handle, ZE_LIST);
	REFUSE_UNLESS(list_of(handle)->immediate, ERROR_INVALID_ARGUMENT);
	return ze_result(ze_lanes_wait(&list_of(handle)->lanes, nanoseconds) ? SOFT_OK : SOFT_NOT_READY);
}

ze_result_t zeCommandListIsImmediate(ze_command_list_handle_t handle, ze_bool_t *immediate)
{
	ENTER(zeCommandListIsImmediate);
	NEED_HANDLE(handle, ZE_LIST);
	NEED_POINTER(immediate);
	*immediate = list_of(handle)->immediate != 0;
	return ze_result(SOFT_OK);
}

ze_result_t zeCommandListGetContextHandle(ze_command_list_handle_t handle, ze_context_handle_t *context)
{
	ENTER(zeCommandListGetContextHandle);
	NEED_HANDLE(handle, ZE_LIST);
	NEED_POINTER(context);
	*context = ZE_HANDLE(ze_context_handle_t, list_of(handle)->context);
	return ze_result(SOFT_OK);
}

ze_result_t zeCommandListGetDeviceHandle(ze_command_list_handle_t handle, ze_device_handle_t *device)
{
	ENTER(zeCommandListGetDeviceHandle);
	NEED_HANDLE(handle, ZE_LIST);
	NEED_POINTER(device);
	*device = ZE_HANDLE(ze_device_handle_t, list_of(handle)->device);
	return ze_result(SOFT_OK);
}

/* ---- commands ---- */

static void record_locked(struct ze_list *list, const struct ze_command *command)
{
	if (list->count == list->room) {
		list->room = list->room ? 2 * list->room : 16;
		list->commands = soft_records_grown(list->commands, list->room, sizeof *list->commands);
	}
	struct ze_command *copy = &list->commands[list->count++];
	*copy = *command;
	copy->waits = NULL;
	if (command->wait_count) {
		copy->waits = soft_records(command->wait_count, sizeof *copy->waits);
		memcpy(copy->waits, command->waits, command->wait_count * sizeof *copy->waits);
	}
}

static ze_result_t append_locked(struct ze_list *list, const struct ze_command *command)
{
	if (list->immediate) {
		ze_result_t result = ze_command_check(command, list->context);
		if (!result)
			ze_command_put(command, &list->lanes);
		return result;
	}
	REFUSE_UNLESS(!list->closed, ERROR_INVALID_ARGUMENT);
	record_locked(list, command);
	return ZE_RESULT_SUCCESS;
}

/* Lists are the client's to guard: two threads in one of them at a time would corrupt a real driver's memory, so here that is the end, too. */
static ze_result_t append(ze_command_list_handle_t handle, struct ze_command *command, ze_event_handle_t signal, uint32_t wait_count, ze_event_handle_t *waits)
{
	struct ze_list *list = list_of(handle);
	REFUSE_UNLESS(waits || !wait_count, ERROR_INVALID_SIZE);
	command->signal = signal;
	command->wait_count = wait_count;
	command->waits = waits;
	if (atomic_fetch_add(&list->appending, 1)) {
		fprintf(stderr, "%s: two threads append to one command list at the same time\n", soft_abi.name);
		soft_poison(SOFT_ILLEGAL_ADDRESS);
	}
	soft_lock();
	ze_result_t result = append_locked(list, command);
	soft_unlock();
	atomic_fetch_sub(&list->appending, 1);
	if (result)
		return result;
	if (list->immediate && list->synchronous)
		ze_lanes_wait(&list->lanes, UINT64_MAX);
	return ze_result(SOFT_OK);
}

ze_result_t zeCommandListAppendMemoryCopy(ze_command_list_handle_t list, void *to, const void *from, size_t bytes, ze_event_handle_t signal, uint32_t wait_count,
                                          ze_event_handle_t *waits)
{
	ENTER(zeCommandListAppendMemoryCopy);
	NEED_HANDLE(list, ZE_LIST);
	NEED_POINTER(to);
	NEED_POINTER(from);
	struct ze_command command = { .kind = ZE_COPY, .to = (uint64_t)(uintptr_t)to, .from = (uint64_t)(uintptr_t)from, .bytes = bytes };
	return append(list, &command, signal, wait_count, waits);
}

ze_result_t zeCommandListAppendMemoryFill(ze_command_list_handle_t list, void *to, const void *pattern, size_t width, size_t bytes, ze_event_handle_t signal,
                                          uint32_t wait_count, ze_event_handle_t *waits)
{
	ENTER(zeCommandListAppendMemoryFill);
	NEED_HANDLE(list, ZE_LIST);
	NEED_POINTER(to);
	NEED_POINTER(pattern);
	REFUSE_UNLESS(width && !(width & (width - 1)) && width <= (size_t)soft_setting(&ze_settings.fill_pattern) && bytes % width == 0, ERROR_INVALID_SIZE);
	REFUSE_UNLESS((uintptr_t)to % width == 0, ERROR_UNSUPPORTED_ALIGNMENT);
	struct ze_command command = { .kind = ZE_FILL, .to = (uint64_t)(uintptr_t)to, .bytes = bytes, .width = (unsigned)width };
	memcpy(command.pattern, pattern, width);
	return append(list, &command, signal, wait_count, waits);
}

ze_result_t zeCommandListAppendBarrier(ze_command_list_handle_t list, ze_event_handle_t signal, uint32_t wait_count, ze_event_handle_t *waits)
{
	ENTER(zeCommandListAppendBarrier);
	NEED_HANDLE(list, ZE_LIST);
	struct ze_command command = { .kind = ZE_BARRIER };
	return append(list, &command, signal, wait_count, waits);
}

ze_result_t zeCommandListAppendWaitOnEvents(ze_command_list_handle_t list, uint32_t count, ze_event_handle_t *events)
{
	ENTER(zeCommandListAppendWaitOnEvents);
	NEED_HANDLE(list, ZE_LIST);
	NEED_POINTER(events);
	struct ze_command command = { .kind = ZE_WAIT };
	return append(list, &command, NULL, count, events);
}

static ze_result_t append_event(ze_command_list_handle_t list, enum ze_command_kind kind, ze_event_handle_t event)
{
	NEED_HANDLE(list, ZE_LIST);
	NEED_HANDLE(event, ZE_EVENT);
	struct ze_command command = { .kind = kind };
	return append(list, &command, event, 0, NULL);
}

ze_result_t zeCommandListAppendSignalEvent(ze_command_list_handle_t list, ze_event_handle_t event)
{
	ENTER(zeCommandListAppendSignalEvent);
	return append_event(list, ZE_SIGNAL, event);
}

ze_result_t zeCommandListAppendEventReset(ze_command_list_handle_t list, ze_event_handle_t event)
{
	ENTER(zeCommandListAppendEventReset);
	return append_event(list, ZE_RESET, event);
}
