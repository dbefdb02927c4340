/* Stream capture. Graphs are not simulated: a stream can be put into capture and out of it, so that clients see the status and the errors
 * that a capture brings; no work can be put on the stream meanwhile. Whatever is refused breaks the capture, as with a real driver. */
#include <stdlib.h>

#include "device.h"
#include "handles.h"
#include "lock.h"
#include "record.h"
#include "stream.h"

static unsigned captures; /* streams with capture != SOFT_CAPTURE_NONE */

/* What the calling thread may do while streams are captured; what cuThreadExchangeStreamCaptureMode says of it holds for every ABI. */
static _Thread_local enum soft_capture_mode thread_mode = SOFT_CAPTURE_GLOBAL;

enum soft_result soft_stream_usable(struct soft_stream *stream)
{
	if (!soft_handle_is(stream, SOFT_KIND_STREAM))
		return SOFT_INVALID_HANDLE;
	if (!captures)
		return SOFT_OK;
	if (stream->capture) {
		int broken = stream->capture == SOFT_CAPTURE_BROKEN;
		stream->capture = SOFT_CAPTURE_BROKEN;
		return broken ? SOFT_CAPTURE_INVALIDATED : SOFT_CAPTURE_UNSUPPORTED;
	}
	enum soft_result result = SOFT_OK;
	if (stream->legacy)
		for (struct soft_stream *other = stream->device->streams; other; other = other->next)
			if (other->capture && !other->non_blocking) {
				other->capture = SOFT_CAPTURE_BROKEN;
				result = SOFT_CAPTURE_IMPLICIT;
			}
	return result;
}

/* Whether that capture keeps the calling thread from calls that no stream orders: its own thread's unless relaxed, and another thread's global one. */
static int forbids(const struct soft_stream *stream)
{
	int own = pthread_equal(stream->capture_thread, pthread_self());
	if (thread_mode == SOFT_CAPTURE_RELAXED || stream->capture_mode == SOFT_CAPTURE_RELAXED)
		return 0;
	return own || (thread_mode == SOFT_CAPTURE_GLOBAL && stream->capture_mode == SOFT_CAPTURE_GLOBAL);
}

enum soft_result soft_capture_permits(void)
{
	if (!captures)
		return SOFT_OK;
	enum soft_result result = SOFT_OK;
	for (int i = 0; i < soft_device_count(); i++)
		for (struct soft_stream *stream = soft_device(i)->streams; stream; stream = stream->next)
			if (stream->capture && forbids(stream)) {
				stream->capture = SOFT_CAPTURE_BROKEN;
				result = SOFT_CAPTURE_UNSUPPORTED;
			}
	return result;
}

enum soft_result soft_capture_permits_device(struct soft_device *device)
{
	if (!captures)
		return SOFT_OK;
	enum soft_result result = SOFT_OK;
	for (struct soft_stream *stream = device->streams; stream; stream = stream->next)
		if (stream->capture) {
			if (stream->capture == SOFT_CAPTURE_ACTIVE)
				result = SOFT_CAPTURE_UNSUPPORTED;
			else if (!result)
				result = SOFT_CAPTURE_INVALIDATED;
			stream->capture = SOFT_CAPTURE_BROKEN;
		}
	return result;
}

int soft_capture_ongoing(void)
{
	soft_lock();
	int ongoing = captures > 0;
	soft_unlock();
	return ongoing;
}

enum soft_capture_mode soft_capture_exchange(enum soft_capture_mode mode)
{
	enum soft_capture_mode before = thread_mode;
	thread_mode = mode;
	return before;
}

enum soft_result soft_capture_begin(struct soft_stream *stream, enum soft_capture_mode mode)
{
	soft_lock();
	enum soft_result result = !soft_handle_is(stream, SOFT_KIND_STREAM) ? SOFT_INVALID_HANDLE : stream->legacy ? SOFT_CAPTURE_UNSUPPORTED : stream->capture ? SOFT_INVALID_VALUE : SOFT_OK;
	if (!result) {
		stream->capture = SOFT_CAPTURE_ACTIVE;
		stream->capture_mode = mode;
		stream->capture_thread = pthread_self();
		captures++;
	}
	soft_unlock();
	return result;
}

void soft_capture_forget(struct soft_stream *stream)
{
	captures -= stream->capture != SOFT_CAPTURE_NONE;
	stream->capture = SOFT_CAPTURE_NONE;
}

enum soft_result soft_capture_end(struct soft_stream *stream, void **graph)
{
	*graph = NULL;
	soft_lock();
	enum soft_result result = SOFT_INVALID_HANDLE;
	if (soft_handle_is(stream, SOFT_KIND_STREAM)) {
		result = !stream->capture ? SOFT_INVALID_VALUE : stream->capture == SOFT_CAPTURE_BROKEN ? SOFT_CAPTURE_INVALIDATED : SOFT_OK;
		soft_capture_forget(stream);
	}
	if (!result) {
		*graph = soft_records(1, 1);
		soft_handle_add(*graph, SOFT_KIND_GRAPH);
	}
	soft_unlock();
	return result;
}

enum soft_result soft_graph_destroy(void *graph)
{
	soft_lock();
	int known = soft_handle_is(graph, SOFT_KIND_GRAPH);
	if (known)
		soft_handle_remove(graph);
	soft_unlock();
	if (known)
		free(graph);
	return known ? SOFT_OK : SOFT_INVALID_VALUE;
}

enum soft_result soft_capture_status(struct soft_stream *stream, enum soft_capture *status)
{
	soft_lock();
	enum soft_result result = soft_handle_is(stream, SOFT_KIND_STREAM) ? SOFT_OK : SOFT_INVALID_HANDLE;
	/* The legacy stream is no part of a capture, but work on it would be, if a stream that it waits for is captured. Asking breaks nothing. */
	if (!result && stream->legacy && captures)
		for (struct soft_stream *other = stream->device->streams; other; other = other->next)
			if (other->capture && !other->non_blocking)
				result = SOFT_CAPTURE_IMPLICIT;
	if (!result)
		*status = stream->capture;
	soft_unlock();
	return result;
}
