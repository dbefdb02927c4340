#include "host.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device.h"
#include "lock.h"
#include "record.h"
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
	return at < count && ranges[at].address <= address && address + bytes <= ranges[at].address + ranges[at].bytes;
}

int soft_host_find(uint64_t address, struct soft_host_range *range)
{
	soft_lock();
	unsigned at = position(address);
	int found = at < count && ranges[at].address <= address;
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
		insert((struct soft_host_range){ (uint64_t)(uintptr_t)p, bytes, 0, flags });
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
		insert((struct soft_host_range){ start, bytes, 1, flags });
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
		if (at >= count || ranges[at].address != start || ranges[at].registered != registered) {
			result = otherwise;
		} else {
			struct soft_host_range range = ranges[at];
			memmove(&ranges[at], &ranges[at + 1], (count - at - 1) * sizeof *ranges);
			count--;
			if (!registered)
				munmap((void *)range.address, range.bytes);
		}
	}
	soft_unlock();
	return result;
}

enum soft_result soft_host_free(void *address) { return end(address, 0, SOFT_INVALID_VALUE); }

enum soft_result soft_host_unregister(void *address) { return end(address, 1, SOFT_HOST_NOT_REGISTERED); }
