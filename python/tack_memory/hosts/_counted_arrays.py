"""Backends whose memory is never spilled (the CPU's, and Metal's): it is counted for as long as the host's buffer lives."""

from __future__ import annotations

import weakref
from functools import wraps

from .._native import _fast
from . import _features
from ._counted import COUNTED, Count, count_of, stop
from ._room import bytes_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .._native._fast import Buffer, Reservation


class CountedBuffers:
    """The buffers of one class, on one device. The host goes on allocating and freeing them."""

    def __init__(self, buffer: type, array: str, device: str) -> None:
        self._buffer = buffer
        self._array = array  # the attribute with the NumPy array over the memory
        self.device = device
        self._counted: weakref.WeakSet[Any] = weakref.WeakSet()

    def of(self, buffer: Any) -> Buffer | None:
        """Our Buffer that counts a host's buffer."""
        return count_of(buffer)

    def allocator(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The host's function that allocates: asks the budget first (a strict one may refuse), and counts what the host has made."""

        @wraps(original)
        def allocate(backend: Any, dtype: Any, shape: Any, *args: Any, **named: Any) -> Any:
            nbytes = bytes_of(dtype, shape)
            if nbytes <= 0 or _fast.forked():  # in a forked child nothing can be adopted: there the host's arrays go uncounted
                return original(backend, dtype, shape, *args, **named)
            reservation = _fast.reserve(nbytes, self.device)
            try:
                buffer = original(backend, dtype, shape, *args, **named)
                self._count(buffer, reservation)
            finally:
                reservation.close()  # where it was used up this does nothing
            return buffer

        return allocate

    def _count(self, buffer: Any, reservation: Reservation | None) -> None:
        values = buffer.__dict__[self._array]
        if values.nbytes:
            buffer.__dict__[COUNTED] = Count(_fast.adopt(values.ctypes.data, values.nbytes, self.device, how="host", reserved=reservation))
            self._counted.add(buffer)

    def count_existing(self) -> list[Any]:
        """Count what the host made before; returns those that cannot be counted: memory that they do not own, or that overlaps what is known."""
        left = []
        for buffer in [one for one in _features.instances((self._buffer,)) if self._array in one.__dict__]:
            if count_of(buffer) is not None or buffer.__dict__[self._array].base is not None:
                continue  # counted; or over memory of somebody else
            try:
                self._count(buffer, None)
            except ValueError:
                left.append(buffer)
        return left

    def give_back(self) -> None:
        """Count nothing any more."""
        for buffer in list(self._counted):
            stop(buffer)
        self._counted.clear()
