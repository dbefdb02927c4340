"""Arrays. Every array's storage comes through `_allocate`; reshapes share it."""

import gc
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import DeviceMemoryError
from ..runtime import devices
from ..runtime.backend import GPUBackend


class array:
    """A dense, C-ordered array on a device. Make one with `empty`, `zeros`, `full` or `asarray`."""

    def __init__(self, buffer: Any, dtype: np.dtype, shape: tuple[int, ...], owner: object = None) -> None:
        self._buffer = buffer
        self.dtype = dtype
        self.shape = shape
        self._owner = owner  # of memory that is not ours: kept alive with the array

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def device(self) -> devices.Device:
        return devices.Device(self._buffer._backend)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"minihost.array({self.numpy()!r}, device={self.device.name!r})"

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
        values = self._buffer.read_range(index * row, row)
        return values[0] if self.ndim == 1 else values.reshape(self.shape[1:])

    def reshape(self, *shape: Any) -> "array":
        """The same memory in another shape."""
        wanted = _shape(shape[0] if len(shape) == 1 else shape)
        if -1 in wanted:
            rest = -int(np.prod(wanted, dtype=np.int64))
            wanted = tuple(self.size // rest if n == -1 else n for n in wanted) if rest > 0 else wanted
        if int(np.prod(wanted, dtype=np.int64)) != self.size or min(wanted, default=0) < 0:
            raise ValueError(f"cannot reshape {self.shape} to {shape}")
        return array(self._buffer, self.dtype, wanted, self._owner)

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        from .dlpack import to_dlpack

        return to_dlpack(self)

    def __dlpack_device__(self) -> tuple[int, int]:
        from .dlpack import CUDA

        return (CUDA, self._buffer._backend.ordinal)


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (int(shape),) if np.isscalar(shape) else tuple(int(n) for n in shape)


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
    dtype, shape = np.dtype(dtype), _shape(shape)
    if min(shape, default=0) < 0:
        raise ValueError(f"negative size in {shape}")
    return array(_allocate(devices.device(device).backend, dtype, shape), dtype, shape)


zeros = empty


def full(shape: int | Sequence[int], value: Any, dtype: Any = np.float64, device: Any = None) -> array:
    """A new array with the same value everywhere."""
    result = empty(shape, dtype, device)
    pattern = np.full(1, value, result.dtype).tobytes()
    if len(set(pattern)) == 1:
        result._buffer.fill_bytes(pattern[0])
    else:
        result._buffer.from_numpy(np.full(result.shape, value, result.dtype))
    return result


def asarray(values: Any, dtype: Any = None, device: Any = None) -> array:
    """A new array with the contents of a NumPy array, or of anything that NumPy can make one of."""
    if isinstance(values, array):
        return values
    values = np.asarray(values, dtype)
    result = empty(values.shape, values.dtype, device)
    result._buffer.from_numpy(values)
    return result


def copyto(destination: array, source: Any) -> None:
    """Overwrite an array with another one (on the device) or with the host's values."""
    if isinstance(source, array):
        if (source.size, source.dtype) != (destination.size, destination.dtype):
            raise ValueError(f"cannot copy {source.shape} {source.dtype} to {destination.shape} {destination.dtype}")
        destination._buffer.copy_from(source._buffer)
    else:
        destination._buffer.from_numpy(np.broadcast_to(np.asarray(source, destination.dtype), destination.shape))


def wrap_ptr(pointer: int, shape: int | Sequence[int], dtype: Any, owner: object = None, device: Any = None) -> array:
    """An array over device memory that somebody else owns; `owner` is kept alive with it."""
    dtype, shape = np.dtype(dtype), _shape(shape)
    return array(devices.device(device).backend.wrap_ptr(pointer, dtype, shape), dtype, shape, owner)


def reduce_sum(a: array) -> Any:
    """Sum of all elements, in 64 bits."""
    return a._buffer._backend.reduce("sum", a)


def reduce_min(a: array) -> Any:
    """Least element."""
    return a._buffer._backend.reduce("min", a)


def reduce_max(a: array) -> Any:
    """Greatest element."""
    return a._buffer._backend.reduce("max", a)
