/* receive(): buffers whose contents come from other processes. What a message brought lies in memory of somebody else's (a bytes object, a part of what a
 * connection has read). The core has it as the buffer's host copy, as it is, until the buffer comes to the device or is gone (gomem/lent.go); here it is kept
 * alive so long.
 *
 * The core gives a frame back where it likes, without the GIL. It is let go of with the GIL at the end of the next call into Go, by any thread. Where a buffer
 * is dropped in host memory, no call may follow; so its end asks Python's main thread for one. */
#include "lane.h"
#include "docs_calls.h"

typedef struct tm_frame {
	Py_buffer memory;
	struct tm_frame *next;
} tm_frame;

tm_frame *tm_frames_back;
static bool asked[TM_MAX_DEVICES]; /* for end_frames; with the GIL only */

void tm_frame_give_back(uint64_t given)
{
	tm_frame *frame = (tm_frame *)(uintptr_t)given;
	frame->next = __atomic_load_n(&tm_frames_back, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&tm_frames_back, &frame->next, frame, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
}

static void release(tm_frame *frame)
{
	PyBuffer_Release(&frame->memory);
	PyMem_RawFree(frame);
}

void tm_frames_release(void)
{
	PyObject *type, *value, *traceback;
	PyErr_Fetch(&type, &value, &traceback);
	for (tm_frame *frame = __atomic_exchange_n(&tm_frames_back, NULL, __ATOMIC_ACQUIRE), *next; frame; frame = next) {
		next = frame->next;
		release(frame);
	}
	PyErr_Restore(type, value, traceback);
}

/* On the main thread. What was dropped is given back now, if nobody moves memory; else whoever does looks at the list in the end, and that is a call. */
static int end_frames(void *device)
{
	tm_call call = {.op = TM_OP_DRAIN, .device = (uint32_t)(uintptr_t)device};
	asked[call.device] = false;
	tm_release(&call);
	return 0;
}

void tm_frame_dropped(uint32_t device)
{
	if (!asked[device] && !tm_forked && !Py_AddPendingCall(end_frames, (void *)(uintptr_t)device)) asked[device] = true; /* a full list of such calls: the next call into Go, then */
}

/* In a forked child, and of nothing: an ordinary buffer, and a copy. */
static PyObject *receive_copy(int device, bool child, const Py_buffer *memory, tm_call *call, PyObject *label, PyObject *origin)
{
	if (child) {
		PyObject *made = tm_child_allocate(device, (uint64_t)memory->len, label, origin);
		if (made && memory->len) memcpy((void *)(uintptr_t)((tm_buffer *)made)->home->address, memory->buf, (size_t)memory->len);
		return made;
	}
	call->op = TM_OP_ALLOCATE;
	if (!tm_perform(call, TM_SHORT)) return tm_buffer_new(call, label, origin);
	Py_XDECREF(label);
	Py_XDECREF(origin);
	return NULL;
}

static PyObject *receive(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"receive", 2, 1, {"data", "device", "label"}};
	PyObject *value[3], *label, *origin, *made;
	if (tm_arguments(&signature, args, nargs, names, value)) return NULL;
	int device = tm_resolve_device(value[1]);
	bool child;
	if (device < 0 || tm_check_fork(device, &child)) return NULL;
	tm_frame *frame = PyMem_RawCalloc(1, sizeof *frame);
	if (!frame) return PyErr_NoMemory();
	if (PyObject_GetBuffer(value[0], &frame->memory, PyBUF_SIMPLE)) {
		PyMem_RawFree(frame);
		return NULL;
	}
	tm_call call = {.op = TM_OP_RECEIVE, .device = (uint32_t)device, .nbytes = (uint64_t)frame->memory.len, .memory = frame->memory.buf,
		.token = (uint64_t)(uintptr_t)frame};
	if (tm_new_buffer_texts(&call, NULL, NULL, value[2], &label, &origin)) {
		release(frame);
		return NULL;
	}
	if (child || !call.nbytes) {
		made = receive_copy(device, child, &frame->memory, &call, label, origin);
		release(frame);
	} else if (tm_perform(&call, tm_devices[device].is_cpu ? call.nbytes : TM_SHORT)) {
		Py_XDECREF(label);
		Py_XDECREF(origin);
		if (call.token) release(frame); /* else Go has it, and has given it back or will (Ctrl-C came when the buffer was there) */
		return NULL;
	} else {
		made = tm_buffer_new(&call, label, origin);
		if (made) ((tm_buffer *)made)->lent = !tm_devices[device].is_cpu;
	}
	tm_tell();
	return made;
}

PyMethodDef tm_frame_methods[] = {
	{"receive", TM_KEYWORDS(receive), TM_DOC_RECEIVE},
	{NULL},
};
