/* Peak scopes: PeakScope, the base of tack_memory.MemoryPeak. A scope is linked into the books of each device, of those that are opened during its interval,
 * too, and whoever raises in_use raises its maxima in the same step under the books' lock (gomem/books.go; cpu_child.c in a forked child): peaks are exact.
 *
 * Where origins are on when it is entered, its scope on the device that was asked for is watched (gomem/stays.go), and Go tells what was live at its peak. */
#include "lane.h"
#include "docs_calls.h"
#include "rises.h"
#include <time.h>

static PyTypeObject *scope_type;

typedef struct entry {
	tm_peak peak;
	uint32_t device;
	struct entry *later; /* of a device that was opened after this one, during the interval */
} entry;

/* CLOSING: a thread is in Go, without the GIL, to close the watched scope. */
enum { NEW, OPEN, CLOSING, CLOSED };

typedef struct peak_scope {
	PyObject_HEAD
	PyObject *asked, *label, *on_exit; /* NULL until __init__ has run */
	entry *entries;                    /* one a device that was open on entry; `few` or malloc'ed */
	uint32_t count, main;              /* main: place of the device that was asked for */
	entry *later;                      /* those of devices opened since; malloc'ed */
	struct peak_scope *next, **from;   /* the list of open scopes */
	tm_rises *rises;                   /* where the maxima of the device that was asked for were reached; NULL: nobody asked */
	int state;
	struct timespec began;
	double seconds;
	entry few[3]; /* the CPU, one device, NumPy */
	PyObject *weak;
} peak_scope;

static peak_scope *open_scopes; /* all that are open; under the GIL, as all above */

/* As gomem's Books.openLocked. */
static void open_scope_locked(tm_scope *scope, tm_books *books, bool watched)
{
	*scope = (tm_scope){.next = books->scopes, .books = books, .sequence = books->sequence, .start = books->in_use, .peak = books->in_use,
		.footprint = books->in_use + books->spilled, .spilled_bytes = books->spilled_bytes, .restored_bytes = books->restored_bytes,
		.moment = books->sequence, .watched = watched};
	books->watched += watched;
	if (scope->next) scope->next->prev = scope;
	books->scopes = scope;
}

static void open_scope(tm_scope *scope, tm_books *books, bool watched)
{
	tm_books_lock(books);
	open_scope_locked(scope, books, watched);
	tm_books_unlock(books);
}

/* As gomem's Books.closeLocked. */
static void close_scope_locked(tm_scope *scope)
{
	tm_books *books = scope->books;
	if (scope->prev)
		scope->prev->next = scope->next;
	else
		books->scopes = scope->next;
	if (scope->next) scope->next->prev = scope->prev;
	scope->next = scope->prev = NULL;
	scope->books = NULL;
	books->watched -= scope->watched;
	scope->end = books->in_use;
	scope->spilled_bytes = books->spilled_bytes - scope->spilled_bytes;
	scope->restored_bytes = books->restored_bytes - scope->restored_bytes;
}

static void close_scope(tm_scope *scope)
{
	tm_books *books = scope->books;
	tm_books_lock(books);
	close_scope_locked(scope);
	tm_books_unlock(books);
}

/* The figures as they are now, in one moment; for a closed scope the frozen ones. */
static tm_scope read_scope(const tm_scope *scope, tm_books *books)
{
	tm_books_lock(books); /* Go may close it at this moment */
	tm_scope copy = *scope;
	if (copy.books) {
		copy.end = books->in_use;
		copy.spilled_bytes = books->spilled_bytes - scope->spilled_bytes;
		copy.restored_bytes = books->restored_bytes - scope->restored_bytes;
	}
	tm_books_unlock(books);
	return copy;
}

static tm_scope read_entry(const entry *entry) { return read_scope(&entry->peak.scope, tm_devices[entry->device].books); }

static double since(const struct timespec *began)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - began->tv_sec) + (double)(now.tv_nsec - began->tv_nsec) * 1e-9;
}

/* Closes the watched scope in Go, which fills in at_peak. The GIL is away meanwhile. */
static void close_watched(entry *entry)
{
	tm_call call = {.op = TM_OP_CLOSE_PEAK, .device = entry->device, .memory = &entry->peak};
	tm_release(&call);
}

/* tell: whether somebody may ask for at_peak. Without it, nothing here gives the GIL away. */
static void close_all(peak_scope *peak, bool tell)
{
	entry *main = &peak->entries[peak->main];
	peak->seconds = since(&peak->began);
	tm_rises_end(peak->rises);
	if ((*peak->from = peak->next)) peak->next->from = peak->from;
	for (entry *late = peak->later; late; late = late->later) close_scope(&late->peak.scope);
	for (uint32_t i = 0; i < peak->count; i++)
		if (&peak->entries[i] != main) close_scope(&peak->entries[i].peak.scope);
	peak->state = CLOSING;
	if (TM_UNLIKELY(main->peak.scope.watched) && tell) close_watched(main);
	if (main->peak.scope.books) close_scope(&main->peak.scope); /* not watched; or Go could not, which has no place in a forked child */
	peak->state = CLOSED;
}

uint32_t tm_open_scopes(void)
{
	uint32_t open = 0;
	for (peak_scope *peak = open_scopes; peak; peak = peak->next) open++;
	return open;
}

int tm_peak_device_opened(uint32_t device)
{
	for (peak_scope *peak = open_scopes; peak; peak = peak->next) {
		entry *late = PyMem_Malloc(sizeof *late);
		if (!late) {
			PyErr_NoMemory();
			return -1;
		}
		late->device = device;
		late->peak.at_peak = NULL;
		open_scope(&late->peak.scope, tm_devices[device].books, false);
		late->later = peak->later;
		peak->later = late;
	}
	return 0;
}

static int scope_init(PyObject *self, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"device", "label", "on_exit", NULL};
	peak_scope *peak = (peak_scope *)self;
	PyObject *device = Py_None, *label = Py_None, *on_exit = Py_None;
	bool plain = !PyTuple_GET_SIZE(args) && (!keywords || !PyDict_GET_SIZE(keywords));
	if (!plain && !PyArg_ParseTupleAndKeywords(args, keywords, "|OOO:PeakScope", names, &device, &label, &on_exit)) return -1;
	if (peak->state == OPEN || peak->state == CLOSING) {
		PyErr_SetString(PyExc_RuntimeError, "this peak scope is open");
		return -1;
	}
	if (label != Py_None && !PyUnicode_Check(label)) {
		PyErr_Format(PyExc_TypeError, "label must be a str or None, not %.100s", Py_TYPE(label)->tp_name);
		return -1;
	}
	if (on_exit != Py_None && !PyCallable_Check(on_exit)) {
		PyErr_Format(PyExc_TypeError, "on_exit must be callable or None, not %.100s", Py_TYPE(on_exit)->tp_name);
		return -1;
	}
	Py_XSETREF(peak->asked, Py_NewRef(device));
	Py_XSETREF(peak->label, Py_NewRef(label));
	Py_XSETREF(peak->on_exit, Py_NewRef(on_exit));
	return 0;
}

static void open_entry(peak_scope *peak, uint32_t device, uint32_t asked)
{
	if (!tm_devices[device].books) return;
	if (device == asked) peak->main = peak->count;
	entry *entry = &peak->entries[peak->count++];
	entry->device = device;
	entry->peak.at_peak = NULL;
	/* What was live at a peak is Go's to tell, so of what Go counts only. */
	open_scope(&entry->peak.scope, tm_devices[device].books, device == asked && device != TM_NUMPY_DEVICE && tm_origins && !tm_forked);
}

static PyObject *scope_enter(PyObject *self, PyObject *unused)
{
	peak_scope *peak = (peak_scope *)self;
	if (peak->state != NEW)
		return PyErr_Format(PyExc_RuntimeError, peak->state == OPEN ? "this peak scope is entered already" : "a peak scope can be entered once only: make another");
	int device = tm_resolve_device(peak->asked);
	if (device < 0) return NULL;
	if (peak->state != NEW) return PyErr_Format(PyExc_RuntimeError, "this peak scope is entered already"); /* by another thread, meanwhile */
	uint32_t devices = tm_device_count;
	entry *entries = peak->few;
	if (devices >= sizeof peak->few / sizeof *peak->few && !(entries = PyMem_Malloc((devices + 1) * sizeof *entries))) return PyErr_NoMemory();
	peak->entries = entries;
	peak->count = 0;
	for (uint32_t i = 0; i < devices; i++) open_entry(peak, i, (uint32_t)device);
	open_entry(peak, TM_NUMPY_DEVICE, (uint32_t)device);
	if ((peak->next = open_scopes)) open_scopes->from = &peak->next;
	peak->from = &open_scopes;
	open_scopes = peak;
	clock_gettime(CLOCK_MONOTONIC, &peak->began);
	peak->state = OPEN;
	return Py_NewRef(self);
}

/* A valid leave never raises and never swallows. An error of on_exit is shown and forgotten; but KeyboardInterrupt, SystemExit and whatever else is no Exception were not
 * meant for it (a signal came while it ran, or it wants the thread to end): they go on, as if they had come at the end of the block (as in tm_notify). */
static PyObject *scope_exit(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
	peak_scope *peak = (peak_scope *)self;
	if (peak->state != OPEN)
		return PyErr_Format(PyExc_RuntimeError, peak->state == NEW ? "this peak scope was not entered" : "this peak scope was left already");
	close_all(peak, true);
	if (peak->on_exit && peak->on_exit != Py_None) {
		PyObject *callable = Py_NewRef(peak->on_exit);
		PyObject *done = PyObject_CallOneArg(callable, self);
		bool is_ours = !done && PyErr_ExceptionMatches(PyExc_Exception);
		if (is_ours) PyErr_WriteUnraisable(callable);
		Py_DECREF(callable);
		if (!done && !is_ours) return NULL;
		Py_XDECREF(done);
	}
	Py_RETURN_NONE;
}

/* ---- figures */

static const entry *main_entry(peak_scope *peak)
{
	if (peak->state != NEW) return &peak->entries[peak->main];
	PyErr_SetString(PyExc_RuntimeError, "this peak scope was not entered yet: it has no figures");
	return NULL;
}

enum figure { BYTES, START, END, DELTA, FOOTPRINT, OWN, OWN_END, SPILLED, RESTORED };

static PyObject *get_figure(PyObject *self, void *closure)
{
	peak_scope *peak = (peak_scope *)self;
	const entry *entry = main_entry(peak);
	if (!entry) return NULL;
	tm_scope now = read_entry(entry);
	switch ((enum figure)(intptr_t)closure) {
	case BYTES: return PyLong_FromLongLong(now.peak);
	case START: return PyLong_FromLongLong(now.start);
	case END: return now.books ? Py_NewRef(Py_None) : PyLong_FromLongLong(now.end);
	case DELTA: return PyLong_FromLongLong(now.peak - now.start);
	case FOOTPRINT: return PyLong_FromLongLong(now.footprint);
	case OWN: return PyLong_FromLongLong(now.own);
	case OWN_END: return PyLong_FromLongLong(now.own_now);
	case SPILLED: return PyLong_FromLongLong(now.spilled_bytes);
	default: return PyLong_FromLongLong(now.restored_bytes);
	}
}

static int add_highest(PyObject *bytes, const entry *entry)
{
	PyObject *highest = PyLong_FromLongLong(read_entry(entry).peak);
	int failed = !highest || PyDict_SetItem(bytes, tm_devices[entry->device].name, highest) ? -1 : 0;
	Py_XDECREF(highest);
	return failed;
}

static PyObject *get_by_device(PyObject *self, void *unused)
{
	peak_scope *peak = (peak_scope *)self;
	if (!main_entry(peak)) return NULL;
	PyObject *bytes = PyDict_New();
	for (uint32_t i = 0; bytes && i < peak->count; i++)
		if (add_highest(bytes, &peak->entries[i])) Py_CLEAR(bytes);
	for (entry *late = peak->later; bytes && late; late = late->later)
		if (add_highest(bytes, late)) Py_CLEAR(bytes);
	return bytes;
}

static int add_figures(PyObject *figures, const entry *entry)
{
	tm_scope now = read_entry(entry);
	PyObject *told = Py_BuildValue("{sL sL sL sL sL sL sL sL}", "bytes", (long long)now.peak, "delta", (long long)(now.peak - now.start), "footprint",
		(long long)now.footprint, "own", (long long)now.own, "own_end", (long long)now.own_now, "end", (long long)now.end, "spilled_bytes",
		(long long)now.spilled_bytes, "restored_bytes", (long long)now.restored_bytes);
	int failed = !told || PyDict_SetItem(figures, tm_devices[entry->device].name, told) ? -1 : 0;
	Py_XDECREF(told);
	return failed;
}

static PyObject *get_figures(PyObject *self, void *unused)
{
	peak_scope *peak = (peak_scope *)self;
	if (!main_entry(peak)) return NULL;
	PyObject *figures = PyDict_New();
	for (uint32_t i = 0; figures && i < peak->count; i++)
		if (add_figures(figures, &peak->entries[i])) Py_CLEAR(figures);
	for (entry *late = peak->later; figures && late; late = late->later)
		if (add_figures(figures, late)) Py_CLEAR(figures);
	return figures;
}

static PyObject *_note_stacks(PyObject *self, PyObject *until)
{
	peak_scope *peak = (peak_scope *)self;
	if (until != Py_None && !PyCode_Check(until)) return PyErr_Format(PyExc_TypeError, "_note_stacks: a code object or None, not %.100s", Py_TYPE(until)->tp_name);
	if (peak->state != OPEN || peak->rises) return PyErr_Format(PyExc_RuntimeError, "_note_stacks is for a peak scope that is open, and once");
	peak->rises = tm_rises_begin(&peak->entries[peak->main].peak.scope, tm_given(until));
	if (!peak->rises) return NULL;
	Py_RETURN_NONE;
}

static PyObject *get_stack(PyObject *self, void *maximum) { return tm_rises_stack(((peak_scope *)self)->rises, (enum tm_maximum)(intptr_t)maximum); }

/* What was live at the peak as JSON, decoded by tack_memory.MemoryPeak. */
static PyObject *get_at_peak(PyObject *self, void *unused)
{
	peak_scope *peak = (peak_scope *)self;
	if (!main_entry(peak)) return NULL;
	entry *main = &peak->entries[peak->main];
	if (main->peak.scope.watched && peak->state != CLOSED && !tm_forked) {
		tm_call call = {.op = TM_OP_AT_PEAK, .device = main->device, .memory = &main->peak};
		if (tm_perform(&call, TM_SHORT)) return NULL;
		if (call.text) {
			PyObject *text = PyUnicode_FromString(call.text);
			free(call.text);
			return text;
		}
	}
	return main->peak.at_peak ? PyUnicode_FromString(main->peak.at_peak) : Py_NewRef(Py_None);
}

static PyObject *get_device(PyObject *self, void *unused)
{
	const entry *entry = main_entry((peak_scope *)self);
	return entry ? Py_NewRef(tm_devices[entry->device].name) : NULL;
}

static PyObject *get_seconds(PyObject *self, void *unused)
{
	peak_scope *peak = (peak_scope *)self;
	if (!main_entry(peak)) return NULL;
	return PyFloat_FromDouble(peak->state == OPEN ? since(&peak->began) : peak->seconds);
}

static PyObject *get_object(PyObject *self, void *offset)
{
	PyObject *value = *(PyObject **)((char *)self + (intptr_t)offset);
	return Py_NewRef(value ? value : Py_None);
}

/* ---- the type */

static int scope_traverse(PyObject *self, visitproc visit, void *arg)
{
	peak_scope *peak = (peak_scope *)self;
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(peak->asked);
	Py_VISIT(peak->label);
	Py_VISIT(peak->on_exit);
	return 0;
}

static int scope_clear(PyObject *self)
{
	peak_scope *peak = (peak_scope *)self;
	Py_CLEAR(peak->asked);
	Py_CLEAR(peak->on_exit);
	return 0;
}

static void scope_dealloc(PyObject *self)
{
	peak_scope *peak = (peak_scope *)self;
	PyTypeObject *type = Py_TYPE(self);
	PyObject_GC_UnTrack(self);
	if (peak->weak) PyObject_ClearWeakRefs(self);
	if (peak->state == OPEN) close_all(peak, false); /* a scope that is dropped closes itself */
	if (peak->state == CLOSED) free(peak->entries[peak->main].peak.at_peak);
	tm_rises_free(peak->rises);
	if (peak->entries != peak->few) PyMem_Free(peak->entries);
	for (entry *late = peak->later, *next; late; late = next) {
		next = late->later;
		PyMem_Free(late);
	}
	Py_XDECREF(peak->asked);
	Py_XDECREF(peak->label);
	Py_XDECREF(peak->on_exit);
	type->tp_free(self);
	Py_DECREF(type);
}

static PyGetSetDef scope_getset[] = {
	{"bytes", get_figure, NULL, "The highest in_use during the interval, what was live on entry included.", (void *)BYTES},
	{"start", get_figure, NULL, "in_use on entry.", (void *)START},
	{"end", get_figure, NULL, "in_use on exit; None while it is open.", (void *)END},
	{"delta", get_figure, NULL, "bytes - start.", (void *)DELTA},
	{"footprint", get_figure, NULL, "The highest in_use + spilled.", (void *)FOOTPRINT},
	{"own", get_figure, NULL, "The most bytes that were allocated inside the interval and alive at one time, spilled or not.", (void *)OWN},
	{"own_end", get_figure, NULL, "Bytes that were allocated inside the interval and are alive on exit; while it is open: now.", (void *)OWN_END},
	{"spilled_bytes", get_figure, NULL, "Bytes spilled in the interval.", (void *)SPILLED},
	{"restored_bytes", get_figure, NULL, "Bytes restored in the interval.", (void *)RESTORED},
	{"by_device", get_by_device, NULL, "The highest in_use of each open device.", NULL},
	{"_figures", get_figures, NULL, "The figures of each open device, by its name.", NULL},
	{"_stack_at_peak", get_stack, NULL, "Where the program was when `bytes` was reached, innermost first: (file, line, function).", (void *)TM_MAXIMUM_PEAK},
	{"_stack_at_own", get_stack, NULL, "Where the program was when `own` was reached.", (void *)TM_MAXIMUM_OWN},
	{"_stack_at_footprint", get_stack, NULL, "Where the program was when `footprint` was reached.", (void *)TM_MAXIMUM_FOOTPRINT},
	{"_at_peak_json", get_at_peak, NULL, "What was live at the peak, by label and origin, as JSON; None where origins were off on entry, or it is not known.", NULL},
	{"device", get_device, NULL, "Name of the device that the other figures are of.", NULL},
	{"seconds", get_seconds, NULL, "How long the interval lasted, or has lasted.", NULL},
	{"_asked", get_object, NULL, "The device argument as it was given.", (void *)offsetof(peak_scope, asked)},
	{"label", get_object, NULL, "The label that it was given.", (void *)offsetof(peak_scope, label)},
	{"on_exit", get_object, NULL, "What is called with the scope when it is left.", (void *)offsetof(peak_scope, on_exit)},
	{NULL},
};

static PyMethodDef scope_methods[] = {
	{"__enter__", scope_enter, METH_NOARGS, NULL},
	{"__exit__", TM_FASTCALL(scope_exit), NULL},
	{"_note_stacks", _note_stacks, METH_O,
		"_note_stacks($self, until, /)\n--\n\nFrom now on, note the Python stack at each rise of `bytes`, `own` and `footprint`, up to the frame "
		"of the code `until` (None: all of it)."},
	{NULL},
};

static PyMemberDef scope_members[] = {
	{"__weaklistoffset__", T_PYSSIZET, offsetof(peak_scope, weak), READONLY, NULL},
	{NULL},
};

static PyType_Slot scope_slots[] = {
	{Py_tp_init, scope_init},
	{Py_tp_dealloc, scope_dealloc},
	{Py_tp_traverse, scope_traverse},
	{Py_tp_clear, scope_clear},
	{Py_tp_getset, scope_getset},
	{Py_tp_methods, scope_methods},
	{Py_tp_members, scope_members},
	{Py_tp_doc, "PeakScope(device=None, label=None, on_exit=None)\n--\n\nThe highest use of device memory in an interval: `with PeakScope() as peak`."},
	{0, NULL},
};
static PyType_Spec scope_spec = {"tack_memory._native._fast.PeakScope", sizeof(peak_scope), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
	scope_slots};

int tm_peak_init(PyObject *module)
{
	return (scope_type = tm_add_type(module, &scope_spec)) ? 0 : -1;
}

/* As gomem's Books.resetPeakLocked: the device's own scope begins anew, and no other. */
static void reset_peak(tm_books *books)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	tm_books_lock(books);
	books->peak = books->in_use;
	tm_scope *whole = books->scopes;
	while (whole && !whole->whole) whole = whole->next;
	if (whole) {
		close_scope_locked(whole);
		open_scope_locked(whole, books, true);
		whole->whole = 1;
		whole->when = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
		whole->spilled_then = books->spilled;
	}
	tm_books_unlock(books);
}

static PyObject *reset_peak_memory(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"reset_peak_memory", 1, 0, {"device"}};
	PyObject *value;
	if (tm_arguments(&signature, args, nargs, names, &value)) return NULL;
	int device = tm_resolve_device(value);
	if (device < 0) return NULL;
	reset_peak(tm_devices[device].books);
	Py_RETURN_NONE;
}

PyMethodDef tm_peak_methods[] = {
	{"reset_peak_memory", TM_KEYWORDS(reset_peak_memory), TM_DOC_RESET_PEAK},
	{NULL},
};
