#include "transfer.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "calls.h"
#include "device.h"
#include "host.h"
#include "lock.h"
#include "settings.h"
#include "stream.h"

/* ---- when the call is made ---- */

/* Whether a range may be used: host memory, or inside one live block. Memory that died in quarantine poisons the process at once. */
static enum soft_result check(uint64_t address, uint64_t bytes, enum soft_end end, int *on_device)
{
	struct soft_block *block;
	enum soft_place place = address ? soft_place(address, &block) : SOFT_PLACE_HOST;
	*on_device = place != SOFT_PLACE_HOST;
	if (!address || address + bytes < address)
		return SOFT_INVALID_VALUE;
	if (end == SOFT_END_DEVICE && !*on_device)
		return SOFT_INVALID_VALUE;
	if (end == SOFT_END_HOST && *on_device)
		return SOFT_INVALID_VALUE;
	if (place == SOFT_PLACE_HOST)
		return SOFT_OK;
	if (place == SOFT_PLACE_DEAD || (block && block->state != SOFT_BLOCK_LIVE && soft_block_quarantined(block))) {
		soft_poison(SOFT_ILLEGAL_ADDRESS);
		return SOFT_ILLEGAL_ADDRESS;
	}
	if (!block || block->state != SOFT_BLOCK_LIVE || address + bytes > block->address + block->size)
		return SOFT_INVALID_VALUE;
	return SOFT_OK;
}

/* ---- when the stream gets there ---- */

/* One end of an operation that runs. */
struct end {
	uint64_t address, bytes;
	int pinned;
	struct soft_block *block;
};

/* Keeps the block or the pinned memory of a range from ending while we work on it. -1: it is nobody's any more, or never had a place on a device
 * that is over-committed. */
static int enter(struct end *end)
{
	if (soft_place(end->address, &end->block) == SOFT_PLACE_HOST)
		return end->pinned ? soft_host_enter(end->address, end->bytes) : 0;
	struct soft_block *block = end->block;
	if (!block || end->address + end->bytes > block->address + block->size || block->state == SOFT_BLOCK_DYING)
		return -1;
	if (block->over && soft_device_overfull(soft_block_device(block)))
		return -1;
	block->over = 0;
	block->users++;
	return 0;
}

/* -1: it was freed while we worked on it. */
static int leave(const struct end *end)
{
	struct soft_block *block = end->block;
	if (!block && end->pinned)
		return soft_host_leave(end->address);
	if (!block || --block->users || block->state != SOFT_BLOCK_DYING)
		return 0;
	int quarantined = soft_block_quarantined(block);
	soft_block_end(block);
	return quarantined ? -1 : 0;
}

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Keeps a copy of so many bytes from ending sooner than the setting allows. It looks again now and then: a test may lift the limit. */
static void hold_rate(uint64_t bytes, int64_t start)
{
	long long limit;
	while ((limit = soft_setting(&soft_settings.copy_mib_s))) {
		int64_t left = (int64_t)((double)bytes / ((double)limit * 1048576) * 1e9) - (now_ns() - start);
		if (left <= 0)
			return;
		struct timespec t = { 0, left < 5000000 ? left : 5000000 };
		nanosleep(&t, NULL);
	}
}

static void run_copy(struct soft_operation *operation)
{
	uint64_t to = operation->copy.to, from = operation->copy.from, bytes = operation->copy.bytes;
	int64_t start = soft_setting(&soft_settings.copy_mib_s) ? now_ns() : 0;
	struct end target = { to, bytes, operation->copy.pinned_to, NULL }, source = { from, bytes, operation->copy.pinned_from, NULL };
	soft_lock();
	int bad = enter(&target);
	if (!bad && (bad = enter(&source)))
		leave(&target);
	soft_unlock();
	if (!bad) {
		memmove((void *)to, (const void *)from, bytes);
		if (start)
			hold_rate(bytes, start);
		soft_lock();
		bad = leave(&target) | leave(&source);
		soft_unlock();
	}
	if (bad)
		soft_poison(SOFT_ILLEGAL_ADDRESS);
	free(operation->copy.staged);
}

/* bytes is a multiple of width. */
static void repeat(unsigned char *to, uint64_t bytes, const unsigned char *pattern, unsigned width)
{
	if (width == 1) {
		memset(to, pattern[0], bytes);
		return;
	}
	/* What is filled doubles each time, but no piece is larger than what the caches hold. */
	enum { PIECE = 32768 };
	uint64_t done = bytes < width ? bytes : width;
	memcpy(to, pattern, done);
	while (done < bytes) {
		uint64_t piece = done < PIECE ? done : PIECE / width * width;
		if (piece > bytes - done)
			piece = bytes - done;
		memcpy(to + done, to, piece);
		done += piece;
	}
}

static void run_fill(struct soft_operation *operation)
{
	uint64_t to = operation->fill.to, bytes = operation->fill.count * operation->fill.width;
	struct end target = { to, bytes, operation->fill.pinned, NULL };
	soft_lock();
	int bad = enter(&target);
	soft_unlock();
	if (!bad) {
		repeat((unsigned char *)to, bytes, operation->fill.pattern, operation->fill.width);
		soft_lock();
		bad = leave(&target);
		soft_unlock();
	}
	if (bad)
		soft_poison(SOFT_ILLEGAL_ADDRESS);
}

/* ---- calls ---- */

/* Early return from a pageable source is legal once its bytes are in a place of ours. */
static enum soft_result stage(uint64_t *from, uint64_t bytes, void **staged)
{
	*staged = malloc(bytes);
	if (!*staged)
		return SOFT_OPERATING_SYSTEM;
	memcpy(*staged, (const void *)*from, bytes);
	*from = (uint64_t)(uintptr_t)*staged;
	return SOFT_OK;
}

static int pinned(uint64_t address, uint64_t bytes)
{
	struct soft_block *block;
	return soft_place(address, &block) == SOFT_PLACE_HOST && soft_host_pinned(address, bytes);
}

static struct soft_operation *copy_operation(uint64_t to, uint64_t from, uint64_t bytes)
{
	struct soft_operation *operation = soft_operation_new(run_copy);
	operation->copy.to = to;
	operation->copy.from = from;
	operation->copy.bytes = bytes;
	operation->copy.pinned_to = pinned(to, bytes);
	operation->copy.pinned_from = pinned(from, bytes);
	return operation;
}

enum soft_result soft_copy_check(uint64_t to, uint64_t from, uint64_t bytes)
{
	int on_device;
	enum soft_result result = check(to, bytes, SOFT_END_ANY, &on_device);
	return result ? result : check(from, bytes, SOFT_END_ANY, &on_device);
}

uint64_t soft_copy_push(struct soft_stream *stream, uint64_t to, uint64_t from, uint64_t bytes)
{
	return soft_stream_push(stream, copy_operation(to, from, bytes), 0);
}

/* Memory that no device reaches cannot be filled by one. */
enum soft_result soft_fill_check(uint64_t to, unsigned width, uint64_t count)
{
	int on_device;
	enum soft_result result = count > UINT64_MAX / width || to % width ? SOFT_INVALID_VALUE : check(to, count * width, SOFT_END_ANY, &on_device);
	return !result && !on_device && !soft_host_pinned(to, count * width) ? SOFT_INVALID_VALUE : result;
}

uint64_t soft_fill_push(struct soft_stream *stream, uint64_t to, const void *pattern, unsigned width, uint64_t count)
{
	struct soft_operation *operation = soft_operation_new(run_fill);
	operation->fill.to = to;
	operation->fill.width = width;
	operation->fill.count = count;
	operation->fill.pinned = pinned(to, width * count);
	memcpy(operation->fill.pattern, pattern, width);
	return soft_stream_push(stream, operation, 0);
}

enum soft_result soft_copy(struct soft_stream *stream, uint64_t to, enum soft_end to_end, uint64_t from, enum soft_end from_end, uint64_t bytes,
                           int synchronous)
{
	int to_device = 0, from_device = 0, staging = 0;
	void *staged = NULL;
	soft_lock();
	enum soft_result result = soft_stream_usable(stream);
	if (!result && !bytes)
		goto out;
	if (!result)
		result = check(to, bytes, to_end, &to_device);
	if (!result)
		result = check(from, bytes, from_end, &from_device);
	if (result)
		goto out;
	int pageable_to = !to_device && !soft_host_pinned(to, bytes);
	int pageable_from = !from_device && !soft_host_pinned(from, bytes);
	if (!synchronous && (pageable_to || pageable_from)) {
		if (!soft_setting(&soft_settings.pageable))
			synchronous = 1;
		else
			staging = pageable_from;
	}
	if (staging) {
		soft_unlock(); /* a large copy of its own: not under the lock */
		result = stage(&from, bytes, &staged);
		soft_lock();
		if (!result)
			result = soft_stream_usable(stream);
		if (result) {
			free(staged);
			goto out;
		}
	}
	struct soft_operation *operation = copy_operation(to, from, bytes);
	operation->copy.staged = staged;
	uint64_t sequence = soft_stream_push(stream, operation, synchronous);
	if (synchronous)
		soft_stream_wait(stream, sequence);
out:
	soft_unlock();
	return result;
}

enum soft_result soft_fill(struct soft_stream *stream, uint64_t to, uint32_t value, unsigned width, uint64_t count)
{
	uint16_t half = (uint16_t)value;
	unsigned char byte = (unsigned char)value;
	soft_lock();
	enum soft_result result = soft_stream_usable(stream);
	if (!result && count && !(result = soft_fill_check(to, width, count)))
		soft_fill_push(stream, to, width == 1 ? (void *)&byte : width == 2 ? (void *)&half : &value, width, count);
	soft_unlock();
	return result;
}
