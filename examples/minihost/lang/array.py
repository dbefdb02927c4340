"""Arrays. Every array's storage comes through `_allocate`; reshapes share it."""

import functools
import gc
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..runtime import devices
from ..runtime.backend import GPUBackend
from ..runtime.driver import DeviceMemoryError
from .dlpack import to_dlpack


class array:
    """A dense, C-ordered array on a device. Make one with `empty`, `zeros`, `full` or `asarray`."""

    def __init__(self, buffer: Any, dtype: np.dtype, shape: tuple[int, ...], owner: object = None) -> None:
        self._buffer = buffer
        self._owner = owner  # of memory that is not ours: kept alive with the array
        self.dtype, self.shape, self.ndim, self.size = dtype, shape, len(shape), math.prod(shape)
        self.nbytes = self.size * dtype.itemsize

    @property
    def device(self) -> devices.Device:
        return devices.Device(self._buffer._backend)

    def __len__(self) -> int:
        return self.shape[0]

    def numpy(self) -> np.ndarray:
        """The contents as a NumPy array of its own."""
        return self._buffer.to_numpy().reshape(self.shape)

    def read_range(self, start: int, count: int) -> np.ndarray:
        """`count` elements from `start` on, in memory order, as a NumPy array."""
        return self._buffer.read_range(start, count)

    def __getitem__(self, index: int) -> Any:
        """One element, or one row, read from the device."""
        length = len(self)
        index = int(index) + (length if index < 0 else 0)
        if not 0 <= index < length:
            raise IndexError(f"index {index} of {length}")
        row = self.size // length
        return self.read_range(index * row, row).reshape(self.shape[1:])[()]

    def reshape(self, *shape: Any) -> "array":
        """The same memory in another shape."""
        stand_in = np.broadcast_to(np.uint8(0), self.shape)  # takes no memory, and NumPy knows what -1 means
        return array(self._buffer, self.dtype, stand_in.reshape(*shape).shape, self._owner)

    def __dlpack__(self, **options: Any) -> Any:
        return to_dlpack(self)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._buffer._backend.dlpack_device()


def _allocate(backend: GPUBackend, dtype: np.dtype, shape: tuple[int, ...]) -> Any:
    """Storage for an array, cleared. On a full device: collect garbage, wait, empty the cache, once more."""
    try:
        return backend.create_buffer(dtype, shape)
    except DeviceMemoryError:
        pass
    gc.collect()
    backend.synchronize()
    backend.empty_cache()
    return backend.create_buffer(dtype, shape)


def empty(shape: int | Sequence[int], dtype: Any = np.float64, device: Any = None) -> array:
    """A new array (of zeros: backends clear new memory)."""
    dtype, shape = _described(dtype, shape)
    if min(shape, default=0) < 0:
        raise ValueError(f"negative size in {shape}")
    return array(_allocate(devices.device(device).backend, dtype, shape), dtype, shape)


zeros = empty


def full(shape: int | Sequence[int], value: Any, dtype: Any = np.float64, device: Any = None) -> array:
    """A new array with the same value everywhere."""
    result = empty(shape, dtype, device)
    copyto(result, value)
    return result


def asarray(values: Any, dtype: Any = None, device: Any = None) -> array:
    """A new array with the contents of a NumPy array, or of anything that NumPy can make one of."""
    values = np.asarray(values, dtype)
    result = empty(values.shape, values.dtype, device)
    result._buffer.from_numpy(values)
    return result


def copyto(destination: array, source: Any) -> None:
    """Overwrite an array with another one (on the device) or with the host's values."""
    if not isinstance(source, array):
        destination._buffer.from_numpy(np.broadcast_to(np.asarray(source, destination.dtype), destination.shape))
    elif (source.size, source.dtype) == (destination.size, destination.dtype):
        destination._buffer.copy_from(source._buffer)
    else:
        raise ValueError(f"cannot copy {source.shape} {source.dtype} to {destination.shape} {destination.dtype}")


def wrap_ptr(pointer: int, shape: int | Sequence[int], dtype: Any, owner: object = None, device: Any = None) -> array:
    """An array over device memory that somebody else owns; `owner` is kept alive with it."""
    dtype, shape = _described(dtype, shape)
    return array(devices.device(device).backend.wrap_ptr(pointer, dtype, shape), dtype, shape, owner)


def _described(dtype: Any, shape: int | Sequence[int]) -> tuple[np.dtype, tuple[int, ...]]:
    return np.dtype(dtype), tuple(int(n) for n in shape) if isinstance(shape, Sequence) else (int(shape),)


def _reduce(operation: str, a: array) -> Any:
    return a._buffer._backend.reduce(operation, a)


reduce_sum, reduce_min, reduce_max = (functools.partial(_reduce, operation) for operation in ("sum", "min", "max"))
