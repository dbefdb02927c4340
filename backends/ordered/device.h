/* One device behind C functions that Go calls once an operation.
 *
 * Contexts: the vendors' libraries keep a current context (CUDA) or device (HIP) per thread, and the thread is the caller's (Python's,
 * PyTorch's). Each function here that needs one makes the device's current and puts the caller's back before it returns; because a call from
 * Go into C stays on one thread from start to end, that is enough. Nothing here calls back into Go.
 *
 * Captures: a host may record a graph from any of its streams. Work on a stream that is captured becomes part of the graph and does not run, so
 * nothing is put on such a one, and nothing waits for it (tmo_not_capturing). While any stream is captured, on any thread, the vendors also forbid
 * "potentially unsafe" calls by the thread's mode, and break the capture: those that no stream orders. cuThreadExchangeStreamCaptureMode names
 * cudaMalloc, and that cuEventQuery is fine in relaxed mode; AMD's runtime checks hipMalloc, hipFree, hipHostMalloc, hipEventQuery and others; reading a
 * pool's attribute is refused, too (NVIDIA/cccl#11360). What we allocate, free and move is no part of the host's graph. So each function
 * here runs in relaxed mode, and puts the thread's own mode back (tmo_enter, tmo_leave). The short way of memory.c does not: its calls are queued
 * on a stream, so they are safe by the reason that is given for the others. AMD's hipMallocAsync is refused in relaxed mode all the same
 * (ROCm 7.2, legacy-rocm-build#6681); we call hipMallocFromPoolAsync.
 *
 * No mode allows to wait for a whole context or device one of whose streams is captured (CUDA C++ programming guide, "Prohibited and unhandled
 * operations"; CHECK_SUPPORTED_DURING_CAPTURE of AMD's runtime): that breaks the capture. Whether any is, nobody tells. So `finish` is called
 * only where no wait for streams would do, and said there why.
 *
 * Locks: the caller (driver.go) shares its `life` in every operation and has it alone in tmo_start, tmo_bind and tmo_close,
 * which change the context, the streams and the pool. The list of deferred frees and the cache have locks of their own. */
#ifndef TMO_DEVICE_H
#define TMO_DEVICE_H
#include "cache.h"
#include "vendor.h"

typedef struct { uint64_t value; tmo_status status; } tmo_result;

typedef struct { uint64_t free, total, cached; tmo_status status; } tmo_figures;

/* A block whose free waits: for its event, or, where there is none, for the next tmo_synchronize. */
typedef struct tmo_pending {
	struct tmo_pending *next;
	uint64_t address;
	uint64_t bytes;
	uint64_t event;  /* kept while the node waits for reuse, so that an event is made once and not for each free */
	bool recorded;   /* event tells when the block may be freed */
	bool refused;    /* its free failed: tmo_synchronize tries again and reports it, nobody else */
	bool ordered;    /* it is freed in stream order, else with the plain call */
	bool ours;       /* tmo_allocate made it, so that its size is known and it may be kept for reuse */
} tmo_pending;

typedef struct tmo_device {
	const tmo_vendor *vendor;
	const void *api;
	int device;
	bool pools;             /* allocate from a pool of our own, in stream order */

	uint64_t context;       /* current in every operation; 0 until tmo_start or tmo_bind */
	uint64_t stream;        /* what everything is queued on */
	uint64_t pool;          /* ours; belongs to the device, not to a context */
	bool pool_keeps;        /* its release threshold is set */
	bool wants_context;     /* the library does not take a pool's calls without a current context; atomic */
	uint64_t primary;       /* retained by us, released by tmo_close */
	uint64_t own_stream;    /* made by us in the primary context, destroyed by tmo_close */
	bool private_stream;    /* stream is ours and nobody was told of it, so that nobody can capture it; atomic */

	pthread_mutex_t lock;   /* guards the lists below; leaf: no call of the library that can wait is made under it */
	tmo_pending *first, **last, *spare;
	uint32_t spares;
	uint64_t pending_bytes; /* atomic; read without the lock */
	uint64_t most_pending;  /* where the plain free waits: a free looks at the list only when this much waits. Constant */

	tmo_cache cache;        /* empty where there are pools, and where the plain free does not wait */
	bool was_full;          /* an allocation failed since then; atomic */
	bool freed_plainly;     /* the plain free was called since the whole device was last waited for; atomic */
} tmo_device;

/* ---- device.c */
tmo_device *tmo_new(const tmo_vendor *vendor, const void *api, int device, uint64_t total, bool pools);  /* NULL: no host memory */
void tmo_delete(tmo_device *d);  /* after a tmo_close without error */
/* Retains the primary context and makes the stream and the pool. After an error it can be called again and goes on where it failed. */
tmo_status tmo_start(tmo_device *d);
/* Takes a host framework's context (0: the primary one, retained if need be) and stream, after waiting for the old stream. */
tmo_status tmo_bind(tmo_device *d, uint64_t context, uint64_t stream);
/* Gives everything back. After an error it can be called again and goes on where it failed. */
tmo_status tmo_close(tmo_device *d);

/* ---- memory.c */
tmo_result tmo_allocate(tmo_device *d, uint64_t bytes);
/* ours: tmo_allocate made the block. stream_ordered: it came from a pool. */
tmo_status tmo_free(tmo_device *d, uint64_t address, uint64_t bytes, bool ours, bool stream_ordered);
/* Whether a freed block that still waits, or is kept for reuse, has this address: the library knows it as if it were allocated. */
bool tmo_has_freed(tmo_device *d, uint64_t address);
/* What the library says of memory that is to become ours; *told: it has the function for that. */
tmo_status tmo_find(tmo_device *d, uint64_t address, tmo_found *found, bool *told);
void tmo_disown(tmo_device *d, uint64_t address); /* a block of ours is somebody else's now */
/* Frees, without waiting, what the device is done with; *waits: more will be. Nothing while the device's stream is captured. */
tmo_status tmo_reap(tmo_device *d, bool *waits);
tmo_status tmo_synchronize(tmo_device *d);
tmo_result tmo_trim(tmo_device *d);
tmo_status tmo_empty_cache(tmo_device *d, uint64_t *released);  /* frees all that is kept; what cannot be freed now waits on the list */
tmo_figures tmo_memory(tmo_device *d);

/* ---- copy.c */
tmo_status tmo_copy_out(tmo_device *d, void *host, uint64_t address, uint64_t bytes);
tmo_status tmo_copy_in(tmo_device *d, uint64_t address, const void *host, uint64_t bytes);
tmo_status tmo_copy_within(tmo_device *d, uint64_t destination, uint64_t source, uint64_t bytes); /* ranges must not overlap */
tmo_status tmo_move_in_steps(tmo_device *d, uint64_t destination, uint64_t source, uint64_t bytes); /* overlapping ranges, steps of their distance */
tmo_status tmo_fill(tmo_device *d, uint64_t address, uint64_t low, uint64_t high, uint32_t period, uint64_t bytes);
tmo_status tmo_join(tmo_device *d, uint64_t from, uint64_t to);
/* Whether the device is done with what was queued on a stream (0: the device's own): a status that means TMO_NOT_READY where it is not. It waits for nothing. */
tmo_status tmo_passed(tmo_device *d, uint64_t stream);
/* Waits for all that was queued in the device's context, also on streams that are gone. It breaks the captures of its streams. */
tmo_status tmo_finish(tmo_device *d);

/* ---- shared by the C files */

/* Calls a function of the vendor's table. */
#define TMO_CALL(d, function, ...) ((d)->vendor->function((d)->api, ##__VA_ARGS__))

/* The first of two failures. */
static inline tmo_status tmo_first(tmo_status a, tmo_status b) { return a.code ? a : b; }

static inline enum tmo_meaning tmo_means(tmo_device *d, tmo_status status) { return d->vendor->meaning(status.code); }

/* Nothing can succeed again in this process. */
static inline bool tmo_lost(tmo_device *d, tmo_status status) { return status.code && tmo_means(d, status) == TMO_LOST; }

/* 0 and 1 are both the legacy default stream. */
static inline bool tmo_same_stream(uint64_t a, uint64_t b) { return a == b || (a <= 1 && b <= 1); }

tmo_status tmo_enter(tmo_device *d, tmo_guard *guard);  /* after an error the thread is as it was, and tmo_leave is not called */
tmo_status tmo_leave(tmo_device *d, const tmo_guard *guard);

/* An error while a graph is being recorded from the stream: what would be queued now would become part of the graph, a copy would not
 * run, and waiting would spoil the recording. */
tmo_status tmo_not_capturing(tmo_device *d, uint64_t stream);

/* The device's stream, for others to use. */
uint64_t tmo_publish_stream(tmo_device *d);

/* Waits until nothing that was queued on the stream can touch memory any more; the status is that of the first wait. */
tmo_status tmo_settle(tmo_device *d, uint64_t stream);

/* ---- pending.c */
tmo_pending *tmo_take_node(tmo_device *d);              /* with an event or without; NULL: no host memory */
void tmo_put_node(tmo_device *d, tmo_pending *node);
bool tmo_waits(tmo_device *d, uint64_t address);        /* whether a block on the list has this address */
tmo_status tmo_make_event(tmo_device *d, tmo_pending *node);
tmo_status tmo_forget_events(tmo_device *d);            /* the context that they belong to is left */
void tmo_append(tmo_device *d, tmo_pending *node);
bool tmo_mark_late(tmo_device *d);                      /* gives those an event that got none at their free (a capture, for one); whether any but refused ones wait */
tmo_pending *tmo_take_ready(tmo_device *d);             /* the first that was not refused, if its event has happened */
tmo_pending *tmo_take_all(tmo_device *d);
#endif
