/* What the files of this ABI share: how a function begins, and how it ends. */
#ifndef SOFT_HIP_ABI_H
#define SOFT_HIP_ABI_H

#include "../engine/calls.h"
#include "../engine/device.h"
#include "../engine/stream.h"
#include "types.h"

enum hip_call {
#define F(symbol, since, result, parameters) CALL_##symbol,
#include "functions.def"
#undef F
	CALLS
};

#define ENTER_AT(door, function) \
	do { \
		int refused_ = soft_enter(CALL_##function, door); \
		if (refused_) \
			return hip_answer(refused_); \
	} while (0)
#define ENTER(function) ENTER_AT(SOFT_DOOR_READY, function)
#define REQUIRE(condition) \
	do { \
		if (!(condition)) \
			return hip_answer(V_hipErrorInvalidValue); \
	} while (0)
#define NEED_DEVICE(device, ordinal) \
	do { \
		if (!((device) = soft_device(ordinal))) \
			return hip_answer(V_hipErrorInvalidDevice); \
	} while (0)

int hip_code(enum soft_result result);

/* Every answer goes through here: the thread remembers it for hipGetLastError. */
hipError_t hip_answer(int code);
/* The same for an engine's result. A process that was poisoned meanwhile answers with that. */
hipError_t hip_result(enum soft_result result);

/* The calling thread's current device: device 0 until it chooses another. */
void hip_visible(struct soft_visible *visible, int devices); /* HIP_VISIBLE_DEVICES */
struct soft_device *hip_device(void);
/* A client's stream handle into the engine's stream, which checks it under its lock. 0 and 1 (legacy) are the null stream of the current device, 2 is the
 * calling thread's default stream on it. */
static inline struct soft_stream *hip_stream(hipStream_t handle)
{
	if ((uintptr_t)handle > 2)
		return (struct soft_stream *)(void *)handle;
	return (uintptr_t)handle == 2 ? soft_stream_per_thread(hip_device()) : hip_device()->legacy;
}

static inline uint64_t hip_address(const void *pointer) { return (uint64_t)(uintptr_t)pointer; }

#endif
