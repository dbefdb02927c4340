/* Streams: queues of operations, each drained by a worker thread of its own.
 *
 * A stream counts in sequence numbers. Whatever is put on it gets the next one (`last`); `done` is the highest up to which everything has
 * happened. Things without work of their own (a free, an event) only take a number: they are done when what was queued before is.
 * `observed` is how far the host has *seen* the stream to be done, by waiting or asking: pools give memory back to the system only up to it.
 *
 * One thread at a time runs a stream's operations, in order: its worker, or a thread that waits for the stream and would otherwise sleep
 * (it spares a synchronous copy on an idle stream two thread switches). Clients' functions run on the worker only. */
#ifndef SOFT_STREAM_H
#define SOFT_STREAM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include "result.h"

struct soft_device;
struct soft_block;
struct soft_stream;
struct soft_event;

enum { SOFT_MAX_PATTERN = 128 }; /* bytes of a fill's pattern */

struct soft_operation {
	struct soft_operation *next;
	void (*run)(struct soft_operation *); /* without the lock */
	uint64_t sequence;
	int internal;    /* bookkeeping: no delay */
	int worker_only; /* runs a client's function */
	union {
		/* pinned: this end was pinned host memory when the copy was queued. staged: freed afterwards */
		struct { uint64_t to, from, bytes; void *staged; int pinned_to, pinned_from; } copy;
		struct { uint64_t to, count; unsigned width; int pinned; unsigned char pattern[SOFT_MAX_PATTERN]; } fill;
		struct { struct soft_stream *stream; uint64_t sequence; } wait;
		struct { struct soft_event *event; } stamp;
		struct { struct soft_block *block; } end;
		struct { void (*function)(void *); void *data; } host;
		struct { void (*function)(void *stream, int code, void *data); void *stream, *data; } callback;
	};
};

/* "Whatever is queued here from `at` on comes after `sequence` of stream." One an other stream, the newest. */
struct soft_edge {
	struct soft_stream *stream;
	uint64_t sequence, at;
};

/* An address that must not be used again before the stream is past sequence. */
struct soft_limbo {
	struct soft_limbo *next;
	struct soft_block *block;
	uint64_t sequence;
};

enum soft_capture { SOFT_CAPTURE_NONE, SOFT_CAPTURE_ACTIVE, SOFT_CAPTURE_BROKEN };
enum soft_capture_mode { SOFT_CAPTURE_GLOBAL, SOFT_CAPTURE_THREAD, SOFT_CAPTURE_RELAXED };

struct soft_stream {
	struct soft_device *device;
	struct soft_stream *next; /* in the device's list */
	int legacy, non_blocking, priority;
	int closed;               /* destroyed by the client; lives until it is empty and nothing refers to it */
	unsigned references;      /* the client's, the worker's, and those of edges, events, waits and pools */

	uint64_t last, observed;
	_Atomic uint64_t done;    /* written under the lock */
	struct soft_operation *first, *newest;
	_Atomic unsigned queued;  /* operations that nobody has begun; lets the worker look without the lock */
	int running, worker, asleep;
	unsigned waiters;
	pthread_cond_t work, progress;

	struct soft_edge *edges;
	unsigned edge_count, edge_room;
	struct soft_limbo *limbo, *limbo_newest; /* by sequence */

	enum soft_capture capture;
	enum soft_capture_mode capture_mode;
	pthread_t capture_thread;
};

/* ---- without the lock */
struct soft_stream *soft_stream_create(struct soft_device *device, int non_blocking, int priority);
enum soft_result soft_stream_destroy(struct soft_stream *stream);
/* The calling thread's default stream on the device. */
struct soft_stream *soft_stream_per_thread(struct soft_device *device);
enum soft_result soft_stream_synchronize(struct soft_stream *stream);
enum soft_result soft_stream_query(struct soft_stream *stream);
enum soft_result soft_device_synchronize(struct soft_device *device);
enum soft_result soft_stream_call(struct soft_stream *stream, void (*function)(void *), void *data);
enum soft_result soft_stream_callback(struct soft_stream *stream, void (*function)(void *, int, void *), void *handle, void *data);
/* What the client gave at its creation. */
enum soft_result soft_stream_facts(struct soft_stream *stream, struct soft_device **device, int *non_blocking, int *priority);
enum soft_result soft_capture_begin(struct soft_stream *stream, enum soft_capture_mode mode);
/* The graph is always empty, so its handle stands for nothing but itself. */
enum soft_result soft_capture_end(struct soft_stream *stream, void **graph);
enum soft_result soft_graph_destroy(void *graph);
enum soft_result soft_capture_status(struct soft_stream *stream, enum soft_capture *status);
/* Sets what the calling thread may do while streams are captured, and returns what it was. */
enum soft_capture_mode soft_capture_exchange(enum soft_capture_mode mode);
int soft_capture_ongoing(void); /* whether any stream is captured */

/* ---- with the lock */
struct soft_stream *soft_stream_new(struct soft_device *device);
void soft_stream_release(struct soft_stream *stream);            /* one reference less */
void soft_stream_close(struct soft_stream *stream);              /* the client's handle ends; what is queued still runs */
struct soft_operation *soft_operation_new(void (*run)(struct soft_operation *));
/* The parts of the next: the bare queue, without the legacy stream's rules. */
void soft_stream_append(struct soft_stream *stream, struct soft_operation *operation);
void soft_stream_wake(struct soft_stream *stream);
/* Raises `done` as far as it goes now: everything before the first operation that is queued, unless one is running. */
void soft_stream_settle(struct soft_stream *stream);
void soft_stream_drop_edges(struct soft_stream *stream);
/* Puts an operation on the stream, after what the legacy stream's rules ask for, and returns its number. The worker is woken unless the
 * caller goes on to wait for it. */
uint64_t soft_stream_push(struct soft_stream *stream, struct soft_operation *operation, int caller_waits);
/* Takes a number without work. */
uint64_t soft_stream_mark(struct soft_stream *stream);
/* Makes the stream wait for another. */
void soft_stream_follow(struct soft_stream *stream, struct soft_stream *other, uint64_t sequence);
/* The same for a stream that no pool reuses memory by: it keeps no hold on the other one. */
void soft_stream_after(struct soft_stream *stream, struct soft_stream *other, uint64_t sequence);
/* How far what is queued on the stream now is known to come after the other one. */
uint64_t soft_stream_follows(const struct soft_stream *stream, const struct soft_stream *other);
/* Waits (the lock is released meanwhile); running operations itself where it can. */
void soft_stream_wait(struct soft_stream *stream, uint64_t sequence);
/* Waits at most so long, and runs nothing itself. Whether the stream is past sequence now. */
int soft_stream_wait_for(struct soft_stream *stream, uint64_t sequence, uint64_t nanoseconds);
void soft_stream_wait_all(struct soft_device *device, int observe); /* all that is queued on the device now */
void soft_device_drain(struct soft_device *device);                 /* the same as a synchronise of the device, but for captures */
/* The host has seen the stream to be done up to sequence, and with it whatever it had waited for. */
void soft_stream_observe(struct soft_stream *stream, uint64_t sequence);
/* The address goes back to the heap once the stream is past sequence. */
void soft_stream_end_block(struct soft_stream *stream, uint64_t sequence, struct soft_block *block);
/* Whether the handle is a stream's and work may be put on it: not while it is captured. Such a call breaks the capture. */
enum soft_result soft_stream_usable(struct soft_stream *stream);
void soft_capture_forget(struct soft_stream *stream); /* the stream is destroyed */
/* Whether a call that no stream orders may be made now: a capture may forbid it, and then is broken. */
enum soft_result soft_capture_permits(void);
/* Whether the device may be waited for as a whole: not while any of its streams is captured, in whatever mode. Such a call breaks the captures. */
enum soft_result soft_capture_permits_device(struct soft_device *device);

#endif
