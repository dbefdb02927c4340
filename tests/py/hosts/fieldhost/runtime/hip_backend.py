"""HIP: memory is an object that becomes a number, everything is on the null stream, and each call is done when it returns."""

import ctypes

import numpy as np

from .gpu import Driver, GPUBackend, GPUBuffer, Pointer

_TO_DEVICE, _TO_HOST = 1, 2  # kinds of copies

driver: Driver


class DeviceArray(Pointer):
    """A pointer, as the binding gives it."""


def _call(name: str, *arguments: object) -> None:
    _check(driver(name, *arguments))


def _check(code: int) -> None:
    if code:
        raise RuntimeError(f"HIP error: {code}")


class HIPBuffer(GPUBuffer):
    """Device memory."""

    def __init__(self, numpy_dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self._describe(numpy_dtype, shape)
        code, pointer = driver.get("hipMalloc", after=(self._nbytes,))
        self._device_ptr = DeviceArray(pointer)
        _check(code)
        _call("hipMemset", int(self._device_ptr), ctypes.c_int(0), self._nbytes)

    def from_numpy(self, values: np.ndarray) -> None:
        values = np.ascontiguousarray(values, self._numpy_dtype)
        _call("hipMemcpy", int(self._device_ptr), values.ctypes.data, self._nbytes, ctypes.c_int(_TO_DEVICE))

    def to_numpy(self) -> np.ndarray:
        values = np.empty(self._shape, self._numpy_dtype)
        _call("hipMemcpy", values.ctypes.data, int(self._device_ptr), self._nbytes, ctypes.c_int(_TO_HOST))
        return values

    def __del__(self) -> None:
        if hasattr(self, "_device_ptr") and getattr(self, "_owned", True):
            driver("hipFree", int(self._device_ptr))


class HIPBackend(GPUBackend):
    """One HIP device."""

    name, buffer_class = "hip", HIPBuffer

    def __init__(self, library: str, ordinal: int = 0) -> None:
        global driver
        super().__init__()
        self.driver = driver = Driver(library)
        _check(driver("hipInit", 0))
        _check(driver("hipSetDevice", ctypes.c_int(ordinal)))
        self._device = ordinal

    def wait(self) -> None:
        _call("hipDeviceSynchronize")
