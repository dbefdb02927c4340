/* Who tracks lines: tables of what each line has allocated, kept while blocks come and go. */
#ifndef NP_TRACKER_H
#define NP_TRACKER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sites.h"

/* Changed with the GIL and the lock of the books; read with either, or with none where a stale answer does no harm. */
typedef struct np_tracking {
	uint32_t on;  /* somebody tracks */
	size_t least; /* bytes from which on somebody wants to know the line */
} np_tracking;

extern np_tracking np_tracks;

/* Whether somebody tracks: all that an array pays when nobody does. */
static inline bool np_tracked(void) { return __builtin_expect(__atomic_load_n(&np_tracks.on, __ATOMIC_RELAXED) != 0, 0); }

/* Without the lock. The line that allocates or frees a block of this size. */
static inline uint32_t np_site_for(size_t size) { return size < __atomic_load_n(&np_tracks.least, __ATOMIC_RELAXED) ? NP_SITE_SMALL : np_site_now(); }

/* With the lock of the books, and what they say already changed. They take constant time, but for one pass through a table of 64 KiB entries each time that a number of
 * allocations has doubled. */

/* What the header of a block says from now on. */
typedef struct np_mark {
	uint32_t site;
	bool measured;
} np_mark;

/* A block was made. */
np_mark np_track_new(uint32_t site, size_t size, uint64_t sequence);
/* A block ends; where: the line that frees it, if the block is measured. */
void np_track_free(np_mark mark, size_t size, uint64_t sequence, uint32_t where);
/* A block is another one now, of another size. now: the line that resizes, for a block that has none of its own. */
np_mark np_track_resize(np_mark mark, size_t size_before, uint64_t before, size_t size, uint64_t sequence, uint32_t now);

/* With the GIL: there is a place for this new line in the tables of all who track. */
bool np_tracker_has_room(uint32_t site);
#endif
