/* Blocks of NumPy's own handler, made larger, with an aligned part in them. Not posix_memalign: for an array's memory that is a mapping of its own for each large
 * block (hundreds of times slower), and it knows neither NumPy's cache of small blocks nor its huge pages. */
#ifndef NP_ALIGNED_H
#define NP_ALIGNED_H
#include "handler.h"

/* align is that of the block that is wanted now: a power of two from 16 to 2**30. Blocks of any alignment may be given to free and realloc. */
void *np_aligned_new(size_t size, size_t align, bool zero);
void *np_aligned_realloc(void *pointer, size_t size, size_t align);
void np_aligned_free(void *pointer, size_t size);
#endif
