/* What the files of this ABI share: how a function begins, and how it ends. */
#ifndef SOFT_CUDA_ABI_H
#define SOFT_CUDA_ABI_H

#include "../engine/calls.h"
#include "../engine/context.h"
#include "../engine/device.h"
#include "../engine/stream.h"
#include "types.h"

enum cuda_call {
#define F(symbol, base, version, parameters) CALL_##symbol,
#include "functions.def"
#undef F
	CALLS
};

#define ENTER_AT(door, function) \
	do { \
		int refused_ = soft_enter(CALL_##function, door); \
		if (refused_) \
			return (CUresult)refused_; \
	} while (0)
#define ENTER(function) ENTER_AT(SOFT_DOOR_READY, function)
#define REQUIRE(condition) \
	do { \
		if (!(condition)) \
			return (CUresult)V_CUDA_ERROR_INVALID_VALUE; \
	} while (0)
/* The device of the thread's current context, into `device`. */
#define NEED_CONTEXT(device) \
	do { \
		enum soft_result result_ = soft_context_device(&(device)); \
		if (result_) \
			return cuda_result(result_); \
	} while (0)
#define NEED_DEVICE(device, ordinal) \
	do { \
		if (!((device) = soft_device(ordinal))) \
			return (CUresult)V_CUDA_ERROR_INVALID_DEVICE; \
	} while (0)
/* A client's stream handle into the engine's stream; 0 and 1 are the legacy stream of the current context, 2 is the calling thread's default stream in it. */
#define NEED_STREAM(stream, handle) \
	do { \
		enum soft_result result_ = cuda_stream(handle, &(stream)); \
		if (result_) \
			return cuda_result(result_); \
	} while (0)

void cuda_visible(struct soft_visible *visible, int devices); /* CUDA_VISIBLE_DEVICES */
int cuda_code(enum soft_result result);
enum soft_result cuda_stream(CUstream handle, struct soft_stream **stream);

/* A function's answer. A process that was poisoned meanwhile answers with that. */
static inline CUresult cuda_result(enum soft_result result)
{
	if (__builtin_expect(atomic_load_explicit(&soft_gate, memory_order_relaxed) & SOFT_GATE_STICKY, 0))
		return (CUresult)soft_sticky_code();
	return result ? (CUresult)cuda_code(result) : CUDA_SUCCESS;
}

#endif
