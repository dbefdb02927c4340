/* Copies and fills, in stream order. */
#ifndef SOFT_TRANSFER_H
#define SOFT_TRANSFER_H

#include <stdint.h>
#include "result.h"

struct soft_stream;

/* What a copy's ends must be. */
enum soft_end { SOFT_END_ANY, SOFT_END_DEVICE, SOFT_END_HOST };

/* Returns once the copy is done if `synchronous`, or if pageable host memory takes part and the setting "pageable" is 0. */
enum soft_result soft_copy(struct soft_stream *stream, uint64_t to, enum soft_end to_end, uint64_t from, enum soft_end from_end, uint64_t bytes,
                           int synchronous);
enum soft_result soft_fill(struct soft_stream *stream, uint64_t to, uint32_t value, unsigned width, uint64_t count);

/* ---- with the lock, for an ABI whose commands are checked first and queued later, with other operations around them. None of them waits, pageable host
 * memory or not: the source is read when the stream gets there. */
enum soft_result soft_copy_check(uint64_t to, uint64_t from, uint64_t bytes);
uint64_t soft_copy_push(struct soft_stream *stream, uint64_t to, uint64_t from, uint64_t bytes);
enum soft_result soft_fill_check(uint64_t to, unsigned width, uint64_t count);
uint64_t soft_fill_push(struct soft_stream *stream, uint64_t to, const void *pattern, unsigned width, uint64_t count);

#endif
