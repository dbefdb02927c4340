/* What stands before each block that is counted, right before the pointer that NumPy has.
 *
 * The size must be here because what NumPy says at a free is not always what it asked for (a.resize(0) up to 1.26, empty text input). */
#ifndef NP_HEADER_H
#define NP_HEADER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NP_SEQUENCE_BITS 44

typedef struct np_header {
	uint64_t size : 48;                   /* bytes that NumPy asked for */
	uint64_t magic : 16;                  /* NP_LIVE or NP_DEAD */
	uint64_t sequence : NP_SEQUENCE_BITS; /* the low bits of the number that the books gave it; np_sequence has all of them */
	uint64_t site : 19;                   /* what sites.c knows the allocating line by; 0: nobody asked for lines */
	uint64_t measured : 1;                /* tracker.c wants to know how long it lives, and what line frees it */
} np_header;

_Static_assert(sizeof(np_header) == 16, "malloc's alignment of 16 is kept");

#define NP_LIVE 0x746d
#define NP_DEAD 0x6474
#define NP_MOST_BYTES ((uint64_t)1 << 46) /* of one request: more than a process can map, and sums of a few stay inside all types used here */

static inline np_header *np_header_of(void *pointer) { return (np_header *)pointer - 1; }

/* A block may have more before its np_header: whoever made it says how to find its start. */
#endif
