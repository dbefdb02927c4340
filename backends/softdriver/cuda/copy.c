/* Copies and fills. */
#include "../engine/transfer.h"
#include "abi.h"

static uint64_t host(const void *address) { return (uint64_t)(uintptr_t)address; }

/* The four functions without a stream work on the legacy stream of the current context. */
static CUresult copy_now(uint64_t to, enum soft_end to_end, uint64_t from, enum soft_end from_end, size_t bytes, int synchronous)
{
	struct soft_device *device;
	NEED_CONTEXT(device);
	return cuda_result(soft_copy(device->legacy, to, to_end, from, from_end, bytes, synchronous));
}

static CUresult copy_on(CUstream handle, uint64_t to, enum soft_end to_end, uint64_t from, enum soft_end from_end, size_t bytes)
{
	struct soft_stream *stream;
	NEED_STREAM(stream, handle);
	return cuda_result(soft_copy(stream, to, to_end, from, from_end, bytes, 0));
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	ENTER(cuMemcpy);
	return copy_now(to, SOFT_END_ANY, from, SOFT_END_ANY, bytes, 1);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
	ENTER(cuMemcpyHtoD_v2);
	return copy_now(to, SOFT_END_DEVICE, host(from), SOFT_END_ANY, bytes, 1);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
	ENTER(cuMemcpyDtoH_v2);
	return copy_now(host(to), SOFT_END_ANY, from, SOFT_END_DEVICE, bytes, 1);
}

/* Between two places on devices the host is not waited for, as with the vendor's driver. */
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	ENTER(cuMemcpyDtoD_v2);
	return copy_now(to, SOFT_END_DEVICE, from, SOFT_END_DEVICE, bytes, 0);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	ENTER(cuMemcpyAsync);
	return copy_on(stream, to, SOFT_END_ANY, from, SOFT_END_ANY, bytes);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	ENTER(cuMemcpyHtoDAsync_v2);
	return copy_on(stream, to, SOFT_END_DEVICE, host(from), SOFT_END_ANY, bytes);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	ENTER(cuMemcpyDtoHAsync_v2);
	return copy_on(stream, host(to), SOFT_END_ANY, from, SOFT_END_DEVICE, bytes);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	ENTER(cuMemcpyDtoDAsync_v2);
	return copy_on(stream, to, SOFT_END_DEVICE, from, SOFT_END_DEVICE, bytes);
}

/* ---- fills: the host is not waited for ---- */

static CUresult fill_now(CUdeviceptr to, unsigned value, unsigned width, size_t count)
{
	struct soft_device *device;
	NEED_CONTEXT(device);
	return cuda_result(soft_fill(device->legacy, to, value, width, count));
}

static CUresult fill_on(CUstream handle, CUdeviceptr to, unsigned value, unsigned width, size_t count)
{
	struct soft_stream *stream;
	NEED_STREAM(stream, handle);
	return cuda_result(soft_fill(stream, to, value, width, count));
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count)
{
	ENTER(cuMemsetD8_v2);
	return fill_now(to, value, 1, count);
}

CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count)
{
	ENTER(cuMemsetD16_v2);
	return fill_now(to, value, 2, count);
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t count)
{
	ENTER(cuMemsetD32_v2);
	return fill_now(to, value, 4, count);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{
	ENTER(cuMemsetD8Async);
	return fill_on(stream, to, value, 1, count);
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream)
{
	ENTER(cuMemsetD16Async);
	return fill_on(stream, to, value, 2, count);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream)
{
	ENTER(cuMemsetD32Async);
	return fill_on(stream, to, value, 4, count);
}
