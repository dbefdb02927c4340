#include "device.h"

#include "calls.h"
#include "context.h"
#include "handles.h"
#include "lock.h"
#include "pool.h"
#include "record.h"
#include "stream.h"
#include "visible.h"

static struct soft_device *devices[SOFT_MAX_DEVICES];
static _Atomic int device_count;

static struct soft_device *device_open(int ordinal, int number)
{
	struct soft_device *device = soft_records(1, sizeof *device);
	device->ordinal = ordinal;
	device->number = number;
	device->context.device = device;
	for (int reuse = 0; reuse < 2; reuse++)
		for (int large = 0; large < 2; large++)
			soft_heap_open(&device->heaps[reuse][large], device, large, reuse);
	device->default_pool = device->current_pool = soft_pool_new(device);
	device->default_pool->is_default = 1;
	device->legacy = soft_stream_new(device);
	device->legacy->legacy = 1;
	soft_handle_add(device->legacy, SOFT_KIND_STREAM);
	return device;
}

static void look(struct soft_visible *visible)
{
	int count = (int)soft_setting(&soft_settings.devices);
	visible->count = count;
	for (int i = 0; i < count; i++)
		visible->numbers[i] = i;
	if (soft_setting(&soft_settings.masks))
		soft_abi.visible(visible, count);
}

enum soft_result soft_start(void)
{
	enum soft_result result = SOFT_OK;
	soft_lock();
	if (atomic_load(&soft_gate) & SOFT_GATE_UNINITIALIZED) {
		struct soft_visible visible;
		look(&visible);
		if (!visible.count)
			result = SOFT_NO_DEVICE;
		for (int i = 0; i < visible.count; i++)
			devices[i] = device_open(i, visible.numbers[i]);
		if (!result) {
			atomic_store(&device_count, visible.count);
			atomic_fetch_and(&soft_gate, ~(unsigned)SOFT_GATE_UNINITIALIZED);
		}
	}
	soft_unlock();
	return result;
}

int soft_device_count(void) { return atomic_load(&device_count); }

struct soft_device *soft_device(int ordinal) { return ordinal >= 0 && ordinal < soft_device_count() ? devices[ordinal] : NULL; }

/* ---- counting ---- */

uint64_t soft_device_figure(int ordinal, enum soft_figure figure)
{
	const struct soft_device *device = soft_device(ordinal);
	if (!device)
		return 0;
	switch (figure) {
	case SOFT_FIGURE_RESERVED: return device->reserved;
	case SOFT_FIGURE_USED: return device->used;
	case SOFT_FIGURE_IN_USE: return device->in_use;
	case SOFT_FIGURE_LIVE: return device->live;
	case SOFT_FIGURE_DEFERRED: return device->deferred;
	}
	return 0;
}

static uint64_t room(const struct soft_device *device)
{
	uint64_t capacity = (uint64_t)soft_setting(&soft_settings.capacity[device->ordinal]);
	uint64_t taken = (uint64_t)soft_setting(&soft_settings.taken[device->ordinal]);
	uint64_t held = atomic_load_explicit(&device->reserved, memory_order_relaxed);
	/* Another process may take, and a test may shrink, more than is free; then nothing is. */
	return held + taken < capacity ? capacity - held - taken : 0;
}

enum soft_result soft_charge(struct soft_device *device, uint64_t bytes)
{
	if (room(device) < bytes)
		soft_pools_relieve(device);
	if (room(device) < bytes)
		return SOFT_OUT_OF_MEMORY;
	device->reserved += bytes;
	return SOFT_OK;
}

int soft_device_overfull(const struct soft_device *device)
{
	uint64_t capacity = (uint64_t)soft_setting(&soft_settings.capacity[device->ordinal]);
	uint64_t taken = (uint64_t)soft_setting(&soft_settings.taken[device->ordinal]);
	return device->reserved + taken > capacity;
}

void soft_uncharge(struct soft_device *device, uint64_t bytes) { device->reserved -= bytes; }

void soft_block_counts(const struct soft_block *block)
{
	struct soft_device *device = soft_block_device(block);
	device->used += block->charge;
	device->in_use += block->size;
	device->live++;
}

void soft_block_uncounts(const struct soft_block *block)
{
	struct soft_device *device = soft_block_device(block);
	device->used -= block->charge;
	device->in_use -= block->size;
	device->live--;
}

void soft_memory_info(struct soft_device *device, uint64_t *free_bytes, uint64_t *total)
{
	*free_bytes = room(device);
	*total = (uint64_t)soft_setting(&soft_settings.capacity[device->ordinal]);
}

/* ---- memory without pools ---- */

enum soft_result soft_allocate(struct soft_device *device, uint64_t size, uint64_t *address)
{
	soft_lock();
	enum soft_result result = soft_capture_permits();
	uint64_t charge = soft_charge_of(size);
	int over = 0;
	if (!result)
		result = charge < size ? SOFT_OUT_OF_MEMORY : soft_charge(device, charge);
	if (result == SOFT_OUT_OF_MEMORY && charge >= size && soft_setting(&soft_settings.overcommit)) {
		device->reserved += charge;
		over = 1;
		result = SOFT_OK;
	}
	if (!result) {
		struct soft_block *block = soft_block_new(device, size);
		if (block) {
			block->over = over;
			soft_block_counts(block);
			*address = block->address;
		} else {
			soft_uncharge(device, charge);
			result = SOFT_OPERATING_SYSTEM;
		}
	}
	soft_unlock();
	return result;
}

void soft_block_drop(struct soft_block *block)
{
	struct soft_device *device = soft_block_device(block);
	soft_block_uncounts(block);
	if (soft_setting(&soft_settings.late_free))
		device->late += block->charge;
	else
		soft_uncharge(device, block->charge);
	soft_block_end(block);
}

void soft_device_give_back(struct soft_device *device)
{
	soft_uncharge(device, device->late);
	device->late = 0;
}

/* The live block that begins there, or NULL. */
static struct soft_block *live_block(uint64_t address)
{
	struct soft_block *block;
	int live = soft_place(address, &block) == SOFT_PLACE_BLOCK && block->state == SOFT_BLOCK_LIVE && block->address == address;
	return live ? block : NULL;
}

enum soft_result soft_free(uint64_t address)
{
	struct soft_block *block = NULL;
	soft_lock();
	enum soft_result result = soft_capture_permits();
	if (!result && !(block = live_block(address)))
		result = SOFT_INVALID_VALUE;
	if (!result && soft_setting(&soft_settings.implicit_sync)) {
		soft_device_drain(soft_block_device(block));
		block = live_block(address); /* the lock was not held meanwhile: another thread may have freed it */
		result = block ? SOFT_OK : SOFT_INVALID_VALUE;
	}
	if (!result) {
		if (block->pool)
			soft_pool_free_block(block, soft_block_device(block)->legacy);
		else
			soft_block_drop(block);
	}
	soft_unlock();
	return result;
}

int soft_block_info(uint64_t address, struct soft_block_info *info)
{
	struct soft_block *block;
	soft_lock();
	int live = soft_place(address, &block) == SOFT_PLACE_BLOCK && block->state == SOFT_BLOCK_LIVE && address - block->address < block->size;
	if (live)
		*info = (struct soft_block_info){ block->address, block->size, block->id, soft_block_device(block), block->pool, block->owner };
	soft_unlock();
	return live;
}
