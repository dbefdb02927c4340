"""`a[i:j]`: a part of an array over the same memory. It keeps the array's buffer and where in it it begins; the address is asked for at each launch."""

import math
from typing import Any

import numpy as np

from . import array as arrays
from .array import array


class view(array):
    """Elements from `offset` on of a buffer."""

    def __init__(self, whole: array, offset: int, shape: tuple[int, ...]) -> None:
        super().__init__(whole._buffer, whole.dtype, shape, whole._owner)
        self._offset = offset

    def numpy(self) -> np.ndarray:
        return self.read_range(0, self.size).reshape(self.shape)

    def read_range(self, start: int, count: int) -> np.ndarray:
        if start < 0 or count < 0 or start + count > self.size:
            raise IndexError(f"elements {start} to {start + count} of {self.size}")
        return self._buffer.read_range(self._offset + start, count)

    def reshape(self, *shape: Any) -> "view":
        return view(self, self._offset, super().reshape(*shape).shape)


def offset_of(a: array) -> int:
    """Where in its buffer an array begins, in elements."""
    return getattr(a, "_offset", 0)


def copyto(destination: array, source: Any) -> None:
    """As minihost's, for parts of arrays, too."""
    if not isinstance(destination, view) and not isinstance(source, view):
        arrays.copyto(destination, source)
    elif not isinstance(source, array):
        destination._buffer.write_range(offset_of(destination), np.broadcast_to(np.asarray(source, destination.dtype), destination.shape))
    elif (source.size, source.dtype) == (destination.size, destination.dtype):
        size = destination.dtype.itemsize
        destination._buffer.copy_range(offset_of(destination) * size, source._buffer, offset_of(source) * size, destination.nbytes)
    else:
        raise ValueError(f"cannot copy {source.shape} {source.dtype} to {destination.shape} {destination.dtype}")


_element = array.__getitem__


def _part_or_element(self: array, index: Any) -> Any:
    if not isinstance(index, slice):
        return _element(self, index)
    start, stop, step = index.indices(len(self))
    if step != 1:
        raise IndexError("a view takes neighbouring elements")
    length = max(stop - start, 0)
    return view(self, offset_of(self) + start * math.prod(self.shape[1:]), (length, *self.shape[1:]))


array.__getitem__ = _part_or_element  # minihost's arrays, loaded for this host, have views as well
