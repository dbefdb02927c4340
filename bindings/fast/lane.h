/* What the C files of the fast lane share. Everything here is called with the GIL unless it says otherwise. */
#ifndef TM_LANE_H
#define TM_LANE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stdbool.h>
#include "books.h"
#include "events.h"
#include "fast.h"
#include "interpreter.h"

#define TM_LIKELY(x) __builtin_expect(!!(x), 1)
#define TM_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* ---- what the core noted (notices.c) */
PyObject *tm_notices_configure(PyObject *notify);
/* Lets Python's logger have what waits: 0, or -1 with an exception that is the program's to see. Runs Python code; an exception that is set stays set, or is
 * the context of the new one. */
int tm_notify(void);
extern PyMethodDef tm_notices_methods[];

/* ---- how far long moves have come (progress.c) */

/* What one call tells the program's callback while it runs as a task. */
typedef struct tm_report {
	tm_progress moved;   /* Go writes here */
	PyObject *callback;  /* of this call; NULL: none, or it has raised */
	uint64_t after;      /* nanoseconds of moving from which it is told */
	uint64_t began;      /* when moving was first seen, by the monotonic clock; 0: not yet */
	uint64_t told[2];    /* bytes that it was told last, of spilling and of restoring */
	bool began_kind[2];  /* whether it was told of spilling, and of restoring */
} tm_report;

extern PyMethodDef tm_progress_methods[];
bool tm_progress_wanted(void);
/* Before the call starts: it counts what it moves, if anybody wants to know. */
void tm_report_begin(tm_report *report, tm_call *call);
/* Tells what is new: 0, or -1 with an exception that was meant for the program (Ctrl-C in the callback). Runs Python code; no exception may be set. */
/* Where this thread's calls share a report: the call counts in it from now on. */
bool tm_report_share(tm_call *call);
extern uint32_t tm_shared_reports; /* 0: no thread does */
int tm_report_tell(tm_report *report, const tm_call *call);
/* The same when the call has ended. An exception that is set stays set. */
int tm_report_end(tm_report *report, tm_call *call);

/* ---- devices (device.c) */

#define TM_MAX_DEVICES 256
/* NumPy's own array memory: counted by an extension module of its own, which gives its books (count_numpy). Go knows nothing of this device, so it is behind the
 * devices whose index Go gives, and nothing but its books works (tm_check_memory). */
#define TM_NUMPY_DEVICE TM_MAX_DEVICES

typedef struct tm_device {
	tm_books *books;
	PyObject *name;             /* "cuda:0" */
	PyObject *relief;           /* empties the host framework's caches; NULL: none */
	struct tm_buffer **buffers; /* the Buffer of each index, borrowed; NULL where there is none */
	uint32_t capacity;          /* of buffers */
	uint32_t highest;           /* index that was ever in it */
	uint64_t largest;           /* of all buffers that it ever had */
	uint32_t ordinal;
	int32_t dlpack_type;        /* kDL... of what DLPack consumers may do with its addresses */
	uint32_t late_per_thread;   /* late launches on per-thread streams (launch_end.c) */
	bool is_cpu;                /* goes on in a forked child */
	bool is_host_memory;        /* its addresses are the host's, and what was written is there: no stream is to be waited for before they are read */
	bool has_default_stream;    /* handle 0 is a stream (CUDA's and HIP's null stream), which Go knows as 1: there 0 is the device's own */
} tm_device;

extern tm_device tm_devices[TM_MAX_DEVICES + 1];
extern uint32_t tm_device_count; /* without TM_NUMPY_DEVICE */

int tm_device_init(void);
PyObject *tm_device_configure(PyObject *resolve, PyObject *parse_size);
/* The index of a device argument (NULL: None), or -1 with an exception. */
int tm_resolve_device(PyObject *device);
/* A size argument in bytes, or -1 with an exception. */
int64_t tm_parse_size(PyObject *size, int device);
uint64_t tm_stream_handle(int device, uint64_t handle);
typedef struct tm_thread tm_thread; /* nested.c */
bool tm_per_thread_stream(int device, uint64_t handle); /* whether it is another stream on each thread */
bool tm_lasting_stream(int device, uint64_t handle); /* false with an exception: it cannot be used beyond the call */
/* A plain int argument >= 0, or -1 with an exception that names it. */
int64_t tm_parse_count(PyObject *value, const char *name);
/* An address or a handle: an int of 0 to 2^64-1. 0 on success. */
int tm_parse_handle(PyObject *value, const char *name, uint64_t *handle);

extern PyMethodDef tm_device_methods[];

/* ---- calls into Go (task.c, errors.c, fork.c) */

/* Carries out a call without the GIL and turns its errors into exceptions: 0, or -1 with an exception. Where Go asks for help (garbage
 * collection, the host's caches) it helps and asks again.
 *
 * moves: the most bytes that the call may move, by itself and to make room. On the main thread Ctrl-C ends a call that may take long, because of that
 * or since it may wait for other threads; then what a call that was done all the same has given is given back. */
int tm_perform(tm_call *call, uint64_t moves);
#define TM_SHORT ((uint64_t)0)    /* moves nothing and waits for nobody; with TM_ASK among the flags it is made a long call where it has to wait for a stream */
#define TM_LONG UINT64_MAX
/* What bringing nbytes to the device may move: themselves, and what goes for them; the last victim may be the largest buffer. */
uint64_t tm_bringing(uint32_t device, uint64_t nbytes);
/* The same for what cannot fail and must not be stopped (drops and releases); nothing in a forked child. Runs no Python. */
void tm_release(tm_call *call);
void tm_release_anywhere(tm_call *call); /* on any thread, with or without the GIL (a DLPack consumer's) */
/* TM_OP_FOLLOW, of call->device and call->stream: what comes before the end of a launch's holds. No Python code runs before it returns, but signal handlers
 * while it waits on the main thread; Ctrl-C ends the wait. True when a handler raised: the exception is set. Without may_wait it waits for nothing
 * (TM_LATER). call->notices and call->text are for the caller. `thread` is the one that the launch was entered on: of a per-thread stream of another thread
 * nothing can be asked, and the whole context is waited for. */
bool tm_follow(tm_call *call, const tm_thread *thread, bool may_wait);

int tm_errors_init(PyObject *module);
PyObject *tm_errors_configure(PyObject *memory_error, PyObject *lost_error, PyObject *fork_error, PyObject *capture_error);
/* Raises what the call ended with, and frees its text. Always -1. */
int tm_raise_call(tm_call *call);
/* An exception of the call's device that says: not enough host memory (a forked child's CPU). Always -1. */
int tm_raise_child_memory(int device, uint64_t nbytes, const char *reason);

/* 0; or -1 with ValueError for a device that has nothing but books. tm_perform asks it. */
int tm_check_memory(int device);

void tm_raise_forked_adoption(int device); /* adopt() in a forked child */
int tm_fork_init(void);
/* 0; or -1 with ForkError in a forked child, except on the CPU: then *child is set. */
int tm_check_fork(int device, bool *child);

/* The number of an interned text (str or None), or -1 with an exception. */
int64_t tm_intern(PyObject *text, const char *what);
/* The same for a stack that begins at this line (gomem.InternStack). */
int64_t tm_intern_stack(PyObject *stack, uint32_t line);

/* Whether the interpreter is going down: nothing waits for anything any more. */
static inline bool tm_finalizing(void)
{
#if PY_VERSION_HEX >= 0x030d0000
	return Py_IsFinalizing();
#else
	return _Py_IsFinalizing();
#endif
}

/* ---- launches and holds that a thread has open (nested.c) */

/* Counts one more for the calling thread; give the result to tm_thread_leave, on any thread. NULL: no memory (nothing is counted). */
tm_thread *tm_thread_enter(void);
void tm_thread_leave(tm_thread *thread);
bool tm_thread_is_this(const tm_thread *thread);
tm_thread *tm_thread_keep(tm_thread *thread); /* one more reference, so that no other thread gets its address; NULL stays NULL */
void tm_thread_let_go(tm_thread *thread);
/* The same for enter_launch and leave_launch, which have nothing to remember the thread in. */
void tm_thread_enter_plain(void);
void tm_thread_leave_plain(void);
bool tm_thread_is_nested(void);
bool tm_others_have_open(void); /* launches or holds of other threads */
uint32_t tm_open_launches_and_holds(void); /* of all threads */

/* ---- blocks of label() (label.c) */

extern uint32_t tm_open_labels; /* blocks that are open, in any context; with the GIL */
PyObject *tm_block_label_slow(uint32_t *number);
/* The label of the block that the calling code is in, a new reference, and its interned number; NULL: none, and no error. */
static inline PyObject *tm_block_label(uint32_t *number) { return TM_LIKELY(!tm_open_labels) ? NULL : tm_block_label_slow(number); }

/* ---- buffers and views (buffer.c, view.c, access.c) */

typedef struct tm_buffer {
	PyObject_HEAD
	tm_record *record;  /* what the hot paths read: its record; tm_nowhere when it is freed, or just being freed */
	tm_books *books;    /* of its device */
	uint64_t address;   /* what `pointer` was made of */
	PyObject *pointer;  /* int */
	tm_record *home;    /* its record as long as it has one; NULL: freed */
	uint64_t nbytes;
	uint32_t device, index;
	PyObject *label;    /* str or NULL */
	PyObject *origin;   /* see origin.c; NULL: none */
	PyObject *weak;
	uint32_t busy;      /* calls into Go that name it by its index and are under way: it cannot be freed now */
	bool child;         /* made in a forked child: record and memory are C's (cpu_child.c) */
	bool hosts;         /* in the place of a host's pointer (adopt.c): the host's object has more to it than its contents */
	bool lent;          /* it began in memory of somebody else's (frame.c) */
} tm_buffer;

typedef struct tm_view {
	PyObject_HEAD
	tm_buffer *base;    /* NULL: somebody else's memory */
	PyObject *owner;    /* keeps somebody else's memory alive; NULL: none */
	uint64_t offset, nbytes;
	uint64_t address;   /* the base's address when `pointer` was made; of foreign memory: its address */
	PyObject *pointer;  /* int */
	PyObject *weak;
	uint32_t device;
} tm_view;

/* A part of a buffer, or of foreign memory: what Buffer and BufferView have in common. */
typedef struct tm_range {
	tm_buffer *base; /* NULL: foreign */
	uint64_t offset, nbytes;
	uint64_t address; /* foreign: of the first byte */
	uint32_t device;
} tm_range;

extern PyTypeObject *tm_buffer_type, *tm_view_type, *tm_hold_type, *tm_exported_type, *tm_reservation_type, *tm_launch_type;
extern tm_record tm_nowhere; /* its word is TM_FREE for ever */

int tm_buffer_init(PyObject *module);
int tm_view_init(PyObject *module);
/* tm_perform for a call that names this buffer. Without the count, another thread could free it while this one has no GIL, and the index would be another
 * buffer's. The caller has a reference, so it cannot be dropped meanwhile. */
static inline int tm_perform_on(tm_buffer *buffer, tm_call *call, uint64_t moves)
{
	buffer->busy++;
	int failed = tm_perform(call, moves);
	buffer->busy--;
	return failed;
}

/* A new Buffer of what Go has just given; on failure it is given back. Steals label and origin (str or NULL). */
PyObject *tm_buffer_new(const tm_call *made, PyObject *label, PyObject *origin);
/* The same in two steps, for what cannot be given back: a Buffer that looks freed, or NULL with an exception, before Go is asked; then it becomes one of what
 * Go has given, and nothing can fail. */
tm_buffer *tm_buffer_ready(uint32_t device);
void tm_buffer_become(tm_buffer *buffer, const tm_call *made, PyObject *label, PyObject *origin);
PyObject *tm_view_new(tm_buffer *base, uint64_t offset, uint64_t nbytes);
PyObject *tm_view_foreign(uint64_t address, uint64_t nbytes, uint32_t device, PyObject *owner);
/* Fills in the flags and texts of a buffer that is about to be made, from arguments (NULL: not given): 0, or -1 with an exception. The texts are new
 * references, or NULL. */
int tm_new_buffer_texts(tm_call *call, PyObject *movable, PyObject *reason, PyObject *label, PyObject **label_text, PyObject **origin_text);
/* Gives the memory to the caller: its address as an int; NULL with an exception, and nothing changed. */
PyObject *tm_buffer_disown(tm_buffer *buffer);
/* Forgets a buffer whose record is somebody else's from now on. */
void tm_buffer_forget(tm_buffer *buffer);

/* New references to the pointer; the buffer is made resident and a use is counted. */
PyObject *tm_buffer_pointer(tm_buffer *buffer);
PyObject *tm_view_pointer(tm_view *view);
/* Makes a buffer resident the slow way and says where it lies: 0, or -1 with an exception. */
int tm_make_resident(tm_buffer *buffer, uint64_t *address);

/* The range of a Buffer or BufferView; or -1 with TypeError (what names the caller), ValueError for a freed one. */
int tm_range_of(PyObject *object, const char *what, tm_range *range);
/* 0; or -1 with ValueError for a buffer that was freed. NULL is foreign memory. To be asked again whenever the GIL was away or Python code ran. */
int tm_check_alive(const tm_buffer *base);
/* The buffer under a Buffer or BufferView, borrowed; NULL for foreign memory. *ok is false for anything else. */
static inline tm_buffer *tm_root(PyObject *object, bool *ok)
{
	if (TM_LIKELY(Py_IS_TYPE(object, tm_buffer_type))) return (tm_buffer *)object;
	if (TM_LIKELY(Py_IS_TYPE(object, tm_view_type))) return ((tm_view *)object)->base;
	*ok = false;
	return NULL;
}
/* Always -1: ValueError that says that the buffer was freed. */
int tm_raise_freed(const tm_buffer *buffer);
PyObject *tm_buffer_holds(tm_buffer *buffer);
PyObject *tm_buffer_state(tm_buffer *buffer);
bool tm_buffer_is_spilled(tm_buffer *buffer);
int tm_buffer_set_label(tm_buffer *buffer, PyObject *label);

/* Methods that work on a range (access.c), the same for both types. */
extern PyMethodDef tm_access_methods[];

/* ---- launch passes (launch.c) */

enum { TM_READY = 0, TM_SLOW = 1, TM_WRONG = -1 };
/* Makes all resident and holds them: TM_READY or TM_SLOW (some were not), or TM_WRONG with an exception, and nothing is held. All on one device, whose books
 * are returned (NULL: no items). */
int tm_pass_enter(PyObject *const *items, Py_ssize_t count, tm_books **books);
/* The same for Buffers and BufferViews of any devices, which must be the same objects to the end. */
int tm_pass_enter_devices(PyObject *const *items, Py_ssize_t count);
/* Lowers all counts: 0; or -1 with an exception, and no count is changed, when one was not raised. */
int tm_pass_leave(PyObject *const *items, Py_ssize_t count);

/* Lowers all counts of a launch whose work is on another stream, once that work is over or comes before what the device does from now on: 0, or -1 with an
 * exception. Where neither can be had (the driver fails, Ctrl-C ended the wait) the counts stay, and so do the items: launch_end.c. may_wait is false in a
 * destructor. */
int tm_pass_leave_stream(PyObject *const *items, Py_ssize_t count, uint32_t device, uint64_t stream, tm_thread *thread, bool may_wait);
/* Launches that were left so. To end those that are over by now: it waits for nothing, keeps an exception that is set, and may run Python code. */
extern uint32_t tm_late_launches;
void tm_settle_late_launches(void);
/* The same for those on per-thread streams of this device: nobody but each stream's own thread can ask about these, and it may have ended. So this waits for
 * the whole context, and is for calls that wait for the device anyway, or would fail. 1: they are over; 0: there are none, or the wait failed; -1 with an
 * exception: a signal handler raised while it waited. It may run Python code. */
int tm_await_late_launches(uint32_t device);

/* ---- a host's arrays that the host reads as arrays (host_array.c), and its launches (host_launch.c) */

typedef struct tm_host_array {
	PyObject_HEAD
	PyObject *of;      /* Buffer or BufferView */
	PyObject *make;    /* callable: (host array, owner) -> array */
	PyObject *info;    /* the adapter's */
	PyObject *kept;    /* the array for the next read in a launch; NULL: none */
	PyObject *owner;   /* of kept */
	Py_ssize_t place;  /* where the last launch has it among its own: a first guess */
} tm_host_array;

extern PyTypeObject *tm_host_array_type;
int tm_host_array_init(PyObject *module);
int tm_host_launch_init(PyObject *module);
/* What a read of the host's attribute gives: an array over memory that stays in its place while the array, or any view of it, lives. */
PyObject *tm_host_array_read(tm_host_array *array);
/* A launch of the array ends, and still holds it: whoever keeps the array beyond that gets a hold of its own. It always does; -1 with an exception that
 * was meant for the program (Ctrl-C in a log handler). */
int tm_host_array_settle(tm_host_array *array);
/* Whether a launch of this thread has the array's memory held (host_frames.c). */
bool tm_host_launch_has(const tm_host_array *array);

/* ---- counting in shared memory */

/* A use: one tick of the device's clock. Plain loads and stores, while Go ticks without the GIL: ticks can be lost, so that two uses are equally old, and
 * where this thread loses its processor between load and store the clock goes back by what Go ticked meanwhile. Only the order of those uses
 * suffers (Books.tick; gomem/victims.go relies on no more). */
static inline void tm_touch(tm_record *record, tm_books *books)
{
	uint64_t now = __atomic_load_n(&books->clock, __ATOMIC_RELAXED) + 1;
	__atomic_store_n(&books->clock, now, __ATOMIC_RELAXED);
	__atomic_store_n(&record->last_use, now, __ATOMIC_RELAXED);
}

static inline uint32_t tm_word(const tm_record *record) { return __atomic_load_n(&record->word, __ATOMIC_ACQUIRE); }

/* No address: a record never has it, so a comparison with it fails and the int is made at the first use. */
#define TM_NO_ADDRESS UINT64_MAX

/* The pointer of a buffer, or of a view of it, that was made when its base was at this address, and a use of the base; NULL where the base is not on the
 * device now, or elsewhere. Warm: two loads of the record, two comparisons, the tick, no call. */
static inline PyObject *tm_warm_pointer(tm_buffer *base, uint64_t address, PyObject *pointer)
{
	tm_record *record = base->record;
	if (TM_UNLIKELY(tm_word(record) != TM_RESIDENT || __atomic_load_n(&record->address, __ATOMIC_RELAXED) != address || tm_forked)) return NULL;
	tm_touch(record, base->books);
	return Py_NewRef(pointer);
}

/* The same where the base may have to be made resident: a new reference, or NULL with an exception. offset is the view's, address and pointer what is kept
 * for the next time. */
PyObject *tm_cold_pointer(tm_buffer *base, uint64_t offset, uint64_t *address, PyObject **pointer);

/* Not 0 where the kernel has no membarrier: then launch counts are raised by atomic adds. */
extern int tm_atomic_counts;

/* Counts a launch (model: launch.enter). Under a GIL plain stores are enough: only its holders write these counts, and the spiller pays for the
 * order by membarrier between its change of the state and its look at the counts; the signal fence keeps the compiler from moving the load of
 * the state before the store. Without a GIL, or without membarrier, both sides use sequentially consistent operations. */
static inline void tm_raise_launch(tm_record *record)
{
#ifndef Py_GIL_DISABLED
	if (TM_LIKELY(!tm_atomic_counts)) {
		__atomic_store_n(&record->launches, __atomic_load_n(&record->launches, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
		return;
	}
#endif
	__atomic_fetch_add(&record->launches, 1, __ATOMIC_SEQ_CST);
}

static inline void tm_lower_launch(tm_record *record)
{
#ifndef Py_GIL_DISABLED
	if (TM_LIKELY(!tm_atomic_counts)) {
		__atomic_store_n(&record->launches, __atomic_load_n(&record->launches, __ATOMIC_RELAXED) - 1, __ATOMIC_RELEASE);
		__atomic_signal_fence(__ATOMIC_SEQ_CST); /* a later load of books.waiting stays behind the store, or who waits would be told late */
		return;
	}
#endif
	__atomic_fetch_sub(&record->launches, 1, __ATOMIC_SEQ_CST);
}

/* ---- the CPU in a forked child (cpu_child.c) */
/* Appends the Buffers that were made in the child: 0, or -1 with an exception. */
int tm_child_alive(PyObject *list);
/* From now on it is none of them. Idempotent. */
void tm_child_leave(tm_buffer *buffer);
/* Room for a host's own allocation, counted as reserved: 0, or -1 with an exception. */
int tm_child_reserve(int device, uint64_t nbytes);
void tm_child_unreserve(int device, uint64_t nbytes);
PyObject *tm_child_allocate(int device, uint64_t nbytes, PyObject *label, PyObject *origin);
void tm_child_drop(tm_buffer *buffer);
tm_books *tm_child_open_cpu(uint32_t index);

/* ---- contents from other processes (frame.c) */
extern struct tm_frame *tm_frames_back; /* what the core has given back */
/* Lets go of it, with the GIL. Code of whoever owns the memory may run; an exception that is set stays set. */
void tm_frames_release(void);
/* A buffer that may be in such memory is dropped. With the GIL. */
void tm_frame_dropped(uint32_t device);

/* ---- events (events.c) */
extern const tm_events_api *tm_events;
/* What Go told of in the call that has just returned is delivered now: where no other thread can see that the call is half done, and any Python code may run. An exception that is set
 * stays set. Nobody listens: one load and one branch. */
static inline void tm_tell(void)
{
	if (TM_EVENTS_ON(tm_events, TACK_DEVICE)) tm_events->drain();
}
/* The same at the end of a destructor: hooks may be called, but no other thread is waited for. */
static inline void tm_tell_in_free(void)
{
	if (TM_EVENTS_ON(tm_events, TACK_DEVICE)) tm_events->drain_in_free();
}
static inline uint32_t tm_cause(void) { return TM_EVENTS_ON(tm_events, TACK_DEVICE) ? tm_events->cause() : 0; }
void tm_tell_failed(uint32_t device, uint64_t nbytes);
/* A CPU buffer of a forked child was made, or is about to be freed. */
void tm_tell_child(uint32_t device, const tm_record *record, bool born);

/* ---- where things were allocated (origin.c) */
enum tm_origins { TM_ORIGINS_OFF, TM_ORIGINS_LINE, TM_ORIGINS_STACK };
extern enum tm_origins tm_origins;
/* The origin of the calling Python code: 0; origin is a new reference or NULL. */
int tm_origin_now(PyObject **origin, uint32_t *number);
/* The frame that called, outside of this package and of the hosts' machinery: a new reference, NULL where there is none. */
PyFrameObject *tm_calling_frame(void);
/* Whether the code's file lies in one of these folders: a tuple that tm_check_folders has seen, or NULL. */
bool tm_code_is_within(PyCodeObject *code, PyObject *folders);
bool tm_code_is_machinery(PyCodeObject *code);
/* A name as a text that can be a label or an origin: a new reference. */
PyObject *tm_name_text(PyObject *name, bool end);
int tm_check_folders(PyObject *folders, const char *function);
/* The label of what a host's own code allocates (host_label.c): a new reference; NULL: none, or with an exception. */
PyObject *tm_host_label_slow(uint32_t *number);
/* The number of the origin of a call that may have to make room, for reports of why buffers were spilled; 0: origins are off, or it is not known. It gives the GIL
 * away and may run Python code, so it comes before a look at what the call is about. */
uint32_t tm_asker_slow(void);
static inline uint32_t tm_asker(void) { return TM_LIKELY(!tm_origins) ? 0 : tm_asker_slow(); }
/* What a Buffer shows of its origin (NULL: none): new references. */
PyObject *tm_origin_line(PyObject *origin);
PyObject *tm_origin_stack(PyObject *origin);
int tm_origin_init(PyObject *module);
extern PyMethodDef tm_origin_methods[];
extern PyMethodDef tm_host_label_methods[];

/* ---- arguments (arguments.c) */
typedef struct tm_signature {
	const char *function;
	int positional;          /* how many may be given by position */
	int required;            /* of them, how many must be given */
	const char *names[12];   /* all, those by position first; one more than is used, which is NULL */
	PyObject *interned[12];
} tm_signature;
/* Sorts the arguments of a METH_FASTCALL | METH_KEYWORDS call into values (borrowed; NULL: not given): 0, or -1 with TypeError. */
int tm_arguments(tm_signature *signature, PyObject *const *args, Py_ssize_t nargs, PyObject *names, PyObject **values);
/* None counts as not given. */
static inline PyObject *tm_given(PyObject *value) { return value == Py_None ? NULL : value; }

/* ---- the modules of the lane */
int tm_hold_init(PyObject *module);
int tm_export_init(PyObject *module);
int tm_launch_init(PyObject *module);
int tm_adopt_init(PyObject *module);
int tm_peak_init(PyObject *module);
/* A device was opened: the peak scopes that are open count it, too. 0, or -1 with an exception. */
int tm_peak_device_opened(uint32_t device);
uint32_t tm_open_scopes(void);
int tm_info_init(PyObject *module);
int tm_pointer_slot_init(PyObject *module);
int tm_thread_init(void);
int tm_label_init(PyObject *module);
int tm_instances_init(void);
PyObject *tm_info_configure(PyObject *format, PyObject *format_html);
extern PyMethodDef tm_allocate_methods[], tm_frame_methods[], tm_launch_methods[], tm_during_launch_methods[], tm_adopt_methods[], tm_info_methods[], tm_budget_methods[], tm_peak_methods[],
	tm_label_methods[], tm_instances_methods[], tm_still_open_methods[], tm_events_methods[];
PyObject *tm_hold_new(PyObject *of, PyObject *reason);
PyObject *tm_export_new(PyObject *of, PyObject *reason);

/* Makes a heap type of a spec and adds it to the module. */
PyTypeObject *tm_add_type(PyObject *module, PyType_Spec *spec);
/* Writes two lists of methods into one. */
int tm_join_methods(PyMethodDef *all, int room, const PyMethodDef *first, const PyMethodDef *second);

#define TM_KEYWORDS(function) ((PyCFunction)(void (*)(void))(function)), METH_FASTCALL | METH_KEYWORDS
#define TM_FASTCALL(function) ((PyCFunction)(void (*)(void))(function)), METH_FASTCALL
#endif
