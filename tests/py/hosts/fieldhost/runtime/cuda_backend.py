"""CUDA: memory is a CUdeviceptr, everything is on the legacy default stream, and each call is done when it returns."""

import ctypes

import numpy as np

from ..lang.field import DeviceBuffer, ExportedMemory
from ..lang.types import ScalarType
from .gpu import Driver, GPUBackend, GPUBuffer, Pointer

_GRANULARITY = 65536  # of memory that can be shared

driver: Driver
_context = 0


class CUdeviceptr(Pointer):
    """A pointer, as the binding gives it."""


def _call(name: str, *arguments: object) -> None:
    driver("cuCtxSetCurrent", _context)
    _check(driver(name, *arguments))


def _check(code: int) -> None:
    if code:
        raise RuntimeError(f"CUDA driver error: {code}")


def _allocate(nbytes: int) -> tuple[int, CUdeviceptr]:
    driver("cuCtxSetCurrent", _context)
    code, pointer = driver.get("cuMemAlloc_v2", after=(nbytes,))
    return code, CUdeviceptr(pointer)


class CUDABuffer(GPUBuffer):
    """Device memory."""

    def __init__(self, numpy_dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self._describe(numpy_dtype, shape)
        code, self._device_ptr = _allocate(self._nbytes)
        _check(code)
        _call("cuMemsetD8_v2", int(self._device_ptr), ctypes.c_ubyte(0), self._nbytes)

    def from_numpy(self, values: np.ndarray) -> None:
        values = np.ascontiguousarray(values, self._numpy_dtype)
        _call("cuMemcpyHtoD_v2", int(self._device_ptr), values.ctypes.data, self._nbytes)

    def to_numpy(self) -> np.ndarray:
        values = np.empty(self._shape, self._numpy_dtype)
        _call("cuMemcpyDtoH_v2", values.ctypes.data, int(self._device_ptr), self._nbytes)
        return values

    def export_memory(self) -> ExportedMemory:
        """Copied once into memory that can be shared."""
        if not hasattr(self, "_export_buf"):
            source = int(self._device_ptr)
            self._export_buf = ExportableCUDABuffer(self._numpy_dtype, self._shape)
            _call("cuMemcpyDtoD_v2", int(self._export_buf._device_ptr), source, self._nbytes)
        return self._export_buf.export_memory()

    def __del__(self) -> None:
        if hasattr(self, "_device_ptr") and getattr(self, "_owned", True):
            driver("cuCtxSetCurrent", _context)
            driver("cuMemFree_v2", int(self._device_ptr))


class ExportableCUDABuffer(GPUBuffer):
    """Device memory that other APIs can open. Whole pages of it."""

    def __init__(self, numpy_dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self._describe(numpy_dtype, shape)
        self._alloc_size = -(-max(self._nbytes, 1) // _GRANULARITY) * _GRANULARITY
        code, self._device_ptr = _allocate(self._alloc_size)
        _check(code)
        _call("cuMemsetD8_v2", int(self._device_ptr), ctypes.c_ubyte(0), self._alloc_size)

    from_numpy, to_numpy = CUDABuffer.from_numpy, CUDABuffer.to_numpy

    def export_memory(self) -> ExportedMemory:
        return ExportedMemory("cuda", self._nbytes, int(self._device_ptr))  # the handle: here, the address itself

    def __del__(self) -> None:
        if hasattr(self, "_device_ptr"):
            driver("cuCtxSetCurrent", _context)
            driver("cuMemFree_v2", int(self._device_ptr))


class CUDABackend(GPUBackend):
    """One CUDA device, in its primary context."""

    name, buffer_class = "cuda", CUDABuffer

    def __init__(self, library: str, ordinal: int = 0) -> None:
        global driver, _context
        super().__init__()
        self.driver = driver = Driver(library)
        _check(driver("cuInit", 0))
        self._device = ordinal
        code, self._context = driver.get("cuDevicePrimaryCtxRetain", after=(ctypes.c_int(ordinal),))
        _check(code)
        _context = self._context

    def wait(self) -> None:
        _call("cuCtxSynchronize")

    def allocate_field(self, dtype: ScalarType, shape: tuple[int, ...], exportable: bool = False) -> DeviceBuffer:
        return ExportableCUDABuffer(dtype.numpy_dtype, shape) if exportable else super().allocate_field(dtype, shape)
