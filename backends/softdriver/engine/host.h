/* Host memory that the driver allocated or registered ("pinned"): copies from and to it do not hold up the caller. */
#ifndef SOFT_HOST_H
#define SOFT_HOST_H

#include <stdint.h>
#include "result.h"

struct soft_host_range {
	uint64_t address, bytes;
	int registered; /* the client's memory; else ours */
	void *owner;    /* for the ABI: the client's context, or NULL */
	int ending;     /* freed; it goes when the work that is queued on it is done */
	int dying;      /* freed while operations were running on it; ends with the last of them */
	unsigned users; /* operations running on it now */
	unsigned flags;
};

/* ---- without the lock */
enum soft_result soft_host_allocate(uint64_t bytes, unsigned flags, void **out);
enum soft_result soft_host_free(void *address);
enum soft_result soft_host_register(void *address, uint64_t bytes, unsigned flags);
enum soft_result soft_host_unregister(void *address);
/* The same without waiting: work that is still queued on the memory finds it gone. */
enum soft_result soft_host_drop(void *address);
int soft_host_find(uint64_t address, struct soft_host_range *range); /* 0: not pinned */

/* ---- with the lock */
int soft_host_pinned(uint64_t address, uint64_t bytes); /* all of it */
/* Whose memory it is that begins there. */
void soft_host_own(uint64_t address, void *owner);
void *soft_host_owner_of(uint64_t address); /* NULL: nobody's */
/* All memory of this owner goes, at once. */
void soft_host_owner_end(const void *owner);
/* A free in two steps: marked, which is an error a second time, and gone. */
enum soft_result soft_host_ending(uint64_t address);
void soft_host_end(uint64_t address);
/* For operations on memory that was pinned when they were queued: keeps it from ending while they run. -1: it is not pinned any more. */
int soft_host_enter(uint64_t address, uint64_t bytes);
/* -1: it was freed meanwhile. */
int soft_host_leave(uint64_t address);

#endif
