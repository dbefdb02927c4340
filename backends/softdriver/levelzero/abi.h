/* What the files of this ABI share: how a function begins, how it ends, and its settings. */
#ifndef SOFT_LEVELZERO_ABI_H
#define SOFT_LEVELZERO_ABI_H

#include <stdatomic.h>

#include "../engine/calls.h"
#include "../engine/device.h"
#include "../engine/handles.h"
#include "../engine/settings.h"
#include "types.h"

enum ze_call {
#define F(symbol, since, parameters) CALL_##symbol,
#include "functions.def"
#undef F
	EXPORTED_CALLS,
	CALLS_BEFORE_EXTENSIONS = EXPORTED_CALLS - 1,
#define X(name, parameters) CALL_##name,
#include "extensions.def"
#undef X
	CALLS
};

/* Handles beside the engine's own kinds. A device's handle is the engine's record of it; Sysman has other handles for the same devices. */
enum ze_kind {
	ZE_DRIVER = SOFT_KIND_ABI,
	ZE_DEVICE,
	ZE_CONTEXT,
	ZE_QUEUE,
	ZE_FENCE,
	ZE_LIST,
	ZE_EVENT_POOL,
	ZE_EVENT,
	ZES_DRIVER,
	ZES_DEVICE,
	ZES_MEMORY,
};

/* README.md has the meanings. */
extern struct ze_settings {
	_Atomic long long api_version, drivers, integrated, max_alloc, fill_pattern, sysman, memory_modules, usablemem, free_policies, relaxed, import, reorder;
} ze_settings;

/* Whether the driver that this one plays knows what came with a version of the specification. */
#define ZE_VERSION(major, minor) ((major) << 16 | (minor))
static inline int ze_knows(long long version) { return soft_setting(&ze_settings.api_version) >= version; }

enum ze_side { ZE_CORE, ZE_SYSMAN };
/* Whether zeInit (or zeInitDrivers), or zesInit, succeeded in this process. */
extern _Atomic int ze_started[2];

ze_result_t ze_refusal(enum ze_call call, enum soft_door door, enum ze_side side);

#define ENTER_AT(door, side, function) \
	do { \
		ze_result_t refused_ = ze_refusal(CALL_##function, door, side); \
		if (refused_) \
			return refused_; \
	} while (0)
#define ENTER(function) ENTER_AT(SOFT_DOOR_READY, ZE_CORE, function)
#define ENTER_SYSMAN(function) ENTER_AT(SOFT_DOOR_READY, ZE_SYSMAN, function)
#define REFUSE_UNLESS(condition, code) \
	do { \
		if (!(condition)) \
			return (ze_result_t)V_ZE_RESULT_##code; \
	} while (0)
#define NEED_POINTER(pointer) REFUSE_UNLESS(pointer, ERROR_INVALID_NULL_POINTER)
/* The handle is one of this kind. A vendor's driver would follow any address; here a foreign or destroyed handle is an error. */
#define NEED_HANDLE(handle, kind) \
	do { \
		REFUSE_UNLESS(handle, ERROR_INVALID_NULL_HANDLE); \
		REFUSE_UNLESS(ze_handle_is(handle, kind), ERROR_INVALID_ARGUMENT); \
	} while (0)
/* The structure is there and says what it is. */
#define NEED_STRUCTURE(pointer, type) \
	do { \
		NEED_POINTER(pointer); \
		REFUSE_UNLESS((int)(pointer)->stype == V_##type, ERROR_INVALID_ARGUMENT); \
	} while (0)
#define NEED_FLAGS(flags, known) REFUSE_UNLESS(!((unsigned)(flags) & ~(unsigned)(known)), ERROR_INVALID_ENUMERATION)

int ze_handle_is(const void *handle, enum ze_kind kind);
void ze_handle_add(const void *handle, enum ze_kind kind);

/* The first structure of that type behind a pNext, or NULL. */
const void *ze_extension(const void *next, uint32_t stype);

int ze_code(enum soft_result result);

/* A function's answer. A process that was poisoned meanwhile answers with that. */
static inline ze_result_t ze_result(enum soft_result result)
{
	if (__builtin_expect(atomic_load_explicit(&soft_gate, memory_order_relaxed) & SOFT_GATE_STICKY, 0))
		return (ze_result_t)soft_sticky_code();
	return (ze_result_t)(result ? ze_code(result) : 0);
}

/* ---- things of this ABI ---- */

struct ze_driver {
	int index;
};
/* The driver that a device belongs to: devices are dealt out in turn. */
struct ze_driver *ze_driver_of(const struct soft_device *device);
uint64_t ze_largest_allocation(const struct soft_device *device);

struct ze_context {
	struct ze_driver *driver;
	unsigned objects; /* queues, lists and event pools that were made in it */
};

/* Writes what a "count, array" function answers: as many as there are, or as many as fit. Returns how many to write. */
static inline uint32_t ze_fit(uint32_t *count, uint32_t have, const void *array)
{
	if (!*count || *count > have)
		*count = have;
	return array ? *count : 0;
}

#define ZE_HANDLE(type, object) ((type)(void *)(object))
#define ZE_OBJECT(type, handle) ((struct type *)(void *)(handle))

#endif
