"""What the backends and buffers of this host have beside minihost's, whatever the vendor."""

import contextlib
import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..lang import device_class, views
from ..lang.array import array
from ..lang.texture import Texture3D
from . import kernel_utils
from .backend import GPUBackend
from .buffer import Buffer
from .textures import TextureImage


class ExportedMemory:
    """Memory of a buffer as other APIs take it. Who uses it keeps this."""

    def __init__(self, buffer: "GrownBuffer") -> None:
        self.pointer, self.nbytes = buffer._device_ptr, buffer._nbytes


class GrownBuffer(Buffer):
    """One block of device memory, that can be handed out."""

    def __init__(self, backend: Any, dtype: np.dtype, shape: tuple[int, ...], foreign: int | None = None, *, pooled: bool = True) -> None:
        self._pooled = pooled
        self._shared = False
        if pooled:
            super().__init__(backend, dtype, shape, foreign)
        else:
            super().__init__(backend, dtype, shape, backend.allocate_unpooled(math.prod(shape) * dtype.itemsize))
            self._owned = True
            self.fill_bytes(0)

    def __del__(self) -> None:
        if getattr(self, "_pooled", True):
            super().__del__()
        elif getattr(self, "_device_ptr", 0):
            self._backend.free_unpooled(self._device_ptr)

    def write_range(self, start: int, values: np.ndarray) -> None:
        """Overwrite elements from `start` on with the host's."""
        values = np.ascontiguousarray(values, self._numpy_dtype)
        offset = start * self._numpy_dtype.itemsize
        if start < 0 or offset + values.nbytes > self._nbytes:
            raise IndexError(f"{values.nbytes} bytes at {offset} of {self._nbytes}")
        self._backend.copy_in(self._device_ptr + offset, values)

    def copy_range(self, offset: int, other: Buffer, other_offset: int, nbytes: int) -> None:
        """Copy bytes of another buffer, on the device."""
        if nbytes:
            self._backend.copy(self._device_ptr + offset, other._device_ptr + other_offset, nbytes)

    def part(self, offset: int, dtype: np.dtype, shape: tuple[int, ...]) -> "GrownBuffer":
        """A buffer over a part of this one, which it does not own."""
        part = type(self).__new__(type(self))
        part._backend, part._numpy_dtype, part._shape = self._backend, dtype, shape
        part._nbytes = math.prod(shape) * dtype.itemsize
        part._owned, part._pooled, part._shared = False, True, False
        part._device_ptr = self._device_ptr + offset
        part._whole = self
        return part

    def export_memory(self) -> ExportedMemory:
        """The memory for other APIs, in the same place."""
        return ExportedMemory(self)

    def share(self) -> int:
        """The address, for good: the memory is never given to anything else while the buffer lives."""
        self._shared = True
        return self._device_ptr


class GrownBackend(GPUBackend):
    """One device, with locks around launches, and with images and scalars for kernels."""

    image_class: type[TextureImage]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._cache: dict[Any, dict[int, Any]] = {}  # a kernel's function -> its variants
        self._tex_cache: dict[tuple[int, ...], TextureImage] = {}  # by address and shape

    def launch_lock(self, variant: Any) -> contextlib.AbstractContextManager:
        """What launches take turns by."""
        return variant.dispatch_lock

    def allocate_unpooled(self, nbytes: int) -> int:
        """Memory that other processes can be given."""
        return self._allocate(nbytes)

    def free_unpooled(self, pointer: int) -> None:
        self.synchronize_stream()
        self._free(pointer)

    def create_mpi_buffer(self, dtype: np.dtype, shape: tuple[int, ...]) -> Any:
        return self.buffer_class(self, dtype, shape, pooled=False)

    def create_texture_image(self, shape: tuple[int, ...], dtype: np.dtype) -> TextureImage:
        return self.image_class(self, shape, dtype)

    def image_of(self, texture: Texture3D) -> TextureImage:
        """The image of a texture's array: one for the memory, however many textures there are of it."""
        source = texture.source
        key = (source._buffer.device_ptr, *source.shape)
        if key not in self._tex_cache:
            image = self.create_texture_image(source.shape, source.dtype)
            image.upload(source)
            self._tex_cache[key] = image
        return self._tex_cache[key]

    def execute(self, variant: Any, args: Sequence[Any]) -> None:
        """Launch a kernel's variant with these arguments: arrays, textures, numbers, objects of device classes."""
        with self.launch_lock(variant):
            compiled = self._compiled(variant, args)
            everything = [*args, *(one for argument in args for one in device_class.held_arrays(argument))]
            pointers = {i: one._buffer.device_ptr for i, one in enumerate(everything) if isinstance(one, array)}
            self._check_disjoint(variant, everything, {i: pointer + _shift(everything[i]) for i, pointer in pointers.items()})
            values = {id(everything[i]): self._values(pointer, everything[i]) for i, pointer in pointers.items()}
            for i in pointers:
                values[id(everything[i])].flags.writeable = any(everything[j] is everything[i] for j in variant.writes)
            for one in args:
                if isinstance(one, Texture3D):
                    image = self.image_of(one)
                    values[id(one)] = self._values(image._device_ptr, image)
            variant.function(*self._with_scalars(compiled, [device_class.bound(one, values) for one in args]))
            if not self.host_readable:
                for i in variant.writes:
                    self.copy_in(pointers[i] + _shift(everything[i]), values[id(everything[i])])

    def _compiled(self, variant: Any, args: Sequence[Any]) -> kernel_utils.Compiled:
        """The variant for the driver, with this launch's scalars in its pack."""
        if not hasattr(variant, "payload"):
            packs = kernel_utils._create_pack_arrays(self, args)
            variant.payload = kernel_utils.Compiled(packs), packs
            self._cache.setdefault(variant.function, {})[id(variant)] = variant
        compiled, packs = variant.payload
        for pack in packs:
            pack._buffer.from_numpy(np.array([float(one) for one in args if isinstance(one, kernel_utils.SCALARS)]))
        return compiled

    def _with_scalars(self, compiled: kernel_utils.Compiled, args: list[Any]) -> list[Any]:
        """The arguments, with each scalar as it is in the device's memory."""
        places = [i for i, one in enumerate(args) if isinstance(one, kernel_utils.SCALARS)]
        if places:
            packed = self.copy_out(compiled.scalars, np.dtype(np.float64), (len(places),))
            for i, value in zip(places, packed, strict=True):
                args[i] = type(args[i])(value)
        return args

    def _values(self, pointer: int, a: Any) -> np.ndarray:
        return super()._values(pointer + _shift(a), a)


def _shift(a: Any) -> int:
    """How many bytes behind its buffer's address an array begins."""
    return views.offset_of(a) * a.dtype.itemsize


class CachingBackend(GrownBackend):
    """A backend that keeps dropped memory for the next allocation of the same size."""

    def __init__(self, *args: Any) -> None:
        self._kept: dict[int, list[int]] = {}  # size -> addresses
        self._keeping = threading.Lock()
        super().__init__(*args)

    @property
    def cached_bytes(self) -> int:
        """What is kept, for whoever asks why memory is not free."""
        with self._keeping:
            return sum(size * len(pointers) for size, pointers in self._kept.items())

    def recycle(self, pointer: int, nbytes: int) -> None:
        """A buffer is dropped."""
        with self._keeping:
            self._kept.setdefault(nbytes, []).append(pointer)

    def allocate(self, nbytes: int) -> int:
        with self._keeping:
            pointers = self._kept.get(nbytes)
            if pointers:
                return pointers.pop()
        return super().allocate(nbytes)

    def empty_cache(self) -> None:
        with self._keeping:
            kept, self._kept = self._kept, {}
        for pointers in kept.values():
            for pointer in pointers:
                self.free(pointer)
        super().empty_cache()
