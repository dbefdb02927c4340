/* Device addresses. They are plain addresses of host memory that the host may read and write while the block lives.
 *
 * A device has two heaps for small and two for large blocks: one that uses addresses again at once, and one (quarantine) that never does and
 * makes them inaccessible for ever. Device memory is counted elsewhere (device.h); here are addresses only. */
#ifndef SOFT_HEAP_H
#define SOFT_HEAP_H

#include <stdint.h>
#include "starts.h"

struct soft_device;
struct soft_pool;
struct soft_arena;

enum soft_block_state {
	SOFT_BLOCK_LIVE,   /* a client's */
	SOFT_BLOCK_FREED,  /* freed in stream order, and the stream is not there yet (quarantine) */
	SOFT_BLOCK_CACHED, /* freed; a pool keeps the address for the next block of this size */
	SOFT_BLOCK_DYING,  /* freed while an operation was running on it; ends with the operation */
	SOFT_BLOCK_FREE,   /* address space to use again */
	SOFT_BLOCK_DEAD,   /* never again; inaccessible */
	SOFT_BLOCK_HUSK,   /* never again; still mapped, so that the process stays below the kernel's limit of mappings */
};

struct soft_block {
	uint64_t address;
	uint64_t span;   /* bytes of address space, to the next block */
	uint64_t mapped; /* bytes that are accessible, from address on (quarantine) */
	uint64_t size;   /* bytes that the client asked for */
	uint64_t charge; /* device bytes it counts for */
	uint64_t id;     /* never used twice in a process */
	struct soft_arena *arena;
	struct soft_pool *pool;              /* NULL: allocated without a pool */
	struct soft_block *before, *after;   /* neighbours in address order */
	struct soft_block *bin_before, *bin_after; /* other free blocks of about this size */
	unsigned users;  /* operations running on it now */
	void *owner;     /* for the ABI: the client's context, or NULL */
	int over;        /* did not fit when it was allocated (setting "overcommit"), and was not used since */
	enum soft_block_state state;
};

enum { SOFT_HEAP_BINS = 48, SOFT_HEAP_STEPS = 8 };

struct soft_heap {
	struct soft_device *device;
	uint64_t granule;
	int reuse;
	struct soft_arena *arena; /* where new addresses come from */
	uint64_t filled;          /* bins with any block */
	uint8_t steps[SOFT_HEAP_BINS];
	struct soft_block *bins[SOFT_HEAP_BINS][SOFT_HEAP_STEPS];
};

enum soft_place {
	SOFT_PLACE_HOST,   /* not a device address */
	SOFT_PLACE_BLOCK,
	SOFT_PLACE_DEAD,   /* it was a device address, and never will be one again */
	SOFT_PLACE_UNUSED, /* belongs to a device, and to no block now */
};

/* All need the lock. */
void soft_heap_open(struct soft_heap *heap, struct soft_device *device, int large, int reuse);
/* A live block at a new address; NULL where the host has no address space or mapping left. */
struct soft_block *soft_block_new(struct soft_device *device, uint64_t size);
/* The address goes back: to be used again, or to die. The block is gone for the caller. */
void soft_block_end(struct soft_block *block);
enum soft_place soft_place(uint64_t address, struct soft_block **block);
struct soft_device *soft_block_device(const struct soft_block *block);
int soft_block_quarantined(const struct soft_block *block);
/* Calls visit for every block of the device that is not free or dead; visit may end the block it gets. */
void soft_blocks_visit(struct soft_device *device, void (*visit)(struct soft_block *));

#endif
