/* What crosses between the C fast lane and Go: one struct for a call, its operations, and how it can end. cgo and the generated
 * wrappers of the control plane include this file, so it knows nothing of Python. */
#ifndef TM_FAST_H
#define TM_FAST_H
#include "tm_shared.h"

#define TM_UNNAMED_STREAM UINT64_MAX /* gomem.UnnamedStream */

/* Not 0 in a forked child: the Go runtime has lost its threads there, so nothing may enter Go. */
extern int tm_forked;
/* Raises ForkError; needs the GIL. */
void tm_raise_forked(void);

/* The operations that operations.go carries out. Each reads the fields of tm_call named behind it, and fills those behind the arrow. */
enum tm_op {
	TM_OP_OPEN,           /* memory = kind (text, length nbytes), offset = ordinal -> device, record = books, name, token = stream */
	TM_OP_ALLOCATE,       /* nbytes, flags, reason, label, origin -> index, record, address */
	TM_OP_RECEIVE,        /* memory = nbytes of contents, token = the tm_frame that they are in, label, origin -> index, record, token = 0: Go has it */
	TM_OP_DRAIN,          /* */
	TM_OP_DROP,           /* index */
	TM_OP_FREE,           /* index */
	TM_OP_MAKE_RESIDENT,  /* index -> address */
	TM_OP_ADMIT,          /* memory = uint32 indexes, nbytes = how many */
	TM_OP_DISCHARGE,      /* the same */
	TM_OP_ENDED,          /* */
	TM_OP_HOLD,           /* index, reason, TM_EXPORT -> token, address */
	TM_OP_RELEASE,        /* index, token */
	TM_OP_HOLDS,          /* index -> text, JSON */
	TM_OP_SPILL,          /* index -> result = bytes freed */
	TM_OP_SPILL_ALL,      /* -> result = bytes freed */
	TM_OP_RESTORE_ALL,    /* */
	TM_OP_MAKE_ROOM,      /* nbytes -> result = bytes freed */
	TM_OP_COPY_TO_HOST,   /* index, offset, memory, nbytes */
	TM_OP_COPY_FROM_HOST, /* the same */
	TM_OP_FILL,           /* index, offset, pattern, pattern_bytes, nbytes */
	TM_OP_COPY,           /* index, offset <- other, other_offset; nbytes */
	TM_OP_RAW_TO_HOST,    /* address, memory, nbytes: memory that is not ours */
	TM_OP_RAW_FROM_HOST,  /* the same */
	TM_OP_RAW_FILL,       /* address, pattern, pattern_bytes, nbytes */
	TM_OP_RAW_COPY,       /* address <- other_offset (an address); nbytes */
	TM_OP_SET_BUDGET,     /* result = bytes or -1, TM_STRICT -> result = the one before, TM_STRICT */
	TM_OP_SPILL_TO_BUDGET, /* -> result = bytes freed */
	TM_OP_INFO,           /* memory = tm_info */
	TM_OP_RESERVE,        /* nbytes -> token */
	TM_OP_UNRESERVE,      /* token */
	TM_OP_RESERVE_TO_ADOPT, /* address, nbytes, how -> token: room for memory that is there already */
	TM_OP_ADOPT,          /* address, nbytes, how, stream, token, flags, reason, label, origin -> index, record */
	TM_OP_DISOWN,         /* index -> address */
	TM_OP_FIND,           /* address, nbytes -> result = 1 if found, index, offset; an error where a part only is ours */
	TM_OP_SYNCHRONIZE,    /* */
	TM_OP_TRIM,           /* -> result = bytes released */
	TM_OP_TRIM_HOST,      /* -> result = bytes released */
	TM_OP_STREAM,         /* -> stream */
	TM_OP_SET_STREAM,     /* context, stream */
	TM_OP_JOIN,           /* stream = from, token = to */
	TM_OP_FOLLOW,         /* stream (or TM_UNNAMED_STREAM), TM_PATIENT -> result = 1 where what was queued there is over, or comes before what the device does
	                       * now; also at an error */
	TM_OP_INTERN,         /* memory = text of nbytes bytes, origin (not 0: it is a stack that begins at this line) -> label */
	TM_OP_SET_LABEL,      /* index, label */
	TM_OP_NOTICES,        /* -> text, JSON: what was noted since the last time, for Python's logger */
	TM_OP_AT_PEAK,        /* memory = tm_peak, watched -> text, JSON of what was live at its peak so far; none: it was closed, and has at_peak */
	TM_OP_CLOSE_PEAK,     /* memory = tm_peak, watched and open: closes it */
};

enum tm_flag {
	TM_ZERO = 1,        /* fill new memory with zeros */
	TM_UNMOVABLE = 2,
	TM_NESTED = 4,      /* this thread has launches or holds open: never wait for those of others */
	TM_COLLECTED = 8,   /* garbage was collected for this request */
	TM_RELIEVED = 16,   /* ... and the host's caches were emptied */
	TM_STRICT = 32,
	TM_EXPORT = 64,
	TM_ASK = 128,           /* TM_LATER where the call would have to wait for what is queued on the device's stream */
	TM_PATIENT = 256,       /* wait, if need be; else TM_LATER */
	TM_HAS_LATE = 512,      /* TM_SETTLE where the call would have to wait for launches: there are late ones (launch_end.c) that a wait may end */
};

/* How a call ended. */
enum tm_code {
	TM_OK,
	TM_COLLECT,    /* collect garbage and ask again with TM_COLLECTED */
	TM_RELIEVE,    /* also empty the host's caches and ask again with TM_RELIEVED */
	TM_CANCELLED,  /* Ctrl-C; every buffer is whole */
	TM_MEMORY,     /* text: JSON, the fields of DeviceMemoryError */
	TM_LOST,
	TM_CAPTURE,    /* StreamCaptureError */
	TM_BUSY,       /* BufferError */
	TM_VALUE,      /* ValueError: freed, overlapping or unknown */
	TM_FAILED,     /* RuntimeError: a call of the driver, or an error of ours */
	TM_LATER,      /* it would have to wait for work that is queued on a stream: nothing has happened; ask again, from where Ctrl-C ends it */
	TM_SETTLE,     /* it would have to wait for launches: find out which late ones are over, and ask again without TM_HAS_LATE */
	TM_AGAIN,      /* the gate was closed: nothing has happened; ask again */
};

/* An operation that has no way back (TM_OP_DISOWN) passes its gate as its last step, or fails with TM_AGAIN and has changed nothing. The thread that waits for
 * it closes the gate while Python code may run. */
enum tm_gate { TM_GATE_OPEN, TM_GATE_CLOSED, TM_GATE_PASSED };

/* How far a call has come with moving memory: gomem.Progress. Bytes. Go writes it while the call runs, and C's waiting thread reads it; atomic, each field by
 * itself. */
typedef struct tm_progress {
	uint64_t spill_done, spill_total;
	uint64_t restore_done, restore_total;
} tm_progress;

typedef struct tm_call {
	uint32_t op; /* enum tm_op */
	uint32_t device;
	uint32_t index, other;
	uint32_t flags; /* enum tm_flag */
	uint32_t label, origin, reason; /* interned texts. origin: of the buffer that is made, and of all else of the line that asks (tm_asker); 0: not known */
	uint32_t how; /* gomem.How */
	uint32_t pattern_bytes;
	uint64_t nbytes, offset, other_offset, address, stream, context, token;
	int64_t result;
	uint64_t record; /* address of a tm_record or tm_books */
	void *memory;
	char pattern[16];
	char name[24];
	char *text; /* malloc'ed by Go, freed by C; NULL: none */
	int32_t code; /* enum tm_code */
	uint32_t gate; /* enum tm_gate, atomic: both threads of a task change it */
	uint32_t cause; /* who is told to have caused what happens: tm_events_api.cause; 0: nobody asks */
	uint32_t notices; /* from every operation: not 0 when TM_OP_NOTICES would return something */
	tm_progress *progress; /* valid until the call ends; NULL: nobody asks (progress.c) */
} tm_call;

/* The figures of memory_info: the books as one moment, and what the driver and the pool of host memory say. -1: unknown. */
typedef struct tm_info {
	int64_t in_use, peak, spilled, reserved, pending_free, budget;
	int64_t over_budget_count, spill_count, restore_count, spilled_bytes, restored_bytes, received_bytes;
	int64_t strict;
	int64_t device_free, device_total, cached, driver_allocated;
	int64_t host_bytes;
} tm_info;

/* A peak scope of Python's on one device. */
typedef struct tm_peak {
	tm_scope scope;
	char *at_peak; /* JSON of what was live at its peak; malloc'ed by Go in TM_OP_CLOSE_PEAK, freed by C; NULL: not told */
} tm_peak;

/* A call that runs on a goroutine while the thread that asked waits in slices (task.c). */
typedef struct tm_task tm_task;
void tm_task_finish(tm_task *task);
/* Gives a frame (frame.c) back, from any thread, without the GIL. */
void tm_frame_give_back(uint64_t frame);
extern int tm_ended; /* Python has ended: nothing calls a driver any more (ending.go) */

#endif
