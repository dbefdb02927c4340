/* What can be done with a Buffer or a BufferView: host reads and writes, copies, spill, restore, views, holds, exports. One set of methods for both
 * types, over ranges. On a spilled buffer the host works on the host copy, and nothing moves to the device (gomem/access.go). */
#include "lane.h"
#include "docs_buffers.h"
#include <string.h>

/* Copies from this size on are worth a look at whether they may take long. */
#define LONG_COPY ((uint64_t)4 << 20)

/* Freed, or being freed by another thread, which has no GIL now: its index may be another buffer's already. */
int tm_check_alive(const tm_buffer *base) { return base && base->record == &tm_nowhere ? tm_raise_freed(base) : 0; }

int tm_range_of(PyObject *object, const char *what, tm_range *range)
{
	if (Py_IS_TYPE(object, tm_buffer_type)) {
		tm_buffer *buffer = (tm_buffer *)object;
		*range = (tm_range){.base = buffer, .nbytes = buffer->nbytes, .device = buffer->device};
	} else if (Py_IS_TYPE(object, tm_view_type)) {
		tm_view *view = (tm_view *)object;
		*range = (tm_range){.base = view->base, .offset = view->offset, .nbytes = view->nbytes, .device = view->device,
			.address = view->base ? 0 : view->address};
	} else {
		PyErr_Format(PyExc_TypeError, "%s needs a Buffer or BufferView, not %.100s", what, Py_TYPE(object)->tp_name);
		return -1;
	}
	return tm_check_alive(range->base);
}

/* Cuts nbytes at offset out of the range, or raises ValueError with the numbers. Called when all arguments are read: code of theirs (__index__, a buffer's
 * exporter) may have freed the buffer. */
static int narrow(tm_range *range, uint64_t offset, uint64_t nbytes)
{
	if (tm_check_alive(range->base)) return -1;
	if (offset > range->nbytes || nbytes > range->nbytes - offset) {
		PyErr_Format(PyExc_ValueError, "%llu bytes at offset %llu do not fit into %llu bytes", (unsigned long long)nbytes, (unsigned long long)offset,
			(unsigned long long)range->nbytes);
		return -1;
	}
	range->offset += offset;
	range->address += offset;
	range->nbytes = nbytes;
	return 0;
}

/* An optional count: its value, `otherwise` where it is not given; -1 with an exception. */
static int64_t count_or(PyObject *value, const char *name, int64_t otherwise)
{
	return tm_given(value) ? tm_parse_count(value, name) : otherwise;
}

/* Where the range lies in a forked child, whose CPU device is this process's own memory. */
static char *child_memory(const tm_range *range)
{
	return (char *)(uintptr_t)(range->base ? range->base->home->address + range->offset : range->address);
}

/* What a host access may move or wait for: a small one of a resident buffer waits for nobody but the device's stream, and asks before that (TM_ASK); any other
 * one may want the device's lock. */
static uint64_t moves(const tm_range *range)
{
	bool resident = !range->base || tm_word(range->base->home) == TM_RESIDENT;
	return range->nbytes < LONG_COPY && resident ? TM_SHORT : range->nbytes;
}

/* Moves between the range and host memory. The objects that both belong to are kept by the caller. */
static int move(tm_range *range, void *memory, bool to_host)
{
	bool child;
	if (tm_check_fork((int)range->device, &child)) return -1;
	if (!range->nbytes) return 0;
	if (child) {
		memmove(to_host ? memory : child_memory(range), to_host ? child_memory(range) : memory, range->nbytes);
		return 0;
	}
	tm_call call = {.flags = TM_ASK, .device = range->device, .offset = range->offset, .nbytes = range->nbytes, .address = range->address, .memory = memory};
	if (range->base) {
		call.op = to_host ? TM_OP_COPY_TO_HOST : TM_OP_COPY_FROM_HOST;
		call.index = range->base->index;
	} else {
		call.op = to_host ? TM_OP_RAW_TO_HOST : TM_OP_RAW_FROM_HOST;
	}
	return range->base ? tm_perform_on(range->base, &call, moves(range)) : tm_perform(&call, moves(range));
}

/* The memory of an object, C-contiguous; what cannot be had so is a wrong argument. */
static int get_memory(PyObject *object, int flags, const char *what, Py_buffer *memory)
{
	if (!PyObject_CheckBuffer(object)) {
		PyErr_Format(PyExc_TypeError, "%s needs an object with the buffer protocol, not %.100s", what, Py_TYPE(object)->tp_name);
		return -1;
	}
	if (!PyObject_GetBuffer(object, memory, flags)) return 0;
	if (PyErr_ExceptionMatches(PyExc_BufferError)) {
		PyObject *type, *value, *traceback;
		PyErr_Fetch(&type, &value, &traceback);
		PyErr_Format(PyExc_ValueError, "%s needs %s contiguous memory: %S", what, flags & PyBUF_WRITABLE ? "writable" : "readable", value);
		Py_XDECREF(type);
		Py_XDECREF(value);
		Py_XDECREF(traceback);
	}
	return -1;
}

static PyObject *copy_from_host(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"copy_from_host", 2, 1, {"obj", "offset"}};
	PyObject *value[2];
	tm_range range;
	if (tm_arguments(&signature, args, nargs, names, value) || tm_range_of(self, "copy_from_host", &range)) return NULL;
	int64_t offset = count_or(value[1], "offset", 0);
	Py_buffer from;
	if (offset < 0 || get_memory(value[0], PyBUF_CONTIG_RO, "copy_from_host", &from)) return NULL;
	int failed = narrow(&range, (uint64_t)offset, (uint64_t)from.len) || move(&range, from.buf, false);
	PyBuffer_Release(&from);
	if (failed) return NULL;
	Py_RETURN_NONE;
}

static PyObject *copy_to_host(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"copy_to_host", 3, 0, {"out", "offset", "nbytes"}};
	PyObject *value[3];
	tm_range range;
	if (tm_arguments(&signature, args, nargs, names, value) || tm_range_of(self, "copy_to_host", &range)) return NULL;
	int64_t offset = count_or(value[1], "offset", 0);
	if (offset < 0) return NULL;
	if (!tm_given(value[0])) {
		int64_t rest = (uint64_t)offset <= range.nbytes ? (int64_t)(range.nbytes - (uint64_t)offset) : 0;
		int64_t nbytes = count_or(value[2], "nbytes", rest);
		if (nbytes < 0 || narrow(&range, (uint64_t)offset, (uint64_t)nbytes)) return NULL;
		PyObject *out = PyByteArray_FromStringAndSize(NULL, nbytes);
		if (out && move(&range, PyByteArray_AS_STRING(out), true)) Py_CLEAR(out);
		return out;
	}
	Py_buffer to;
	if (get_memory(value[0], PyBUF_CONTIG, "copy_to_host", &to)) return NULL;
	int64_t nbytes = count_or(value[2], "nbytes", to.len);
	int failed = nbytes < 0;
	if (!failed && nbytes > to.len) {
		PyErr_Format(PyExc_ValueError, "%lld bytes do not fit into an object of %zd bytes", (long long)nbytes, to.len);
		failed = 1;
	}
	failed = failed || narrow(&range, (uint64_t)offset, (uint64_t)nbytes) || move(&range, to.buf, true);
	PyBuffer_Release(&to);
	return failed ? NULL : Py_NewRef(value[0]);
}

/* The pattern of fill(): a byte as an int, or 1 to 16 bytes. */
static int get_pattern(PyObject *value, tm_call *call)
{
	if (PyObject_CheckBuffer(value)) {
		Py_buffer bytes;
		if (get_memory(value, PyBUF_CONTIG_RO, "fill", &bytes)) return -1;
		bool fits = bytes.len >= 1 && bytes.len <= (Py_ssize_t)sizeof call->pattern;
		if (fits) {
			memcpy(call->pattern, bytes.buf, (size_t)bytes.len);
			call->pattern_bytes = (uint32_t)bytes.len;
		} else {
			PyErr_Format(PyExc_ValueError, "a pattern has 1 to 16 bytes, not %zd", bytes.len);
		}
		PyBuffer_Release(&bytes);
		return fits ? 0 : -1;
	}
	if (PyBool_Check(value) || !PyIndex_Check(value)) {
		PyErr_Format(PyExc_TypeError, "fill needs an int or bytes, not %.100s", Py_TYPE(value)->tp_name);
		return -1;
	}
	Py_ssize_t byte = PyNumber_AsSsize_t(value, NULL);
	if (byte == -1 && PyErr_Occurred()) return -1;
	if (byte < 0 || byte > 255) {
		PyErr_Format(PyExc_ValueError, "a byte is from 0 to 255, not %R", value);
		return -1;
	}
	call->pattern[0] = (char)byte;
	call->pattern_bytes = 1;
	return 0;
}

static PyObject *fill(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"fill", 3, 1, {"value", "offset", "nbytes"}};
	PyObject *value[3];
	tm_range range;
	tm_call call = {0};
	if (tm_arguments(&signature, args, nargs, names, value) || tm_range_of(self, "fill", &range) || get_pattern(value[0], &call)) return NULL;
	int64_t offset = count_or(value[1], "offset", 0);
	if (offset < 0) return NULL;
	int64_t nbytes = count_or(value[2], "nbytes", (uint64_t)offset <= range.nbytes ? (int64_t)(range.nbytes - (uint64_t)offset) : 0);
	bool child;
	if (nbytes < 0 || narrow(&range, (uint64_t)offset, (uint64_t)nbytes) || tm_check_fork((int)range.device, &child)) return NULL;
	if (!nbytes) Py_RETURN_NONE;
	if (child) {
		char *memory = child_memory(&range);
		for (uint64_t i = 0; i < range.nbytes; i++) memory[i] = call.pattern[i % call.pattern_bytes];
		Py_RETURN_NONE;
	}
	call.op = range.base ? TM_OP_FILL : TM_OP_RAW_FILL;
	call.device = range.device;
	call.index = range.base ? range.base->index : 0;
	call.offset = range.offset;
	call.address = range.address;
	call.nbytes = range.nbytes;
	if (range.base ? tm_perform_on(range.base, &call, moves(&range)) : tm_perform(&call, moves(&range))) return NULL;
	Py_RETURN_NONE;
}

/* Copies between foreign memory and a buffer, which is held on the device meanwhile; or between two pieces of foreign memory. */
static int copy_foreign(tm_range *to, tm_range *from, uint32_t asker)
{
	tm_range *ours = to->base ? to : from->base ? from : NULL;
	tm_call hold = {.op = TM_OP_HOLD, .origin = asker, .device = to->device};
	if (ours) {
		hold.index = ours->base->index;
		if (tm_perform_on(ours->base, &hold, tm_bringing(ours->device, ours->base->nbytes))) return -1;
		ours->address = hold.address + ours->offset;
	}
	tm_call copy = {.op = TM_OP_RAW_COPY, .device = to->device, .address = to->address, .other_offset = from->address, .nbytes = to->nbytes};
	int failed = tm_perform(&copy, TM_SHORT);
	if (ours) {
		hold.op = TM_OP_RELEASE;
		tm_release(&hold);
	}
	return failed;
}

static PyObject *copy_from(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"copy_from", 4, 1, {"other", "offset", "source_offset", "nbytes"}};
	PyObject *value[4];
	uint32_t asker = tm_asker();
	tm_range to, from;
	if (tm_arguments(&signature, args, nargs, names, value) || tm_range_of(self, "copy_from", &to) || tm_range_of(value[0], "copy_from", &from))
		return NULL;
	if (to.device != from.device)
		return PyErr_Format(PyExc_ValueError, "copy_from works within one device, not from %U to %U: use copy_to_host and copy_from_host",
			tm_devices[from.device].name, tm_devices[to.device].name);
	int64_t offset = count_or(value[1], "offset", 0), source_offset = offset < 0 ? -1 : count_or(value[2], "source_offset", 0);
	if (source_offset < 0) return NULL;
	int64_t rest = (uint64_t)source_offset <= from.nbytes ? (int64_t)(from.nbytes - (uint64_t)source_offset) : 0;
	int64_t nbytes = count_or(value[3], "nbytes", rest);
	bool child;
	if (nbytes < 0 || narrow(&from, (uint64_t)source_offset, (uint64_t)nbytes) || narrow(&to, (uint64_t)offset, (uint64_t)nbytes) ||
	    tm_check_fork((int)to.device, &child))
		return NULL;
	if (!nbytes) Py_RETURN_NONE;
	if (child) {
		memmove(child_memory(&to), child_memory(&from), to.nbytes);
		Py_RETURN_NONE;
	}
	if (!to.base || !from.base) {
		if (copy_foreign(&to, &from, asker)) return NULL;
		Py_RETURN_NONE;
	}
	tm_call call = {.op = TM_OP_COPY, .origin = asker, .device = to.device, .index = to.base->index, .offset = to.offset, .other = from.base->index,
		.other_offset = from.offset, .nbytes = to.nbytes};
	bool both = tm_word(to.base->home) == TM_RESIDENT && tm_word(from.base->home) == TM_RESIDENT;
	from.base->busy++;
	int failed = tm_perform_on(to.base, &call, both ? 1 : tm_bringing(to.device, to.base->nbytes + from.base->nbytes));
	from.base->busy--;
	if (failed) return NULL;
	Py_RETURN_NONE;
}

static PyObject *spill(PyObject *self, PyObject *unused)
{
	uint32_t asker = tm_asker();
	tm_range range;
	bool child;
	if (tm_range_of(self, "spill", &range) || tm_check_fork((int)range.device, &child)) return NULL;
	if (child || !range.base) return PyLong_FromLong(0);
	tm_call call = {.op = TM_OP_SPILL, .origin = asker, .device = range.device, .index = range.base->index};
	if (tm_perform_on(range.base, &call, range.base->nbytes + 1)) return NULL;
	return PyLong_FromLongLong(call.result);
}

static PyObject *restore(PyObject *self, PyObject *unused)
{
	tm_range range;
	uint64_t address;
	if (tm_range_of(self, "restore", &range) || (range.base && tm_make_resident(range.base, &address))) return NULL;
	Py_RETURN_NONE;
}

static PyObject *view(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"view", 2, 2, {"offset", "nbytes"}};
	PyObject *value[2];
	tm_range range;
	if (tm_arguments(&signature, args, nargs, names, value) || tm_range_of(self, "view", &range)) return NULL;
	int64_t offset = tm_parse_count(value[0], "offset"), nbytes = offset < 0 ? -1 : tm_parse_count(value[1], "nbytes");
	if (nbytes < 0 || narrow(&range, (uint64_t)offset, (uint64_t)nbytes)) return NULL;
	if (range.base) return tm_view_new(range.base, range.offset, range.nbytes);
	return tm_view_foreign(range.address, range.nbytes, range.device, self);
}

static PyObject *hold(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"hold", 1, 0, {"reason"}};
	PyObject *reason;
	if (tm_arguments(&signature, args, nargs, names, &reason)) return NULL;
	return tm_hold_new(self, reason);
}

static PyObject *export(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"export", 1, 0, {"reason"}};
	PyObject *reason;
	if (tm_arguments(&signature, args, nargs, names, &reason)) return NULL;
	return tm_export_new(self, reason);
}

/* How it travels and is copied is Python's: _travel.py. */
static PyObject *call_travel(const char *function, PyObject *self, PyObject *argument)
{
	tm_range range;
	if (tm_range_of(self, "a copy", &range)) return NULL;
	if (range.base && range.base->hosts)
		return PyErr_Format(PyExc_TypeError, "cannot pickle or copy memory in the place of a framework's own pointer: its object has handles beside it that mean "
			"nothing elsewhere. Send the contents, by the framework's own means");
	PyObject *travel = PyImport_ImportModule("tack_memory._travel");
	if (!travel) return NULL;
	PyObject *name = PyUnicode_FromString(function);
	PyObject *made = name ? PyObject_CallMethodObjArgs(travel, name, self, argument, NULL) : NULL;
	Py_XDECREF(name);
	Py_DECREF(travel);
	return made;
}

static PyObject *reduce_ex(PyObject *self, PyObject *protocol) { return call_travel("reduce", self, protocol); }

static PyObject *copy(PyObject *self, PyObject *unused) { return call_travel("copy", self, NULL); }

PyMethodDef tm_access_methods[] = {
	{"copy_from_host", TM_KEYWORDS(copy_from_host), TM_DOC_COPY_FROM_HOST},
	{"copy_to_host", TM_KEYWORDS(copy_to_host), TM_DOC_COPY_TO_HOST},
	{"fill", TM_KEYWORDS(fill), TM_DOC_FILL},
	{"copy_from", TM_KEYWORDS(copy_from), TM_DOC_COPY_FROM},
	{"spill", spill, METH_NOARGS, TM_DOC_SPILL},
	{"restore", restore, METH_NOARGS, TM_DOC_RESTORE},
	{"view", TM_KEYWORDS(view), TM_DOC_VIEW},
	{"hold", TM_KEYWORDS(hold), TM_DOC_HOLD},
	{"export", TM_KEYWORDS(export), TM_DOC_EXPORT},
	{"__reduce_ex__", reduce_ex, METH_O, "__reduce_ex__($self, protocol, /)\n--\n\nOne private copy of the contents, for pickle."},
	{"__copy__", copy, METH_NOARGS, "__copy__($self, /)\n--\n\nA buffer of its own, with the same contents."},
	{"__deepcopy__", copy, METH_O, "__deepcopy__($self, memo, /)\n--\n\nA buffer of its own, with the same contents."},
	{NULL},
};
