#include "event.h"

#include <stdlib.h>

#include "../engine/lock.h"
#include "../engine/record.h"
#include "../engine/stream.h"

static int known(const struct ze_event *event) { return soft_handle_is(event, (enum soft_kind)ZE_EVENT); }

int ze_events_known(const ze_event_handle_t *handles, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (!known(ZE_OBJECT(ze_event, handles[i])))
			return 0;
	return 1;
}

static void set(struct ze_event *event, int signaled)
{
	event->signaled = signaled;
	if (signaled)
		pthread_cond_broadcast(&event->changed);
}

/* ---- on a device ---- */

static void run_signal(struct soft_operation *operation)
{
	struct ze_event *event = operation->host.data;
	soft_lock();
	set(event, 1);
	event->queued--;
	soft_unlock();
}

static void run_reset(struct soft_operation *operation)
{
	struct ze_event *event = operation->host.data;
	soft_lock();
	set(event, 0);
	event->queued--;
	soft_unlock();
}

/* Until the event is signaled, the time is over, or the device is lost: then nobody may be left who would signal it. The loss wakes nobody, so it
 * is looked for now and then. */
static void await(struct ze_event *event, uint64_t nanoseconds)
{
	enum { LOOK_NS = 10000000 };
	struct timespec end;
	for (uint64_t left = nanoseconds; left && !event->signaled && !soft_sticky_code();) {
		uint64_t turn = left < LOOK_NS ? left : LOOK_NS;
		soft_deadline(&end, turn);
		int over = pthread_cond_timedwait(&event->changed, &soft_mutex, &end);
		if (over && nanoseconds != UINT64_MAX)
			left -= turn;
	}
}

static void run_wait(struct soft_operation *operation)
{
	struct ze_event *event = operation->host.data;
	soft_lock();
	await(event, UINT64_MAX);
	event->queued--;
	soft_unlock();
}

static void put(struct soft_stream *stream, struct ze_event *event, void (*run)(struct soft_operation *))
{
	struct soft_operation *operation = soft_operation_new(run);
	operation->internal = 1;
	operation->worker_only = run == run_wait; /* may take for ever: not on a thread that waits with a timeout, or for something else */
	operation->host.data = event;
	event->queued++;
	soft_stream_push(stream, operation, 0);
}

void ze_event_signal_on(struct soft_stream *stream, struct ze_event *event) { put(stream, event, run_signal); }
void ze_event_reset_on(struct soft_stream *stream, struct ze_event *event) { put(stream, event, run_reset); }
void ze_event_wait_on(struct soft_stream *stream, struct ze_event *event) { put(stream, event, run_wait); }

/* ---- pools ---- */

ze_result_t zeEventPoolCreate(ze_context_handle_t context, const ze_event_pool_desc_t *desc, uint32_t device_count, ze_device_handle_t *devices,
                              ze_event_pool_handle_t *out)
{
	ENTER(zeEventPoolCreate);
	NEED_HANDLE(context, ZE_CONTEXT);
	NEED_STRUCTURE(desc, ZE_STRUCTURE_TYPE_EVENT_POOL_DESC);
	NEED_POINTER(out);
	NEED_FLAGS(desc->flags, V_ZE_EVENT_POOL_FLAG_HOST_VISIBLE | V_ZE_EVENT_POOL_FLAG_IPC | V_ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP |
	                            (ze_knows(ZE_VERSION(1, 6)) ? V_ZE_EVENT_POOL_FLAG_KERNEL_MAPPED_TIMESTAMP : 0));
	REFUSE_UNLESS(desc->count && (devices || !device_count), ERROR_INVALID_SIZE);
	for (uint32_t i = 0; i < device_count; i++)
		NEED_HANDLE(devices[i], ZE_DEVICE);
	struct ze_pool *pool = soft_records(1, sizeof *pool);
	pool->context = ZE_OBJECT(ze_context, context);
	pool->count = desc->count;
	pool->host_visible = (desc->flags & V_ZE_EVENT_POOL_FLAG_HOST_VISIBLE) != 0;
	pool->events = soft_records(pool->count, sizeof(struct ze_event *));
	soft_lock();
	soft_handle_add(pool, (enum soft_kind)ZE_EVENT_POOL);
	pool->context->objects++;
	soft_unlock();
	*out = ZE_HANDLE(ze_event_pool_handle_t, pool);
	return ze_result(SOFT_OK);
}

ze_result_t zeEventPoolDestroy(ze_event_pool_handle_t handle)
{
	ENTER(zeEventPoolDestroy);
	NEED_HANDLE(handle, ZE_EVENT_POOL);
	struct ze_pool *pool = ZE_OBJECT(ze_pool, handle);
	soft_lock();
	int in_use = pool->live != 0;
	if (!in_use) {
		soft_handle_remove(pool);
		pool->context->objects--;
	}
	soft_unlock();
	REFUSE_UNLESS(!in_use, ERROR_HANDLE_OBJECT_IN_USE);
	free(pool->events);
	free(pool);
	return ze_result(SOFT_OK);
}

ze_result_t zeEventCreate(ze_event_pool_handle_t handle, const ze_event_desc_t *desc, ze_event_handle_t *out)
{
	enum { SCOPES = V_ZE_EVENT_SCOPE_FLAG_SUBDEVICE | V_ZE_EVENT_SCOPE_FLAG_DEVICE | V_ZE_EVENT_SCOPE_FLAG_HOST };
	ENTER(zeEventCreate);
	NEED_HANDLE(handle, ZE_EVENT_POOL);
	NEED_STRUCTURE(desc, ZE_STRUCTURE_TYPE_EVENT_DESC);
	NEED_POINTER(out);
	NEED_FLAGS(desc->signal, SCOPES);
	NEED_FLAGS(desc->wait, SCOPES);
	struct ze_pool *pool = ZE_OBJECT(ze_pool, handle);
	struct ze_event *event = soft_records(1, sizeof *event);
	event->pool = pool;
	event->index = desc->index;
	pthread_cond_init(&event->changed, NULL);
	soft_lock();
	int free_place = desc->index < pool->count && !pool->events[desc->index];
	if (free_place) {
		pool->events[desc->index] = event;
		pool->live++;
		soft_handle_add(event, (enum soft_kind)ZE_EVENT);
	}
	soft_unlock();
	if (!free_place) {
		pthread_cond_destroy(&event->changed);
		free(event);
	}
	REFUSE_UNLESS(free_place, ERROR_INVALID_ARGUMENT);
	*out = ZE_HANDLE(ze_event_handle_t, event);
	return ze_result(SOFT_OK);
}

/* ---- on the host ---- */

ze_result_t zeEventDestroy(ze_event_handle_t handle)
{
	ENTER(zeEventDestroy);
	NEED_HANDLE(handle, ZE_EVENT);
	struct ze_event *event = ZE_OBJECT(ze_event, handle);
	soft_lock();
	int in_use = event->queued || event->waiting;
	if (!in_use) {
		soft_handle_remove(event);
		event->pool->events[event->index] = NULL;
		event->pool->live--;
	}
	soft_unlock();
	REFUSE_UNLESS(!in_use, ERROR_HANDLE_OBJECT_IN_USE);
	pthread_cond_destroy(&event->changed);
	free(event);
	return ze_result(SOFT_OK);
}

static ze_result_t set_by_host(ze_event_handle_t handle, int signaled)
{
	NEED_HANDLE(handle, ZE_EVENT);
	struct ze_event *event = ZE_OBJECT(ze_event, handle);
	soft_lock();
	set(event, signaled);
	soft_unlock();
	return ze_result(SOFT_OK);
}

ze_result_t zeEventHostSignal(ze_event_handle_t event)
{
	ENTER(zeEventHostSignal);
	return set_by_host(event, 1);
}

ze_result_t zeEventHostReset(ze_event_handle_t event)
{
	ENTER(zeEventHostReset);
	return set_by_host(event, 0);
}

/* What a pool does not show to the host, the host may never see. */
static ze_result_t wait_on_host(ze_event_handle_t handle, uint64_t nanoseconds)
{
	NEED_HANDLE(handle, ZE_EVENT);
	struct ze_event *event = ZE_OBJECT(ze_event, handle);
	REFUSE_UNLESS(event->pool->host_visible, ERROR_INVALID_SYNCHRONIZATION_OBJECT);
	soft_lock();
	event->waiting++;
	await(event, nanoseconds);
	event->waiting--;
	int signaled = event->signaled;
	soft_unlock();
	return ze_result(signaled ? SOFT_OK : SOFT_NOT_READY);
}

ze_result_t zeEventQueryStatus(ze_event_handle_t event)
{
	ENTER(zeEventQueryStatus);
	return wait_on_host(event, 0);
}

ze_result_t zeEventHostSynchronize(ze_event_handle_t event, uint64_t nanoseconds)
{
	ENTER(zeEventHostSynchronize);
	return wait_on_host(event, nanoseconds);
}
