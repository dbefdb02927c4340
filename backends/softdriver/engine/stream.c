#include "stream.h"

#include <stdlib.h>

#include "calls.h"
#include "device.h"
#include "handles.h"
#include "lock.h"
#include "pool.h"
#include "record.h"

/* ---- a stream's life ---- */

struct soft_stream *soft_stream_new(struct soft_device *device)
{
	struct soft_stream *stream = soft_records(1, sizeof *stream);
	stream->device = device;
	stream->references = 1;
	pthread_cond_init(&stream->work, NULL);
	pthread_cond_init(&stream->progress, NULL);
	stream->next = device->streams;
	device->streams = stream;
	return stream;
}

void soft_stream_drop_edges(struct soft_stream *stream)
{
	unsigned count = stream->edge_count;
	stream->edge_count = 0;
	for (unsigned i = 0; i < count; i++)
		soft_stream_release(stream->edges[i].stream);
}

void soft_stream_release(struct soft_stream *stream)
{
	if (--stream->references)
		return;
	for (struct soft_stream **at = &stream->device->streams; *at; at = &(*at)->next)
		if (*at == stream) {
			*at = stream->next;
			break;
		}
	soft_stream_drop_edges(stream);
	free(stream->edges);
	pthread_cond_destroy(&stream->work);
	pthread_cond_destroy(&stream->progress);
	free(stream);
}

/* ---- order between streams ---- */

static void run_wait(struct soft_operation *operation)
{
	soft_lock();
	soft_stream_wait(operation->wait.stream, operation->wait.sequence);
	soft_stream_release(operation->wait.stream);
	soft_unlock();
}

static void note_edge(struct soft_stream *stream, struct soft_stream *other, uint64_t sequence)
{
	struct soft_edge *edge = NULL;
	for (unsigned i = 0; i < stream->edge_count && !edge; i++)
		if (stream->edges[i].stream == other)
			edge = &stream->edges[i];
	if (!edge) {
		if (stream->edge_count == stream->edge_room) {
			stream->edge_room = stream->edge_room ? 2 * stream->edge_room : 4;
			stream->edges = soft_records_grown(stream->edges, stream->edge_room, sizeof *stream->edges);
		}
		edge = &stream->edges[stream->edge_count++];
		*edge = (struct soft_edge){ other, 0, 0 };
		other->references++;
	}
	if (edge->sequence < sequence)
		edge->sequence = sequence;
	edge->at = stream->last;
}

void soft_stream_after(struct soft_stream *stream, struct soft_stream *other, uint64_t sequence)
{
	if (other == stream)
		return;
	if (other->done < sequence) {
		struct soft_operation *operation = soft_operation_new(run_wait);
		operation->internal = 1;
		operation->wait.stream = other;
		operation->wait.sequence = sequence;
		other->references++;
		soft_stream_append(stream, operation);
		soft_stream_wake(stream);
	} else {
		stream->last++; /* a place of its own, so that a later synchronise sees it */
		soft_stream_settle(stream);
	}
}

void soft_stream_follow(struct soft_stream *stream, struct soft_stream *other, uint64_t sequence)
{
	if (other == stream)
		return;
	soft_stream_after(stream, other, sequence);
	note_edge(stream, other, sequence);
}

uint64_t soft_stream_follows(const struct soft_stream *stream, const struct soft_stream *other)
{
	for (unsigned i = 0; i < stream->edge_count; i++)
		if (stream->edges[i].stream == other)
			return stream->edges[i].sequence;
	return 0;
}

/* The legacy stream comes after everything on the device's streams that are not non-blocking, and they come after it. */
static void order(struct soft_stream *stream)
{
	if (stream->legacy) {
		for (struct soft_stream *other = stream->device->streams; other; other = other->next)
			if (other != stream && !other->non_blocking && other->done < other->last)
				soft_stream_follow(stream, other, other->last);
	} else if (!stream->non_blocking) {
		struct soft_stream *legacy = stream->device->legacy;
		if (legacy->done < legacy->last)
			soft_stream_follow(stream, legacy, legacy->last);
	}
}

uint64_t soft_stream_push(struct soft_stream *stream, struct soft_operation *operation, int caller_waits)
{
	order(stream);
	soft_stream_append(stream, operation);
	uint64_t sequence = operation->sequence;
	if (!caller_waits || operation->worker_only)
		soft_stream_wake(stream);
	return sequence;
}

uint64_t soft_stream_mark(struct soft_stream *stream)
{
	order(stream);
	uint64_t sequence = ++stream->last;
	soft_stream_settle(stream);
	return sequence;
}

void soft_stream_observe(struct soft_stream *stream, uint64_t sequence)
{
	if (stream->observed >= sequence)
		return;
	stream->observed = sequence;
	for (unsigned i = 0; i < stream->edge_count; i++)
		if (stream->edges[i].at <= sequence)
			soft_stream_observe(stream->edges[i].stream, stream->edges[i].sequence);
}

void soft_stream_wait_all(struct soft_device *device, int observe)
{
	unsigned count = 0;
	for (struct soft_stream *stream = device->streams; stream; stream = stream->next)
		count++;
	/* What is queued now, not what comes meanwhile: else a busy neighbour would keep us for ever. */
	struct {
		struct soft_stream *stream;
		uint64_t sequence;
	} targets[count + 1];
	count = 0;
	for (struct soft_stream *stream = device->streams; stream; stream = stream->next) {
		stream->references++;
		targets[count].stream = stream;
		targets[count++].sequence = stream->last;
	}
	for (unsigned i = 0; i < count; i++) {
		soft_stream_wait(targets[i].stream, targets[i].sequence);
		if (observe)
			soft_stream_observe(targets[i].stream, targets[i].sequence);
	}
	for (unsigned i = 0; i < count; i++)
		soft_stream_release(targets[i].stream);
}

/* ---- what clients call ---- */

enum soft_result soft_stream_facts(struct soft_stream *stream, struct soft_device **device, int *non_blocking, int *priority)
{
	soft_lock();
	int known = soft_handle_is(stream, SOFT_KIND_STREAM);
	if (known) {
		*device = stream->device;
		*non_blocking = stream->non_blocking;
		*priority = stream->priority;
	}
	soft_unlock();
	return known ? SOFT_OK : SOFT_INVALID_HANDLE;
}

struct soft_stream *soft_stream_create(struct soft_device *device, int non_blocking, int priority)
{
	soft_lock();
	struct soft_stream *stream = soft_stream_new(device);
	stream->non_blocking = non_blocking;
	stream->priority = priority;
	soft_handle_add(stream, SOFT_KIND_STREAM);
	soft_unlock();
	return stream;
}

void soft_stream_close(struct soft_stream *stream)
{
	soft_handle_remove(stream);
	soft_capture_forget(stream);
	stream->closed = 1;
	if (stream->worker)
		pthread_cond_signal(&stream->work); /* it runs what is queued, then leaves */
	soft_stream_settle(stream);
	soft_stream_release(stream);
}

enum soft_result soft_stream_destroy(struct soft_stream *stream)
{
	soft_lock();
	int known = soft_handle_is(stream, SOFT_KIND_STREAM) && !stream->legacy;
	if (known)
		soft_stream_close(stream);
	soft_unlock();
	return known ? SOFT_OK : SOFT_INVALID_HANDLE;
}

enum soft_result soft_stream_synchronize(struct soft_stream *stream)
{
	soft_lock();
	enum soft_result result = soft_stream_usable(stream);
	if (!result) {
		struct soft_device *device = stream->device;
		stream->references++;
		order(stream);
		uint64_t sequence = stream->last;
		soft_stream_wait(stream, sequence);
		soft_stream_observe(stream, sequence);
		if (stream->legacy)
			for (struct soft_stream *other = device->streams; other; other = other->next)
				if (!other->non_blocking)
					soft_stream_observe(other, other->done);
		soft_stream_release(stream);
		soft_pools_settle(device);
	}
	soft_unlock();
	return result;
}

enum soft_result soft_stream_query(struct soft_stream *stream)
{
	soft_lock();
	enum soft_result result = soft_stream_usable(stream);
	if (!result) {
		order(stream);
		if (stream->done < stream->last)
			result = SOFT_NOT_READY;
		else
			soft_stream_observe(stream, stream->last);
	}
	soft_unlock();
	return result;
}

void soft_device_drain(struct soft_device *device)
{
	soft_stream_wait_all(device, 1);
	soft_pools_settle(device);
	soft_device_give_back(device);
}

enum soft_result soft_device_synchronize(struct soft_device *device)
{
	soft_lock();
	enum soft_result result = soft_capture_permits_device(device);
	if (!result)
		soft_device_drain(device);
	soft_unlock();
	return result;
}

static void run_host(struct soft_operation *operation) { operation->host.function(operation->host.data); }

enum soft_result soft_stream_call(struct soft_stream *stream, void (*function)(void *), void *data)
{
	soft_lock();
	enum soft_result result = soft_stream_usable(stream);
	if (!result) {
		struct soft_operation *operation = soft_operation_new(run_host);
		operation->worker_only = 1;
		operation->host.function = function;
		operation->host.data = data;
		soft_stream_push(stream, operation, 0);
	}
	soft_unlock();
	return result;
}

static void run_callback(struct soft_operation *operation)
{
	operation->callback.function(operation->callback.stream, soft_sticky_code(), operation->callback.data);
}

enum soft_result soft_stream_callback(struct soft_stream *stream, void (*function)(void *, int, void *), void *handle, void *data)
{
	soft_lock();
	enum soft_result result = soft_stream_usable(stream);
	if (!result) {
		struct soft_operation *operation = soft_operation_new(run_callback);
		operation->worker_only = 1;
		operation->callback.function = function;
		operation->callback.stream = handle;
		operation->callback.data = data;
		soft_stream_push(stream, operation, 0);
	}
	soft_unlock();
	return result;
}
