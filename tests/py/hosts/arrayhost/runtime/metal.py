"""Metal, on a machine that has none: buffers in memory that host and device share, and a pool of dropped ones."""

import ctypes
import math
from typing import Any

import numpy as np

from .buffer import Buffer
from .driver import DriverError
from .grown import GrownBackend


class MetalBuffer(Buffer):
    """Memory that is the host's, too."""

    def __init__(self, backend: Any, dtype: np.dtype, shape: tuple[int, ...], foreign: int | None = None) -> None:
        nbytes = math.prod(shape) * dtype.itemsize
        self._view = backend.take(nbytes) if foreign is None and nbytes else None
        super().__init__(backend, dtype, shape, foreign if self._view is None else self._view.ctypes.data)

    def __del__(self) -> None:
        if getattr(self, "_view", None) is not None:
            self._backend.pool.setdefault(self._nbytes, []).append(self._view)


class MetalBackend(GrownBackend):
    """The one Metal device."""

    name, buffer_class, dlpack_type = "metal", MetalBuffer, 8
    libraries, functions, full = ("libc.so.6",), {}, ()  # stands in for the framework, of which nothing is called

    def _open(self) -> None:
        self.stream = 0
        self.pool: dict[int, list[np.ndarray]] = {}

    @property
    def cached_bytes(self) -> int:
        """What the pool keeps."""
        return sum(size * len(views) for size, views in self.pool.items())

    def take(self, nbytes: int) -> np.ndarray:
        kept = self.pool.get(nbytes)
        view = kept.pop() if kept else np.frombuffer(bytearray(nbytes), np.uint8)  # over an object, as Metal gives one
        view[:] = 0
        return view

    def _enter(self) -> None: ...

    def fill(self, pointer: int, value: int, nbytes: int) -> None:
        ctypes.memset(pointer, value, nbytes)

    def copy(self, destination: int, source: int, nbytes: int) -> None:
        ctypes.memmove(destination, source, nbytes)

    def synchronize_stream(self) -> None: ...

    def _allocate(self, nbytes: int) -> int:
        raise DriverError("Metal gives no address: a buffer has an object")  # buffers of this class never ask

    def _free(self, pointer: int) -> None: ...

    def empty_cache(self) -> None:
        self.pool.clear()
