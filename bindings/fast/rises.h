/* Where the program was when a peak scope's maxima were reached (rises.c). All of it with the GIL. */
#ifndef TM_RISES_H
#define TM_RISES_H
#include "lane.h"

enum tm_maximum { TM_MAXIMUM_PEAK, TM_MAXIMUM_OWN, TM_MAXIMUM_FOOTPRINT, TM_MAXIMA };

typedef struct tm_rises tm_rises;
extern tm_rises *tm_open_rises; /* NULL: no scope asked for stacks */

/* A call on a device has returned, and no Python code has run since. Runs none, and keeps an exception that is set. */
void tm_note_rises(const tm_call *call);

/* Notes stacks for an open scope, up to the frame of the code `until` (NULL: whole stacks). NULL with an exception where there is no memory. */
tm_rises *tm_rises_begin(const tm_scope *scope, PyObject *until);
void tm_rises_end(tm_rises *rises);  /* before the scope closes; may be NULL; idempotent */
void tm_rises_free(tm_rises *rises); /* may be NULL */

/* A tuple of (file, line, function), innermost first, of when that maximum was reached; None: it did not rise since tm_rises_begin, or rises is NULL. */
PyObject *tm_rises_stack(const tm_rises *rises, enum tm_maximum maximum);
#endif
