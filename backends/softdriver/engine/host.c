#include "host.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device.h"
#include "lock.h"
#include "record.h"
#include "settings.h"
#include "stream.h"

/* By address; ranges never overlap. */
static struct soft_host_range *ranges;
static unsigned count, room;

/* The first range that ends behind address. */
static unsigned position(uint64_t address)
{
	unsigned low = 0, high = count;
	while (low < high) {
		unsigned middle = (low + high) / 2;
		if (ranges[middle].address + ranges[middle].bytes <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int overlaps(unsigned at, uint64_t address, uint64_t bytes) { return at < count && ranges[at].address < address + bytes; }

static void insert(struct soft_host_range range)
{
	if (count == room) {
		room = room ? 2 * room : 16;
		ranges = soft_records_grown(ranges, room, sizeof *ranges);
	}
	unsigned at = position(range.address);
	memmove(&ranges[at + 1], &ranges[at], (count - at) * sizeof *ranges);
	ranges[at] = range;
	count++;
}

int soft_host_pinned(uint64_t address, uint64_t bytes)
{
	unsigned at = position(address);
	return at < count && !ranges[at].dying && ranges[at].address <= address && address + bytes <= ranges[at].address + ranges[at].bytes;
}

int soft_host_find(uint64_t address, struct soft_host_range *range)
{
	soft_lock();
	unsigned at = position(address);
	int found = at < count && !ranges[at].dying && ranges[at].address <= address;
	if (found)
		*range = ranges[at];
	soft_unlock();
	return found;
}

enum soft_result soft_host_allocate(uint64_t bytes, unsigned flags, void **out)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return SOFT_OUT_OF_MEMORY;
	soft_lock();
	enum soft_result result = soft_capture_permits();
	if (!result)
		insert((struct soft_host_range){ .address = (uint64_t)(uintptr_t)p, .bytes = bytes, .flags = flags });
	soft_unlock();
	if (result)
		munmap(p, bytes);
	else
		*out = p;
	return result;
}

enum soft_result soft_host_register(void *address, uint64_t bytes, unsigned flags)
{
	uint64_t start = (uint64_t)(uintptr_t)address;
	struct soft_block *block;
	soft_lock();
	enum soft_result result = soft_capture_permits();
	if (!result && (start + bytes < start || soft_place(start, &block) != SOFT_PLACE_HOST))
		result = SOFT_INVALID_VALUE;
	if (!result && overlaps(position(start), start, bytes))
		result = SOFT_HOST_REGISTERED;
	if (!result)
		insert((struct soft_host_range){ .address = start, .bytes = bytes, .registered = 1, .flags = flags });
	soft_unlock();
	return result;
}

/* The range is gone. Addresses that work may still be queued on stay inaccessible in quarantine, as a device's do. */
static void drop(unsigned at, int quarantine)
{
	struct soft_host_range range = ranges[at];
	memmove(&ranges[at], &ranges[at + 1], (count - at - 1) * sizeof *ranges);
	count--;
	if (range.registered)
		return;
	if (!quarantine || !soft_setting(&soft_settings.quarantine) ||
	    mmap((void *)range.address, range.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		munmap((void *)range.address, range.bytes);
}

/* The range that begins there and was not freed, or -1. */
static int live(uint64_t start)
{
	unsigned at = position(start);
	return at < count && ranges[at].address == start && !ranges[at].dying ? (int)at : -1;
}

enum soft_result soft_host_ending(uint64_t address)
{
	int at = live(address);
	if (at < 0 || ranges[at].ending)
		return SOFT_INVALID_VALUE;
	ranges[at].ending = 1;
	return SOFT_OK;
}

int soft_host_enter(uint64_t address, uint64_t bytes)
{
	if (!soft_host_pinned(address, bytes))
		return -1;
	ranges[position(address)].users++;
	return 0;
}

/* A registered range is the client's own memory and nothing that we could keep from ending: it may be gone from the list. */
int soft_host_leave(uint64_t address)
{
	unsigned at = position(address);
	if (at >= count || ranges[at].address > address || !ranges[at].users)
		return -1;
	if (--ranges[at].users || !ranges[at].dying)
		return ranges[at].dying ? -1 : 0;
	drop(at, 1);
	return -1;
}

void soft_host_end(uint64_t address)
{
	int at = live(address);
	if (at >= 0 && ranges[at].users && !ranges[at].registered)
		ranges[at].dying = 1;
	else if (at >= 0)
		drop((unsigned)at, 1);
}

void soft_host_own(uint64_t address, void *owner)
{
	int at = live(address);
	if (at >= 0)
		ranges[at].owner = owner;
}

void *soft_host_owner_of(uint64_t address)
{
	unsigned at = position(address);
	return at < count && !ranges[at].dying && ranges[at].address <= address ? ranges[at].owner : NULL;
}

void soft_host_owner_end(const void *owner)
{
	for (unsigned at = count; at-- > 0;)
		if (ranges[at].owner == owner)
			soft_host_end(ranges[at].address);
}

enum soft_result soft_host_drop(void *address)
{
	uint64_t start = (uint64_t)(uintptr_t)address;
	soft_lock();
	enum soft_result result = soft_host_ending(start);
	if (!result)
		soft_host_end(start);
	soft_unlock();
	return result;
}

/* Ends a range once no device works with it any more: the client may unmap its memory next, and we do so with ours. */
static enum soft_result end(void *address, int registered, enum soft_result otherwise)
{
	uint64_t start = (uint64_t)(uintptr_t)address;
	soft_lock();
	enum soft_result result = soft_capture_permits();
	if (!result) {
		for (int i = 0; i < soft_device_count(); i++)
			soft_stream_wait_all(soft_device(i), 0);
		unsigned at = position(start);
		if (at >= count || ranges[at].address != start || ranges[at].dying || ranges[at].registered != registered)
			result = otherwise;
		else
			drop(at, 0);
	}
	soft_unlock();
	return result;
}

enum soft_result soft_host_free(void *address) { return end(address, 0, SOFT_INVALID_VALUE); }

enum soft_result soft_host_unregister(void *address) { return end(address, 1, SOFT_HOST_NOT_REGISTERED); }
