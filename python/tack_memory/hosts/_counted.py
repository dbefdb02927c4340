"""Memory that a host makes, frees and never wants moved: it is counted for as long as the host's object lives, beside the pointer that stays as it is."""

from __future__ import annotations

import weakref
from functools import wraps

from .._logging import warning
from .._native import _fast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from .._native._fast import Buffer, Reservation

COUNTED = "_tack_memory"
"""Attribute of a host's object that is only counted: its Count."""


class Count:
    """What counts a host's object, for as long as that lives: our Buffer, which counts for as long as it does.

    It is in the object's `__dict__`, so that both end together whatever happens. So it is copied and pickled with the object, and that must go on
    as without us: a copy, whose memory is another, has None there and is not counted; a pickle can be read where there is no tack_memory."""

    __slots__ = ("buffer",)

    def __init__(self, buffer: Buffer) -> None:
        self.buffer: Buffer | None = buffer  # None: not counted any more, be it in however many shallow copies

    def __reduce__(self) -> Any:
        return type(None), ()


def count_of(owner: Any) -> Buffer | None:
    """Our Buffer that counts a host's object; None: nothing does."""
    count = owner.__dict__.get(COUNTED)
    return None if count is None else count.buffer


def stop(owner: Any) -> None:
    """Count a host's object no more, nor its shallow copies."""
    count = owner.__dict__.pop(COUNTED, None)
    if count is not None:
        count.buffer = None


def stop_where_moved(owners: Iterable[Any], address_in: Callable[[Any], int]) -> bool:
    """Count those objects no more whose memory is another one now; whether there were any."""
    counted = ((owner, count_of(owner)) for owner in list(owners))
    stale = [owner for owner, mine in counted if mine is not None and address_in(owner) != mine.device_ptr]
    for owner in stale:
        stop(owner)
    return bool(stale)


def adopt_beside_stale(adopt: Callable[[Reservation | None], Buffer], reserved: Reservation | None, stop_stale: Callable[[], bool]) -> Buffer:
    """Count memory. Where it overlaps what is counted already, that may be stale: the host frees its memory by itself, and may have done so, or have put
    another array in its place, without a word. ValueError where it is not."""
    try:
        return adopt(reserved)
    except ValueError:
        if not stop_stale():
            raise
        return adopt(None)  # the room that was reserved is free again


class Counted:
    """What one host has that is only counted."""

    def __init__(self, address_in: Callable[[Any], int]) -> None:
        self._address_in = address_in  # of the memory that an object has now
        self._told = False  # that something cannot be counted
        self._objects: weakref.WeakSet[Any] = weakref.WeakSet()

    def count(self, owner: Any, address: int, nbytes: int, device: str, reason: str, reserved: Reservation | None = None) -> None:
        """Count an object's memory until the object ends, or `forget`; an object that is counted already stays so. What cannot be counted is the host's all
        the same: a warning says so once."""
        if not address or not nbytes or count_of(owner) is not None:
            return

        def adopt(reserved: Reservation | None) -> Buffer:
            return _fast.adopt(address, nbytes, device, how="host", movable=False, reason=reason, reserved=reserved)

        try:
            owner.__dict__[COUNTED] = Count(adopt_beside_stale(adopt, reserved, self._stop_stale))
        except ValueError as error:
            if not self._told:
                self._told = True
                warning("%s: %d bytes (%s) are not counted, nor will others be said that cannot be: %s", device, nbytes, reason, error)
            return
        self._objects.add(owner)

    def _stop_stale(self) -> bool:
        return stop_where_moved(self._objects, self._address_in)

    def forget(self) -> None:
        """Count nothing any more."""
        for owner in list(self._objects):
            stop(owner)
        self._objects.clear()


def finalizer(original: Callable[[Any], None]) -> Callable[[Any], None]:
    """The end of an object that is counted: not counted any more, before the address can be somebody else's."""

    @wraps(original)
    def __del__(owner: Any) -> None:
        stop(owner)
        original(owner)

    return __del__
