"""HIP: memory is an object that becomes a number, everything is on the null stream, and each call is done when it returns."""

import ctypes
from typing import Any

import numpy as np

from ..lang.field import DeviceBuffer
from ..lang.types import ScalarType
from .gpu import Driver, GPUBackend

_TO_DEVICE, _TO_HOST = 1, 2  # kinds of copies

driver: Driver


class DeviceArray:
    """A pointer, as the binding gives it."""

    def __init__(self, value: int = 0) -> None:
        self._value = value

    def __int__(self) -> int:
        return self._value


def _call(name: str, *arguments: object) -> None:
    _check(driver(name, *arguments))


def _check(code: int) -> None:
    if code:
        raise RuntimeError(f"HIP error: {code}")


class HIPBuffer(DeviceBuffer):
    """Device memory."""

    def __init__(self, numpy_dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self._numpy_dtype, self._shape = np.dtype(numpy_dtype), shape
        self._nbytes = int(np.prod(shape)) * self._numpy_dtype.itemsize
        code, pointer = driver.get("hipMalloc", after=(self._nbytes,))
        self._device_ptr = DeviceArray(pointer)
        _check(code)
        _call("hipMemset", int(self._device_ptr), ctypes.c_int(0), self._nbytes)

    @property
    def device_ptr(self) -> Any:
        return self._device_ptr

    @property
    def address(self) -> int:
        return int(self.device_ptr)

    def from_numpy(self, values: np.ndarray) -> None:
        values = np.ascontiguousarray(values, self._numpy_dtype)
        _call("hipMemcpy", int(self._device_ptr), values.ctypes.data, self._nbytes, ctypes.c_int(_TO_DEVICE))

    def to_numpy(self) -> np.ndarray:
        values = np.empty(self._shape, self._numpy_dtype)
        _call("hipMemcpy", values.ctypes.data, int(self._device_ptr), self._nbytes, ctypes.c_int(_TO_HOST))
        return values

    def fill(self, value: Any) -> None:
        self.from_numpy(np.full(self._shape, value, self._numpy_dtype))

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def __del__(self) -> None:
        if hasattr(self, "_device_ptr") and getattr(self, "_owned", True):
            driver("hipFree", int(self._device_ptr))


class HIPBackend(GPUBackend):
    """One HIP device."""

    name = "hip"

    def __init__(self, library: str, ordinal: int = 0) -> None:
        global driver
        super().__init__()
        self.driver = driver = Driver(library)
        _check(driver("hipInit", 0))
        _check(driver("hipSetDevice", ctypes.c_int(ordinal)))
        self._device = ordinal

    def wait(self) -> None:
        _call("hipDeviceSynchronize")

    def new_buffer(self, dtype: np.dtype, shape: tuple[int, ...]) -> HIPBuffer:
        return HIPBuffer(dtype, shape)

    def allocate_field(self, dtype: ScalarType, shape: tuple[int, ...], exportable: bool = False) -> HIPBuffer:
        return HIPBuffer(dtype.numpy_dtype, shape)

    def wrap_ptr(self, ptr: Any, dtype: ScalarType, shape: tuple[int, ...]) -> HIPBuffer:
        buffer = HIPBuffer.__new__(HIPBuffer)
        buffer._numpy_dtype, buffer._shape = dtype.numpy_dtype, shape
        buffer._nbytes = int(np.prod(shape)) * buffer._numpy_dtype.itemsize
        buffer._device_ptr = ptr
        buffer._owned = False
        return buffer
