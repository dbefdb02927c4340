/* One CUDA device behind C functions that Go calls once an operation.
 *
 * Contexts: the driver keeps a current context per thread, and the thread is the caller's (Python's, PyTorch's). Each function here that
 * needs one makes the device's context current and puts the caller's back before it returns; because a call from Go into C stays on one
 * thread from start to end, that is enough. Nothing here calls back into Go.
 *
 * Locks: the caller (driver.go) holds its lock `bound` shared in every operation and exclusively in tmc_start, tmc_bind and tmc_close,
 * which change the context, the streams and the pool. The list of deferred frees has a lock of its own. */
#ifndef TMC_DEVICE_H
#define TMC_DEVICE_H
#include "abi.h"
#include <pthread.h>
#include <stdbool.h>

/* The library's functions. A pointer is NULL where the library does not have it; those are never REQUIRED. */
typedef struct tmc_api {
#define F(name, since, need, parameters) CUresult (*name) parameters;
#include "symbols.def"
#undef F
} tmc_api;

/* The same list as numbers: which call failed, and the index into Go's table. */
enum tmc_call {
#define F(name, since, need, parameters) TMC_CALL_##name,
#include "symbols.def"
#undef F
	TMC_CALLS
};

enum tmc_need { TMC_NEED_REQUIRED, TMC_NEED_NAMES, TMC_NEED_MIG, TMC_NEED_CAPTURE, TMC_NEED_POOLS };

typedef struct { const char *name; int since; enum tmc_need need; } tmc_symbol;
extern const tmc_symbol tmc_symbols[TMC_CALLS];

/* What became of an operation: code 0 is success, else the vendor's code and the function that gave it. */
typedef struct { int32_t code; int32_t call; } tmc_status;

typedef struct { uint64_t value; tmc_status status; } tmc_result;

typedef struct { uint64_t free, total, cached; tmc_status status; } tmc_figures;

/* A block whose free waits: for its event, or, where there is none, for the next tmc_synchronize. */
typedef struct tmc_pending {
	struct tmc_pending *next;
	CUdeviceptr address;
	uint64_t bytes;
	CUevent event;   /* kept while the node waits for reuse, so that an event is made once and not for each free */
	CUstream stream; /* what may still use the block where event does not tell */
	bool recorded;   /* event tells when the block may be freed */
	bool ordered;    /* free it with cuMemFreeAsync, else with cuMemFree */
} tmc_pending;

typedef struct tmc_device {
	const tmc_api *api;
	CUdevice device;
	bool pools;             /* allocate from a pool of our own, in stream order */

	CUcontext context;      /* current in every operation; NULL until tmc_start or tmc_bind */
	CUstream stream;        /* what everything is queued on */
	CUmemoryPool pool;      /* ours; belongs to the device, not to a context */
	bool pool_keeps;        /* its release threshold is set */
	bool wants_context;     /* the driver does not take a pool's calls without a current context; atomic */
	CUcontext primary;      /* retained by us, released by tmc_close */
	CUstream own_stream;    /* made by us in the primary context, destroyed by tmc_close */
	bool private_stream;    /* stream is ours and nobody was told of it, so that nobody can capture it; atomic */

	pthread_mutex_t lock;   /* guards the lists below; leaf: no driver call that can wait is made under it */
	tmc_pending *first, **last, *spare;
	uint32_t spares;
	uint64_t pending_bytes; /* atomic; read without the lock */
} tmc_device;

/* ---- library.c */
typedef struct {
	CUdevice device;
	char name[256];
	uint64_t total;
	int integrated, pools;
	uint8_t uuid[16];
	bool has_uuid;
	bool partition;  /* a MIG instance: its UUID is not the GPU's */
} tmc_facts;
tmc_status tmc_init(const tmc_api *api, int *version);
tmc_status tmc_count(const tmc_api *api, int *count);
tmc_status tmc_ask(const tmc_api *api, int ordinal, tmc_facts *facts);
const char *tmc_error_name(const tmc_api *api, int code);  /* the library's text, or NULL */

/* ---- device.c */
tmc_device *tmc_new(const tmc_api *api, CUdevice device, bool pools);  /* NULL: no host memory */
void tmc_delete(tmc_device *d);                                       /* after a tmc_close without error */
/* Retains the primary context and makes the stream and the pool. After an error it can be called again and goes on where it failed. */
tmc_status tmc_start(tmc_device *d);
/* Takes a host framework's context (NULL: the primary one, retained if need be) and stream, after waiting for the old stream. */
tmc_status tmc_bind(tmc_device *d, CUcontext context, CUstream stream);
/* Gives everything back. After an error it can be called again and goes on where it failed. */
tmc_status tmc_close(tmc_device *d);

/* ---- memory.c */
tmc_result tmc_allocate(tmc_device *d, uint64_t bytes);
/* stream_ordered: the block came from cuMemAllocAsync or a pool. stream: what orders the free (resolved: never "the device's"). */
tmc_status tmc_free(tmc_device *d, uint64_t address, uint64_t bytes, bool stream_ordered, CUstream stream);
tmc_status tmc_synchronize(tmc_device *d);
tmc_result tmc_trim(tmc_device *d);
tmc_figures tmc_memory(tmc_device *d);

/* ---- copy.c */
tmc_status tmc_copy_out(tmc_device *d, void *host, uint64_t address, uint64_t bytes);
tmc_status tmc_copy_in(tmc_device *d, uint64_t address, const void *host, uint64_t bytes);
tmc_status tmc_copy_within(tmc_device *d, uint64_t destination, uint64_t source, uint64_t bytes); /* ranges must not overlap */
tmc_status tmc_move_in_steps(tmc_device *d, uint64_t destination, uint64_t source, uint64_t bytes); /* overlapping ranges, steps of their distance */
tmc_status tmc_fill(tmc_device *d, uint64_t address, uint64_t low, uint64_t high, uint32_t period, uint64_t bytes);
tmc_status tmc_join(tmc_device *d, CUstream from, CUstream to);

/* ---- shared by the three files */

#define TMC_OK ((tmc_status){ 0, -1 })

/* Calls a function of the library and gives its status. */
#define TMC_TRY(d, function, ...) tmc_tried((int)(d)->api->function(__VA_ARGS__), TMC_CALL_##function)
static inline tmc_status tmc_tried(int code, int call) { return code ? (tmc_status){ code, call } : TMC_OK; }

/* The first of two failures. */
static inline tmc_status tmc_first(tmc_status a, tmc_status b) { return a.code ? a : b; }

/* NULL and 1 are both the legacy default stream. */
static inline bool tmc_same_stream(CUstream a, CUstream b) { return a == b || ((uintptr_t)a <= 1 && (uintptr_t)b <= 1); }

bool tmc_lost(int code);  /* nothing can succeed again in this process */

typedef struct { CUcontext before; bool pushed; } tmc_guard;
tmc_status tmc_enter(tmc_device *d, tmc_guard *guard);  /* after an error the thread is as it was, and tmc_leave is not called */
tmc_status tmc_leave(tmc_device *d, tmc_guard *guard);

/* An error while a graph is being recorded from the stream: what would be queued now would become part of the graph, a copy would not
 * run, and waiting would spoil the recording. */
tmc_status tmc_not_capturing(tmc_device *d, CUstream stream);

/* The device's stream, for others to use. */
CUstream tmc_publish_stream(tmc_device *d);

/* Waits until nothing that was queued on the stream can touch memory any more; the status is that of the first wait. */
tmc_status tmc_settle(tmc_device *d, CUstream stream);

tmc_pending *tmc_take_node(tmc_device *d);              /* with an event or without; NULL: no host memory */
void tmc_put_node(tmc_device *d, tmc_pending *node);
tmc_status tmc_make_event(tmc_device *d, tmc_pending *node);
tmc_status tmc_forget_events(tmc_device *d);            /* the context that they belong to is left */
#endif
