/* What the launches of a host that run now hold. */
#include "host_frames.h"

static __thread tm_frame *innermost __attribute__((tls_model("initial-exec")));
static tm_frame *spare; /* with the GIL */
static uint32_t spare_count;
#define MOST_SPARE 8

tm_frame *tm_frame_new(Py_ssize_t room)
{
	if (TM_LIKELY(room == TM_USUAL_ROOM && spare != NULL)) {
		tm_frame *launch = spare;
		spare = launch->outer;
		spare_count--;
		return launch;
	}
	tm_frame *launch = PyMem_Malloc(sizeof *launch + 2 * (size_t)room * sizeof(PyObject *));
	if (!launch) {
		PyErr_NoMemory();
		return NULL;
	}
	launch->items_count = launch->arrays_count = 0;
	launch->room = room;
	return launch;
}

void tm_frame_free(tm_frame *launch)
{
	PyObject **items = tm_frame_items(launch), **arrays = tm_frame_arrays(launch);
	for (Py_ssize_t i = launch->arrays_count; i-- > 0;) Py_DECREF(arrays[i]);
	for (Py_ssize_t i = launch->items_count; i-- > 0;) Py_DECREF(items[i]);
	if (TM_UNLIKELY(launch->room != TM_USUAL_ROOM || spare_count >= MOST_SPARE)) {
		PyMem_Free(launch);
		return;
	}
	launch->items_count = launch->arrays_count = 0;
	launch->outer = spare;
	spare = launch;
	spare_count++;
}

int tm_frame_grow(tm_frame **launch)
{
	tm_frame *old = *launch, *grown = tm_frame_new(2 * old->room);
	if (!grown) return -1;
	memcpy(tm_frame_items(grown), tm_frame_items(old), (size_t)old->items_count * sizeof(PyObject *));
	memcpy(tm_frame_arrays(grown), tm_frame_arrays(old), (size_t)old->arrays_count * sizeof(PyObject *));
	grown->items_count = old->items_count;
	grown->arrays_count = old->arrays_count;
	old->items_count = old->arrays_count = 0;
	tm_frame_free(old);
	*launch = grown;
	return 0;
}

void tm_frame_push(tm_frame *launch, PyTypeObject *array)
{
	launch->array = array;
	launch->outer = innermost;
	innermost = launch;
}

void tm_frame_pop(tm_frame *launch)
{
	tm_frame **place = &innermost;
	while (TM_UNLIKELY(*place != launch)) place = &(*place)->outer;
	*place = launch->outer;
}

bool tm_frame_is_inside(const PyTypeObject *array)
{
	for (tm_frame *launch = innermost; launch; launch = launch->outer)
		if (launch->array == array) return true;
	return false;
}

/* Whether a launch of this thread holds this item's memory. */
static bool is_held(PyObject *item, Py_ssize_t place)
{
	bool ok = true;
	tm_buffer *root = NULL;
	for (tm_frame *launch = innermost; launch; launch = launch->outer) {
		PyObject **items = tm_frame_items(launch);
		if (TM_LIKELY(place < launch->items_count && items[place] == item)) return true;
		if (!root && !(root = tm_root(item, &ok))) return true; /* memory that is not ours: nothing to hold */
		for (Py_ssize_t i = 0; i < launch->items_count; i++)
			if (tm_root(items[i], &ok) == root) return true;
	}
	return false;
}

bool tm_frames_hold(tm_frame *launch)
{
	for (Py_ssize_t i = 0; i < launch->items_count; i++)
		if (TM_UNLIKELY(!is_held(tm_frame_items(launch)[i], i))) return false;
	return true;
}

bool tm_host_launch_has(const tm_host_array *array)
{
	for (tm_frame *launch = innermost; launch; launch = launch->outer) {
		PyObject **arrays = tm_frame_arrays(launch);
		if (TM_LIKELY(array->place < launch->arrays_count && arrays[array->place] == (PyObject *)array)) return true;
		for (Py_ssize_t i = 0; i < launch->arrays_count; i++)
			if (arrays[i] == (PyObject *)array) return true;
	}
	return false;
}

bool tm_frame_is_outermost(void) { return !innermost; }
