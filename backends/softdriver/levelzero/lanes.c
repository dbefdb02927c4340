#include "lanes.h"

#include <string.h>
#include <time.h>

#include "../engine/lock.h"
#include "../engine/settings.h"
#include "../engine/stream.h"
#include "abi.h"

void ze_lanes_open(struct ze_lanes *lanes, struct soft_device *device, int in_order)
{
	memset(lanes, 0, sizeof *lanes);
	lanes->count = in_order || !soft_setting(&ze_settings.reorder) ? 1 : ZE_LANES;
	for (int i = 0; i < lanes->count; i++) {
		lanes->lane[i] = soft_stream_new(device);
		lanes->lane[i]->non_blocking = 1;
	}
	if (lanes->count > 1) {
		lanes->gate = soft_stream_new(device);
		lanes->gate->non_blocking = 1;
	}
}

void ze_lanes_close(struct ze_lanes *lanes)
{
	for (int i = 0; i < lanes->count; i++)
		soft_stream_close(lanes->lane[i]);
	if (lanes->gate)
		soft_stream_close(lanes->gate);
}

int ze_lanes_idle(const struct ze_lanes *lanes)
{
	for (int i = 0; i < lanes->count; i++)
		if (lanes->lane[i]->done < lanes->lane[i]->last)
			return 0;
	return 1;
}

struct soft_stream *ze_lanes_turn(struct ze_lanes *lanes)
{
	if (!lanes->held)
		lanes->next = (lanes->next + 1) % (unsigned)lanes->count;
	return lanes->lane[lanes->next];
}

void ze_lanes_join(struct ze_lanes *lanes)
{
	uint64_t last[ZE_LANES];
	for (int i = 0; i < lanes->count; i++)
		last[i] = lanes->lane[i]->last; /* before the waits that now come: else they would wait for each other */
	for (int i = 0; i < lanes->count; i++)
		for (int j = 0; j < lanes->count; j++)
			if (lanes->lane[j]->done < last[j])
				soft_stream_after(lanes->lane[i], lanes->lane[j], last[j]);
}

struct soft_stream *ze_lanes_gate(struct ze_lanes *lanes) { return lanes->gate ? lanes->gate : lanes->lane[0]; }

void ze_lanes_pass_gate(struct ze_lanes *lanes)
{
	for (int i = 0; lanes->gate && i < lanes->count; i++)
		soft_stream_after(lanes->lane[i], lanes->gate, lanes->gate->last);
}

void ze_mark_set(struct ze_mark *mark, const struct ze_lanes *lanes)
{
	ze_mark_clear(mark);
	mark->count = lanes->count;
	for (int i = 0; i < mark->count; i++) {
		mark->lane[i] = lanes->lane[i];
		mark->sequence[i] = lanes->lane[i]->last;
		lanes->lane[i]->references++;
	}
}

void ze_mark_clear(struct ze_mark *mark)
{
	for (int i = 0; i < mark->count; i++)
		soft_stream_release(mark->lane[i]);
	mark->count = 0;
}

int ze_mark_passed(const struct ze_mark *mark)
{
	for (int i = 0; i < mark->count; i++)
		if (mark->lane[i]->done < mark->sequence[i])
			return 0;
	return 1;
}

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int wait_locked(const struct ze_mark *mark, uint64_t nanoseconds)
{
	uint64_t begin = nanoseconds && nanoseconds != UINT64_MAX ? now_ns() : 0;
	for (int i = 0; i < mark->count; i++) {
		if (nanoseconds == UINT64_MAX) {
			soft_stream_wait(mark->lane[i], mark->sequence[i]);
			continue;
		}
		uint64_t spent = begin ? now_ns() - begin : 0;
		if (!soft_stream_wait_for(mark->lane[i], mark->sequence[i], spent < nanoseconds ? nanoseconds - spent : 0))
			return 0;
	}
	return 1;
}

/* The mark may be set anew by another thread meanwhile: what is waited for is what it says now. */
int ze_mark_wait(const struct ze_mark *mark, uint64_t nanoseconds)
{
	soft_lock();
	struct ze_mark copy = *mark;
	for (int i = 0; i < copy.count; i++)
		copy.lane[i]->references++;
	int done = wait_locked(&copy, nanoseconds);
	ze_mark_clear(&copy);
	soft_unlock();
	return done;
}

int ze_lanes_wait(const struct ze_lanes *lanes, uint64_t nanoseconds)
{
	struct ze_mark mark = { 0 };
	soft_lock();
	ze_mark_set(&mark, lanes);
	int done = wait_locked(&mark, nanoseconds);
	ze_mark_clear(&mark);
	soft_unlock();
	return done;
}
