"""HIP, over AMD's runtime API. It is CUDA's in most things; memory is a void *, and the current device takes the context's place."""

from ctypes import c_int, c_size_t, c_uint, c_void_p

from .backend import GPUBackend
from .buffer import Buffer
from .driver import RESULT

MEMORY_POOLS_SUPPORTED = 88  # device attribute
NON_BLOCKING = 1  # stream flag: not ordered against the null stream
COPY_ANY = 4  # kind of copy: the driver finds out from the addresses


class HIPBuffer(Buffer):
    """Memory of a HIP device."""


class HIPBackend(GPUBackend):
    """One HIP device."""

    name, buffer_class, dlpack_type = "hip", HIPBuffer, 10
    libraries = ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so")
    full = (2,)  # hipErrorOutOfMemory
    functions = {
        "hipInit": (c_uint,), "hipSetDevice": (c_int,), "hipDeviceGetAttribute": (c_void_p, c_int, c_int),
        "hipStreamCreateWithFlags": (c_void_p, c_uint), "hipStreamSynchronize": (c_void_p,), "hipDeviceGetDefaultMemPool": (c_void_p, c_int),
        "hipMemPoolTrimTo": (c_void_p, c_size_t), "hipMalloc": (c_void_p, c_size_t), "hipFree": (c_void_p,),
        "hipMallocAsync": (c_void_p, c_size_t, c_void_p), "hipFreeAsync": (c_void_p, c_void_p),
        "hipMemcpyAsync": (c_void_p, c_void_p, c_size_t, c_int, c_void_p), "hipMemsetAsync": (c_void_p, c_int, c_size_t, c_void_p),
    }  # fmt: skip

    def _open(self) -> None:
        self.driver("hipInit", 0)
        self.stream = self._get("hipStreamCreateWithFlags", RESULT, NON_BLOCKING)
        self.has_pools = bool(self.driver.get("hipDeviceGetAttribute", RESULT, MEMORY_POOLS_SUPPORTED, self.ordinal, kind=c_int))
        self._pool = self.driver.get("hipDeviceGetDefaultMemPool", RESULT, self.ordinal) if self.has_pools else 0

    def _enter(self) -> None:
        self.driver("hipSetDevice", self.ordinal)

    def fill(self, pointer: int, value: int, nbytes: int) -> None:
        self._call("hipMemsetAsync", pointer, value, nbytes, self.stream)

    def copy(self, destination: int, source: int, nbytes: int) -> None:
        self._call("hipMemcpyAsync", destination, source, nbytes, COPY_ANY, self.stream)

    def synchronize_stream(self) -> None:
        self._call("hipStreamSynchronize", self.stream)

    def _allocate(self, nbytes: int) -> int:
        return self._get("hipMallocAsync", RESULT, nbytes, self.stream) if self.has_pools else self._get("hipMalloc", RESULT, nbytes)

    def _free(self, pointer: int) -> None:
        self._call("hipFreeAsync", pointer, self.stream) if self.has_pools else self._call("hipFree", pointer)

    def empty_cache(self) -> None:
        self.synchronize()
        if self.has_pools:
            self._call("hipMemPoolTrimTo", self._pool, 0)
