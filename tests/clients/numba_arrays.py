"""numba-cuda's arrays over the software driver, without kernels. With the argument "plugin": over an External Memory Management plug-in."""

import sys

import numpy as np
import soft
from numba import cuda
from numba.cuda import GetIpcHandleMixin, HostOnlyCUDAMemoryManager, MemoryInfo, MemoryPointer

MIB = 1 << 20


def check_arrays() -> None:
    random = np.random.default_rng(3)
    for array in (random.integers(0, 255, 1000, np.uint8), random.random((37, 53)), np.asfortranarray(random.random((8, 9, 10), np.float32))):
        pristine = array.copy()
        on_device = cuda.to_device(array)
        array[...] = 0  # the device has its own copy
        soft.same(on_device.shape, pristine.shape, "shape")
        back = on_device.copy_to_host()
        soft.same(back.dtype, pristine.dtype, "dtype")
        soft.same(bool((back == pristine).all()), True, "a round trip")
    one = cuda.to_device(np.full(100, 7, np.int32))
    one[10:20].copy_to_device(np.arange(10, dtype=np.int32))
    want = np.full(100, 7, np.int32)
    want[10:20] = np.arange(10)
    soft.same(bool((one.copy_to_host() == want).all()), True, "a view")
    soft.same(one.__cuda_array_interface__["shape"], (100,), "array interface")


def check_streams() -> None:
    stream = cuda.stream()
    pristine = np.arange(100_000, dtype=np.float64)
    with cuda.pinned(pristine):
        arrays = [cuda.to_device(pristine + i, stream=stream) for i in range(3)]
        back = cuda.pinned_array(100_000, np.float64)
        results = [array.copy_to_host(stream=stream) for array in arrays]
        arrays[2].copy_to_host(back, stream=stream)
        stream.synchronize()
    for i, result in enumerate([*results, None]):
        got = back if result is None else result
        soft.same(bool((got == pristine + min(i, 2)).all()), True, f"result {i}")
    begin, end = cuda.event(), cuda.event()
    begin.record(stream)
    end.record(stream)
    end.synchronize()
    soft.same(begin.elapsed_time(end) >= 0, True, "elapsed time")


def check_memory_info() -> None:
    before = cuda.current_context().get_memory_info()
    block = cuda.device_array(4 * MIB, np.uint8)
    after = cuda.current_context().get_memory_info()
    soft.same((before.free - after.free, after.total), (4 * MIB, 256 * MIB), "memory info")
    del block
    # numba frees late; when the device is full it frees what it kept and tries again
    for _ in range(20):
        cuda.device_array(100 * MIB, np.uint8)
    try:
        cuda.device_array(300 * MIB, np.uint8)
    except Exception as error:
        soft.same("OUT_OF_MEMORY" in str(error), True, f"the error of a full device, {error}")
    else:
        raise AssertionError("the device gave more than it has")


class Counting(GetIpcHandleMixin, HostOnlyCUDAMemoryManager):
    """A plug-in, as another library would bring: it allocates with the driver and counts."""

    live = 0
    interface_version = 1

    def initialize(self) -> None:
        """Called many times; there is nothing to set up."""

    def memalloc(self, size):
        from cuda.bindings import driver

        error, pointer = driver.cuMemAlloc(size)
        soft.same(int(error), 0, "cuMemAlloc of the plug-in")
        Counting.live += 1

        def finalize() -> None:
            Counting.live -= 1
            soft.same(int(driver.cuMemFree(pointer)[0]), 0, "cuMemFree of the plug-in")

        return MemoryPointer(self.context, pointer, size, finalizer=finalize)

    def get_memory_info(self):
        from cuda.bindings import driver

        return MemoryInfo(*driver.cuMemGetInfo()[1:])


def main() -> None:
    plugin = sys.argv[1:] == ["plugin"]
    if plugin:  # before the first use: numba takes its memory manager along with the context
        cuda.set_memory_manager(Counting)
    check_arrays()
    check_streams()
    if plugin:
        array = cuda.to_device(np.arange(50))
        soft.same(Counting.live > 0, True, "blocks of the plug-in")
        del array
        cuda.current_context().deallocations.clear()
        soft.same(Counting.live, 0, "blocks of the plug-in")
    else:
        check_memory_info()
    cuda.current_context().deallocations.clear()
    soft.same(soft.get("live"), 0, "blocks that live")
    soft.same(soft.get("sticky"), 0, "sticky error")


if __name__ == "__main__":
    main()
