/* What the launches of a host that run now hold, thread by thread (host_frames.c). With the GIL. */
#ifndef TM_HOST_FRAMES_H
#define TM_HOST_FRAMES_H
#include "lane.h"

/* One launch that runs. Not on the C stack: a greenlet's C stack is moved away while another one runs, and launches of greenlets need not end in order. */
typedef struct tm_frame {
	struct tm_frame *outer; /* the launch of this thread that began before; of a spare one: the next spare one */
	PyTypeObject *array; /* of its HostLaunch; only compared */
	Py_ssize_t items_count, arrays_count, room;
	PyObject *places[];  /* room for the buffers and views, then room for the HostArrays among what they were found in; strong references */
} tm_frame;

#define TM_USUAL_ROOM 24

static inline PyObject **tm_frame_items(tm_frame *launch) { return launch->places; }
static inline PyObject **tm_frame_arrays(tm_frame *launch) { return launch->places + launch->room; }

tm_frame *tm_frame_new(Py_ssize_t room); /* NULL with an exception */
void tm_frame_free(tm_frame *launch);    /* gives up what it refers to, and itself; runs destructors */
int tm_frame_grow(tm_frame **launch);    /* 0, or -1 with an exception */
void tm_frame_push(tm_frame *launch, PyTypeObject *array);
void tm_frame_pop(tm_frame *launch);     /* launches of one thread need not end in order */
bool tm_frame_is_inside(const PyTypeObject *array); /* whether this thread is in a launch of such arrays */
bool tm_frames_hold(tm_frame *launch);   /* whether the launches that this thread is in hold all the memory of this one, which is not pushed yet */
bool tm_frame_is_outermost(void);        /* whether this thread is in no launch */
#endif
