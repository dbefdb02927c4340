/* The table for other people's C (tack_memory.h), and the one for ours (events.h). */
#include "module.h"

static uint64_t add_event_hook(const char *name, void (*function)(const tack_event *, void *), void *user_data, unsigned domains, unsigned flags)
{
	if (!function || !(domains & TACK_ALL_DOMAINS) || (domains & ~TACK_ALL_DOMAINS) || (flags & ~(unsigned)TACK_HOOK_NOGIL)) {
		PyErr_Format(PyExc_ValueError, "add_event_hook: a function, domains (bits of 0x%x, not 0x%x) and known flags (not 0x%x) are needed", TACK_ALL_DOMAINS, domains, flags);
		return 0;
	}
	tm_hook *hook = tm_hook_make(TM_C_EVENT, name, domains);
	if (!hook) return 0;
	hook->function.event = function;
	hook->user_data = user_data;
	hook->without_gil = flags & TACK_HOOK_NOGIL;
	tm_drain(); /* what happened before is not told to it */
	uint64_t token = hook->token;
	int failed = tm_hook_enter(hook, false);
	tm_hook_release(hook);
	return failed ? 0 : token;
}

static int remove_event_hook(uint64_t token)
{
	tm_hook *hook = tm_hook_find(token);
	if (!hook || hook->object) return -1; /* Python's are removed by Python */
	tm_hook_retain(hook);
	tm_hook_leave(hook);
	tm_hook_quiet(hook, false); /* the caller frees its user data next: no signal may end this */
	tm_hook_release(hook);
	return 0;
}

static void tell_event(const tack_event *event)
{
	if (event->domain < TACK_DOMAINS && TM_EVENTS_ON(&tm_internal_api, event->domain)) tm_deliver(event, TM_GIL_UNKNOWN);
}

static const char *device_name(int device) { return tm_device_name(device); }

static void name_devices(const char *(*name)(int device)) { tm_device_name = name; }

const tack_memory_api tm_public_api = {
	.abi = TACK_MEMORY_ABI,
	.size = sizeof tm_public_api,
	.set_event_hook = tm_set_event_hook,
	.release_event_hook = tm_release_event_hook,
	.add_event_hook = add_event_hook,
	.remove_event_hook = remove_event_hook,
	.flush_events = tm_flush,
	.get_event_counts = tm_count,
	.tell_event = tell_event,
	.device_name = device_name,
};

const tm_events_api tm_internal_api = {
	.abi = TM_EVENTS_ABI,
	.size = sizeof tm_internal_api,
	.active = &tm_ring.active,
	.ring = &tm_ring,
	.deliver = tm_deliver,
	.drain = tm_drain_and_wait,
	.cause = tm_cause,
	.name_devices = name_devices,
	.drain_in_free = tm_drain_in_free,
};
