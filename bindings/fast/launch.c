/* Launch passes: a host's own (enter_launch, leave_launch; host_launch.c), and `with launch(...)`.
 *
 * The fast path raises the count of each buffer under the GIL and reads its state, nothing else; the spiller pays for the order (see tm_raise_launch, and
 * the model in gomem/model). When one is not resident, all counts are lowered again and Go makes all of them resident in one pass
 * (gomem/admit.go); it holds them by other counts until these are raised, so that the end of a launch is the same for both ways. */
#include "lane.h"
#include "docs_calls.h"

PyTypeObject *tm_launch_type;

/* Lowers what raise_all has raised (model: launch.back-off). */
static void lower_first(PyObject *const *items, Py_ssize_t count)
{
	for (Py_ssize_t i = 0; i < count; i++) {
		bool ok = true;
		tm_buffer *buffer = tm_root(items[i], &ok);
		if (buffer) tm_lower_launch(buffer->record);
	}
}

static int raise_wrong_item(PyObject *item, bool ok)
{
	if (ok)
		PyErr_SetString(PyExc_ValueError, "the buffers of one launch must be on one device");
	else
		PyErr_Format(PyExc_TypeError, "a launch takes Buffers and BufferViews, not %.100s", Py_TYPE(item)->tp_name);
	return TM_WRONG;
}

/* Raises the count of each buffer and looks at its state: TM_READY, all are resident and held; TM_SLOW, not all, and nothing is held; TM_WRONG, with an
 * exception, and nothing is held. A freed buffer's record is tm_nowhere, which is never resident, so it needs no test of its own here. *device: that of the
 * last one. */
static int raise_all(PyObject *const *items, Py_ssize_t count, tm_books **device, bool several)
{
	uint32_t differs = 0;
	uint64_t now = 0;
	tm_books *books = NULL;
	for (Py_ssize_t i = 0; i < count; i++) {
		bool ok = true;
		tm_buffer *buffer = tm_root(items[i], &ok);
		tm_books *its = TM_LIKELY(buffer != NULL) ? buffer->books : ok ? tm_devices[((tm_view *)items[i])->device].books : NULL;
		if (TM_UNLIKELY(its != books)) {
			if ((books && !several) || !ok) {
				lower_first(items, i);
				return raise_wrong_item(items[i], ok);
			}
			books = its; /* with several devices, those of a device that comes in two places get two ticks: the later ones are used later, as in two launches */
			now = __atomic_load_n(&books->clock, __ATOMIC_RELAXED) + 1; /* one tick for all: they are used at one time */
			__atomic_store_n(&books->clock, now, __ATOMIC_RELAXED);
		}
		if (TM_UNLIKELY(!buffer)) {
			if (ok) continue; /* memory that is not ours: nothing to hold */
			lower_first(items, i);
			return raise_wrong_item(items[i], false);
		}
		tm_record *record = buffer->record;
		tm_raise_launch(record);
		differs |= tm_word(record) ^ TM_RESIDENT; /* model: launch.check */
		__atomic_store_n(&record->last_use, now, __ATOMIC_RELAXED);
	}
	*device = books;
	if (TM_LIKELY(!differs)) return TM_READY;
	lower_first(items, count);
	return TM_SLOW;
}

/* The slow path. The items cannot be relied on while the GIL is away (the host's list may change), the buffers taken from them can. */
static int admit_all(PyObject *const *items, Py_ssize_t count)
{
	tm_buffer **buffers = PyMem_Malloc((size_t)count * (sizeof *buffers + sizeof(uint32_t)));
	if (!buffers) {
		PyErr_NoMemory();
		return -1;
	}
	uint32_t *indexes = (uint32_t *)(buffers + count);
	Py_ssize_t ours = 0;
	uint64_t nbytes = 0;
	int failed = 0;
	for (Py_ssize_t i = 0; i < count && !failed; i++) {
		bool ok = true;
		tm_buffer *buffer = tm_root(items[i], &ok);
		if (!buffer) continue;
		if (buffer->record == &tm_nowhere) {
			failed = tm_raise_freed(buffer);
			break;
		}
		buffers[ours] = (tm_buffer *)Py_NewRef(buffer);
		buffer->busy++; /* as tm_perform_on */
		indexes[ours++] = buffer->index;
		nbytes += buffer->nbytes;
	}
	tm_call call = {.op = TM_OP_ADMIT, .origin = failed ? 0 : tm_asker(), .device = ours ? buffers[0]->device : 0, .memory = indexes, .nbytes = (uint64_t)ours};
	failed = failed || tm_perform(&call, tm_bringing(call.device, nbytes));
	if (!failed) {
		for (Py_ssize_t i = 0; i < ours; i++) tm_raise_launch(buffers[i]->home);
		call.op = TM_OP_DISCHARGE;
		tm_release(&call);
	}
	for (Py_ssize_t i = 0; i < ours; i++) {
		buffers[i]->busy--;
		Py_DECREF(buffers[i]);
	}
	PyMem_Free(buffers);
	return failed ? -1 : 0;
}

int tm_pass_enter(PyObject *const *items, Py_ssize_t count, tm_books **books)
{
	int state = raise_all(items, count, books, false);
	if (TM_UNLIKELY(tm_forked) && state != TM_WRONG && *books && !tm_devices[(*books)->device].is_cpu) {
		if (state == TM_READY) lower_first(items, count);
		tm_raise_forked();
		return TM_WRONG;
	}
	if (TM_UNLIKELY(state == TM_SLOW) && admit_all(items, count)) return TM_WRONG;
	return state;
}

static uint32_t device_of(PyObject *item)
{
	return Py_IS_TYPE(item, tm_buffer_type) ? ((tm_buffer *)item)->device : ((tm_view *)item)->device;
}

/* One device after the other. From the second on the thread has something open, so it waits for no other launch there: two launches that each have one device
 * and want the other's would wait for ever. */
static int enter_each_device(PyObject *const *items, Py_ssize_t count)
{
	for (Py_ssize_t i = 0; i < count; i++) { /* in a forked child nobody has looked at them yet */
		bool ok = true;
		tm_root(items[i], &ok);
		if (!ok) return raise_wrong_item(items[i], false);
	}
	PyObject **sorted = PyMem_Malloc((size_t)count * sizeof *sorted);
	if (!sorted) {
		PyErr_NoMemory();
		return -1;
	}
	bool entered[TM_MAX_DEVICES] = {false};
	Py_ssize_t held = 0;
	uint32_t devices = 0;
	int failed = 0;
	for (Py_ssize_t i = 0; i < count && !failed; i++) {
		uint32_t device = device_of(items[i]);
		if (entered[device]) continue;
		entered[device] = true;
		Py_ssize_t end = held;
		for (Py_ssize_t k = i; k < count; k++)
			if (device_of(items[k]) == device) sorted[end++] = items[k];
		tm_books *books;
		failed = tm_pass_enter(sorted + held, end - held, &books) == TM_WRONG;
		if (failed) break;
		held = end;
		devices++;
		tm_thread_enter_plain();
	}
	while (devices-- > 0) tm_thread_leave_plain();
	if (failed) {
		PyObject *type, *value, *traceback;
		PyErr_Fetch(&type, &value, &traceback);
		if (tm_pass_leave(sorted, held)) PyErr_Clear(); /* another thread has lowered counts that are not its own: what failed first is what counts */
		PyErr_Restore(type, value, traceback);
	}
	PyMem_Free(sorted);
	return failed ? -1 : 0;
}

int tm_pass_enter_devices(PyObject *const *items, Py_ssize_t count)
{
	tm_books *books;
	int state = TM_LIKELY(!tm_forked) ? raise_all(items, count, &books, true) : TM_SLOW;
	if (TM_UNLIKELY(state == TM_SLOW) && enter_each_device(items, count)) return TM_WRONG;
	return state;
}

/* Somebody waits for launches to end. */
static void tell_waiting(uint32_t device)
{
	tm_call call = {.op = TM_OP_ENDED, .device = device};
	tm_release(&call);
}

/* Lowers all counts (model: launch.leave). */
int tm_pass_leave(PyObject *const *items, Py_ssize_t count)
{
	uint64_t waiting[TM_MAX_DEVICES / 64] = {0}; /* bits of devices: telling one gives the GIL away, and the items may change then */
	bool any = false;
	for (Py_ssize_t i = 0; i < count; i++) {
		bool ok = true;
		tm_buffer *buffer = tm_root(items[i], &ok);
		if (TM_UNLIKELY(!buffer)) {
			if (ok) continue;
			raise_wrong_item(items[i], false);
		} else {
			tm_record *home = buffer->home;
			if (TM_LIKELY(home && __atomic_load_n(&home->launches, __ATOMIC_RELAXED))) {
				tm_lower_launch(home);
				if (TM_UNLIKELY(__atomic_load_n(&buffer->books->waiting, __ATOMIC_RELAXED))) {
					waiting[buffer->device / 64] |= (uint64_t)1 << buffer->device % 64;
					any = true;
				}
				continue;
			}
			PyErr_SetString(PyExc_RuntimeError, "a launch is left that was not entered with these buffers");
		}
		while (i-- > 0) {
			buffer = tm_root(items[i], &ok);
			if (buffer) tm_raise_launch(buffer->home);
		}
		return -1;
	}
	for (uint32_t device = 0; TM_UNLIKELY(any) && device < TM_MAX_DEVICES; device++)
		if (waiting[device / 64] >> device % 64 & 1) tell_waiting(device);
	return 0;
}

/* ---- the host's pass */

/* The items of a sequence; *kept is to be given up at the end. */
static PyObject *const *items_of(PyObject *buffers, Py_ssize_t *count, PyObject **kept)
{
	*kept = NULL;
	if (PyList_CheckExact(buffers)) {
		*count = PyList_GET_SIZE(buffers);
		return ((PyListObject *)buffers)->ob_item;
	}
	if (!PyTuple_CheckExact(buffers)) {
		if (!(buffers = *kept = PySequence_Fast(buffers, "a launch takes a sequence of Buffers"))) return NULL;
	}
	*count = PySequence_Fast_GET_SIZE(buffers);
	return PySequence_Fast_ITEMS(buffers);
}

static PyObject *empty[1];

static PyObject *enter_launch(PyObject *module, PyObject *buffers)
{
	Py_ssize_t count;
	PyObject *kept;
	tm_books *books;
	PyObject *const *items = items_of(buffers, &count, &kept);
	if (TM_UNLIKELY(!items)) {
		if (PyErr_Occurred()) return NULL;
		items = empty; /* an empty list has no array */
	}
	int state = tm_pass_enter(items, count, &books);
	Py_XDECREF(kept);
	if (TM_UNLIKELY(state == TM_WRONG)) return NULL;
	tm_thread_enter_plain();
	return Py_NewRef(state == TM_SLOW ? Py_True : Py_False);
}

static PyObject *leave_launch(PyObject *module, PyObject *buffers)
{
	Py_ssize_t count;
	PyObject *kept;
	PyObject *const *items = items_of(buffers, &count, &kept);
	if (TM_UNLIKELY(!items)) {
		if (PyErr_Occurred()) return NULL;
		items = empty;
	}
	int failed = tm_pass_leave(items, count);
	Py_XDECREF(kept);
	if (TM_UNLIKELY(failed)) return NULL;
	tm_thread_leave_plain();
	Py_RETURN_NONE;
}

/* ---- with launch(...) */

/* Entering and leaving give the GIL away (to restore, to join streams), and another thread may use the same object meanwhile. From the first moment on
 * the object belongs to the thread that enters or leaves it: any other is refused, so each count is raised once and lowered once. */
enum { OUT, ENTERING, ENTERED, LEAVING };

typedef struct tm_launch {
	PyObject_VAR_HEAD
	tm_thread *thread;
	uint64_t stream; /* meaningful with has_stream */
	uint32_t device; /* meaningful while entered */
	bool has_stream;
	uint8_t state;
	PyObject *items[];
} tm_launch;

static PyObject *launch_new(PyObject *const *args, Py_ssize_t count, PyObject *stream)
{
	uint64_t handle = 0;
	if (tm_given(stream) && tm_parse_handle(stream, "stream", &handle)) return NULL;
	bool foreign = false;
	for (Py_ssize_t i = 0; i < count; i++) {
		bool ok = true;
		if (!tm_root(args[i], &ok)) {
			if (!ok) {
				raise_wrong_item(args[i], false);
				return NULL;
			}
			foreign = true;
		}
	}
	tm_launch *launch = PyObject_GC_NewVar(tm_launch, tm_launch_type, count);
	if (!launch) return NULL;
	launch->thread = NULL;
	launch->stream = handle;
	launch->has_stream = tm_given(stream) != NULL;
	launch->state = OUT;
	for (Py_ssize_t i = 0; i < count; i++) launch->items[i] = Py_NewRef(args[i]);
	/* Only foreign memory has an owner that may refer back. */
	if (foreign) PyObject_GC_Track(launch);
	return (PyObject *)launch;
}

static PyObject *launch_vectorcall(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *names)
{
	Py_ssize_t count = PyVectorcall_NARGS(nargsf), nnames = names ? PyTuple_GET_SIZE(names) : 0;
	if (nnames > 1 || (nnames && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "stream")))
		return PyErr_Format(PyExc_TypeError, "launch() takes Buffers and the keyword 'stream' only");
	return launch_new(args, count, nnames ? args[count] : NULL);
}

/* Orders work on another stream after what made the buffers resident. */
static int join(tm_launch *launch)
{
	tm_call call = {.op = TM_OP_JOIN, .flags = TM_ASK, .device = launch->device, .token = tm_stream_handle((int)launch->device, launch->stream)};
	return tm_perform(&call, TM_SHORT);
}

/* Lowers the counts and gives the object free, when nothing was queued that has to be waited for: 0, or -1 with an exception. An exception that is set stays
 * set. */
static int end(tm_launch *launch)
{
	PyObject *type, *value, *traceback;
	PyErr_Fetch(&type, &value, &traceback);
	tm_thread_leave(launch->thread);
	launch->thread = NULL;
	int failed = tm_pass_leave(launch->items, Py_SIZE(launch));
	launch->state = OUT;
	if (type) PyErr_Restore(type, value, traceback);
	return failed;
}

static PyObject *launch_enter(PyObject *self, PyObject *unused)
{
	tm_launch *launch = (tm_launch *)self;
	Py_ssize_t count = Py_SIZE(self);
	if (launch->state != OUT) return PyErr_Format(PyExc_RuntimeError, "this launch is entered already");
	launch->state = ENTERING;
	tm_books *books = NULL;
	if (tm_pass_enter(launch->items, count, &books) == TM_WRONG) {
		launch->state = OUT;
		return NULL;
	}
	launch->thread = tm_thread_enter();
	launch->device = books ? books->device : 0;
	PyObject *pointers = NULL;
	if (launch->has_stream && books && !tm_forked && join(launch)) goto failed;
	if (!(pointers = PyTuple_New(count))) goto failed;
	for (Py_ssize_t i = 0; i < count; i++) {
		PyObject *item = launch->items[i];
		PyObject *pointer = Py_IS_TYPE(item, tm_buffer_type) ? tm_buffer_pointer((tm_buffer *)item) : tm_view_pointer((tm_view *)item);
		if (!pointer) goto failed;
		PyTuple_SET_ITEM(pointers, i, pointer);
	}
	launch->state = ENTERED;
	return pointers;
failed:
	Py_XDECREF(pointers);
	end(launch); /* cannot fail: the counts were just raised, and nobody else can lower them while the state is ENTERING */
	return NULL;
}

/* Ends the launch: 0, or -1 with an exception. On another stream than the device's its holds may go on: launch_end.c. */
static int leave(tm_launch *launch, bool may_wait)
{
	launch->state = LEAVING;
	if (!launch->has_stream || !Py_SIZE(launch) || tm_forked) return end(launch);
	int failed = tm_pass_leave_stream(launch->items, Py_SIZE(launch), launch->device, launch->stream, launch->thread, may_wait);
	tm_thread_leave(launch->thread);
	launch->thread = NULL;
	launch->state = OUT;
	return failed;
}

static PyObject *launch_exit(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
	tm_launch *launch = (tm_launch *)self;
	if (launch->state != ENTERED) return PyErr_Format(PyExc_RuntimeError, "this launch is not entered");
	if (leave(launch, true)) return NULL;
	Py_RETURN_NONE;
}

static int launch_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(self));
	for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) Py_VISIT(((tm_launch *)self)->items[i]);
	return 0;
}

static void launch_dealloc(PyObject *self)
{
	tm_launch *launch = (tm_launch *)self;
	PyTypeObject *type = Py_TYPE(self);
	PyObject_GC_UnTrack(self);
	if (launch->state == ENTERED) { /* a block that never came to its end, of a generator that was dropped */
		PyObject *kind, *value, *traceback;
		PyErr_Fetch(&kind, &value, &traceback);
		if (leave(launch, false)) PyErr_WriteUnraisable(NULL);
		PyErr_Restore(kind, value, traceback);
	}
	for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) Py_DECREF(launch->items[i]);
	type->tp_free(self);
	Py_DECREF(type);
}

static PyObject *launch_tp_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
	PyObject *stream = NULL;
	if (keywords && PyDict_GET_SIZE(keywords)) {
		stream = PyDict_GetItemString(keywords, "stream");
		if (!stream || PyDict_GET_SIZE(keywords) > 1) return PyErr_Format(PyExc_TypeError, "launch() takes Buffers and the keyword 'stream' only");
	}
	return launch_new(PySequence_Fast_ITEMS(args), PyTuple_GET_SIZE(args), stream);
}

static PyMethodDef launch_methods[] = {
	{"__enter__", launch_enter, METH_NOARGS, NULL},
	{"__exit__", TM_FASTCALL(launch_exit), NULL},
	{NULL},
};

static PyType_Slot launch_slots[] = {
	{Py_tp_new, launch_tp_new},
	{Py_tp_dealloc, launch_dealloc},
	{Py_tp_traverse, launch_traverse},
	{Py_tp_methods, launch_methods},
	{Py_tp_doc, TM_DOC_LAUNCH},
	{0, NULL},
};
static PyType_Spec launch_spec = {"tack_memory.launch", offsetof(tm_launch, items), sizeof(PyObject *), Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, launch_slots};

int tm_launch_init(PyObject *module)
{
	if (!(tm_launch_type = tm_add_type(module, &launch_spec))) return -1;
	tm_launch_type->tp_vectorcall = launch_vectorcall;
	return 0;
}

PyMethodDef tm_launch_methods[] = {
	{"enter_launch", enter_launch, METH_O,
		"enter_launch(buffers, /)\n--\n\nA host's launch pass: all resident and held. True when something was restored. Give the same sequence to leave_launch."},
	{"leave_launch", leave_launch, METH_O, "leave_launch(buffers, /)\n--\n\nEnds what enter_launch began."},
	{NULL},
};
