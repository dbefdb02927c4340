"""The CPU: arrays are NumPy's. Its backend is no GPU backend, and has no driver."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..lang import views
from ..lang.array import array
from . import devices


class NumpyBuffer:
    """Memory of one array."""

    def __init__(self, backend: Any, dtype: np.dtype, shape: tuple[int, ...], values: np.ndarray | None = None) -> None:
        self._backend, self._numpy_dtype, self._shape = backend, dtype, shape
        self._data = np.zeros(shape, dtype) if values is None else values

    @property
    def _nbytes(self) -> int:
        return self._data.nbytes

    @property
    def device_ptr(self) -> int:
        return self._data.ctypes.data

    _device_ptr = device_ptr

    def to_numpy(self) -> np.ndarray:
        return self._data.copy()

    def read_range(self, start: int, count: int) -> np.ndarray:
        return self._data.reshape(-1)[start : start + count].copy()

    def from_numpy(self, values: np.ndarray) -> None:
        self._data[...] = values

    def write_range(self, start: int, values: np.ndarray) -> None:
        self._data.reshape(-1)[start : start + np.size(values)] = np.ravel(values)

    def fill_bytes(self, value: int) -> None:
        self._data.reshape(-1).view(np.uint8)[:] = value

    def copy_from(self, other: "NumpyBuffer") -> None:
        self._data.reshape(-1)[:] = other._data.reshape(-1)


class CPUBackend:
    """The host itself."""

    name, ordinal, host_readable = "cpu", 0, True

    def __init__(self, _: Any = None, ordinal: int = 0) -> None:
        self._cache: dict[Any, Any] = {}
        self._tex_cache: dict[Any, Any] = {}

    def create_buffer(self, dtype: np.dtype, shape: tuple[int, ...]) -> NumpyBuffer:
        return NumpyBuffer(self, dtype, shape)

    def wrap_ptr(self, pointer: np.ndarray, dtype: np.dtype, shape: tuple[int, ...]) -> NumpyBuffer:
        """A buffer over a NumPy array of somebody else."""
        return NumpyBuffer(self, dtype, shape, pointer.reshape(shape))

    def synchronize(self) -> None:
        """Each call is done when it returns."""

    def empty_cache(self) -> None:
        """There is none."""

    def execute(self, variant: Any, args: Sequence[Any]) -> None:
        variant.function(*(self._values(one) if isinstance(one, array) else one for one in args))

    def reduce(self, operation: str, source: Any) -> Any:
        return getattr(self._values(source), operation)()

    def _values(self, a: Any) -> np.ndarray:
        start = views.offset_of(a)
        return a._buffer._data.reshape(-1)[start : start + a.size].reshape(a.shape)

    def dlpack_device(self) -> tuple[int, int]:
        return 1, 0  # kDLCPU


devices._VENDORS["cpu"] = CPUBackend
devices._drivers["cpu"] = SimpleNamespace(library=None)
