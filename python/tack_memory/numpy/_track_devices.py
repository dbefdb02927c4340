"""Device memory in a report by line: the core's own origins and peaks, watched while a track is open."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import memory_peak, memory_report, set_origins
from .._errors import Holder
from .._holders import by_line
from .._native import _fast
from ._track_churn import Churn, Tally
from ._track_undo import Undo

if TYPE_CHECKING:
    from typing import Literal

    from .. import MemoryPeak


class DeviceSummary(NamedTuple):
    """The figures of one device in a report. Bytes."""

    device: str
    in_use: int
    spilled: int
    peak: int | None
    """The most that was in use while the track was open; None: nothing was allocated there since it was opened, inside the track."""
    exact: bool = True
    """Whether the figures of its lines are of one moment; False: other threads went on changing them each time that they were read."""


@dataclass
class Watched:
    summary: DeviceSummary
    holders: list[Holder]
    """Of what lives now, and, with nothing alive, of what lived at the peak only."""
    at_peak: dict[tuple[str | None, str | None], tuple[int, int]] | None
    """Bytes and number of buffers at the peak, by label and origin."""
    churn: dict[str | None, Tally]
    """What was allocated and freed meanwhile, by origin."""

    def copy(self) -> Watched:
        return Watched(self.summary, list(self.holders), None if self.at_peak is None else dict(self.at_peak), dict(self.churn))


TRIES = 10
"""How often figures are read again that others have changed meanwhile: the core's and ours are to be of one moment."""


class DeviceWatch:
    """From `begin` to `end`: every open device in a peak scope of its own, with origins on, and what becomes of each buffer."""

    def __init__(self) -> None:
        self._ended: list[Watched] | None = None
        self._scopes: dict[str, MemoryPeak] = {}
        self._churn = Churn(self._watch)
        self._undo = Undo()

    def begin(self) -> None:
        """Whatever this raises, `end` undoes what was done."""
        if _fast.forked():  # the core does not work there
            self._ended = []
            return
        me = object()
        self._undo.add(partial(_origins.release, me))
        _origins.hold(me)
        self._undo.add(self._end_scopes)
        self._undo.add(self._churn.end)
        self._churn.begin()
        for name in filter(None, _fast.device_names()):
            self._watch(name)

    def _watch(self, name: str) -> None:
        """Of a device that is opened later, from its first buffer on."""
        if name not in self._scopes:
            scope = memory_peak(name)
            scope.__enter__()
            self._scopes[name] = scope  # one that is dropped before that closes by itself

    def _end_scopes(self) -> None:
        while self._scopes:
            self._scopes.popitem()[1].__exit__(None, None, None)

    def end(self) -> None:
        """Once more is no harm: it goes on where Ctrl-C has stopped it."""
        if _fast.forked():  # it was opened in the parent
            self._ended = self._ended or []
            return
        if self._ended is None:
            try:
                self._ended = self.read()
            except Exception:
                self._undo.run()
                raise
        self._undo.run()

    def read(self) -> list[Watched]:
        if self._ended is not None:
            return [one.copy() for one in self._ended]
        if _fast.forked():
            return []
        return [self._read(name) for name in filter(None, _fast.device_names())]

    def _read(self, name: str) -> Watched:
        scope = self._scopes.get(name)
        for _ in range(TRIES):
            heard = self._churn.heard()
            report, churn = memory_report(name), self._churn.read(name)
            if exact := self._churn.heard() == heard:
                break
        holders, info = by_line(report.holders), report.info
        at_peak = None
        if scope is not None and (told := scope.at_peak) is not None:
            there = by_line(told)
            at_peak = {key: (holder.bytes, holder.count) for key, holder in there.items()}
            holders |= {key: Holder({"label": one.label, "origin": one.origin, "device": name}) for key, one in there.items() if key not in holders}
        return Watched(DeviceSummary(name, info.in_use, info.spilled, None if scope is None else scope.bytes, exact), list(holders.values()), at_peak, churn)


need_origins = _fast.need_origins  # a person who has stacks recorded keeps them

_LINE: tuple[Literal["line"]] = ("line",)


class _Origins:
    """Origins are on while somebody tracks."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler or a finalizer may come in between, and track by itself
        self._open: set[object] = set()
        self._before: list[Any] = []  # one, while they are ours: what set_origins returned

    def hold(self, track: object) -> None:
        with self._lock:
            self._open.add(track)
            if self._before:
                need_origins("line")  # it may be just at being set back
            else:
                self._before.extend(map(need_origins, _LINE))  # all in C: Ctrl-C comes before it or after it

    def release(self, track: object) -> None:
        """Once more is no harm."""
        with self._lock:
            self._open.discard(track)
            if self._open or not self._before:
                return
            set_origins(self._before[0])
            if not self._open:  # nobody came in between
                self._before.clear()

    def after_fork(self) -> None:
        self._lock = threading.RLock()  # the thread that had it does not exist in the child


_origins = _Origins()
os.register_at_fork(after_in_child=_origins.after_fork)
