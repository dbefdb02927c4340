/* allocate(), and the counting of allocations that may be long. */
#include "lane.h"
#include "docs_calls.h"

/* Whether an allocation of nbytes will have to spill (read without a lock: a wrong guess costs some microseconds, or a late Ctrl-C). What
 * does not pass the budget is short, but for the zeros; without a budget the first attempt is short, too, since a full device answers by asking for help. */
static bool passes_budget(const tm_books *books, uint64_t nbytes)
{
	int64_t budget = __atomic_load_n(&books->budget, __ATOMIC_RELAXED);
	if (budget < 0) return false;
	/* Neither is negative, nor more than INT64_MAX; of three such numbers no sum of two passes the end of uint64_t. */
	uint64_t used = (uint64_t)__atomic_load_n(&books->in_use, __ATOMIC_RELAXED) + (uint64_t)__atomic_load_n(&books->reserved, __ATOMIC_RELAXED);
	return used > (uint64_t)budget || nbytes > (uint64_t)budget - used;
}

/* The common end of allocate() and adopt(): the flags and texts of a new buffer. Returns new references in label and origin. */
int tm_new_buffer_texts(tm_call *call, PyObject *movable, PyObject *reason, PyObject *label, PyObject **label_text, PyObject **origin_text)
{
	*label_text = *origin_text = NULL;
	if (movable) {
		int yes = PyObject_IsTrue(movable);
		if (yes < 0) return -1;
		if (!yes) call->flags |= TM_UNMOVABLE;
	}
	reason = tm_given(reason);
	if (reason && !(call->flags & TM_UNMOVABLE)) {
		PyErr_SetString(PyExc_ValueError, "reason says why a buffer cannot move: it goes with movable=False only");
		return -1;
	}
	int64_t number = tm_intern(reason, "reason");
	if (number < 0) return -1;
	call->reason = (uint32_t)number;
	label = tm_given(label);
	if (label) {
		if ((number = tm_intern(label, "label")) < 0) return -1;
		call->label = (uint32_t)number;
		Py_INCREF(label);
	} else {
		label = tm_block_label(&call->label);
		if (TM_UNLIKELY(tm_origins) && !label && !(label = tm_host_label_slow(&call->label)) && PyErr_Occurred()) return -1;
	}
	if (TM_UNLIKELY(tm_origins) && tm_origin_now(origin_text, &call->origin)) {
		Py_XDECREF(label);
		return -1;
	}
	*label_text = label;
	return 0;
}

/* From here on, filling with zeros may take longer than a person wants to wait for Ctrl-C: on the CPU it takes as long as a copy. Less stays short, since
 * what is not is made a task wherever other threads are at work. */
#define MANY_ZEROS ((int64_t)32 << 20)

static PyObject *allocate(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"allocate", 2, 1, {"nbytes", "device", "zero", "movable", "reason", "label"}};
	PyObject *value[6], *label, *origin;
	if (tm_arguments(&signature, args, nargs, names, value)) return NULL;
	int device = tm_resolve_device(value[1]);
	int64_t nbytes = device < 0 ? -1 : tm_parse_size(value[0], device);
	if (nbytes < 0) return NULL;
	tm_call call = {.op = TM_OP_ALLOCATE, .device = (uint32_t)device, .nbytes = (uint64_t)nbytes, .flags = TM_ZERO};
	if (value[2]) {
		int zero = PyObject_IsTrue(value[2]);
		if (zero < 0) return NULL;
		if (!zero) call.flags &= ~(uint32_t)TM_ZERO;
	}
	bool child;
	if (tm_check_fork(device, &child)) return NULL;
	if (tm_new_buffer_texts(&call, value[3], value[4], value[5], &label, &origin)) return NULL;
	if (TM_UNLIKELY(child)) return tm_child_allocate(device, (uint64_t)nbytes, label, origin);
	uint64_t moves = TM_SHORT;
	if (passes_budget(tm_devices[device].books, (uint64_t)nbytes)) moves = tm_bringing((uint32_t)device, (uint64_t)nbytes);
	else if (call.flags & TM_ZERO && nbytes >= MANY_ZEROS) moves = (uint64_t)nbytes;
	if (tm_perform(&call, moves)) {
		Py_XDECREF(label);
		Py_XDECREF(origin);
		return NULL;
	}
	PyObject *made = tm_buffer_new(&call, label, origin);
	tm_tell();
	return made;
}

PyMethodDef tm_allocate_methods[] = {
	{"allocate", TM_KEYWORDS(allocate), TM_DOC_ALLOCATE},
	{NULL},
};
