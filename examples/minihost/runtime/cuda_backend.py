"""CUDA: buffers and copies over the driver."""

import collections
import sys
import threading
from ctypes import c_int, c_uint64, c_void_p
from typing import Any

import numpy as np

from . import driver as cuda
from .backend import GPUBackend

_DEFERRED_LIMIT = 64  # frees that may wait for the device before an allocation makes them happen


class CUDABuffer:
    """One block of device memory. Made in one place, `create_buffer`; freed when it is dropped."""

    def __init__(self, backend: "CUDABackend", dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self._describe(backend, dtype, shape)
        self._owned = True
        self._device_ptr = backend.allocate(self._nbytes)
        if self._nbytes:
            backend.fill(self._device_ptr, 0, self._nbytes)

    def _describe(self, backend: "CUDABackend", dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self._backend = backend
        self._numpy_dtype = dtype
        self._shape = shape
        self._nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize

    def __del__(self) -> None:
        if getattr(self, "_owned", False) and getattr(self, "_device_ptr", 0):
            self._backend.free(self._device_ptr)

    @property
    def nbytes(self) -> int:
        return self._nbytes

    @property
    def dtype(self) -> np.dtype:
        return self._numpy_dtype

    @property
    def device_ptr(self) -> int:
        """The pointer that launches, native reductions and other libraries are given."""
        return self._device_ptr

    @property
    def address(self) -> int:
        return int(self._device_ptr)

    def to_numpy(self) -> np.ndarray:
        """The contents, copied to the host."""
        values = np.empty(self._shape, self._numpy_dtype)
        self._backend.copy_out(values, self._device_ptr)
        return values

    def read_range(self, start: int, count: int) -> np.ndarray:
        """Elements start to start + count, copied to the host."""
        size = self._nbytes // self._numpy_dtype.itemsize
        if start < 0 or count < 0 or start + count > size:
            raise IndexError(f"elements {start} to {start + count} of {size}")
        values = np.empty(count, self._numpy_dtype)
        self._backend.copy_out(values, self._device_ptr + start * self._numpy_dtype.itemsize)
        return values

    def from_numpy(self, values: np.ndarray) -> None:
        """Overwrite the contents with the host's."""
        values = np.ascontiguousarray(values, self._numpy_dtype)
        if values.nbytes != self._nbytes:
            raise ValueError(f"{values.nbytes} bytes for a buffer of {self._nbytes}")
        self._backend.copy_in(self._device_ptr, values)

    def fill_bytes(self, value: int) -> None:
        """Set every byte."""
        if self._nbytes:
            self._backend.fill(self._device_ptr, value, self._nbytes)

    def copy_from(self, other: "CUDABuffer") -> None:
        """Copy another buffer's contents, on the device."""
        if (other._nbytes, other._backend) != (self._nbytes, self._backend):
            raise ValueError("buffers of two sizes, or on two devices")
        if self._nbytes:
            self._backend.copy_within(self._device_ptr, other._device_ptr, self._nbytes)


class CUDABackend(GPUBackend):
    """One CUDA device with its primary context and one stream."""

    name = "cuda"

    def __init__(self, driver: cuda.Driver, ordinal: int, *, host_readable: bool) -> None:
        self.driver = driver
        self.ordinal = ordinal
        self.host_readable = host_readable
        number = driver.get(c_int, "cuDeviceGet", ordinal)
        self.context = driver.get(c_void_p, "cuDevicePrimaryCtxRetain", number)
        self._enter()
        self.stream = driver.get(c_void_p, "cuStreamCreate", cuda.NON_BLOCKING)
        self.has_pools = bool(driver.get(c_int, "cuDeviceGetAttribute", cuda.MEMORY_POOLS_SUPPORTED, number))
        self._pool = driver.get(c_void_p, "cuDeviceGetDefaultMemPool", number) if self.has_pools else 0
        self._deferred: collections.deque[int] = collections.deque()  # without pools: dropped, not yet freed
        self._freeing = threading.Lock()  # who takes from it; destructors only append

    def _enter(self) -> None:
        """The driver's current context is a thread's; any thread may come here."""
        self.driver("cuCtxSetCurrent", self.context)

    def create_buffer(self, dtype: np.dtype, shape: tuple[int, ...]) -> CUDABuffer:
        return CUDABuffer(self, dtype, shape)

    def wrap_ptr(self, pointer: int, dtype: np.dtype, shape: tuple[int, ...]) -> CUDABuffer:
        """A buffer over memory that somebody else owns."""
        buffer = CUDABuffer.__new__(CUDABuffer)
        buffer._describe(self, dtype, shape)
        buffer._owned = False
        buffer._device_ptr = int(pointer)
        return buffer

    def allocate(self, nbytes: int) -> int:
        if not nbytes:
            return 0
        self._enter()
        if self.has_pools:
            return self.driver.get(c_uint64, "cuMemAllocAsync", nbytes, self.stream)
        if len(self._deferred) >= _DEFERRED_LIMIT:
            self.synchronize()
        return self.driver.get(c_uint64, "cuMemAlloc_v2", nbytes)

    def free(self, pointer: int) -> None:
        """Give memory back, after the work queued before. Called by destructors: it does not wait."""
        if not self.has_pools:
            self._deferred.append(pointer)
            return
        try:
            self._enter()
            self.driver("cuMemFreeAsync", pointer, self.stream)
        except cuda.DriverError as error:
            # At exit the driver may be gone before the last buffers are, and their memory with it.
            if not (error.code == cuda.DEINITIALIZED and sys.is_finalizing()):
                raise

    def synchronize_stream(self) -> None:
        self._enter()
        self.driver("cuStreamSynchronize", self.stream)

    def synchronize(self) -> None:
        with self._freeing:
            dropped = len(self._deferred)
            self.synchronize_stream()
            for _ in range(dropped):
                self.driver("cuMemFree_v2", self._deferred.popleft())

    def empty_cache(self) -> None:
        self.synchronize()
        if self.has_pools:
            self.driver("cuMemPoolTrimTo", self._pool, 0)

    def fill(self, pointer: int, value: int, nbytes: int) -> None:
        self._enter()
        self.driver("cuMemsetD8Async", pointer, value, nbytes, self.stream)

    def copy_in(self, pointer: int, values: np.ndarray) -> None:
        self._copy("cuMemcpyHtoDAsync_v2", pointer, values.ctypes.data, values.nbytes)

    def copy_out(self, values: np.ndarray, pointer: int) -> None:
        self._copy("cuMemcpyDtoHAsync_v2", values.ctypes.data, pointer, values.nbytes)

    def copy_within(self, destination: int, source: int, nbytes: int) -> None:
        self._enter()
        self.driver("cuMemcpyDtoDAsync_v2", destination, source, nbytes, self.stream)

    def _copy(self, call: str, destination: Any, source: Any, nbytes: int) -> None:
        """Between host and device; the host's memory is free to use afterwards."""
        if nbytes:
            self._enter()
            self.driver(call, destination, source, nbytes, self.stream)
            self.driver("cuStreamSynchronize", self.stream)
