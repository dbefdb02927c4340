/* Telling of device memory. What Go does it tells by itself, in order (gomem/tell.go), into a ring of the module _events; with the GIL again, the lane has it delivered. What Go has no part in
 * is told from here: allocations that failed, and a forked child's CPU buffers. */
#include "lane.h"
#include "_cgo_export.h"

static const uint32_t nobody;
static const tm_events_api deaf = {.abi = TM_EVENTS_ABI, .size = sizeof deaf, .active = &nobody};
const tm_events_api *tm_events = &deaf;

static void tell(uint8_t kind, uint32_t device, void *old, void *new, uint64_t nbytes)
{
	if (!TM_EVENTS_ON(tm_events, TACK_DEVICE)) return;
	tack_event event = {.kind = kind, .domain = TACK_DEVICE, .device = (int16_t)device, .old = old, .new_ = new, .requested = kind == TACK_FREE ? 0 : nbytes};
	if (old) event.old_size = nbytes;
	if (new) event.new_size = nbytes;
	tm_events->deliver(&event, 1);
}

void tm_tell_failed(uint32_t device, uint64_t nbytes) { tell(TACK_FAIL, device, NULL, NULL, nbytes); }

void tm_tell_child(uint32_t device, const tm_record *record, bool born)
{
	void *memory = (void *)(uintptr_t)record->address;
	if (record->size) tell(born ? TACK_NEW : TACK_FREE, device, born ? NULL : memory, born ? memory : NULL, record->size);
}

static const char *name_of(int device)
{
	if (device < 0 || device > TM_MAX_DEVICES || !tm_devices[device].name) return NULL;
	return PyUnicode_AsUTF8(tm_devices[device].name);
}

static PyObject *attach_events(PyObject *module, PyObject *capsule)
{
	const tm_events_api *api = PyCapsule_GetPointer(capsule, TM_EVENTS_CAPSULE);
	if (!api) return NULL;
	if (api->abi != TM_EVENTS_ABI || api->size < sizeof *api)
		return PyErr_Format(PyExc_ImportError, "the modules _fast and _events of tack_memory are of different versions: reinstall tack-memory");
	if (!tm_forked) tmTell(api->ring); /* a child has no Go that could tell anything */
	api->name_devices(name_of);
	tm_events = api;
	Py_RETURN_NONE;
}

PyMethodDef tm_events_methods[] = {
	{"attach_events", attach_events, METH_O, "attach_events(api, /)\n--\n\nFrom now on the module _events, whose capsule this is, is told of device memory."},
	{NULL},
};
