"""NVIDIA's cuda-bindings over the software driver: contexts, streams, events, pools, copies, memory figures, errors.

Works with both generations of the bindings, which find every function through cuGetProcAddress and ask for the versions of their own headers.
"""

import ctypes
import random

import soft
from cuda.bindings import driver as cuda

MIB = 1 << 20


def ok(result):
    """The values of a call that must succeed."""
    error, *values = result
    soft.same(error, cuda.CUresult.CUDA_SUCCESS, "result")
    return values[0] if len(values) == 1 else tuple(values)


def code(result) -> int:
    return int(result[0])


def address(buffer) -> int:
    return ctypes.addressof(buffer)


def start():
    ok(cuda.cuInit(0))
    device = ok(cuda.cuDeviceGet(0))
    context = ok(cuda.cuDevicePrimaryCtxRetain(device))
    ok(cuda.cuCtxSetCurrent(context))
    return device, context


def check_device(device) -> None:
    soft.same(ok(cuda.cuDeviceGetCount()), 1, "devices")
    soft.same(ok(cuda.cuDeviceGetName(64, device)).split(b"\0")[0], b"Software CUDA device", "name")
    soft.same(ok(cuda.cuDeviceTotalMem(device)), 256 * MIB, "total")
    pools = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED
    soft.same(ok(cuda.cuDeviceGetAttribute(pools, device)), 1, "pools")
    soft.same(len(bytes(ok(cuda.cuDeviceGetUuid(device)).bytes)), 16, "uuid")
    soft.same(ok(cuda.cuGetErrorName(cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY)), b"CUDA_ERROR_OUT_OF_MEMORY", "error name")


def check_copies() -> None:
    """Several operations are queued before one wait; every byte is compared with a copy that never went to the driver."""
    stream = ok(cuda.cuStreamCreate(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING))
    size = 3 * MIB + 17
    pristine = random.Random(5).randbytes(size)
    source = ctypes.create_string_buffer(pristine, size)
    back = ctypes.create_string_buffer(size)
    pinned_pointer = ok(cuda.cuMemHostAlloc(size, 0))
    pinned = (ctypes.c_char * size).from_address(int(pinned_pointer))
    one, two = (ok(cuda.cuMemAllocAsync(size, stream)) for _ in range(2))
    ok(cuda.cuMemsetD8Async(two, 0x5A, size, stream))
    ok(cuda.cuMemcpyHtoDAsync(one, address(source), size, stream))
    ok(cuda.cuMemcpyDtoDAsync(int(two) + 1000, int(one) + 1000, size - 2000, stream))
    ok(cuda.cuMemcpyDtoHAsync(address(back), one, size, stream))
    ok(cuda.cuMemcpyDtoHAsync(address(pinned), two, size, stream))
    ok(cuda.cuStreamSynchronize(stream))
    soft.same(back.raw == pristine, True, "a copy through the device")
    want = b"\x5a" * 1000 + pristine[1000 : size - 1000] + b"\x5a" * 1000
    soft.same(pinned.raw == want, True, "a copy within the device")
    ok(cuda.cuMemsetD32Async(one, 0x01020304, size // 4, stream))
    ok(cuda.cuMemsetD16Async(one, 0x0506, 8, stream))
    ok(cuda.cuMemcpyDtoHAsync(address(pinned), one, 64, stream))
    ok(cuda.cuStreamSynchronize(stream))
    soft.same(pinned.raw[:64], b"\x06\x05" * 8 + b"\x04\x03\x02\x01" * 12, "fills")
    for block in (one, two):
        ok(cuda.cuMemFreeAsync(block, stream))
    ok(cuda.cuMemFreeHost(pinned_pointer))
    ok(cuda.cuStreamDestroy(stream))


def check_events() -> None:
    one, two = (ok(cuda.cuStreamCreate(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING)) for _ in range(2))
    begin, end = (ok(cuda.cuEventCreate(0)) for _ in range(2))
    block = ok(cuda.cuMemAlloc(4096))
    result = ctypes.create_string_buffer(4096)
    ok(cuda.cuEventRecord(begin, one))
    for value in range(1, 20):
        ok(cuda.cuMemsetD8Async(block, value, 4096, one))
    ok(cuda.cuEventRecord(end, one))
    ok(cuda.cuStreamWaitEvent(two, end, 0))
    ok(cuda.cuMemcpyDtoHAsync(address(result), block, 4096, two))
    ok(cuda.cuStreamSynchronize(two))
    soft.same(result.raw, b"\x13" * 4096, "a stream that waits for another's event")
    soft.same(ok(cuda.cuEventElapsedTime(begin, end)) >= 0, True, "elapsed time")
    soft.same(code(cuda.cuEventQuery(end)), 0, "event query")
    for event in (begin, end):
        ok(cuda.cuEventDestroy(event))
    ok(cuda.cuMemFree(block))
    for stream in (one, two):
        ok(cuda.cuStreamDestroy(stream))


def check_pools(device) -> None:
    attribute = cuda.CUmemPool_attribute
    stream = ok(cuda.cuStreamCreate(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING))
    properties = cuda.CUmemPoolProps()
    properties.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = 0
    pool = ok(cuda.cuMemPoolCreate(properties))
    get = lambda which: int(ok(cuda.cuMemPoolGetAttribute(pool, which)))  # noqa: E731
    ok(cuda.cuMemPoolSetAttribute(pool, attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, cuda.cuuint64_t(2**64 - 1)))
    free_before, total = ok(cuda.cuMemGetInfo())
    block = ok(cuda.cuMemAllocFromPoolAsync(MIB, pool, stream))
    soft.same(get(attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT), MIB, "used")
    soft.same(ok(cuda.cuMemGetInfo()), (free_before - MIB, total), "memory info")
    ok(cuda.cuMemFreeAsync(block, stream))
    soft.same(get(attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0, "used")
    soft.same(get(attribute.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), MIB, "reserved")
    ok(cuda.cuMemPoolTrimTo(pool, 0))
    soft.same(get(attribute.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), MIB, "reserved: nobody has seen the free")
    ok(cuda.cuStreamSynchronize(stream))
    ok(cuda.cuMemPoolTrimTo(pool, 0))
    soft.same(get(attribute.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0, "reserved")
    soft.same(get(attribute.CU_MEMPOOL_ATTR_USED_MEM_HIGH), MIB, "high mark")
    soft.same(int(ok(cuda.cuDeviceGetMemPool(device))) != int(pool), True, "current pool")
    ok(cuda.cuMemPoolDestroy(pool))
    ok(cuda.cuStreamDestroy(stream))


def check_errors() -> None:
    soft.same(code(cuda.cuMemAlloc(1 << 40)), 2, "too large")
    soft.same(code(cuda.cuMemAlloc(0)), 1, "nothing")
    soft.fail("cuMemAlloc_v2", 1, 999)
    soft.same(code(cuda.cuMemAlloc(1)), 999, "an injected fault")
    block = ok(cuda.cuMemAlloc(64))
    ok(cuda.cuMemFree(block))
    soft.same(code(cuda.cuMemFree(block)), 1, "double free")


def main() -> None:
    device, context = start()
    check_device(device)
    check_copies()
    check_events()
    check_pools(device)
    check_errors()
    soft.same(ok(cuda.cuCtxSynchronize()), (), "synchronise")
    soft.same(soft.get("live"), 0, "blocks that live")
    soft.same(soft.calls("cuGetProcAddress_v2") > 300, True, "looked up through the driver")
    soft.same(int(ok(cuda.cuCtxGetCurrent())), int(context), "context")
    ok(cuda.cuDevicePrimaryCtxRelease(device))
    soft.same(soft.get("reserved"), 0, "reserved at the end")


if __name__ == "__main__":
    main()
