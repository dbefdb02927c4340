/* Lanes: the engine's streams behind one queue or immediate list. In order, that is one. Otherwise commands go to several in turn and run side by side, so
 * that a client who relies on an order that it did not ask for finds out: Level Zero promises only that commands begin in the order in which they
 * were submitted. Everything here but the waits needs the engine's lock. */
#ifndef SOFT_LEVELZERO_LANES_H
#define SOFT_LEVELZERO_LANES_H

#include <stdint.h>

struct soft_device;
struct soft_stream;

enum { ZE_LANES = 3 };

struct ze_lanes {
	int count;
	unsigned next; /* where the next command goes */
	int held;      /* that one again, until it is let go: the commands of a list that is in order on a queue that is not */
	struct soft_stream *lane[ZE_LANES];
	struct soft_stream *gate; /* for waits that hold up all lanes; only where there are several */
};

void ze_lanes_open(struct ze_lanes *lanes, struct soft_device *device, int in_order);
void ze_lanes_close(struct ze_lanes *lanes);
int ze_lanes_idle(const struct ze_lanes *lanes);
struct soft_stream *ze_lanes_turn(struct ze_lanes *lanes);
/* Whatever comes later, on any lane, comes after all that is there. */
void ze_lanes_join(struct ze_lanes *lanes);
/* A stream for waits that come after nothing but earlier ones of their kind; and then: whatever comes later, on any lane, comes after them. */
struct soft_stream *ze_lanes_gate(struct ze_lanes *lanes);
void ze_lanes_pass_gate(struct ze_lanes *lanes);

/* A moment: all that was on the lanes then. */
struct ze_mark {
	int count;
	struct soft_stream *lane[ZE_LANES];
	uint64_t sequence[ZE_LANES];
};
void ze_mark_set(struct ze_mark *mark, const struct ze_lanes *lanes);
void ze_mark_clear(struct ze_mark *mark);
int ze_mark_passed(const struct ze_mark *mark);

/* ---- without the lock; nanoseconds as the vendor's functions have them: UINT64_MAX is for ever. Whether everything is done. */
int ze_lanes_wait(const struct ze_lanes *lanes, uint64_t nanoseconds);
int ze_mark_wait(const struct ze_mark *mark, uint64_t nanoseconds);

#endif
