/* Telling whoever listens of what happens to NumPy's memory (tack_memory.h). */
#ifndef NP_EVENT_H
#define NP_EVENT_H
#include <stdbool.h>
#include <stddef.h>
#include "events.h"

extern const tm_events_api *np_events;
int np_event_init(void);

/* Whether anybody listens now. */
static inline bool np_listened(void) { return TM_EVENTS_ON(np_events, TACK_NUMPY); }

/* Tells of an event after the books were written. A free, or the old address of a move, before that address can be used again. With or without the GIL: NumPy calls realloc
 * without it in text-mode fromstring and fromfile. A hook may run Python code here. */
void np_tell(enum tack_event_kind kind, void *old, void *new_, size_t old_size, size_t new_size, uint32_t site);

static inline void np_event(enum tack_event_kind kind, void *old, void *new_, size_t old_size, size_t new_size, uint32_t site)
{
	if (np_listened()) np_tell(kind, old, new_, old_size, new_size, site);
}
#endif
