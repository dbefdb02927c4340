"""Fields, and where their elements are kept."""

import abc
import copy
import math
from typing import Any, NamedTuple

import numpy as np

from .types import ScalarType, f32, of_dtype


class DeviceBuffer(abc.ABC):
    """What each backend's buffers can do."""

    @abc.abstractmethod
    def from_numpy(self, values: np.ndarray) -> None: ...

    @abc.abstractmethod
    def to_numpy(self) -> np.ndarray: ...

    @abc.abstractmethod
    def fill(self, value: Any) -> None: ...

    @property
    @abc.abstractmethod
    def nbytes(self) -> int:
        """Size in bytes."""


class NumpyBuffer(DeviceBuffer):
    """Of the CPU backend: a NumPy array."""

    def __init__(self, numpy_dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self._data = np.zeros(shape, numpy_dtype)

    def from_numpy(self, values: np.ndarray) -> None:
        np.copyto(self._data, values)

    def to_numpy(self) -> np.ndarray:
        return self._data.copy()

    def fill(self, value: Any) -> None:
        self._data.fill(value)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self._data.nbytes

    @property
    def address(self) -> int:
        return self._data.ctypes.data


class ExportedMemory(NamedTuple):
    """Device memory for another API."""

    backend: str
    size: int
    handle: int


class Field:
    """An array on the device of its backend."""

    def __init__(self, dtype: ScalarType, shape: tuple[int, ...], buffer: DeviceBuffer, writable: bool = True) -> None:
        self.dtype, self.shape, self._buffer, self._writable = dtype, shape, buffer, writable
        self.size = math.prod(shape)

    def from_numpy(self, values: np.ndarray) -> None:
        self._buffer.from_numpy(values)

    def to_numpy(self) -> np.ndarray:
        return self._buffer.to_numpy().reshape(self.shape)

    def fill(self, value: Any) -> None:
        self._buffer.fill(value)

    def sum(self) -> float:
        """On the device where that is possible."""
        from ..runtime.dispatch import get_backend

        backend = get_backend()
        return backend.reduce_field(self, "sum") if backend.supports_device_reductions else float(self._buffer.to_numpy().sum())

    def reshape(self, *shape: int) -> "Field":
        """The same memory in another shape."""
        other = copy.copy(self)
        other.shape = shape
        return other

    def export_memory(self) -> ExportedMemory:
        return self._buffer.export_memory()

    def __dlpack__(self, *, max_version: Any = None, **options: Any) -> Any:
        from .dlpack import field_to_dlpack

        return field_to_dlpack(self, versioned=max_version is not None and max_version[0] >= 1)

    def __dlpack_device__(self) -> tuple[int, int]:
        from .dlpack import dlpack_device

        return dlpack_device(self)


class Texture3D:
    """A field that kernels sample."""

    def __init__(self, source: Field, shape_3d: tuple[int, int, int]) -> None:
        self.field, self.shape_3d = source, shape_3d


def field(dtype: ScalarType = f32, shape: Any = (), exportable: bool = False) -> Field:
    """A new field of zeros."""
    from ..runtime.dispatch import get_backend

    shape = shape if isinstance(shape, tuple) else (shape,)
    return Field(dtype, shape, get_backend().allocate_field(dtype, shape, exportable=exportable))


def field_like(values: np.ndarray) -> Field:
    """A new field with the contents of a NumPy array."""
    new = field(of_dtype(values.dtype), values.shape)
    new.from_numpy(values)
    return new


def zeros(dtype: ScalarType, shape: Any) -> Field:
    return field(dtype, shape)


def full(dtype: ScalarType, shape: Any, value: Any) -> Field:
    new = field(dtype, shape)
    new.fill(value)
    return new


def field_from_ptr(pointer: Any, dtype: ScalarType, shape: Any) -> Field:
    """A field over memory that somebody else owns."""
    from ..runtime.dispatch import get_backend

    shape = shape if isinstance(shape, tuple) else (shape,)
    return Field(dtype, shape, get_backend().wrap_ptr(pointer, dtype, shape))


def from_dlpack(source: Any) -> Field:
    from .dlpack import dlpack_to_field

    return dlpack_to_field(source)


def texture3d(source: Field) -> Texture3D:
    return Texture3D(source, source.shape)
