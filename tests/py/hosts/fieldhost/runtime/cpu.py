"""The CPU backend: kernels run on the arrays' own memory."""

from typing import Any

from ..lang.field import Field, NumpyBuffer
from ..lang.types import ScalarType
from .backend import Backend
from .kernel_utils import foreign_values, new_kernel_cache, resolve_variant, unwrapped, values_at


class CompiledKernel:
    """A kernel that can be run on addresses."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def bind(self, args: list[Any]) -> list[Any]:
        """Addresses in the place of fields. Nothing keeps what is there."""
        return [(one._buffer._data.ctypes.data, one.dtype.numpy_dtype, one.shape) if isinstance(one, Field) else one for one in args]

    def run(self, bound: list[Any]) -> None:
        self.function(*(values_at(*one) if isinstance(one, tuple) else one for one in bound))


class CPUBackend(Backend):
    """The host's own processors."""

    name = "cpu"

    def __init__(self) -> None:
        self._cache = new_kernel_cache()

    def allocate_field(self, dtype: ScalarType, shape: tuple[int, ...], exportable: bool = False) -> NumpyBuffer:
        return NumpyBuffer(dtype.numpy_dtype, shape)

    def wrap_ptr(self, ptr: Any, dtype: ScalarType, shape: tuple[int, ...]) -> NumpyBuffer:
        buffer = NumpyBuffer.__new__(NumpyBuffer)
        buffer._data = foreign_values(ptr, dtype.numpy_dtype, shape)
        return buffer

    def execute(self, kernel: Any, args: Any, kwargs: Any) -> None:
        variant, effective = resolve_variant(self, kernel, args, lambda _: CompiledKernel(kernel.function))
        self._dispatch(variant.payload, unwrapped(effective), 0)

    def _dispatch(self, compiled: CompiledKernel, kernel_args: list[Any], loop_end: int) -> None:
        compiled.run(compiled.bind(kernel_args))
