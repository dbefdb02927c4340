/* Memory that a host framework allocates by itself: room for it (reserve, make_room), taking it over and giving it back (adopt, disown), and memory
 * that stays somebody else's (wrap). */
#include "lane.h"
#include "docs_calls.h"
#include <string.h>

PyTypeObject *tm_reservation_type;

/* ---- reserve */

typedef struct tm_reservation {
	PyObject_HEAD
	uint64_t token; /* 0: used up, or given back */
	uint64_t nbytes;
	uint32_t device;
	bool child;     /* made in a forked child: C counts it */
} tm_reservation;

static PyObject *reserve(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"reserve", 2, 1, {"nbytes", "device"}};
	PyObject *value[2];
	if (tm_arguments(&signature, args, nargs, names, value)) return NULL;
	int device = tm_resolve_device(value[1]);
	int64_t nbytes = device < 0 ? -1 : tm_parse_size(value[0], device);
	if (nbytes < 0) return NULL;
	tm_call call = {.op = TM_OP_RESERVE, .device = (uint32_t)device, .origin = tm_asker(), .nbytes = (uint64_t)nbytes, .token = 1};
	bool child;
	if (tm_check_fork(device, &child)) return NULL;
	if (child) {
		if (tm_child_reserve(device, (uint64_t)nbytes)) return NULL;
	} else if (tm_perform(&call, tm_devices[device].books->budget < 0 ? TM_SHORT : tm_bringing((uint32_t)device, (uint64_t)nbytes))) return NULL;
	tm_reservation *reservation = (tm_reservation *)tm_reservation_type->tp_alloc(tm_reservation_type, 0);
	if (!reservation) {
		call.op = TM_OP_UNRESERVE;
		if (child)
			tm_child_unreserve(device, (uint64_t)nbytes);
		else
			tm_release(&call);
		return NULL;
	}
	reservation->child = child;
	reservation->token = call.token;
	reservation->nbytes = (uint64_t)nbytes;
	reservation->device = (uint32_t)device;
	return (PyObject *)reservation;
}

static void give_up(tm_reservation *reservation)
{
	tm_call call = {.op = TM_OP_UNRESERVE, .device = reservation->device, .token = reservation->token};
	reservation->token = 0;
	if (!call.token) return;
	if (reservation->child)
		tm_child_unreserve((int)reservation->device, reservation->nbytes);
	else
		tm_release(&call);
}

static PyObject *reservation_close(PyObject *self, PyObject *unused)
{
	give_up((tm_reservation *)self);
	Py_RETURN_NONE;
}

static void reservation_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	give_up((tm_reservation *)self);
	type->tp_free(self);
	Py_DECREF(type);
}

static PyMethodDef reservation_methods[] = {
	{"close", reservation_close, METH_NOARGS, "close($self, /)\n--\n\nGives the room back. Idempotent."},
	{NULL},
};

static PyMemberDef reservation_members[] = {
	{"nbytes", T_ULONGLONG, offsetof(tm_reservation, nbytes), READONLY, "Bytes reserved."},
	{NULL},
};

static PyType_Slot reservation_slots[] = {
	{Py_tp_dealloc, reservation_dealloc},
	{Py_tp_methods, reservation_methods},
	{Py_tp_members, reservation_members},
	{Py_tp_doc, TM_DOC_RESERVATION},
	{0, NULL},
};
static PyType_Spec reservation_spec = {"tack_memory.Reservation", sizeof(tm_reservation), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	reservation_slots};

/* ---- adopt, disown */

/* The names of gomem.How from 1 on. */
static const char *const hows[] = {"cuMemAlloc", "cuMemAllocAsync", "hipMalloc", "hipMallocAsync", "zeMemAllocDevice", "host"};

static int parse_how(PyObject *how, uint32_t *number)
{
	if (!PyUnicode_Check(how)) {
		PyErr_Format(PyExc_TypeError, "how must be a str, not %.100s", Py_TYPE(how)->tp_name);
		return -1;
	}
	for (uint32_t i = 0; i < sizeof hows / sizeof *hows; i++)
		if (PyUnicode_CompareWithASCIIString(how, hows[i]) == 0) {
			*number = i + 1;
			return 0;
		}
	PyErr_Format(PyExc_ValueError, "how must be \"cuMemAlloc\", \"cuMemAllocAsync\", \"hipMalloc\", \"hipMallocAsync\", \"zeMemAllocDevice\" or \"host\", not %R", how);
	return -1;
}

/* Address and size of device memory that is not ours. */
static int parse_range(PyObject *ptr, PyObject *nbytes, uint64_t *address, int64_t *size)
{
	if (tm_parse_handle(ptr, "ptr", address) || (*size = tm_parse_count(nbytes, "nbytes")) < 0) return -1;
	if (*size && !*address) {
		PyErr_Format(PyExc_ValueError, "ptr 0 with %lld bytes is no memory", (long long)*size);
		return -1;
	}
	if (*address + (uint64_t)*size < *address) {
		PyErr_Format(PyExc_ValueError, "%lld bytes at %R pass the end of the address space", (long long)*size, ptr);
		return -1;
	}
	return 0;
}

/* Room for what is to be adopted: the reservation that was given, used up whatever comes, or a new one. This is the part of an adoption that may spill, and
 * that Ctrl-C can end; the adoption itself then waits for nothing. 0, or -1 with an exception. */
static int take_room(tm_reservation *reservation, tm_call *adoption)
{
	if (reservation && reservation->token && reservation->nbytes >= adoption->nbytes) {
		adoption->token = reservation->token; /* under the GIL, so that no other call takes it, too */
		reservation->token = 0;
		return 0;
	}
	if (reservation) give_up(reservation);
	tm_call room = *adoption;
	room.op = TM_OP_RESERVE_TO_ADOPT;
	if (tm_perform(&room, tm_devices[room.device].books->budget < 0 ? TM_SHORT : tm_bringing(room.device, room.nbytes))) return -1;
	adoption->token = room.token;
	return 0;
}

/* Where a host keeps its pointer: a dict and a key. A signal handler that raises runs when adopt() or disown() has returned and before its caller has stored
 * the result, which is lost then: the Buffer takes the memory with it while the host goes on with its pointer. So what owns the memory is put there before
 * they return. */
typedef struct place {
	PyObject *dict, *key; /* borrowed; NULL: none is given */
} place;

static int parse_place(PyObject *into, place *place)
{
	*place = (struct place){NULL, NULL};
	if (!tm_given(into)) return 0;
	if (!PyTuple_CheckExact(into) || PyTuple_GET_SIZE(into) != 2 || !PyDict_CheckExact(PyTuple_GET_ITEM(into, 0)) ||
	    !PyUnicode_CheckExact(PyTuple_GET_ITEM(into, 1))) {
		PyErr_Format(PyExc_TypeError, "into must be (dict, str), not %R", into);
		return -1;
	}
	*place = (struct place){PyTuple_GET_ITEM(into, 0), PyTuple_GET_ITEM(into, 1)};
	return 0;
}

/* Puts back what was there (NULL: nothing), with an exception set. It replaces a value or takes one away, which needs no memory. */
static void put_back(const place *place, PyObject *before)
{
	PyObject *type, *value, *traceback;
	PyErr_Fetch(&type, &value, &traceback);
	if (before ? PyDict_SetItem(place->dict, place->key, before) : PyDict_DelItem(place->dict, place->key)) PyErr_WriteUnraisable(place->dict);
	PyErr_Restore(type, value, traceback);
}

static PyObject *adopt(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"adopt", 3, 2, {"ptr", "nbytes", "device", "how", "stream", "reserved", "movable", "reason", "label", "into"}};
	PyObject *value[10], *label, *origin, *before = NULL;
	place place;
	if (tm_arguments(&signature, args, nargs, names, value)) return NULL;
	if (!value[3]) return PyErr_Format(PyExc_TypeError, "adopt() misses its argument 'how': the call that allocated the memory");
	int device = tm_resolve_device(value[2]);
	tm_call call = {.op = TM_OP_ADOPT, .device = (uint32_t)device};
	int64_t nbytes;
	if (device < 0 || parse_range(value[0], value[1], &call.address, &nbytes) || parse_how(value[3], &call.how) || parse_place(value[9], &place))
		return NULL;
	call.nbytes = (uint64_t)nbytes;
	if (tm_given(value[4])) {
		if (tm_parse_handle(value[4], "stream", &call.stream) || !tm_lasting_stream(device, call.stream)) return NULL;
		call.stream = tm_stream_handle(device, call.stream);
	}
	tm_reservation *reservation = (tm_reservation *)tm_given(value[5]);
	if (reservation) {
		if (!Py_IS_TYPE(reservation, tm_reservation_type))
			return PyErr_Format(PyExc_TypeError, "reserved must be what reserve() returned, not %.100s", Py_TYPE(reservation)->tp_name);
		if (reservation->device != (uint32_t)device)
			return PyErr_Format(PyExc_ValueError, "the room was reserved on %U, not on %U", tm_devices[reservation->device].name, tm_devices[device].name);
		if (!reservation->token) return PyErr_Format(PyExc_ValueError, "this reservation was used or given back");
	}
	if (tm_forked) {
		tm_raise_forked_adoption(device);
		return NULL;
	}
	tm_buffer *buffer = tm_buffer_ready((uint32_t)device);
	if (!buffer) return NULL;
	buffer->hosts = place.dict != NULL;
	if (tm_new_buffer_texts(&call, value[6], value[7], value[8], &label, &origin)) goto failed;
	if (take_room(reservation, &call)) goto failed_with_texts;
	if (call.stream && call.nbytes) { /* what is queued there, the allocation for one, comes before what we do. Before the adoption, since it may have to wait */
		tm_call joined = {.op = TM_OP_JOIN, .flags = TM_ASK, .device = call.device, .stream = call.stream};
		if (tm_perform(&joined, TM_SHORT)) goto failed_with_room;
		call.stream = 0;
	}
	/* From here to the return no Python code runs that could raise, so neither can a signal handler: see is_final in task.c (hooks are told last, and what they
	 * raise does not come out of them). In its place the Buffer looks freed until the memory is
	 * its own. */
	if (place.dict) {
		before = Py_XNewRef(PyDict_GetItemWithError(place.dict, place.key));
		if (PyErr_Occurred() || PyDict_SetItem(place.dict, place.key, (PyObject *)buffer)) goto failed_with_room;
	}
	if (tm_perform(&call, TM_SHORT)) {
		if (place.dict) put_back(&place, before);
		goto failed_with_texts;
	}
	tm_buffer_become(buffer, &call, label, origin);
	Py_XDECREF(before); /* its finalizer may run: the memory is ours by now */
	tm_tell();
	return (PyObject *)buffer;
failed_with_room:
	call.op = TM_OP_UNRESERVE;
	tm_release(&call);
failed_with_texts:
	Py_XDECREF(before);
	Py_XDECREF(label);
	Py_XDECREF(origin);
failed:
	Py_DECREF(buffer);
	return NULL;
}

static PyObject *disown(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"disown", 1, 1, {"buffer", "into"}};
	PyObject *value[2];
	place place;
	if (tm_arguments(&signature, args, nargs, names, value)) return NULL;
	if (!Py_IS_TYPE(value[0], tm_buffer_type)) return PyErr_Format(PyExc_TypeError, "disown() takes a Buffer, not %.100s", Py_TYPE(value[0])->tp_name);
	if (parse_place(value[1], &place)) return NULL;
	if (place.dict && !PyDict_GetItemWithError(place.dict, place.key))
		return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "nothing is kept under %R: a pointer can only take the place of something", place.key);
	tm_buffer *buffer = (tm_buffer *)value[0];
	uint64_t address;
	/* First, so that a freed buffer or one for which there is no room is told of while it is still whole. */
	if (tm_make_resident(buffer, &address)) return NULL;
	PyObject *pointer = tm_buffer_disown(buffer);
	/* Replacing what is there needs no memory. */
	if (pointer && place.dict && PyDict_SetItem(place.dict, place.key, pointer)) Py_CLEAR(pointer);
	tm_tell();
	return pointer;
}

/* ---- wrap */

/* Whether the buffer's bytes are on the device, from this address on: the same question as that of gomem.Device.lies. One that is marked for a waiting launch
 * is spilling and stays where it is for as long as somebody holds it. */
static bool lies_at(const tm_buffer *buffer, uint64_t address)
{
	if (!buffer->home) return false;
	uint32_t word = tm_word(buffer->home);
	return (word == TM_RESIDENT || word == TM_SPILLING) && __atomic_load_n(&buffer->home->address, __ATOMIC_RELAXED) == address;
}

/* The view of our own memory that FIND has found, if the buffer is still there now that we have the GIL again: its index may be another buffer's, and its
 * place, too. If not, the address is nobody's any more, and a view of it as of somebody else's memory would read what is put there next. */
static PyObject *view_found(const tm_call *call)
{
	tm_buffer *found = call->index < tm_devices[call->device].capacity ? tm_devices[call->device].buffers[call->index] : NULL;
	if (found && lies_at(found, call->address - call->offset) && call->offset <= found->nbytes && call->nbytes <= found->nbytes - call->offset)
		return tm_view_new(found, call->offset, call->nbytes);
	return PyErr_Format(PyExc_ValueError,
		"wrap() found a buffer of ours at %p on %U that was moved or freed meanwhile; hold it for as long as its address is in use (Buffer.hold, launch), or take "
		"a view of it (Buffer.view)",
		(void *)(uintptr_t)call->address, tm_devices[call->device].name);
}

static PyObject *wrap(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"wrap", 4, 4, {"ptr", "nbytes", "device", "owner"}};
	PyObject *value[4];
	if (tm_arguments(&signature, args, nargs, names, value)) return NULL;
	int device = tm_resolve_device(value[2]);
	uint64_t address;
	int64_t nbytes;
	if (device < 0 || parse_range(value[0], value[1], &address, &nbytes)) return NULL;
	if (!tm_forked && nbytes) {
		tm_call call = {.op = TM_OP_FIND, .device = (uint32_t)device, .address = address, .nbytes = (uint64_t)nbytes};
		if (tm_perform(&call, TM_SHORT)) return NULL;
		if (call.result) return view_found(&call);
	}
	return tm_view_foreign(address, (uint64_t)nbytes, (uint32_t)device, value[3]);
}

/* ---- make_room */

static PyObject *make_room(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"make_room", 2, 1, {"nbytes", "device", "relieved"}};
	PyObject *value[3];
	if (tm_arguments(&signature, args, nargs, names, value)) return NULL;
	int device = tm_resolve_device(value[1]);
	int64_t nbytes = device < 0 ? -1 : tm_parse_size(value[0], device);
	if (nbytes < 0) return NULL;
	int relieved = value[2] ? PyObject_IsTrue(value[2]) : 0;
	if (relieved < 0) return NULL;
	tm_call call = {.op = TM_OP_MAKE_ROOM, .origin = tm_asker(), .flags = relieved ? TM_COLLECTED | TM_RELIEVED : 0, .device = (uint32_t)device, .nbytes = (uint64_t)nbytes};
	if (tm_perform(&call, TM_LONG)) return NULL;
	return PyLong_FromLongLong(call.result);
}

int tm_adopt_init(PyObject *module)
{
	return (tm_reservation_type = tm_add_type(module, &reservation_spec)) ? 0 : -1;
}

PyMethodDef tm_adopt_methods[] = {
	{"reserve", TM_KEYWORDS(reserve), TM_DOC_RESERVE},
	{"adopt", TM_KEYWORDS(adopt), TM_DOC_ADOPT},
	{"disown", TM_KEYWORDS(disown),
		"disown(buffer, *, into=None)\n--\n\nThe opposite of adopt: makes it resident, forgets it, and returns its pointer; the caller owns the memory. into: a dict and a\n"
		"key in it, which is the pointer then."},
	{"wrap", TM_KEYWORDS(wrap), TM_DOC_WRAP},
	{"make_room", TM_KEYWORDS(make_room),
		"make_room(nbytes, device=None, *, relieved=False)\n--\n\nA host's own allocation of nbytes failed: spills at least as much. Returns the bytes freed, 0 when nothing is left.\n"
		"relieved: the host has collected garbage and emptied its caches for this already."},
	{NULL},
};
