/* Host memory that the driver allocated or registered ("pinned"): copies from and to it do not hold up the caller. */
#ifndef SOFT_HOST_H
#define SOFT_HOST_H

#include <stdint.h>
#include "result.h"

struct soft_host_range {
	uint64_t address, bytes;
	int registered; /* the client's memory; else ours */
	unsigned flags;
};

/* ---- without the lock */
enum soft_result soft_host_allocate(uint64_t bytes, unsigned flags, void **out);
enum soft_result soft_host_free(void *address);
enum soft_result soft_host_register(void *address, uint64_t bytes, unsigned flags);
enum soft_result soft_host_unregister(void *address);
int soft_host_find(uint64_t address, struct soft_host_range *range); /* 0: not pinned */

/* ---- with the lock */
int soft_host_pinned(uint64_t address, uint64_t bytes); /* all of it */

#endif
