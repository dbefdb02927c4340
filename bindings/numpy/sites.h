/* Which line of Python allocates, as a number that fits into np_header.site.
 *
 * A line is told by its file and number, so code that is made again and again (exec, lambdas) is one line; nothing here keeps a code object. There are at most NP_MOST_SITES of
 * them; lines that come later are NP_SITE_OTHER, all together. */
#ifndef NP_SITES_H
#define NP_SITES_H
#include <stdint.h>

enum {
	NP_SITE_NONE,    /* nobody asked for lines when the block was made */
	NP_SITE_OTHER,   /* a line for which there was no room */
	NP_SITE_NO_LINE, /* no Python code: a thread of C's, or one without the GIL */
	NP_SITE_SMALL,   /* not looked for: smaller than who tracks wants to know */
	NP_FIRST_SITE,
	NP_MOST_SITES = 1 << 15
};

/* The line that is executed now on this thread, outside of the code that is skipped. Never NP_SITE_NONE or NP_SITE_SMALL. Without the GIL it is NP_SITE_NO_LINE. Runs no Python code, and
 * starts no garbage collection: it is called inside handlers. */
uint32_t np_site_now(void);

/* Numbers below this are in use. With the GIL. */
uint32_t np_site_count(void);
int np_sites_init(void);
#endif
