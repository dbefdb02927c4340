"""What the GPU backends of this host have in common: how launches bind addresses, texture images, and the loading of a driver."""

import ctypes
import os
from typing import Any

import numpy as np

from ..lang.field import Field, Texture3D
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

    def __init__(self) -> None:
        self._cache = new_kernel_cache()

    def wait(self) -> None:
        """For the device."""
        raise NotImplementedError

    def new_buffer(self, dtype: np.dtype, shape: tuple[int, ...]) -> Any:
        raise NotImplementedError

    def execute(self, kernel: Any, args: Any, kwargs: Any) -> None:
        def build(effective: tuple[Any, ...]) -> tuple[CompiledGPUKernel, list[Field]]:
            textures = [place for place, one in enumerate(effective) if isinstance(one, Texture3D)]
            return CompiledGPUKernel(kernel.function, textures), _create_pack_fields(effective, self)

        variant, effective = resolve_variant(self, kernel, args, build)
        compiled, packs = variant.payload
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
