/* What a vendor's library must be able to do for this package: a table of C functions, one neutral signature each. A backend (cuda, hip)
 * fills it with adapters of a line or two around the library's own functions, whose exact prototypes stay there.
 *
 * `api` is the backend's own table of the library's functions. Handles of the library (contexts, streams, events, pools) travel as numbers;
 * 0 is none, but for a stream, where it is the default one. */
#ifndef TMO_VENDOR_H
#define TMO_VENDOR_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What became of an operation: code 0 is success, else the vendor's code, and the function that gave it as a place in its symbol table.
 * Above that place, from bit TMO_CAPTURED_BITS on, tmo_not_capturing says which stream is captured (enum tmo_captured): two numbers of 32 bits
 * are returned in one register, and smaller ones would have to be put together at every return of the hot path. */
typedef struct { int32_t code; int32_t call; } tmo_status;
enum { TMO_CAPTURED_BITS = 16, TMO_CALL_MASK = (1 << TMO_CAPTURED_BITS) - 1 };

/* Which stream is known to be captured where an operation is refused because one is. */
enum tmo_captured { TMO_SOME_STREAM, TMO_DEVICES_STREAM, TMO_OTHER_STREAM };

#define TMO_OK ((tmo_status){ 0, -1 })

/* A thread's mode for calls that are unsafe while streams are captured, in the numbers of both vendors (CU_STREAM_CAPTURE_MODE_...). */
enum { TMO_RELAXED = 2 };

/* What a vendor's code means here. */
enum tmo_meaning {
	TMO_OTHER,        /* a failure of one call */
	TMO_FULL,         /* out of memory: retrying after a free can help */
	TMO_LOST,         /* nothing can succeed again in this process */
	TMO_NOT_READY,    /* the answer "not yet", which is no failure */
	TMO_INVALID,      /* an argument is refused; for a free: the block is none */
	TMO_STALE,        /* a handle is none, or not of the current context: a stream that is gone, for one */
	TMO_UNSUPPORTED,  /* this device or library cannot do that */
	TMO_CAPTURING,    /* refused because a graph is being recorded */
	TMO_NO_DEVICE,    /* from init or count: the machine has no device of this vendor */
};

/* Properties of one device. */
typedef struct {
	int device;      /* what the library calls it */
	char name[256];
	char uuid[64];   /* with the vendor's prefix; "": the library cannot tell */
	uint64_t total;
	bool integrated; /* its memory is the host's */
	bool pools;      /* the device has memory pools; whether the library has their functions is another matter */
} tmo_facts;

/* What the library has allocated at an address. */
typedef struct {
	uint64_t base, bytes; /* 0 bytes: nothing */
	bool host;            /* host memory, pinned or registered */
	int device;           /* ordinal of the one device that the memory lies on; below 0: it is of no one device, or the library does not tell */
} tmo_found;

/* What tmo_leave needs to put the thread back: its context or device, and its mode for captures. */
typedef struct { uint64_t before; bool changed; int mode; } tmo_guard;

typedef struct tmo_vendor {
	bool free_waits;  /* the plain free waits for the whole device; then dropped blocks are kept for reuse (cache.c) */

	/* ---- the library; none of these makes a context */
	tmo_status (*init)(const void *api, int *version);
	tmo_status (*count)(const void *api, int *count);
	tmo_status (*ask)(const void *api, int ordinal, tmo_facts *facts);
	const char *(*error_name)(const void *api, int code);  /* the library's text, or NULL */
	enum tmo_meaning (*meaning)(int code);

	/* ---- the thread's current context or device */
	tmo_status (*retain)(const void *api, int device, uint64_t *context);  /* the device's own context; never 0 */
	tmo_status (*release)(const void *api, int device);
	tmo_status (*enter)(const void *api, int device, uint64_t context, tmo_guard *guard);  /* after an error the thread is as it was, and leave is not called */
	tmo_status (*leave)(const void *api, const tmo_guard *guard);
	tmo_status (*finish)(const void *api);  /* waits for all work of the current context or device; breaks the captures of its streams (device.h) */
	tmo_status (*exchange_mode)(const void *api, int *mode);  /* sets the thread's mode for captures and gives what it was; untouched where the library has no such thing */

	/* ---- streams and events */
	tmo_status (*stream_create)(const void *api, uint64_t *stream);  /* not ordered against the default stream */
	tmo_status (*stream_destroy)(const void *api, uint64_t stream);
	tmo_status (*stream_synchronize)(const void *api, uint64_t stream);
	tmo_status (*stream_query)(const void *api, uint64_t stream);
	tmo_status (*stream_wait)(const void *api, uint64_t stream, uint64_t event);
	tmo_status (*not_capturing)(const void *api, uint64_t stream);  /* a status that means TMO_CAPTURING while the stream is recorded */
	tmo_status (*event_create)(const void *api, uint64_t *event);
	tmo_status (*event_destroy)(const void *api, uint64_t event);
	tmo_status (*event_record)(const void *api, uint64_t event, uint64_t stream);
	tmo_status (*event_query)(const void *api, uint64_t event);
	tmo_status (*event_synchronize)(const void *api, uint64_t event);

	/* ---- memory */
	tmo_status (*allocate)(const void *api, uint64_t *address, uint64_t bytes);
	tmo_status (*free)(const void *api, uint64_t address);
	tmo_status (*allocate_ordered)(const void *api, uint64_t *address, uint64_t bytes, uint64_t pool, uint64_t stream);
	tmo_status (*free_ordered)(const void *api, uint64_t address, uint64_t stream);  /* TMO_UNSUPPORTED where the library has no such call */
	tmo_status (*memory)(const void *api, uint64_t *free_bytes, uint64_t *total);
	tmo_status (*find)(const void *api, uint64_t address, tmo_found *found);  /* *found comes in as nothing. TMO_UNSUPPORTED where the library does not tell */

	/* ---- pools; called only where both the device and the library have them */
	tmo_status (*pool_create)(const void *api, int device, uint64_t *pool);  /* TMO_UNSUPPORTED: this device has none after all */
	tmo_status (*pool_destroy)(const void *api, uint64_t pool);
	tmo_status (*pool_keep_all)(const void *api, uint64_t pool);  /* nothing goes back to the system before pool_trim */
	tmo_status (*pool_figures)(const void *api, uint64_t pool, uint64_t *reserved, uint64_t *used);
	tmo_status (*pool_trim)(const void *api, uint64_t pool);
	tmo_status (*current_pool)(const void *api, int device, uint64_t *pool);  /* where a host framework's allocations without a pool come from */

	/* ---- copies and fills */
	tmo_status (*copy_out)(const void *api, void *host, uint64_t address, uint64_t bytes, uint64_t stream);
	tmo_status (*copy_in)(const void *api, uint64_t address, const void *host, uint64_t bytes, uint64_t stream);
	tmo_status (*copy_within)(const void *api, uint64_t destination, uint64_t source, uint64_t bytes, uint64_t stream);
	tmo_status (*fill8)(const void *api, uint64_t address, uint8_t value, uint64_t count, uint64_t stream);
	tmo_status (*fill16)(const void *api, uint64_t address, uint16_t value, uint64_t count, uint64_t stream);
	tmo_status (*fill32)(const void *api, uint64_t address, uint32_t value, uint64_t count, uint64_t stream);
} tmo_vendor;

/* The part of the table that a backend's adapters fill by their names, which are those of the fields. (`free` is a name of C's.) */
#define TMO_ADAPTERS \
	.retain = retain, .release = release, .enter = enter, .leave = leave, .finish = finish, \
	.exchange_mode = exchange_mode, \
	.stream_create = stream_create, .stream_destroy = stream_destroy, .stream_synchronize = stream_synchronize, .stream_query = stream_query, \
	.stream_wait = stream_wait, .not_capturing = not_capturing, \
	.event_create = event_create, .event_destroy = event_destroy, .event_record = event_record, .event_query = event_query, \
	.event_synchronize = event_synchronize, \
	.allocate = allocate, .free = free_plain, .allocate_ordered = allocate_ordered, .free_ordered = free_ordered, .memory = memory, .find = find, \
	.pool_create = pool_create, .pool_destroy = pool_destroy, .pool_keep_all = pool_keep_all, .pool_figures = pool_figures, .pool_trim = pool_trim, \
	.current_pool = current_pool, \
	.copy_out = copy_out, .copy_in = copy_in, .copy_within = copy_within, .fill8 = fill8, .fill16 = fill16, .fill32 = fill32
#endif
