/* The process: what happens when the library is loaded, when a test steers it, and when the process forks. */
#include <pthread.h>

#include "calls.h"
#include "control.h"
#include "lock.h"
#include "settings.h"

#define EXPORT __attribute__((visibility("default")))

pthread_mutex_t soft_mutex = PTHREAD_MUTEX_INITIALIZER;

/* A forked child has none of the worker threads, and may have been made while one of them was at work: a driver that was
 * initialised is dead there for good, and says so instead of waiting for threads that do not exist. One that was not can start anew;
 * for that the lock is held across the fork. */
static void before_fork(void) { soft_lock(); }
static void after_fork_in_parent(void) { soft_unlock(); }
static void after_fork_in_child(void)
{
	soft_unlock(); /* this thread is the one that locked it */
	if (!(atomic_load(&soft_gate) & SOFT_GATE_UNINITIALIZED))
		atomic_fetch_or(&soft_gate, SOFT_GATE_FORKED);
}

__attribute__((constructor)) static void load(void)
{
	soft_settings_load(1);
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

EXPORT int tmsoft_set(const char *key, long long value) { return soft_settings_set(key, value); }
EXPORT long long tmsoft_get(const char *key) { return soft_settings_get(key); }
EXPORT int tmsoft_fail(const char *function, unsigned long nth, int code) { return soft_calls_fail(function, nth, code); }
EXPORT unsigned long tmsoft_calls(const char *function) { return soft_calls_count(function); }

EXPORT void tmsoft_reset(void)
{
	soft_calls_reset();
	soft_settings_load(0); /* said once is enough */
}
