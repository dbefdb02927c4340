/* Memory by owner: a vendor whose clients make contexts of their own frees a context's memory with it. */
#include "device.h"
#include "host.h"
#include "lock.h"

void soft_own(uint64_t address, void *owner)
{
	struct soft_block *block;
	soft_lock();
	if (soft_place(address, &block) == SOFT_PLACE_BLOCK)
		block->owner = owner;
	else
		soft_host_own(address, owner);
	soft_unlock();
}

void *soft_owner_of(uint64_t address)
{
	struct soft_block *block;
	if (soft_place(address, &block) == SOFT_PLACE_BLOCK)
		return block->owner;
	return soft_host_owner_of(address);
}

static const void *ending; /* with the lock */

static void drop_owned(struct soft_block *block)
{
	if (block->state == SOFT_BLOCK_LIVE && block->owner == ending)
		soft_block_drop(block);
}

void soft_owner_end(const void *owner)
{
	ending = owner;
	for (int i = 0; i < soft_device_count(); i++)
		soft_blocks_visit(soft_device(i), drop_owned);
	soft_host_owner_end(owner);
}
