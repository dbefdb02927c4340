/* What a forked child may still do. The Go runtime does not survive a fork: its threads are gone, and a call that needs one hangs for ever. So in
 * the child nothing enters Go: work on a device raises ForkError, destructors do nothing, counters can be read, and the CPU goes on in C. */
#include "lane.h"
#include <pthread.h>

int tm_forked;

/* The books are locked across the fork, so that the child's copy is whole and its locks have no owner that does not exist there. Holders of these
 * locks never wait for anything, so this is short. */
static uint32_t locked; /* how many: a device may be opened meanwhile */

static void before(void)
{
	uint32_t count = __atomic_load_n(&tm_device_count, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < count; i++)
		if (tm_devices[i].books) tm_books_lock(tm_devices[i].books); /* NULL: opened by the control plane only */
	locked = count; /* written with the first lock held, so two forks at a time do not mix it up */
}

static void after(void)
{
	uint32_t count = locked;
	for (uint32_t i = count; i-- > 0;)
		if (tm_devices[i].books) tm_books_unlock(tm_devices[i].books);
}

static void in_child(void)
{
	tm_forked = 1;
	after();
}

int tm_fork_init(void)
{
	if (pthread_atfork(before, after, in_child)) {
		PyErr_SetString(PyExc_ImportError, "tack_memory: pthread_atfork failed: no memory");
		return -1;
	}
	return 0;
}

int tm_check_fork(int device, bool *child)
{
	*child = false;
	if (TM_LIKELY(!tm_forked)) return 0;
	if (tm_check_memory(device)) return -1;
	if (tm_devices[device].is_cpu) {
		*child = true;
		return 0;
	}
	tm_raise_forked();
	return -1;
}
