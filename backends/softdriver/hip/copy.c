/* Copies and fills. */
#include "../engine/transfer.h"
#include "abi.h"

/* What a copy's direction says about its two ends. A direction that the pointers do not have is undefined behaviour with the real runtime; here
 * it is an error, so that it is found. */
struct ends {
	enum soft_end to, from;
};

static int ends_of(hipMemcpyKind kind, struct ends *ends)
{
	switch ((int)kind) {
	case V_hipMemcpyHostToHost:
		*ends = (struct ends){ SOFT_END_HOST, SOFT_END_HOST };
		return 0;
	case V_hipMemcpyHostToDevice:
		*ends = (struct ends){ SOFT_END_DEVICE, SOFT_END_HOST };
		return 0;
	case V_hipMemcpyDeviceToHost:
		*ends = (struct ends){ SOFT_END_HOST, SOFT_END_DEVICE };
		return 0;
	case V_hipMemcpyDeviceToDevice:
		*ends = (struct ends){ SOFT_END_DEVICE, SOFT_END_DEVICE };
		return 0;
	case V_hipMemcpyDefault:
		*ends = (struct ends){ SOFT_END_ANY, SOFT_END_ANY };
		return 0;
	}
	return -1;
}

static hipError_t copy(struct soft_stream *stream, void *to, const void *from, size_t bytes, hipMemcpyKind kind, int synchronous)
{
	struct ends ends;
	if (ends_of(kind, &ends))
		return hip_answer(V_hipErrorInvalidMemcpyDirection);
	return hip_result(soft_copy(stream, hip_address(to), ends.to, hip_address(from), ends.from, bytes, synchronous));
}

static int both_on_devices(const void *to, const void *from)
{
	struct soft_block_info info;
	return soft_block_info(hip_address(to), &info) && soft_block_info(hip_address(from), &info);
}

/* Between two places on devices the host is not waited for, as with the real runtime. */
hipError_t hipMemcpy(void *to, const void *from, size_t bytes, hipMemcpyKind kind)
{
	ENTER(hipMemcpy);
	return copy(hip_device()->legacy, to, from, bytes, kind, !both_on_devices(to, from));
}

hipError_t hipMemcpyWithStream(void *to, const void *from, size_t bytes, hipMemcpyKind kind, hipStream_t stream)
{
	ENTER(hipMemcpyWithStream);
	return copy(hip_stream(stream), to, from, bytes, kind, 1);
}

hipError_t hipMemcpyAsync(void *to, const void *from, size_t bytes, hipMemcpyKind kind, hipStream_t stream)
{
	ENTER(hipMemcpyAsync);
	return copy(hip_stream(stream), to, from, bytes, kind, 0);
}

/* ---- fills: the host is not waited for ---- */

static hipError_t fill(struct soft_stream *stream, const void *to, unsigned value, unsigned width, size_t count)
{
	return hip_result(soft_fill(stream, hip_address(to), value, width, count));
}

hipError_t hipMemset(void *to, int value, size_t count)
{
	ENTER(hipMemset);
	return fill(hip_device()->legacy, to, (unsigned char)value, 1, count);
}

hipError_t hipMemsetD8(hipDeviceptr_t to, unsigned char value, size_t count)
{
	ENTER(hipMemsetD8);
	return fill(hip_device()->legacy, to, value, 1, count);
}

hipError_t hipMemsetD16(hipDeviceptr_t to, unsigned short value, size_t count)
{
	ENTER(hipMemsetD16);
	return fill(hip_device()->legacy, to, value, 2, count);
}

hipError_t hipMemsetD32(hipDeviceptr_t to, int value, size_t count)
{
	ENTER(hipMemsetD32);
	return fill(hip_device()->legacy, to, (unsigned)value, 4, count);
}

hipError_t hipMemsetAsync(void *to, int value, size_t count, hipStream_t stream)
{
	ENTER(hipMemsetAsync);
	return fill(hip_stream(stream), to, (unsigned char)value, 1, count);
}

hipError_t hipMemsetD8Async(hipDeviceptr_t to, unsigned char value, size_t count, hipStream_t stream)
{
	ENTER(hipMemsetD8Async);
	return fill(hip_stream(stream), to, value, 1, count);
}

hipError_t hipMemsetD16Async(hipDeviceptr_t to, unsigned short value, size_t count, hipStream_t stream)
{
	ENTER(hipMemsetD16Async);
	return fill(hip_stream(stream), to, value, 2, count);
}

hipError_t hipMemsetD32Async(hipDeviceptr_t to, int value, size_t count, hipStream_t stream)
{
	ENTER(hipMemsetD32Async);
	return fill(hip_stream(stream), to, (unsigned)value, 4, count);
}
