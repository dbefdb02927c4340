/* What a test can set while the driver runs; the environment gives the first values. README.md lists the keys. */
#ifndef SOFT_SETTINGS_H
#define SOFT_SETTINGS_H

#include <stdatomic.h>

enum { SOFT_MAX_DEVICES = 16 };

struct soft_settings {
	_Atomic long long devices;          /* looked at when the driver is initialised */
	_Atomic long long driver_version;
	_Atomic long long pools;
	_Atomic long long quarantine;
	_Atomic long long delay_us;
	_Atomic long long jitter_us;
	_Atomic long long pageable;
	_Atomic long long copy_mib_s;
	_Atomic long long ignore_threshold;
	_Atomic long long implicit_sync;
	_Atomic long long late_free;
	_Atomic long long overcommit;
	_Atomic long long masks;            /* looked at when the driver is initialised */
	_Atomic long long capacity[SOFT_MAX_DEVICES]; /* bytes */
	_Atomic long long taken[SOFT_MAX_DEVICES];    /* bytes that another process holds */
};
extern struct soft_settings soft_settings;

static inline long long soft_setting(const _Atomic long long *value) { return atomic_load_explicit(value, memory_order_relaxed); }

/* One row a key. A key with a value for each device may be followed by ".N"; without it, it means all devices. An ABI may have rows of its own. */
struct soft_key {
	const char *name;
	_Atomic long long *value;
	int per_device;
	long long initial, least, most;
};
struct soft_default {
	const char *name;
	long long initial;
};

enum { SOFT_SET_UNKNOWN = -1, SOFT_SET_REFUSED = -2 };

void soft_settings_load(int complain);                     /* from the environment; what is wrong there goes to stderr, or is passed over */
int soft_settings_set(const char *key, long long value);   /* 0, SOFT_SET_UNKNOWN or SOFT_SET_REFUSED */
long long soft_settings_get(const char *key);              /* LLONG_MIN: unknown */

#endif
