"""How a host's buffers are read and written by the host: on the host copy of what is spilled, which brings nothing back to the device.

Whatever is unusual (wrong sizes, memory that is not ours, arguments by name, which each host calls as it likes) is left to the host's own method: it raises
what its users expect, and reads a valid pointer through the slot if it goes on.
"""

from __future__ import annotations

from functools import wraps

from ._pointer_buffers import ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .._native._fast import Buffer, BufferView


def reader(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A method that copies the contents to the host."""

    @wraps(original)
    def to_numpy(buffer: Any) -> Any:
        mine = ours(buffer)
        if mine is None:
            return original(buffer)
        return read(mine, buffer._shape, buffer._numpy_dtype)

    return to_numpy


def range_reader(original: Callable[..., Any]) -> Callable[..., Any]:
    """A method that copies elements start to start + count to the host."""

    @wraps(original)
    def read_range(buffer: Any, *args: Any, **named: Any) -> Any:
        mine = ours(buffer)
        if mine is None or named or len(args) != 2:
            return original(buffer, *args, **named)
        start, count = args
        itemsize = buffer._numpy_dtype.itemsize
        if start < 0 or count < 0 or (start + count) * itemsize > buffer._nbytes:
            return original(buffer, start, count)
        return read(mine, (count,), buffer._numpy_dtype, start * itemsize)

    return read_range


def writer(original: Callable[..., None]) -> Callable[..., None]:
    """A method that overwrites the contents with as many of the host's values."""
    import numpy

    @wraps(original)
    def from_numpy(buffer: Any, *args: Any, **named: Any) -> None:
        mine = ours(buffer)
        if mine is not None and len(args) == 1 and not named:
            values = numpy.ascontiguousarray(args[0], buffer._numpy_dtype)
            if values.nbytes == buffer._nbytes:
                mine.copy_from_host(values.reshape(-1).view(numpy.uint8))
                return
        original(buffer, *args, **named)

    return from_numpy


def range_writer(original: Callable[..., None]) -> Callable[..., None]:
    """A method that overwrites elements from start on with the host's values."""
    import numpy

    @wraps(original)
    def write_range(buffer: Any, *args: Any, **named: Any) -> None:
        mine = ours(buffer)
        if mine is not None and len(args) == 2 and not named:
            start, values = args
            values = numpy.ascontiguousarray(values, buffer._numpy_dtype)
            offset = start * buffer._numpy_dtype.itemsize
            if start >= 0 and offset + values.nbytes <= buffer._nbytes:
                mine.copy_from_host(values.reshape(-1).view(numpy.uint8), offset)
                return
        original(buffer, *args, **named)

    return write_range


def read(mine: Buffer | BufferView, shape: tuple[int, ...], dtype: Any, offset: int = 0) -> Any:
    """A new NumPy array with the contents from `offset` on."""
    import numpy

    values = numpy.empty(shape, dtype)
    mine.copy_to_host(values.reshape(-1).view(numpy.uint8), offset, values.nbytes)
    return values


def byte_filler(original: Callable[..., None]) -> Callable[..., None]:
    """A method that sets every byte."""

    @wraps(original)
    def fill_bytes(buffer: Any, *args: Any, **named: Any) -> None:
        mine = ours(buffer)
        if mine is None or named or len(args) != 1:
            original(buffer, *args, **named)
        else:
            mine.fill(args[0])

    return fill_bytes


def filler(original: Callable[..., None]) -> Callable[..., None]:
    """A method that sets every element: to one value, or as NumPy's `full` spreads several over the shape."""
    import numpy

    @wraps(original)
    def fill(buffer: Any, *args: Any, **named: Any) -> None:
        mine = ours(buffer)
        if mine is None or named or len(args) != 1:
            original(buffer, *args, **named)
            return
        value = args[0]
        if numpy.ndim(value) == 0:
            mine.fill(numpy.full(1, value, buffer._numpy_dtype).tobytes())
        else:
            mine.copy_from_host(numpy.full(buffer._shape, value, buffer._numpy_dtype).reshape(-1).view(numpy.uint8))

    return fill
