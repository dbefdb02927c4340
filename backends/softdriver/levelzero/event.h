/* Events: a state that the host or a device sets, and that either can wait for, before or after. Unlike the engine's events they are not a place on a
 * stream: a wait may be queued long before somebody decides who will signal. All of it needs the engine's lock. */
#ifndef SOFT_LEVELZERO_EVENT_H
#define SOFT_LEVELZERO_EVENT_H

#include <pthread.h>
#include <stdint.h>

#include "abi.h"

struct soft_stream;

struct ze_pool {
	struct ze_context *context;
	uint32_t count, live;
	int host_visible;
	struct ze_event **events; /* by index; NULL: free */
};

struct ze_event {
	struct ze_pool *pool;
	uint32_t index;
	int signaled;
	unsigned queued;  /* operations that signal, reset or await it and are not through */
	unsigned waiting; /* host threads */
	pthread_cond_t changed;
};

/* Handles from a client; count of them. */
int ze_events_known(const ze_event_handle_t *handles, uint32_t count);
void ze_event_signal_on(struct soft_stream *stream, struct ze_event *event);
void ze_event_reset_on(struct soft_stream *stream, struct ze_event *event);
/* The stream stands still until the event is signaled. */
void ze_event_wait_on(struct soft_stream *stream, struct ze_event *event);

#endif
