"""Backends whose memory is never spilled (the CPU's, and Metal's): it is counted for as long as the host's buffer lives."""

from __future__ import annotations

import weakref
from functools import wraps

from .._logging import warning
from .._native import _fast
from . import _features
from ._arguments import Size
from ._counted import COUNTED, Count, adopt_beside_stale, count_of, stop, stop_where_moved

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .._native._fast import Buffer, Reservation


class CountedBuffers:
    """The buffers of one class, on one device. The host goes on allocating and freeing them."""

    def __init__(self, buffer: type, array: str, device: str, *, base_is_foreign: bool) -> None:
        self._buffer = buffer
        self._array = array  # the attribute with the NumPy array over the memory
        self._base_is_foreign = base_is_foreign  # an array with a base is over memory of somebody else; else (Metal) every array has one
        self.device = device
        self._told = False  # that something cannot be counted
        self._counted: weakref.WeakSet[Any] = weakref.WeakSet()

    def of(self, buffer: Any) -> Buffer | None:
        """Our Buffer that counts a host's buffer."""
        return count_of(buffer)

    def allocator(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The host's function that allocates: asks the budget first (a strict one may refuse), and counts what the host has made. What cannot be counted is
        the host's all the same: a warning says so once."""
        size = Size(original)

        @wraps(original)
        def allocate(*args: Any, **named: Any) -> Any:
            nbytes = size.of(args, named)
            if nbytes <= 0 or _fast.forked():  # in a forked child nothing can be adopted: there the host's arrays go uncounted
                return original(*args, **named)
            reservation = _fast.reserve(nbytes, self.device)
            try:
                buffer = original(*args, **named)
                try:
                    self._count(buffer, reservation)
                except ValueError as error:
                    self._tell(nbytes, error)
            finally:
                reservation.close()  # where it was used up this does nothing
            return buffer

        return allocate

    def _count(self, buffer: Any, reservation: Reservation | None) -> None:
        """ValueError where the memory is known already."""
        values = buffer.__dict__.get(self._array)
        if values is None or not values.nbytes:
            return

        def adopt(reserved: Reservation | None) -> Buffer:
            return _fast.adopt(values.ctypes.data, values.nbytes, self.device, how="host", reserved=reserved)

        buffer.__dict__[COUNTED] = Count(adopt_beside_stale(adopt, reservation, self._stop_stale))
        self._counted.add(buffer)

    def _stop_stale(self) -> bool:
        return stop_where_moved(self._counted, self._address_in)

    def _address_in(self, buffer: Any) -> int:
        values = buffer.__dict__.get(self._array)
        return 0 if values is None else int(values.ctypes.data)

    def _tell(self, nbytes: int, error: ValueError) -> None:
        if not self._told:
            self._told = True
            warning("%s: %d bytes of an array are not counted, nor will others be said that cannot be: %s", self.device, nbytes, error)

    def count_existing(self) -> list[Any]:
        """Count what the host made before; returns those that cannot be counted: memory that they do not own, or that overlaps what is known."""
        left = []
        for buffer in [one for one in _features.instances((self._buffer,)) if self._array in one.__dict__]:
            if count_of(buffer) is not None or (self._base_is_foreign and getattr(buffer.__dict__[self._array], "base", None) is not None):
                continue
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
