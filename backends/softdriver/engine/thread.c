/* The per-thread default stream: one for each thread and device. It is made when the thread first uses it there, and again when its context was reset. It is
 * an ordinary stream that blocks, so it is in order with the legacy stream as others are; no client can destroy it. With its thread it is closed: what is
 * queued still runs. */
#include <pthread.h>
#include <stdlib.h>

#include "device.h"
#include "handles.h"
#include "lock.h"
#include "record.h"
#include "settings.h"
#include "stream.h"

/* Of one thread, by the device's ordinal; NULL: not used yet. Each is a reference. */
struct thread_streams {
	struct soft_stream *of[SOFT_MAX_DEVICES];
};

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void thread_ends(void *value)
{
	struct thread_streams *streams = value;
	soft_lock();
	for (int i = 0; i < SOFT_MAX_DEVICES; i++) {
		struct soft_stream *stream = streams->of[i];
		if (stream && !stream->closed)
			soft_stream_close(stream);
		if (stream)
			soft_stream_release(stream);
	}
	soft_unlock();
	free(streams);
}

static void make_key(void)
{
	if (pthread_key_create(&key, thread_ends))
		abort(); /* as where there is no memory for a record (record.h) */
}

static struct thread_streams *of_this_thread(void)
{
	pthread_once(&once, make_key);
	struct thread_streams *streams = pthread_getspecific(key);
	if (!streams) {
		streams = soft_records(1, sizeof *streams);
		if (pthread_setspecific(key, streams))
			abort();
	}
	return streams;
}

struct soft_stream *soft_stream_per_thread(struct soft_device *device)
{
	struct soft_stream **stream = &of_this_thread()->of[device->ordinal];
	soft_lock();
	if (*stream && (*stream)->closed) { /* with its context */
		soft_stream_release(*stream);
		*stream = NULL;
	}
	if (!*stream) {
		*stream = soft_stream_new(device);
		(*stream)->references++; /* ours, beside the one that ends with the handle */
		soft_handle_add(*stream, SOFT_KIND_STREAM);
	}
	soft_unlock();
	return *stream;
}
