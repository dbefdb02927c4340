#include "calls.h"

#include <pthread.h>
#include <string.h>

#include "device.h"

_Atomic unsigned soft_gate = SOFT_GATE_UNINITIALIZED;
_Atomic unsigned long soft_call_counts[SOFT_MAX_CALLS];
static _Atomic int sticky_code;

/* Leaf lock of the faults; taken only when a fault is armed. */
static pthread_mutex_t fault_mutex = PTHREAD_MUTEX_INITIALIZER;
struct fault {
	unsigned long remaining; /* the call that brings this to 0 fails; 0: not armed */
	int code;
};
static struct fault faults[SOFT_MAX_CALLS];
static struct fault any_fault;

int soft_call_number(const char *function)
{
	for (unsigned i = 0; i < soft_abi.count; i++)
		if (!strcmp(soft_abi.calls[i], function))
			return (int)i;
	return -1;
}

static int strike(struct fault *fault)
{
	return fault->remaining && !--fault->remaining;
}

/* Clears the gate's bit when nothing is armed any more, so that the door is cheap again. */
static void update_fault_gate_locked(void)
{
	int armed = any_fault.remaining != 0;
	for (unsigned i = 0; !armed && i < soft_abi.count; i++)
		armed = faults[i].remaining != 0;
	if (armed)
		atomic_fetch_or(&soft_gate, SOFT_GATE_FAULTS);
	else
		atomic_fetch_and(&soft_gate, ~(unsigned)SOFT_GATE_FAULTS);
}

static int injected(unsigned call)
{
	pthread_mutex_lock(&fault_mutex);
	int own = strike(&faults[call]), any = strike(&any_fault);
	int code = own ? faults[call].code : any ? any_fault.code : 0;
	if (own || any)
		update_fault_gate_locked();
	pthread_mutex_unlock(&fault_mutex);
	if (code && soft_abi.sticky(code))
		soft_poison_code(code);
	return code;
}

int soft_enter_refused(unsigned call, enum soft_door door)
{
	unsigned gate = atomic_load(&soft_gate);
	if (gate & SOFT_GATE_FORKED)
		return door == SOFT_DOOR_ANY ? 0 : soft_abi.code(SOFT_NOT_INITIALIZED);
	if (gate & SOFT_GATE_FAULTS) {
		int code = injected(call);
		if (code)
			return code;
	}
	if (door != SOFT_DOOR_READY)
		return 0;
	if (gate & SOFT_GATE_UNINITIALIZED) {
		enum soft_result result = soft_abi.starts_itself ? soft_start() : SOFT_NOT_INITIALIZED;
		if (result)
			return soft_abi.code(result);
	}
	return soft_sticky_code();
}

void soft_poison_code(int code)
{
	int none = 0;
	atomic_compare_exchange_strong(&sticky_code, &none, code);
	atomic_fetch_or(&soft_gate, SOFT_GATE_STICKY);
}

void soft_poison(enum soft_result result) { soft_poison_code(soft_abi.code(result)); }

int soft_sticky_code(void) { return atomic_load(&sticky_code); }

int soft_calls_fail(const char *function, unsigned long nth, int code)
{
	struct fault *fault = &any_fault;
	if (strcmp(function, "*")) {
		int call = soft_call_number(function);
		if (call < 0)
			return -1;
		fault = &faults[call];
	}
	pthread_mutex_lock(&fault_mutex);
	*fault = (struct fault){ nth, code };
	update_fault_gate_locked();
	pthread_mutex_unlock(&fault_mutex);
	return 0;
}

unsigned long soft_calls_count(const char *function)
{
	if (strcmp(function, "*")) {
		int call = soft_call_number(function);
		return call < 0 ? 0 : atomic_load(&soft_call_counts[call]);
	}
	unsigned long total = 0;
	for (unsigned i = 0; i < soft_abi.count; i++)
		total += atomic_load(&soft_call_counts[i]);
	return total;
}

void soft_calls_reset(void)
{
	pthread_mutex_lock(&fault_mutex);
	memset(faults, 0, sizeof faults);
	any_fault = (struct fault){ 0, 0 };
	update_fault_gate_locked();
	pthread_mutex_unlock(&fault_mutex);
	for (unsigned i = 0; i < soft_abi.count; i++)
		atomic_store(&soft_call_counts[i], 0);
	atomic_store(&sticky_code, 0);
	atomic_fetch_and(&soft_gate, ~(unsigned)SOFT_GATE_STICKY);
}
