"""What device memory went through while a track was open, by the line that allocated it: told by events, since the core's books have only what lives."""

from __future__ import annotations

import math
import sys
import threading
import time
from typing import TYPE_CHECKING

from .._control import call
from .._event_hooks import event_hook, flush_events
from .._native import _fast
from ._track_skip import skips

if TYPE_CHECKING:
    from collections.abc import Callable

    from .. import Event

MOST_FREERS = 64
"""Lines that free buffers of one line are told apart up to this number."""


class Tally:
    """The figures of one allocating line. Bytes and numbers of buffers since the track was opened."""

    __slots__ = ("allocations", "change", "freed_by", "freed_elsewhere", "frees", "largest", "lifetimes", "most", "total")

    def __init__(self) -> None:
        self.allocations = self.frees = self.total = self.largest = 0
        self.change = 0  # of what is alive, spilled or not
        self.most = 0  # the highest `change` was
        self.lifetimes: dict[tuple[int, bool], int] = {}  # two for each doubling: up to 3/4 of a power of two of seconds, and up to it
        self.freed_by: dict[str, int] = {}
        self.freed_elsewhere = 0

    def born(self, nbytes: int) -> None:
        self.allocations += 1
        self.total += nbytes
        self.largest = max(self.largest, nbytes)
        self.change += nbytes
        self.most = max(self.most, self.change)

    def gone(self, nbytes: int, seconds: float | None, line: str | None) -> None:
        """seconds: it lived; None: it is older than the track, and its end is none of the track's frees."""
        self.change -= nbytes
        if seconds is None:
            return
        self.frees += 1
        mantissa, power = math.frexp(seconds)
        bucket = power, mantissa >= 0.75
        self.lifetimes[bucket] = self.lifetimes.get(bucket, 0) + 1
        if line is None:
            return
        if line in self.freed_by or len(self.freed_by) < MOST_FREERS:
            self.freed_by[line] = self.freed_by.get(line, 0) + 1
        else:
            self.freed_elsewhere += 1

    def median_lifetime(self) -> float | None:
        """The middle of the bucket in which the median is: less than a quarter off. None: nothing was freed."""
        below = 0
        for (power, upper), count in sorted(self.lifetimes.items()):
            below += count
            if 2 * below >= self.frees:
                return math.ldexp(0.875 if upper else 0.625, power)
        return None

    def copy(self) -> Tally:
        other = Tally()
        for name in self.__slots__:
            value = getattr(self, name)
            setattr(other, name, dict(value) if isinstance(value, dict) else value)
        return other


class Churn:
    """Listens from `begin` to `end`.

    The hook is called inside each allocation and free: only so the line that frees can be seen, and the moment. Where Ctrl-C comes just in it, that event is
    lost: a buffer whose end was not seen has no lifetime. What is alive, and what was at the peak, is not told from here.
    """

    def __init__(self, meet: Callable[[str], object]) -> None:
        """meet: is called with the name of each device at its first buffer, before its owner has it."""
        self._meet = meet
        self._met: set[str | None] = set()
        self._lock = threading.RLock()  # a buffer may be collected while somebody reads
        self._hook = event_hook(self._hear, "device", sync=True)
        self._alive: dict[tuple[str | None, int | None], tuple[int, float]] = {}  # (device, address) -> (bytes, when it was made)
        self._tallies: dict[tuple[str | None, int], Tally] = {}  # by device and number of the origin
        self._heard = 0

    def begin(self) -> None:
        self._hook.__enter__()

    def end(self) -> None:
        """Once more is no harm."""
        if self._hook._tokens:
            self._hook.__exit__(None, None, None)

    def heard(self) -> int:
        """How many events were told so far. What waited to be told was told before."""
        flush_events()
        return self._heard

    def read(self, device: str) -> dict[str | None, Tally]:
        """By origin; None: buffers that have none."""
        with self._lock:
            found = {site: tally.copy() for (name, site), tally in list(self._tallies.items()) if name == device}
        return {call("OriginText", site) or None: tally for site, tally in found.items()}

    def _hear(self, event: Event) -> None:
        if _fast.forked():  # the lock may have been somebody's; and what a child allocates is in none of these reports
            return
        now = time.perf_counter()
        device, site = event.device, event.site or 0
        line = _freeing_line(event) if event.kind == "free" else None
        if device is not None and device not in self._met:
            self._met.add(device)
            self._meet(device)
        with self._lock:
            self._heard += 1
            if event.kind == "renew":  # spilled or restored: it lives on, elsewhere
                found = self._alive.pop((device, event.old), None)
                if found is not None:
                    self._alive[device, event.new] = found
                return
            if event.kind == "fail":
                return
            tally = self._tallies.get((device, site))
            if tally is None:
                tally = self._tallies[device, site] = Tally()
            if event.kind == "new":
                self._alive[device, event.new] = event.new_size, now
                tally.born(event.new_size)
            else:
                found = self._alive.pop((device, event.old), None)
                tally.gone(event.old_size, None if found is None else now - found[1], line)


def _freeing_line(event: Event) -> str | None:
    """The line of this thread that runs now, outside of what is skipped; None where another thread freed."""
    if event.thread != threading.get_native_id():
        return None
    frame = sys._getframe(2)
    while frame is not None:
        if not skips.cover(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return None
