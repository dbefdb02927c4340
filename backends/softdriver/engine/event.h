/* Events: a place on a stream. */
#ifndef SOFT_EVENT_H
#define SOFT_EVENT_H

#include <stdint.h>
#include "result.h"

struct soft_device;
struct soft_stream;

struct soft_event {
	struct soft_device *device;
	struct soft_event *before, *next; /* all of the process */
	struct soft_stream *stream; /* where it was recorded last; NULL: never, and then it counts as done */
	uint64_t sequence;
	int64_t stamp_ns;           /* when it came true; valid once the stream is past sequence */
	int timing;
	unsigned references;        /* the client's and those of stamps that are queued */
};

/* None needs the lock. */
struct soft_event *soft_event_create(struct soft_device *device, int timing);
enum soft_result soft_event_destroy(struct soft_event *event);
enum soft_result soft_event_record(struct soft_event *event, struct soft_stream *stream);
enum soft_result soft_event_query(struct soft_event *event);
enum soft_result soft_event_synchronize(struct soft_event *event);
enum soft_result soft_event_elapsed(struct soft_event *from, struct soft_event *to, float *milliseconds);
enum soft_result soft_stream_wait_event(struct soft_stream *stream, struct soft_event *event);
/* The context ends: with the lock. */
void soft_events_reset(struct soft_device *device);

#endif
