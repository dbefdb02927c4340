/* The engine's one lock. It guards everything of the engine that is not declared atomic: devices, address space, pools, streams, events,
 * handles, host memory. It is never held while an operation moves bytes, sleeps or runs a client's function, and no other lock is taken
 * under it except the leaf lock of calls.c. One lock, because every entry is short and because rules like "a legacy stream waits
 * for all others" and "memory pressure empties all pools" look at everything at once. */
#ifndef SOFT_LOCK_H
#define SOFT_LOCK_H

#include <pthread.h>

extern pthread_mutex_t soft_mutex;

static inline void soft_lock(void) { pthread_mutex_lock(&soft_mutex); }
static inline void soft_unlock(void) { pthread_mutex_unlock(&soft_mutex); }

#endif
