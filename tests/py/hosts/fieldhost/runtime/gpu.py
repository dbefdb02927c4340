"""What the GPU backends of this host have in common: pointers, how launches bind them, texture images, and the loading of a driver."""

import abc
import ctypes
import os
from typing import Any

import numpy as np

from ..lang.field import DeviceBuffer, Field, Texture3D
from ..lang.types import ScalarType
from .backend import Backend
from .kernel_utils import _create_pack_fields, new_kernel_cache, resolve_variant, unwrapped, update_pack_fields, values_at


class Driver:
    """A vendor's library. Calling it calls one of its functions, by name, and returns the code."""

    def __init__(self, library: str) -> None:
        self.library = library
        self._loaded = ctypes.CDLL(library, os.RTLD_NOW)

    def __call__(self, name: str, *arguments: object) -> int:
        # Addresses and sizes have 64 bits: ctypes would pass a plain number as a C int.
        return getattr(self._loaded, name)(*(ctypes.c_void_p(one) if isinstance(one, int) else one for one in arguments))

    def get(self, name: str, *arguments: object, after: tuple[object, ...] = ()) -> tuple[int, int]:
        """A function with a result, whose place is between the arguments: code and result."""
        result = ctypes.c_void_p()
        code = self(name, *arguments, ctypes.byref(result), *after)
        return code, result.value or 0


class Pointer:
    """An address, as a vendor's binding gives it: an object that becomes a number."""

    def __init__(self, value: int = 0) -> None:
        self._value = value

    def __int__(self) -> int:
        return self._value


class GPUBuffer(DeviceBuffer):
    """Device memory."""

    _device_ptr: Any

    def _describe(self, numpy_dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self._numpy_dtype, self._shape = np.dtype(numpy_dtype), shape
        self._nbytes = int(np.prod(shape)) * self._numpy_dtype.itemsize

    @property
    def device_ptr(self) -> Any:
        return self._device_ptr

    @property
    def address(self) -> int:
        return int(self.device_ptr)

    def fill(self, value: Any) -> None:
        self.from_numpy(np.full(self._shape, value, self._numpy_dtype))

    @property
    def nbytes(self) -> int:
        return self._nbytes


class CompiledGPUKernel:
    """A kernel that is launched on addresses. Images of textures are made once, and kept under the address of what they were made of."""

    def __init__(self, function: Any, textures: list[int]) -> None:
        self.function, self.textures = function, textures
        self._tex_cache: dict[tuple[int, ...], np.ndarray] = {}

    def __call__(self, backend: Any, args: list[Any], packs: list[Field]) -> None:
        bound: list[Any] = []
        for place, one in enumerate(args):
            if isinstance(one, Field):
                where = one._buffer.address, one.dtype.numpy_dtype, one.shape
                bound.append(self._image(backend, *where) if place in self.textures else where)
            else:
                bound.append(one)
        addresses = [(pack._buffer.address, pack.dtype.numpy_dtype, pack.shape) for pack in packs]
        backend.wait()
        scalars = iter(values_at(*addresses[0]) if addresses else ())
        self.function(*(values_at(*one) if isinstance(one, tuple) else one if isinstance(one, np.ndarray) else next(scalars) for one in bound))

    def _image(self, backend: Any, address: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        key = (address, *shape)
        if key not in self._tex_cache:
            backend.wait()
            self._tex_cache[key] = values_at(address, dtype, shape).copy()
        return self._tex_cache[key]


class GPUBackend(Backend):
    """One device."""

    supports_device_reductions = True
    driver: Driver
    buffer_class: Any

    def __init__(self) -> None:
        self._cache = new_kernel_cache()

    @abc.abstractmethod
    def wait(self) -> None:
        """For the device."""

    def new_buffer(self, dtype: np.dtype, shape: tuple[int, ...]) -> Any:
        return self.buffer_class(dtype, shape)

    def allocate_field(self, dtype: ScalarType, shape: tuple[int, ...], exportable: bool = False) -> Any:
        return self.new_buffer(dtype.numpy_dtype, shape)

    def wrap_ptr(self, ptr: Any, dtype: ScalarType, shape: tuple[int, ...]) -> Any:
        buffer = self.buffer_class.__new__(self.buffer_class)
        buffer._describe(dtype.numpy_dtype, shape)
        buffer._device_ptr = ptr
        buffer._owned = False
        return buffer

    def execute(self, kernel: Any, args: Any, kwargs: Any) -> None:
        def build(effective: tuple[Any, ...]) -> tuple[CompiledGPUKernel, list[Field]]:
            textures = [place for place, one in enumerate(effective) if isinstance(one, Texture3D)]
            return CompiledGPUKernel(kernel.function, textures), _create_pack_fields(effective, self)

        variant, effective = resolve_variant(self, kernel, args, build)
        compiled, packs = variant.payload
        with variant.dispatch_lock:
            update_pack_fields(packs, effective)
            compiled(self, unwrapped(effective), packs)

    def reduce_field(self, field: Any, op: str) -> float:
        """The result is a buffer, too; its address is read after the input's."""
        result = self.new_buffer(np.dtype("f8"), (2,))
        result.from_numpy(np.zeros(2))
        source, target = field._buffer.address, result.address
        self.wait()
        found = getattr(values_at(source, field.dtype.numpy_dtype, field.shape), op)()
        values_at(target, np.dtype("f8"), (2,))[:] = found, 1
        return float(result.to_numpy()[0])
