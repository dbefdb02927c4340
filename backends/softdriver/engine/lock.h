/* The engine's one lock. It guards everything of the engine that is not declared atomic: devices, address space, pools, streams, events,
 * handles, host memory. It is never held while an operation moves bytes, sleeps or runs a client's function, and no other lock is taken
 * under it except the leaf lock of calls.c. One lock, because every entry is short and because rules like "a legacy stream waits
 * for all others" and "memory pressure empties all pools" look at everything at once. */
#ifndef SOFT_LOCK_H
#define SOFT_LOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

extern pthread_mutex_t soft_mutex;

/* The clock of pthread_cond_timedwait, so many nanoseconds from now; the far future where that is more than it can say. */
static inline void soft_deadline(struct timespec *end, uint64_t nanoseconds)
{
	clock_gettime(CLOCK_REALTIME, end);
	uint64_t seconds = nanoseconds / 1000000000, rest = nanoseconds % 1000000000 + (uint64_t)end->tv_nsec;
	end->tv_sec += (time_t)(seconds < 1000000000 ? seconds : 1000000000) + (time_t)(rest / 1000000000);
	end->tv_nsec = (long)(rest % 1000000000);
}

static inline void soft_lock(void) { pthread_mutex_lock(&soft_mutex); }
static inline void soft_unlock(void) { pthread_mutex_unlock(&soft_mutex); }

#endif
