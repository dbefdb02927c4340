/* Stream capture. Graphs are not simulated: a stream can be put into capture and out of it, so that clients see the status and the errors
 * that a capture brings; no work can be put on the stream meanwhile. Whatever is refused breaks the capture, as with a real driver. */
#include "device.h"
#include "handles.h"
#include "lock.h"
#include "stream.h"

static unsigned captures; /* streams with capture != SOFT_CAPTURE_NONE */

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

enum soft_result soft_capture_permits(void)
{
	if (!captures)
		return SOFT_OK;
	enum soft_result result = SOFT_OK;
	for (int i = 0; i < soft_device_count(); i++)
		for (struct soft_stream *stream = soft_device(i)->streams; stream; stream = stream->next)
			if (stream->capture &&
			    (stream->capture_mode == SOFT_CAPTURE_GLOBAL ||
			     (stream->capture_mode == SOFT_CAPTURE_THREAD && pthread_equal(stream->capture_thread, pthread_self())))) {
				stream->capture = SOFT_CAPTURE_BROKEN;
				result = SOFT_CAPTURE_UNSUPPORTED;
			}
	return result;
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

enum soft_result soft_capture_end(struct soft_stream *stream)
{
	soft_lock();
	enum soft_result result = SOFT_INVALID_HANDLE;
	if (soft_handle_is(stream, SOFT_KIND_STREAM)) {
		result = !stream->capture ? SOFT_INVALID_VALUE : stream->capture == SOFT_CAPTURE_BROKEN ? SOFT_CAPTURE_INVALIDATED : SOFT_OK;
		soft_capture_forget(stream);
	}
	soft_unlock();
	return result;
}

enum soft_result soft_capture_status(struct soft_stream *stream, enum soft_capture *status)
{
	soft_lock();
	int known = soft_handle_is(stream, SOFT_KIND_STREAM);
	if (known)
		*status = stream->capture;
	soft_unlock();
	return known ? SOFT_OK : SOFT_INVALID_HANDLE;
}
