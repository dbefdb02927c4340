/* A device: its capacity, what is held of it, and what belongs to it. */
#ifndef SOFT_DEVICE_H
#define SOFT_DEVICE_H

#include <stdint.h>
#include "heap.h"
#include "result.h"
#include "settings.h"

struct soft_stream;
struct soft_pool;
struct soft_event;

/* Device memory is counted in units of this: a block counts for its size rounded up. Addresses are multiples of it too. */
enum { SOFT_GRANULE = 512 };
static inline uint64_t soft_charge_of(uint64_t size) { return (size + SOFT_GRANULE - 1) / SOFT_GRANULE * SOFT_GRANULE; }

/* The primary context of a device. Alive while someone retains it. */
struct soft_context {
	struct soft_device *device;
	unsigned references, flags;
	int alive; /* atomic: looked at without the lock */
};

struct soft_device {
	int ordinal;               /* as the process counts them */
	int number;                /* as the machine counts them: what a device is known by elsewhere follows this */
	_Atomic uint64_t reserved; /* bytes held: live blocks and what pools keep, in granules. Written under the lock; read anywhere */
	uint64_t used;             /* bytes of live blocks, in granules: used <= reserved */
	uint64_t in_use;           /* bytes that clients asked for in live blocks: in_use <= used */
	uint64_t live;             /* blocks */
	uint64_t deferred;         /* of them, those that are freed and wait for queued work: deferred <= live */
	uint64_t late;             /* of reserved: freed, and given back only when the device is synchronised (setting "late_free") */
	struct soft_context context;
	struct soft_heap heaps[2][2]; /* [addresses are used again][large] */
	struct soft_pool *pools;      /* all, the default pool last */
	struct soft_pool *default_pool, *current_pool;
	struct soft_stream *streams;  /* all that exist, the legacy stream and destroyed ones with work left included */
	struct soft_stream *legacy;
	struct soft_stream *reaper;   /* frees what was freed to wait for all queued work; NULL until it is needed */
};

enum soft_figure { SOFT_FIGURE_RESERVED, SOFT_FIGURE_USED, SOFT_FIGURE_IN_USE, SOFT_FIGURE_LIVE, SOFT_FIGURE_DEFERRED };

/* ---- with the lock */
uint64_t soft_device_figure(int ordinal, enum soft_figure figure); /* 0 for a device that does not exist */
/* Takes device memory; on pressure it takes back what pools keep and the host has seen to be free. */
enum soft_result soft_charge(struct soft_device *device, uint64_t bytes);
void soft_uncharge(struct soft_device *device, uint64_t bytes);
/* Whether more is held than the device has: it was over-committed, or another process took the rest. */
int soft_device_overfull(const struct soft_device *device);
void soft_block_counts(const struct soft_block *block);   /* a client got it */
void soft_block_uncounts(const struct soft_block *block); /* a client freed it */
void soft_block_drop(struct soft_block *block);           /* frees a block that no pool made */
void soft_device_give_back(struct soft_device *device);   /* it was synchronised: what was freed late is free now */

/* ---- without */
enum soft_result soft_start(void); /* idempotent */
int soft_device_count(void);
struct soft_device *soft_device(int ordinal); /* NULL: none */
void soft_memory_info(struct soft_device *device, uint64_t *free_bytes, uint64_t *total);
/* Beyond the capacity it fails, or (setting "overcommit") succeeds; then an operation that finds the block still without a place poisons the process. */
enum soft_result soft_allocate(struct soft_device *device, uint64_t size, uint64_t *address);
/* Frees without waiting for anything: work that is still queued on a block that no pool made finds it gone. Or (setting "implicit_sync") waits for all
 * work of the block's device first. */
enum soft_result soft_free(uint64_t address);
/* Frees once all that is queued now, on any stream of any device, is done; before it returns if nothing is. Until then the memory counts as held,
 * queued work may use it, and no new call. */
enum soft_result soft_free_deferred(uint64_t address);
/* Waits for all that is queued now, then frees. */
enum soft_result soft_free_waiting(uint64_t address);
/* The same for host memory that the driver allocated. */
enum soft_result soft_host_drop_deferred(void *address);
enum soft_result soft_host_drop_waiting(void *address);

/* Whose memory it is, for an ABI whose memory belongs to a client's context: of a block or of host memory of ours that begins at address. */
void soft_own(uint64_t address, void *owner);
/* Of the memory that the address is in; NULL: none, or nobody's. With the lock. */
void *soft_owner_of(uint64_t address);
/* All memory of that owner goes, at once, without waiting for anything. With the lock. */
void soft_owner_end(const void *owner);

struct soft_block_info {
	uint64_t address, size, id;
	struct soft_device *device;
	struct soft_pool *pool;
	void *owner;
};
int soft_block_info(uint64_t address, struct soft_block_info *info); /* 0: no live block there */

#endif
