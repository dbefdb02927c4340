/* The Buffer type: its life, its pointer, its properties. What it does to contents is in access.c, since views do the same. */
#include "lane.h"
#include "docs_buffers.h"
#include "_cgo_export.h"
#include <time.h>

PyTypeObject *tm_buffer_type;
tm_record tm_nowhere;
int tm_atomic_counts;

static PyObject *name_device_ptr; /* interned */
static PyObject *state_names[TM_RESTORING + 1], *state_freed;

/* Makes room for this index in the device's table: 0, or -1 without memory. */
static int grow_table(tm_device *device, uint32_t index)
{
	uint32_t capacity = device->capacity ? device->capacity : 256;
	while (capacity <= index) capacity *= 2;
	if (TM_LIKELY(capacity == device->capacity)) return 0;
	tm_buffer **grown = realloc(device->buffers, capacity * sizeof *grown);
	if (!grown) return -1;
	memset(grown + device->capacity, 0, (capacity - device->capacity) * sizeof *grown);
	device->buffers = grown;
	device->capacity = capacity;
	return 0;
}

/* Enters the buffer in its device's table; 0, or -1 without memory. */
static int enter_table(tm_buffer *buffer)
{
	tm_device *device = &tm_devices[buffer->device];
	if (TM_UNLIKELY(buffer->index >= device->capacity && grow_table(device, buffer->index))) return -1;
	if (buffer->index > device->highest) device->highest = buffer->index;
	device->buffers[buffer->index] = buffer;
	return 0;
}

static void leave_table(tm_buffer *buffer)
{
	tm_device *device = &tm_devices[buffer->device];
	/* In a child, indexes of buffers made there are not in the table. */
	if (buffer->index < device->capacity && device->buffers[buffer->index] == buffer) device->buffers[buffer->index] = NULL;
}

/* Makes the Buffer one of what Go has given: 0, or -1 without memory for its place in the table. */
static inline int fill(tm_buffer *buffer, const tm_call *made)
{
	tm_device *device = &tm_devices[made->device];
	buffer->home = buffer->record = (tm_record *)(uintptr_t)made->record;
	buffer->books = device->books;
	buffer->address = TM_NO_ADDRESS;
	buffer->nbytes = made->nbytes;
	buffer->device = made->device;
	buffer->index = made->index;
	if (made->nbytes > device->largest) device->largest = made->nbytes;
	return enter_table(buffer);
}

PyObject *tm_buffer_new(const tm_call *made, PyObject *label, PyObject *origin)
{
	tm_buffer *buffer = (tm_buffer *)tm_buffer_type->tp_alloc(tm_buffer_type, 0);
	if (TM_LIKELY(buffer != NULL)) {
		buffer->label = label;
		buffer->origin = origin;
		if (TM_LIKELY(!fill(buffer, made))) return (PyObject *)buffer;
		buffer->home = NULL;
		Py_DECREF(buffer);
		PyErr_NoMemory();
	} else {
		Py_XDECREF(label);
		Py_XDECREF(origin);
	}
	tm_call undo = {.op = TM_OP_DROP, .device = made->device, .index = made->index};
	tm_release(&undo);
	return NULL;
}

/* The next index is one that was given back, or the first that was never given; more than that only where other threads have got theirs and wait for the
 * GIL to enter them. So many places more are enough for them. */
#define OTHERS_MEANWHILE 1024

tm_buffer *tm_buffer_ready(uint32_t device)
{
	tm_buffer *buffer = (tm_buffer *)tm_buffer_type->tp_alloc(tm_buffer_type, 0);
	if (!buffer) return NULL;
	buffer->record = &tm_nowhere;
	buffer->books = tm_devices[device].books; /* it can be seen before it has memory (adopt.c): whoever uses a freed buffer still counts on its device */
	buffer->device = device;
	if (grow_table(&tm_devices[device], tm_devices[device].highest + OTHERS_MEANWHILE)) {
		Py_DECREF(buffer);
		PyErr_NoMemory();
		return NULL;
	}
	return buffer;
}

void tm_buffer_become(tm_buffer *buffer, const tm_call *made, PyObject *label, PyObject *origin)
{
	Py_XSETREF(buffer->label, label); /* another thread that saw it may have set one */
	buffer->origin = origin;
	if (TM_UNLIKELY(fill(buffer, made))) Py_FatalError("tack_memory: no memory for the table of buffers");
}

static void buffer_dealloc(PyObject *self)
{
	tm_buffer *buffer = (tm_buffer *)self;
	PyTypeObject *type = Py_TYPE(self);
	/* First: wrap() and alive() must not find it, from a weak reference's callback or another thread. And the index is somebody else's once it is dropped. */
	if (TM_LIKELY(buffer->home != NULL)) leave_table(buffer);
	if (TM_UNLIKELY(buffer->child && buffer->home)) tm_child_leave(buffer);
	if (buffer->weak) PyObject_ClearWeakRefs(self);
	if (TM_LIKELY(buffer->home != NULL)) {
		if (TM_UNLIKELY(buffer->child || (tm_forked && tm_devices[buffer->device].is_cpu))) {
			tm_child_drop(buffer);
		} else if (TM_LIKELY(!tm_forked)) {
			/* With the GIL: it counts and puts the buffer on a list, and waits for nothing (drain.go). A destructor that gave the GIL away would let other code
			 * run where nobody expects it, and could cost a switch interval (5 ms) where another thread computes. */
			tmLetGo(buffer->device, buffer->index, tm_cause());
			if (TM_UNLIKELY(buffer->lent)) tm_frame_dropped(buffer->device);
		}
	}
	Py_XDECREF(buffer->pointer);
	Py_XDECREF(buffer->label);
	Py_XDECREF(buffer->origin);
	type->tp_free(self);
	Py_DECREF(type);
	tm_tell_in_free(); /* last: hooks may collect garbage, and there is nothing left of this object that could be found */
}

int tm_raise_freed(const tm_buffer *buffer)
{
	PyErr_Format(PyExc_ValueError, "the buffer of %llu bytes on %U was freed", (unsigned long long)buffer->nbytes, tm_devices[buffer->device].name);
	return -1;
}

/* ---- the pointer */

int tm_make_resident(tm_buffer *buffer, uint64_t *address)
{
	/* Another thread may spill it again before this one has the GIL back. Under such pressure the program needs a hold; without one it gets the address
	 * of the moment, which is all that device_ptr promises. */
	uint32_t asker = 0;
	bool asked = false;
	for (int tries = 0;; tries++) {
		bool child;
		if (!buffer->home || buffer->record == &tm_nowhere) return tm_raise_freed(buffer);
		if (tm_check_fork((int)buffer->device, &child)) return -1;
		if (child || tm_word(buffer->record) == TM_RESIDENT) {
			*address = __atomic_load_n(&buffer->record->address, __ATOMIC_RELAXED);
			tm_touch(buffer->record, buffer->books);
			return 0;
		}
		if (TM_UNLIKELY(tm_origins && !asked)) {
			asker = tm_asker_slow();
			asked = true;
			tries--; /* look again: it has given the GIL away */
			continue;
		}
		tm_call call = {.op = TM_OP_MAKE_RESIDENT, .origin = asker, .device = buffer->device, .index = buffer->index};
		if (tm_perform_on(buffer, &call, tm_bringing(buffer->device, buffer->nbytes))) return -1;
		if (tries == 16) {
			*address = call.address;
			return 0;
		}
	}
}

PyObject *tm_cold_pointer(tm_buffer *base, uint64_t offset, uint64_t *address, PyObject **pointer)
{
	uint64_t now;
	if (tm_make_resident(base, &now)) return NULL;
	if (now != *address) {
		PyObject *fresh = PyLong_FromUnsignedLongLong(now + offset); /* a buffer of size 0 has address 0, and so has each view of it */
		if (!fresh) return NULL;
		*address = now;
		Py_XSETREF(*pointer, fresh);
	}
	return Py_NewRef(*pointer);
}

static PyObject *slow_pointer(tm_buffer *buffer) { return tm_cold_pointer(buffer, 0, &buffer->address, &buffer->pointer); }

PyObject *tm_buffer_pointer(tm_buffer *buffer)
{
	PyObject *warm = tm_warm_pointer(buffer, buffer->address, buffer->pointer);
	return TM_LIKELY(warm != NULL) ? warm : slow_pointer(buffer);
}

static PyObject *get_device_ptr(PyObject *self, void *unused) { return tm_buffer_pointer((tm_buffer *)self); }

/* Attribute access that knows the one hot name: no search in the type, no descriptor. */
static PyObject *buffer_getattro(PyObject *self, PyObject *name)
{
	if (TM_LIKELY(name == name_device_ptr)) return tm_buffer_pointer((tm_buffer *)self);
	return PyObject_GenericGetAttr(self, name);
}

/* ---- properties; all can be read when the buffer is freed, and in a forked child */

static PyObject *get_nbytes(PyObject *self, void *unused) { return PyLong_FromUnsignedLongLong(((tm_buffer *)self)->nbytes); }

static PyObject *get_device(PyObject *self, void *unused) { return Py_NewRef(tm_devices[((tm_buffer *)self)->device].name); }

PyObject *tm_buffer_state(tm_buffer *buffer)
{
	uint32_t state = tm_word(buffer->record) & TM_STATE_MASK;
	return Py_NewRef(state == TM_FREE || state > TM_RESTORING ? state_freed : state_names[state]);
}

static PyObject *get_state(PyObject *self, void *unused) { return tm_buffer_state((tm_buffer *)self); }

bool tm_buffer_is_spilled(tm_buffer *buffer)
{
	uint32_t state = tm_word(buffer->record) & TM_STATE_MASK;
	return state == TM_SPILLED || state == TM_RESTORING; /* the true copy is the host's in both */
}

static PyObject *get_is_spilled(PyObject *self, void *unused) { return PyBool_FromLong(tm_buffer_is_spilled((tm_buffer *)self)); }

static PyObject *get_label(PyObject *self, void *unused)
{
	PyObject *label = ((tm_buffer *)self)->label;
	return Py_NewRef(label ? label : Py_None);
}

int tm_buffer_set_label(tm_buffer *buffer, PyObject *label)
{
	if (!label) {
		PyErr_SetString(PyExc_AttributeError, "a label cannot be deleted; set it to None");
		return -1;
	}
	int failed = 0;
	int64_t number = tm_intern(label, "label");
	if (number < 0 || tm_check_alive(buffer)) return -1;
	if (!tm_forked) {
		tm_call call = {.op = TM_OP_SET_LABEL, .device = buffer->device, .index = buffer->index, .label = (uint32_t)number};
		failed = tm_perform_on(buffer, &call, TM_SHORT);
		if (failed && call.code != TM_OK) return -1; /* else it was done, and then somebody pressed Ctrl-C */
	}
	Py_XSETREF(buffer->label, label == Py_None ? NULL : Py_NewRef(label));
	return failed;
}

static int set_label(PyObject *self, PyObject *label, void *unused) { return tm_buffer_set_label((tm_buffer *)self, label); }

static PyObject *get_origin(PyObject *self, void *unused) { return tm_origin_line(((tm_buffer *)self)->origin); }

static PyObject *get_origin_stack(PyObject *self, void *unused) { return tm_origin_stack(((tm_buffer *)self)->origin); }

static PyObject *get_holds(PyObject *self, void *unused) { return tm_buffer_holds((tm_buffer *)self); }

/* In a forked child: the counts, which are C's there. Their reasons are Go's to know. */
static PyObject *holds_in_child(const tm_buffer *buffer)
{
	PyObject *holds = PyDict_New();
	if (!tm_devices[buffer->device].is_cpu) return holds;
	const tm_record *record = buffer->home;
	const struct { const char *reason; uint32_t count; } counted[] = {
		{"launch", __atomic_load_n(&record->launches, __ATOMIC_RELAXED)}, {"hold or export", __atomic_load_n(&record->pins, __ATOMIC_RELAXED)}};
	for (size_t i = 0; holds && i < sizeof counted / sizeof *counted; i++) {
		PyObject *count = counted[i].count ? PyLong_FromUnsignedLong(counted[i].count) : NULL;
		if (counted[i].count && (!count || PyDict_SetItemString(holds, counted[i].reason, count))) Py_CLEAR(holds);
		Py_XDECREF(count);
	}
	return holds;
}

PyObject *tm_buffer_holds(tm_buffer *buffer)
{
	if (buffer->record == &tm_nowhere) return PyDict_New();
	if (tm_forked) return holds_in_child(buffer);
	tm_call call = {.op = TM_OP_HOLDS, .device = buffer->device, .index = buffer->index};
	if (tm_perform_on(buffer, &call, TM_SHORT)) return NULL;
	PyObject *json = PyImport_ImportModule("json");
	PyObject *holds = json ? PyObject_CallMethod(json, "loads", "s", call.text) : NULL;
	Py_XDECREF(json);
	free(call.text);
	return holds;
}

static PyObject *buffer_repr(PyObject *self)
{
	tm_buffer *buffer = (tm_buffer *)self;
	PyObject *state = tm_buffer_state(buffer);
	PyObject *text = PyUnicode_FromFormat("<Buffer of %llu bytes on %U, %U%s%V>", (unsigned long long)buffer->nbytes, tm_devices[buffer->device].name,
		state, buffer->label ? ", label " : "", buffer->label, "");
	Py_DECREF(state);
	return text;
}

/* ---- freeing early */

/* Whether launches keep the buffer from being freed. */
static bool is_launched(const tm_buffer *buffer) { return __atomic_load_n(&buffer->home->launches, __ATOMIC_RELAXED) != 0; }

/* Raises BufferError with the reasons for which the buffer cannot be freed. False: there are none any more, for what was seen has ended while they were asked
 * for; nothing is raised then, and the caller looks again. */
static bool raise_busy(tm_buffer *buffer)
{
	PyObject *holds = tm_buffer_holds(buffer);
	if (!holds) return true;
	bool any = PyDict_GET_SIZE(holds) > 0;
	PyObject *comma = any ? PyUnicode_FromString(", ") : NULL, *reasons = comma ? PyUnicode_Join(comma, holds) : NULL;
	if (reasons)
		PyErr_Format(PyExc_BufferError, "%U: a buffer of %llu bytes is in use and cannot be freed now: %U", tm_devices[buffer->device].name,
			(unsigned long long)buffer->nbytes, reasons);
	Py_XDECREF(reasons);
	Py_XDECREF(comma);
	Py_DECREF(holds);
	return any;
}

/* Of this thread. Python code may run inside (a signal handler, a log handler), and must not wait for what is beneath it. */
static __thread uint32_t ends_under_way __attribute__((tls_model("initial-exec")));

/* Ends the life of a buffer by a call (free or disown) that may be refused: 0, or -1 with an exception, and the buffer is as it was.
 *
 * From the first line on no other thread can begin to use it, while this one has no GIL: as soon as it is gone, its record and its index are those of another
 * buffer. What was under way before (a launch in its slow path) has the record itself, and makes Go refuse. */
static int end(tm_buffer *buffer, tm_call *call, uint64_t moves)
{
	if (buffer->record == &tm_nowhere || buffer->busy) {
		PyErr_Format(PyExc_BufferError, "the buffer of %llu bytes on %U cannot be freed now: another thread is using it", (unsigned long long)buffer->nbytes,
			tm_devices[buffer->device].name);
		return -1;
	}
	buffer->record = &tm_nowhere;
	leave_table(buffer);
	call->device = buffer->device;
	call->index = buffer->index;
	ends_under_way++;
	int failed = tm_perform(call, moves);
	ends_under_way--;
	if (failed) {
		if (call->code == TM_OK) { /* done, and Ctrl-C came at its very end */
			tm_buffer_forget(buffer);
			return -1;
		}
		buffer->record = buffer->home;
		tm_devices[buffer->device].buffers[buffer->index] = buffer;
		return -1;
	}
	tm_buffer_forget(buffer);
	return 0;
}

static bool is_ending(const tm_buffer *buffer) { return buffer->home && buffer->record == &tm_nowhere; }

/* Waits until another thread's free or disown of this buffer has come to its end, one way or the other: 0, or -1 with an exception (Ctrl-C). */
static int await_other_end(tm_buffer *buffer)
{
	while (is_ending(buffer)) {
		Py_BEGIN_ALLOW_THREADS
		nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
		Py_END_ALLOW_THREADS
		if (PyErr_CheckSignals()) return -1;
	}
	return 0;
}

static PyObject *buffer_free(PyObject *self, PyObject *unused)
{
	tm_buffer *buffer = (tm_buffer *)self;
	do {
		bool child;
		if (TM_UNLIKELY(tm_late_launches)) tm_settle_late_launches();
		if (!buffer->home) Py_RETURN_NONE; /* looked at after each moment without the GIL: another thread may have freed it */
		if (tm_check_fork((int)buffer->device, &child)) return NULL;
		if (is_ending(buffer) && !child && !ends_under_way) {
			if (await_other_end(buffer)) return NULL;
			if (!buffer->home) Py_RETURN_NONE;
		}
		if (is_launched(buffer)) {
			if (tm_await_late_launches(buffer->device) < 0) return NULL;
			continue;
		}
		if (child) {
			if (__atomic_load_n(&buffer->home->pins, __ATOMIC_RELAXED)) continue;
			tm_child_drop(buffer);
			tm_buffer_forget(buffer);
			Py_RETURN_NONE;
		}
		tm_call call = {.op = TM_OP_FREE};
		int failed = end(buffer, &call, 1); /* it wants the lock of the device, which another thread may have for long */
		tm_tell();
		if (failed) return NULL;
		Py_RETURN_NONE;
	} while (!raise_busy(buffer));
	return NULL;
}

PyObject *tm_buffer_disown(tm_buffer *buffer)
{
	uint32_t asker = tm_asker();
	do {
		if (TM_UNLIKELY(tm_late_launches)) tm_settle_late_launches();
		if (!buffer->home || buffer->record == &tm_nowhere) {
			tm_raise_freed(buffer);
			return NULL;
		}
		if (buffer->child) {
			PyErr_SetString(PyExc_ValueError, "memory that was allocated in a forked child cannot be given away");
			return NULL;
		}
		if (is_launched(buffer)) {
			if (tm_await_late_launches(buffer->device) < 0) return NULL;
			continue;
		}
		tm_call call = {.op = TM_OP_DISOWN, .origin = asker};
		if (end(buffer, &call, tm_bringing(buffer->device, buffer->nbytes))) return NULL;
		return PyLong_FromUnsignedLongLong(call.address);
	} while (!raise_busy(buffer));
	return NULL;
}

void tm_buffer_forget(tm_buffer *buffer)
{
	leave_table(buffer);
	buffer->record = &tm_nowhere;
	buffer->home = NULL;
	buffer->address = TM_NO_ADDRESS;
}

/* ---- the type */

static PyGetSetDef buffer_getset[] = {
	{"device_ptr", get_device_ptr, NULL,
		"Address of the contents on the device, an int. Makes the buffer resident and counts a use. Valid until the next allocation,\n"
		"restore or spill by any thread, unless the buffer is held.", NULL},
	{"nbytes", get_nbytes, NULL, "Size in bytes.", NULL},
	{"device", get_device, NULL, "Name of the device, \"cuda:0\".", NULL},
	{"state", get_state, NULL, "\"building\", \"resident\", \"spilling\", \"spilled\", \"restoring\" or \"freed\".", NULL},
	{"is_spilled", get_is_spilled, NULL, "Whether the contents are in host memory now.", NULL},
	{"label", get_label, set_label, "What reports call it; str or None.", NULL},
	{"origin", get_origin, NULL, "Where it was allocated, \"file.py:12\"; None unless origins are recorded.", NULL},
	{"origin_stack", get_origin_stack, NULL, "The frames that allocated it, \"file.py:12 function\", innermost first; None unless stacks are recorded.", NULL},
	{"holds", get_holds, NULL, "Why it cannot be moved now: reason -> count.", NULL},
	{NULL},
};

static PyMethodDef buffer_methods[] = {
	{"free", buffer_free, METH_NOARGS, TM_DOC_FREE},
	{NULL},
};

static PyMemberDef buffer_members[] = {
	{"__weaklistoffset__", T_PYSSIZET, offsetof(tm_buffer, weak), READONLY, NULL},
	{NULL},
};

static PyType_Slot buffer_slots[] = {
	{Py_tp_dealloc, buffer_dealloc},
	{Py_tp_getattro, buffer_getattro},
	{Py_tp_repr, buffer_repr},
	{Py_tp_getset, buffer_getset},
	{Py_tp_methods, NULL}, /* set in tm_buffer_init: those of access.c and the ones above */
	{Py_tp_members, buffer_members},
	{Py_tp_doc, TM_DOC_BUFFER},
	{0, NULL},
};
/* No cycle can go through a buffer: it refers to an int, to strings and to tuples of strings only. So it is not tracked by the garbage collector. */
static PyType_Spec buffer_spec = {"tack_memory.Buffer", sizeof(tm_buffer), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, buffer_slots};

int tm_buffer_init(PyObject *module)
{
	static const char *const names[] = {"", "building", "resident", "spilling", "spilled", "restoring"};
	for (int i = TM_BUILDING; i <= TM_RESTORING; i++)
		if (!(state_names[i] = PyUnicode_InternFromString(names[i]))) return -1;
	state_freed = PyUnicode_InternFromString("freed");
	name_device_ptr = PyUnicode_InternFromString("device_ptr");
	if (!state_freed || !name_device_ptr) return -1;
	static PyMethodDef all[32];
	if (tm_join_methods(all, 32, tm_access_methods, buffer_methods)) return -1;
	for (PyType_Slot *slot = buffer_slots; slot->slot; slot++)
		if (slot->slot == Py_tp_methods) slot->pfunc = all;
	return (tm_buffer_type = tm_add_type(module, &buffer_spec)) ? 0 : -1;
}
