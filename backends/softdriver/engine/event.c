#include "event.h"

#include <stdlib.h>
#include <time.h>

#include "handles.h"
#include "lock.h"
#include "pool.h"
#include "record.h"
#include "stream.h"

static struct soft_event *events;

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void release(struct soft_event *event)
{
	if (!--event->references)
		free(event);
}

struct soft_event *soft_event_create(struct soft_device *device, int timing)
{
	struct soft_event *event = soft_records(1, sizeof *event);
	event->device = device;
	event->timing = timing;
	event->references = 1;
	soft_lock();
	soft_handle_add(event, SOFT_KIND_EVENT);
	event->next = events;
	if (events)
		events->before = event;
	events = event;
	soft_unlock();
	return event;
}

static void forget_locked(struct soft_event *event)
{
	soft_handle_remove(event);
	if (event->before)
		event->before->next = event->next;
	else
		events = event->next;
	if (event->next)
		event->next->before = event->before;
	if (event->stream)
		soft_stream_release(event->stream);
	event->stream = NULL;
	release(event);
}

enum soft_result soft_event_destroy(struct soft_event *event)
{
	soft_lock();
	int known = soft_handle_is(event, SOFT_KIND_EVENT);
	if (known)
		forget_locked(event);
	soft_unlock();
	return known ? SOFT_OK : SOFT_INVALID_HANDLE;
}

void soft_events_reset(struct soft_device *device)
{
	for (struct soft_event *event = events, *next; event; event = next) {
		next = event->next;
		if (event->device == device)
			forget_locked(event);
	}
}

static void run_stamp(struct soft_operation *operation)
{
	int64_t now = now_ns();
	soft_lock();
	/* recorded again meanwhile: the newer stamp counts */
	if (operation->stamp.event->sequence == operation->sequence)
		operation->stamp.event->stamp_ns = now;
	release(operation->stamp.event);
	soft_unlock();
}

enum soft_result soft_event_record(struct soft_event *event, struct soft_stream *stream)
{
	soft_lock();
	enum soft_result result = soft_handle_is(event, SOFT_KIND_EVENT) ? soft_stream_usable(stream) : SOFT_INVALID_HANDLE;
	if (!result) {
		uint64_t sequence = soft_stream_mark(stream);
		event->stamp_ns = now_ns();
		if (event->timing && stream->done < sequence) {
			struct soft_operation *operation = soft_operation_new(run_stamp);
			operation->internal = 1;
			operation->stamp.event = event;
			event->references++;
			sequence = soft_stream_push(stream, operation, 0);
		}
		if (event->stream)
			soft_stream_release(event->stream);
		event->stream = stream;
		event->sequence = sequence;
		stream->references++;
	}
	soft_unlock();
	return result;
}

enum soft_result soft_event_query(struct soft_event *event)
{
	soft_lock();
	enum soft_result result = soft_handle_is(event, SOFT_KIND_EVENT) ? soft_capture_permits() : SOFT_INVALID_HANDLE;
	if (!result && event->stream && event->stream->done < event->sequence)
		result = SOFT_NOT_READY;
	else if (!result && event->stream)
		soft_stream_observe(event->stream, event->sequence);
	soft_unlock();
	return result;
}

enum soft_result soft_event_synchronize(struct soft_event *event)
{
	soft_lock();
	enum soft_result result = soft_handle_is(event, SOFT_KIND_EVENT) ? soft_capture_permits() : SOFT_INVALID_HANDLE;
	if (!result && event->stream) {
		struct soft_stream *stream = event->stream;
		struct soft_device *device = event->device;
		uint64_t sequence = event->sequence;
		stream->references++; /* the event may be destroyed or recorded elsewhere while we wait */
		soft_stream_wait(stream, sequence);
		soft_stream_observe(stream, sequence);
		soft_stream_release(stream);
		soft_pools_settle(device);
	}
	soft_unlock();
	return result;
}

enum soft_result soft_event_elapsed(struct soft_event *from, struct soft_event *to, float *milliseconds)
{
	soft_lock();
	enum soft_result result = SOFT_OK;
	if (!soft_handle_is(from, SOFT_KIND_EVENT) || !soft_handle_is(to, SOFT_KIND_EVENT) || !from->timing || !to->timing || !from->stream || !to->stream)
		result = SOFT_INVALID_HANDLE;
	else if (from->stream->done < from->sequence || to->stream->done < to->sequence)
		result = SOFT_NOT_READY;
	else
		*milliseconds = (float)((double)(to->stamp_ns - from->stamp_ns) / 1e6);
	soft_unlock();
	return result;
}

enum soft_result soft_stream_wait_event(struct soft_stream *stream, struct soft_event *event)
{
	soft_lock();
	enum soft_result result = soft_handle_is(event, SOFT_KIND_EVENT) ? soft_stream_usable(stream) : SOFT_INVALID_HANDLE;
	if (!result && event->stream)
		soft_stream_follow(stream, event->stream, event->sequence);
	soft_unlock();
	return result;
}
