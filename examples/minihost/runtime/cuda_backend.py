"""CUDA, over NVIDIA's driver API. Names with `_v2` are the current ones: those without it still exist, with 32-bit sizes."""

from ctypes import c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p

from .backend import GPUBackend
from .buffer import Buffer
from .driver import RESULT

MEMORY_POOLS_SUPPORTED = 115  # device attribute
NON_BLOCKING = 1  # stream flag: not ordered against the legacy default stream


class CUDABuffer(Buffer):
    """Memory of a CUDA device."""


class CUDABackend(GPUBackend):
    """One CUDA device, with its primary context."""

    name, buffer_class, dlpack_type = "cuda", CUDABuffer, 2
    libraries = ("libcuda.so.1",)
    full = (2,)  # CUDA_ERROR_OUT_OF_MEMORY
    functions = {
        "cuInit": (c_uint,), "cuDeviceGet": (c_void_p, c_int), "cuDeviceGetAttribute": (c_void_p, c_int, c_int),
        "cuDevicePrimaryCtxRetain": (c_void_p, c_int), "cuCtxSetCurrent": (c_void_p,), "cuStreamCreate": (c_void_p, c_uint),
        "cuStreamSynchronize": (c_void_p,), "cuDeviceGetDefaultMemPool": (c_void_p, c_int), "cuMemPoolTrimTo": (c_void_p, c_size_t),
        "cuMemAlloc_v2": (c_void_p, c_size_t), "cuMemFree_v2": (c_uint64,), "cuMemAllocAsync": (c_void_p, c_size_t, c_void_p),
        "cuMemFreeAsync": (c_uint64, c_void_p), "cuMemcpyAsync": (c_uint64, c_uint64, c_size_t, c_void_p),
        "cuMemsetD8Async": (c_uint64, c_ubyte, c_size_t, c_void_p),
    }  # fmt: skip

    def _open(self) -> None:
        self.driver("cuInit", 0)
        device = self.driver.get("cuDeviceGet", RESULT, self.ordinal, kind=c_int)
        self.context = self.driver.get("cuDevicePrimaryCtxRetain", RESULT, device)
        self.stream = self._get("cuStreamCreate", RESULT, NON_BLOCKING)
        self.has_pools = bool(self.driver.get("cuDeviceGetAttribute", RESULT, MEMORY_POOLS_SUPPORTED, device, kind=c_int))
        self._pool = self.driver.get("cuDeviceGetDefaultMemPool", RESULT, device) if self.has_pools else 0

    def _enter(self) -> None:
        self.driver("cuCtxSetCurrent", self.context)

    def fill(self, pointer: int, value: int, nbytes: int) -> None:
        self._call("cuMemsetD8Async", pointer, value, nbytes, self.stream)

    def copy(self, destination: int, source: int, nbytes: int) -> None:
        self._call("cuMemcpyAsync", destination, source, nbytes, self.stream)

    def synchronize_stream(self) -> None:
        self._call("cuStreamSynchronize", self.stream)

    def _allocate(self, nbytes: int) -> int:
        return self._get("cuMemAllocAsync", RESULT, nbytes, self.stream) if self.has_pools else self._get("cuMemAlloc_v2", RESULT, nbytes)

    def _free(self, pointer: int) -> None:
        self._call("cuMemFreeAsync", pointer, self.stream) if self.has_pools else self._call("cuMemFree_v2", pointer)

    def empty_cache(self) -> None:
        self.synchronize()
        if self.has_pools:
            self._call("cuMemPoolTrimTo", self._pool, 0)
