"""Level Zero: memory is a ctypes.c_void_p, and copies are on an immediate command list that is through with each when the call returns."""

import ctypes
import threading
from ctypes import c_size_t, c_uint32, c_void_p
from typing import Any

import numpy as np

from ..lang.types import ScalarType
from .gpu import Driver, GPUBackend, GPUBuffer

_CONTEXT, _QUEUE, _DEVICE_MEMORY = 0xD, 0xE, 0x15  # types of descriptions
_SYNCHRONOUS = 1  # mode of a queue


class _Description(ctypes.Structure):
    """Any of the descriptions above: each begins so, and what follows are at most five numbers."""

    _fields_ = [("type", c_uint32), ("next", c_void_p), ("numbers", c_uint32 * 5)]


def _described(kind: int, *numbers: int) -> Any:
    return ctypes.byref(_Description(kind, None, (c_uint32 * 5)(*numbers)))


def _check(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"{what} failed with ze_result_t {code & 0xFFFFFFFF:#010x}")


class L0Buffer(GPUBuffer):
    """Device memory."""

    def __init__(self, backend: "LevelZeroBackend", numpy_dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self._backend = backend
        self._describe(numpy_dtype, shape)
        self._device_ptr = c_void_p()
        code, pointer = backend.driver.get(
            "zeMemAllocDevice", backend._context, _described(_DEVICE_MEMORY), c_size_t(max(self._nbytes, 1)), c_size_t(0), backend._device
        )
        _check(code, "zeMemAllocDevice")
        self._device_ptr = c_void_p(pointer)
        self._copy_to_device(np.zeros(shape, self._numpy_dtype))

    @property
    def address(self) -> int:
        return self.device_ptr.value or 0

    def _copy_to_device(self, values: np.ndarray) -> None:
        values = np.ascontiguousarray(values, self._numpy_dtype)
        self._backend.copy(self._device_ptr, values.ctypes.data, self._nbytes)

    def from_numpy(self, values: np.ndarray) -> None:
        self._copy_to_device(values)

    def to_numpy(self) -> np.ndarray:
        values = np.empty(self._shape, self._numpy_dtype)
        self._backend.copy(values.ctypes.data, self._device_ptr, self._nbytes)
        return values

    def __del__(self) -> None:
        if hasattr(self, "_device_ptr") and self._device_ptr and getattr(self, "_owned", True):
            self._backend.driver("zeMemFree", self._backend._context, self._device_ptr)


class LevelZeroBackend(GPUBackend):
    """The first Level Zero device."""

    name, buffer_class = "level_zero", L0Buffer

    def __init__(self, library: str) -> None:
        super().__init__()
        self._appending = threading.Lock()  # one thread at a time may append to a command list
        self.driver = driver = Driver(library)
        _check(driver("zeInit", 1), "zeInit")
        (parent,) = self._first("zeDriverGet")
        (self._device,) = self._first("zeDeviceGet", parent)
        code, context = driver.get("zeContextCreate", parent, _described(_CONTEXT))
        _check(code, "zeContextCreate")
        self._context = c_void_p(context)
        code, self._imm_cmd_list = driver.get("zeCommandListCreateImmediate", self._context, self._device, _described(_QUEUE, 0, 0, 0, _SYNCHRONOUS))
        _check(code, "zeCommandListCreateImmediate")

    def _first(self, name: str, *parent: int) -> Any:
        count, found = c_uint32(1), (c_void_p * 1)()
        _check(self.driver(name, *parent, ctypes.byref(count), found), name)
        return found

    def copy(self, destination: Any, source: Any, nbytes: int) -> None:
        if nbytes:
            with self._appending:
                code = self.driver("zeCommandListAppendMemoryCopy", self._imm_cmd_list, destination, source, nbytes, None, 0, None)
            _check(code, "zeCommandListAppendMemoryCopy")

    def wait(self) -> None:
        """Each call is done when it returns."""

    def new_buffer(self, dtype: np.dtype, shape: tuple[int, ...]) -> L0Buffer:
        return L0Buffer(self, dtype, shape)

    def wrap_ptr(self, ptr: Any, dtype: ScalarType, shape: tuple[int, ...]) -> L0Buffer:
        buffer: L0Buffer = super().wrap_ptr(c_void_p(int(ptr)), dtype, shape)
        buffer._backend = self
        return buffer
