/* Events of NumPy's memory. */
#include "np.h"
#include "event.h"
#include "sites.h"

const tm_events_api *np_events;

int np_event_init(void)
{
	PyObject *module = PyImport_ImportModule("tack_memory._native._events"); /* PyCapsule_Import imports the package only */
	np_events = module ? PyCapsule_Import(TM_EVENTS_CAPSULE, 0) : NULL;
	Py_XDECREF(module);
	if (!np_events) return -1;
	if (np_events->abi == TM_EVENTS_ABI && np_events->size >= sizeof *np_events) return 0;
	PyErr_SetString(PyExc_ImportError, "tack_memory._native._events and _numpy are of different builds");
	return -1;
}

__attribute__((noinline, cold)) void np_tell(enum tack_event_kind kind, void *old, void *new_, size_t old_size, size_t new_size, uint32_t site)
{
	tack_event event = {.size = sizeof event, .kind = (uint8_t)kind, .domain = TACK_NUMPY, .device = -1, .old = old, .new_ = new_, .old_size = old_size,
		.new_size = kind == TACK_FAIL ? 0 : new_size, .requested = new_size, .site = site < NP_FIRST_SITE ? 0 : site};
	np_events->deliver(&event, TM_GIL_UNKNOWN);
}
