"""Metal, on a machine that has none: buffers in memory that host and device share, and kernels that run on it as they are."""

from typing import Any

import numpy as np

from ..lang.field import DeviceBuffer, Field
from ..lang.types import ScalarType
from .backend import Backend
from .kernel_utils import expand_templates, foreign_values, unwrapped


class MetalBuffer(DeviceBuffer):
    """Memory that is the host's, too."""

    def __init__(self, numpy_dtype: np.dtype, shape: tuple[int, ...]) -> None:
        memory = bytearray(int(np.prod(shape)) * np.dtype(numpy_dtype).itemsize)  # stands for the object that Metal gives
        self._view = np.frombuffer(memory, numpy_dtype).reshape(shape)

    def from_numpy(self, values: np.ndarray) -> None:
        self._view[...] = values

    def to_numpy(self) -> np.ndarray:
        return self._view.copy()

    def fill(self, value: Any) -> None:
        self._view[...] = value

    @property
    def nbytes(self) -> int:
        return self._view.nbytes


class MetalBackend(Backend):
    """The one Metal device."""

    name = "metal"

    def allocate_field(self, dtype: ScalarType, shape: tuple[int, ...], exportable: bool = False) -> MetalBuffer:
        return MetalBuffer(dtype.numpy_dtype, shape)

    def wrap_ptr(self, ptr: Any, dtype: ScalarType, shape: tuple[int, ...]) -> MetalBuffer:
        buffer = MetalBuffer.__new__(MetalBuffer)
        buffer._view = foreign_values(ptr, dtype.numpy_dtype, shape)
        return buffer

    def execute(self, kernel: Any, args: Any, kwargs: Any) -> None:
        kernel.function(*(one._buffer._view.reshape(one.shape) if isinstance(one, Field) else one for one in unwrapped(expand_templates(args))))
