/* One Level Zero device behind C functions that Go calls once an operation. Nothing here calls back into Go, and Level Zero keeps no state
 * in threads.
 *
 * Locks: the caller (driver.go) shares its `life` in every operation and has it alone in tml_start, tml_bind and tml_close, which
 * change the contexts and streams. Inside, `appending` is taken before `lock`; both are leaves towards everybody else. */
#ifndef TML_DEVICE_H
#define TML_DEVICE_H
#include "abi.h"
#include <pthread.h>
#include <stdbool.h>

/* The loader's functions. A pointer is NULL where the loader does not have it; those are never REQUIRED. */
typedef struct tml_api {
#define F(name, since, need, parameters) ze_result_t (*name) parameters;
#include "symbols.def"
#undef F
} tml_api;

/* The same list as numbers: which call failed, and the index into Go's table. */
enum tml_call {
#define F(name, since, need, parameters) TML_CALL_##name,
#include "symbols.def"
#undef F
	TML_CALLS
};

enum tml_need { TML_NEED_REQUIRED, TML_NEED_DRIVERS, TML_NEED_IN_ORDER, TML_NEED_LIST_CHECK, TML_NEED_DEFER, TML_NEED_FIND, TML_NEED_SYSMAN, TML_NEED_SYSMAN_UUID };

typedef struct { const char *name; int since; enum tml_need need; } tml_symbol;
extern const tml_symbol tml_symbols[TML_CALLS];

/* What became of an operation: code 0 is success, else the vendor's code and the function that gave it. */
typedef struct { uint32_t code; int32_t call; } tml_status;

typedef struct { uint64_t value; tml_status status; } tml_result;

/* ---- library.c: what the loader finds, and what a device is */

typedef struct { ze_driver_handle_t driver; ze_device_handle_t device; uint32_t version; /* of the driver's interface: major << 16 | minor */ } tml_found;

/* Every GPU of every driver, in the loader's order; the caller frees `devices`. A driver that fails leaves its first failure in `skipped`,
 * and the others are listed; a loader without any driver lists none, which is no failure. */
typedef struct { tml_found *devices; uint32_t count; tml_status skipped; } tml_list;
tml_status tml_find(const tml_api *api, tml_list *list);

typedef struct {
	char name[256];
	uint8_t uuid[16];
	uint64_t total;           /* bytes of the memory that is allocated from; 0: unknown */
	uint64_t largest;         /* of one allocation, without relaxed limits */
	bool integrated;
	bool in_order;            /* the driver knows in-order command lists */
	bool defers_frees;        /* the driver frees memory after the commands that use it */
	bool tells_usable_size;
	uint32_t relaxed;         /* stype of the structure that lifts `largest`; 0: none */
	uint32_t group;           /* ordinal of the queue group that work is queued on */
	uint32_t longest_pattern; /* of a fill: a power of two, at most 16 */
} tml_facts;
tml_status tml_ask(const tml_api *api, tml_found found, tml_facts *facts);

/* The loader's own version, by its function zelLoaderGetVersions; false: it does not tell. */
typedef struct { int32_t major, minor, patch; } tml_version;
bool tml_loader_version(uintptr_t function, tml_version *version);

/* ---- figure.c: how much memory is free, by Sysman or the driver's own figure */

typedef struct {
	pthread_mutex_t lock;      /* guards what follows */
	bool settled;              /* the modules are known, or it is known that there are none */
	tml_status why;            /* settled without modules: what Sysman answered; code 0: it knows no memory of this device */
	uint32_t count;
	zes_mem_handle_t *modules; /* NULL: none */
} tml_sysman;

enum tml_source { TML_SOURCE_NONE, TML_SOURCE_SYSMAN, TML_SOURCE_USABLE_SIZE };
enum tml_answer { TML_ANSWER_NO_MEMORY /* Sysman knows none of this device */, TML_ANSWER_FORBIDDEN /* it was not asked */, TML_ANSWER_OLD /* the loader lacks it */,
                  TML_ANSWER_REFUSED /* why */ };
typedef struct {
	uint64_t free;
	enum tml_source source;
	tml_status status;       /* a failure that may not come again; another source may have helped out */
	enum tml_answer answer;  /* Sysman's, where it is not the source */
	tml_status why;
} tml_figure;

/* ---- device.c, stream.c, memory.c, copy.c */

/* One submission of the queue: a command list that is executed once at a time, and the fence that tells its end. */
typedef struct tml_slot {
	struct tml_slot *next;
	ze_command_list_handle_t list;
	ze_fence_handle_t fence;
	bool used; /* both have to be reset before the next use */
} tml_slot;

/* A place in the stream that the host can look at: its event is signalled when everything queued before is done, and with it every free
 * up to number `free`. */
enum { TML_MARKS = 64 };
typedef struct { ze_event_handle_t event; uint64_t free; bool used; /* the event has to be reset before the next use */ } tml_mark;

/* What our work is queued on, in one context. Commands are done in the order in which they are appended: by an immediate in-order list, or
 * by a queue of lists that each begin with a barrier. */
typedef struct tml_stream {
	struct tml_stream *next;         /* among those that are left */
	ze_context_handle_t context;
	ze_command_list_handle_t list;   /* immediate and in order; NULL: the queue */
	ze_command_queue_handle_t queue;
	tml_slot *idle, *busy, **last;   /* of the queue; busy ones in the order of submission */
	uint32_t slots;
	ze_event_pool_handle_t pool;
	tml_mark marks[TML_MARKS];       /* a ring, guarded by the device's lock: [first, first + set) are on their way */
	uint32_t first, set;
} tml_stream;

/* A block that was freed and is not known to be back. */
typedef struct tml_pending {
	struct tml_pending *next;
	uint64_t address, bytes, pages; /* pages: bytes of whole pages of the driver */
	ze_context_handle_t context;
	uint64_t number;                /* of the free */
} tml_pending;

typedef struct tml_device {
	const tml_api *api;
	tml_found found;
	tml_facts facts;
	bool sysman_allowed;          /* false: never call it */
	tml_sysman sysman;

	tml_stream own;                /* in a context of our own */
	tml_stream *guest;             /* in the host framework's context; NULL: none. Made while the device is bound exclusively, or under `appending` */
	tml_stream *left;              /* were guests, and could not be given back yet */
	tml_stream *now;               /* own or guest; NULL until tml_start or tml_bind */
	ze_context_handle_t lent;      /* the host's newest context, also after it was left: blocks may lie there. Read by tml_lent */
	ze_command_list_handle_t host; /* the host's list that `now` keeps in step with; NULL: none */

	pthread_mutex_t appending;    /* a command list must not be appended to by two threads at once */

	pthread_mutex_t lock;         /* guards what follows; no call that can wait is made under it */
	tml_pending *first, **last;
	uint64_t frees;               /* how many there were: the number of the newest */
	uint64_t done;                /* frees up to this number are behind everything that the device still does */
	uint64_t held;                /* bytes of live blocks that tml_allocate has returned, in the driver's pages */
	uint64_t unsure;              /* bytes of held and pending_pages that the driver is just giving or taking back */
	uint64_t live_own, live_lent; /* how many of them lie in which context */
	uint64_t adopted_lent;        /* blocks of the host's that are ours now and lie in `lent` */
	uint64_t page;                /* the driver's; 0: not known yet */
	uint64_t pending_pages;       /* bytes on the list, in the driver's pages */
	uint64_t returning, slack;    /* bytes that the driver got and may free a little later, and by how much they may be fewer than we think */
	uint64_t beyond;              /* bytes in use on the device that are not counted here, by the last reading when none were returning */
	bool told;                    /* there is a figure of free memory; atomic */
	int64_t news_until;           /* until then, in microseconds, tml_allocate may take what tml_room has read: */
	uint64_t news_others, news_shown;
	uint64_t pending_bytes;       /* bytes on the list, as they were asked for; atomic: read without the lock */
} tml_device;

tml_device *tml_new(const tml_api *api, tml_found found, const tml_facts *facts, bool sysman_allowed); /* NULL: no host memory */
void tml_delete(tml_device *d);                                                                      /* after a tml_close without error */
/* Makes the context and the stream. After an error it can be called again and goes on where it failed. */
tml_status tml_start(tml_device *d);
/* Takes a host framework's context and immediate command list, after waiting for what is queued. No context: the list's. No list: one of ours
 * in that context. Neither: back to our own. Refused where that many blocks lie in another context of the host's (*kept, else 0): what lies in a
 * third one could not be found. After an error, and when it is refused, nothing changed. */
tml_status tml_bind(tml_device *d, ze_context_handle_t context, ze_command_list_handle_t list, uint64_t *kept);
/* Gives everything back. After an error it can be called again and goes on where it failed. */
tml_status tml_close(tml_device *d);
uint64_t tml_handle(tml_device *d); /* the list that work is queued on, for others; 0: there is none */

/* refused: the device's memory is promised already, by the figures that follow (others: by other users of the device; TML_UNKNOWN: cannot be
 * told). It was not asked. */
#define TML_UNKNOWN UINT64_MAX
typedef struct { uint64_t address; tml_status status; bool refused; uint64_t held, pending, others; } tml_block;
tml_block tml_allocate(tml_device *d, uint64_t bytes);
/* What of a device's memory is left alone where no figure of free memory is there. */
uint64_t tml_spare(uint64_t total);
/* How much may still be allocated while so many bytes of ours are live, adopted ones included. */
tml_result tml_room(tml_device *d, uint64_t live);
/* What the driver has allocated at an address. */
typedef struct {
	uint64_t base, bytes;
	bool known; /* the address lies in a context that the device knows; device memory, or host */
	bool host;  /* host memory; then without a range */
	bool told;  /* the range is there: the loader has the function for that */
	bool freed; /* it is a block on the list of frees, which the driver knows as if it were allocated. It was not asked */
	ze_device_handle_t device; /* that it was allocated on; NULL: the driver does not tell */
} tml_place;
tml_status tml_examine(tml_device *d, uint64_t address, tml_place *place);
/* A block of the host's is ours from now on. Not *known: it lies in no context that we know, and is not. */
tml_status tml_adopt(tml_device *d, uint64_t address, bool *known);
void tml_disown(tml_device *d, uint64_t address, uint64_t bytes, bool ours); /* a block is somebody else's now; ours: it came from tml_allocate */
tml_status tml_free(tml_device *d, uint64_t address, uint64_t bytes, bool ours); /* ours: it came from tml_allocate */
bool tml_reap(tml_device *d); /* gives back, without waiting, what the device is done with; whether more will be */
tml_status tml_synchronize(tml_device *d);
tml_figure tml_memory(tml_device *d); /* needs no context */

tml_status tml_copy_out(tml_device *d, void *host, uint64_t address, uint64_t bytes);
tml_status tml_copy_in(tml_device *d, uint64_t address, const void *host, uint64_t bytes);
tml_status tml_copy_apart(tml_device *d, uint64_t destination, uint64_t source, uint64_t bytes);    /* ranges must not overlap */
tml_status tml_copy_in_steps(tml_device *d, uint64_t destination, uint64_t source, uint64_t bytes); /* overlapping ranges, steps of their distance */
tml_status tml_fill(tml_device *d, uint64_t address, uint64_t low, uint64_t high, uint32_t period, uint64_t bytes);
/* NULL: the device's. */
tml_status tml_join(tml_device *d, ze_command_list_handle_t from, ze_command_list_handle_t to);
/* Waits until the device is done with what was appended to a list (NULL: the device's own), for so many nanoseconds at most: then the code is TML_NOT_READY. */
tml_status tml_wait_until(tml_device *d, ze_command_list_handle_t list, uint64_t nanoseconds);

/* ---- shared by the files */

#define TML_OK ((tml_status){ 0, -1 })

/* Calls a function of the loader and gives its status. */
#define TML_TRY(api, function, ...) tml_tried((uint32_t)(api)->function(__VA_ARGS__), TML_CALL_##function)
static inline tml_status tml_tried(uint32_t code, int call) { return code ? (tml_status){ code, call } : TML_OK; }

/* The first of two failures. */
static inline tml_status tml_first(tml_status a, tml_status b) { return a.code ? a : b; }

bool tml_lost(uint32_t code);        /* nothing can succeed again in this process */
bool tml_unavailable(uint32_t code); /* the feature is not there: asking again would not help */

tml_status tml_open_stream(tml_device *d, tml_stream *s);  /* needs its context; goes on where it failed before */
tml_status tml_close_stream(tml_device *d, tml_stream *s); /* nothing of it may be under way; goes on where it failed before */

/* Work is a few commands in a row, on memory of one context. Begin waits until the host's list has done what it has; on success `appending` is
 * held until end. End submits the work, unless status says that it failed, and waits for it where that is asked for or something else has
 * to come after it. */
typedef struct {
	ze_command_list_handle_t list;
	tml_stream *stream;
	tml_slot *slot;
	uint64_t frees; /* that were before it */
} tml_work;
tml_status tml_begin(tml_device *d, tml_work *work, uint64_t address /* of the memory; 0: none */);
tml_status tml_end(tml_device *d, tml_work *work, tml_status status, bool wait);
tml_status tml_then(tml_device *d, tml_work *work); /* what comes next depends on what was appended */
tml_status tml_wait(tml_device *d, tml_stream *s);  /* for our own work */
/* Whether an address is device memory of that context. That the driver knows of none there is an answer, and no failure. */
tml_status tml_lies_in(tml_device *d, ze_context_handle_t context, uint64_t address, bool *lies);
/* The host's context, if it is set or blocks lie in it; else NULL: the host may have ended it. */
ze_context_handle_t tml_lent(tml_device *d);
/* Whether memory can lie in two contexts: our own and the host's. */
static inline bool tml_two_contexts(tml_device *d) { return d->own.context && tml_lent(d); }
tml_status tml_check_immediate(tml_device *d, ze_command_list_handle_t list); /* whether a host's list is one, as far as the loader can tell */
tml_status tml_wait_for(tml_device *d, ze_command_list_handle_t list, uint64_t timeout); /* for a host's list */

tml_status tml_set_mark(tml_device *d);             /* if there is room for one, and there are frees that none covers; an error only where the device is lost */
void tml_look_at_marks(tml_device *d);              /* the lock is held */
void tml_passed(tml_device *d, uint64_t number);    /* frees up to this number are behind everything; the lock is held */
uint64_t tml_frees(tml_device *d);                  /* the number of the newest */
#endif
