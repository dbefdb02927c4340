"""What was resident and spilled over time, from the events that a device records while somebody asks for them."""

from __future__ import annotations

import os
import time
from _thread import RLock
from typing import NamedTuple
from weakref import finalize

from ._control import call, call_json
from ._devices import resolve_name, resolve_with_buffers
from ._errors import leaving
from ._native import _fast
from ._sizes import format_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import PathLike
    from types import TracebackType
    from typing import Any

    from ._devices import Device


class Point(NamedTuple):
    """The figures of a device after one event, in bytes."""

    seconds: float  # since the start of the recording
    event: str
    nbytes: int  # of the buffer that the event is about
    in_use: int
    spilled: int
    budget: int | None
    elapsed: float = 0.0  # seconds that a spill or a restore took


CAPACITY = 65_536
"""Events that a device keeps by default, 56 bytes each; when there are more, the oldest are lost, and counted in `lost`."""

_lock = RLock()  # guards the switching on and off
_recorders: dict[str, set[object]] = {}  # device -> a token of each timeline that is open: the ring is switched off by the last one
_recording: set[str] = set()  # devices whose ring is on


def _new_in_child() -> None:
    """The recordings are the parent's, and so is the thread that has the lock."""
    global _lock
    _lock = RLock()
    _recorders.clear()
    _recording.clear()


os.register_at_fork(after_in_child=_new_in_child)


def _settle(name: str, capacity: int, *, wait: bool = True) -> None:
    """Switch the ring of a device on or off, as its open timelines need it. Without `wait`, who has the lock does it when it is done."""
    while bool(_recorders.get(name)) != (name in _recording):
        if not _lock.acquire(blocking=wait):
            return
        try:
            if bool(_recorders.get(name)) and name not in _recording:
                call("RecordEvents", resolve_with_buffers(name), capacity)
                _recording.add(name)
            elif not _recorders.get(name) and name in _recording:
                _recording.discard(name)
                call("RecordEvents", resolve_with_buffers(name), 0)
        finally:
            _lock.release()


def _drop(name: str, token: object) -> None:
    """A timeline is gone. This may be in the middle of anything, so it waits for nothing."""
    if not _fast.forked():
        _recorders.get(name, set()).discard(token)
        _settle(name, 0, wait=False)


class Timeline:
    """The memory of one device over time: `with record_timeline() as timeline: ...`, then `timeline.to_csv(path)`, `timeline.plot()`.

    Each allocation, free, spill, restore, adoption and change of the budget is one point. The points can be read while it records.
    The parameters are those of `record_timeline`, which makes it.

    Attributes
    ----------
    device : str or None
        "cuda:0"; None before it was entered.
    points : list of Point
        (seconds since the start, event, bytes of the buffer, in_use, spilled, budget or None, seconds that a spill or restore took), in
        order; the first one is the start.
    lost : int
        Events of this recording that are missing because more happened than the device keeps.

    Raises
    ------
    RuntimeError
        On entering twice, leaving without having entered, and asking for points before it was entered.

    Notes
    -----
    May be entered in one thread and left in another; any number may record the same device at a time. One that is dropped while open ends. In a
    forked child process nothing can be recorded, also not on the CPU (ForkError on entry), and leaving one that the parent entered does nothing.
    """

    __slots__ = ("__weakref__", "_asked", "_before", "_capacity", "_end", "_events", "_first", "_stop", "_start", "device", "lost")

    def __init__(self, device: Device = None, *, capacity: int = CAPACITY) -> None:
        if isinstance(capacity, bool) or not isinstance(capacity, int):
            raise TypeError(f"capacity must be an int (a number of events), not {type(capacity).__name__}")
        if not 1 <= capacity <= 2**26:
            raise ValueError(f"capacity must be between 1 and 2**26 events, not {capacity}")
        self._asked, self._capacity = device, capacity
        self.device: str | None = None
        self.lost: int = 0
        self._start = self._end = 0  # nanoseconds since 1970; _end is 0 while it records
        self._before = 0  # events that were recorded before it began
        self._first: Point | None = None
        self._events: list[dict[str, Any]] = []

    def __enter__(self) -> Timeline:
        """Begin to record."""
        if self.device is not None:
            raise RuntimeError("this timeline was entered already; make another one")
        name = resolve_name(self._asked)
        token = object()
        self._stop = finalize(self, _drop, name, token)
        self._stop.atexit = False  # then all ends
        try:
            _recorders.setdefault(name, set()).add(token)
            _settle(name, self._capacity)
            self._before = call("EventCount", resolve_with_buffers(name))
        except BaseException:
            self._stop()
            raise
        info = _fast.memory_info(name)
        self._start = time.time_ns()
        self._first = Point(0.0, "start", 0, info.in_use, info.spilled, info.budget)
        self.device = name
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /) -> None:
        """Stop recording; the points stay."""
        if self.device is None or self._end:
            raise RuntimeError("this timeline is not recording")
        with leaving(f"record_timeline: reading the last events of {self.device}", error):
            try:
                self._read()
            finally:
                self._end = time.time_ns()
                self._stop()

    @property
    def points(self) -> list[Point]:
        """The recorded points, the start first."""
        if self._first is None:
            raise RuntimeError("this timeline was not entered, so it has no points")
        if not self._end:
            self._read()
        points = [self._first]
        for event in self._events:
            seconds = (event["ns"] - self._start) / 1e9
            budget = event["budget"]
            figures = event["bytes"], event["in_use"], event["spilled"], None if budget < 0 else budget
            points.append(Point(seconds, event["kind"], *figures, event["elapsed"] / 1e9))
        return points

    def to_csv(self, path: str | PathLike[str]) -> None:
        """Write the points as a table: seconds, event, bytes, in_use, spilled, budget (empty where there is none), elapsed.

        Raises
        ------
        TypeError
            The path is none: neither a string nor an os.PathLike.
        """
        from ._report import file_path

        path = file_path(path)
        points = self.points  # before the file is emptied: there may be none
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write("seconds,event,bytes,in_use,spilled,budget,elapsed\r\n")
            for point in points:
                budget = "" if point.budget is None else point.budget
                file.write(f"{point.seconds:.9f},{point.event},{point.nbytes},{point.in_use},{point.spilled},{budget},{point.elapsed:.9f}\r\n")

    def to_html(self, path: str | PathLike[str]) -> None:
        """Write the points as a web page: one file that needs no network, with a picture to zoom into and to point at, also of 10^5 events.

        Raises
        ------
        TypeError
            The path is none: neither a string nor an os.PathLike.
        RuntimeError
            It was not entered, so it has no points.
        OSError
            The file cannot be written.
        """
        from ._report import write_file
        from ._timeline_page import page

        points = self.points
        end = self._end or time.time_ns()
        write_file(path, page(str(self.device), points, (end - self._start) / 1e9, self.lost).encode("utf-8"))

    def plot(self, ax: Any = None) -> Any:
        """Draw resident, spilled and budget over time; needs matplotlib.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; by default new axes.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        ModuleNotFoundError
            matplotlib is not installed.
        TypeError
            `ax` is something else.
        """
        try:
            from matplotlib.axes import Axes
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("Timeline.plot draws with matplotlib, which is not installed: pip install matplotlib", name=error.name) from error

        if ax is not None and not isinstance(ax, Axes):
            raise TypeError(f"ax must be one matplotlib Axes, not {type(ax).__name__}")
        points = self.points
        if ax is None:
            from matplotlib import pyplot

            _, ax = pyplot.subplots()
        seconds = [point.seconds for point in points]
        scale, unit = _scale(max(point.in_use + point.spilled for point in points))
        resident = [point.in_use / scale for point in points]
        spilled = [point.spilled / scale for point in points]
        ax.stackplot(seconds, resident, spilled, labels=["resident", "spilled"], colors=["#2e86c1", "#f5b041"], step="post")
        budgets = [None if point.budget is None else point.budget / scale for point in points]
        if any(budget is not None for budget in budgets):
            ax.step(seconds, [float("nan") if budget is None else budget for budget in budgets], where="post", color="#c0392b", label="budget")
        ax.set_xlabel("seconds")
        ax.set_ylabel(unit)
        ax.set_title(str(self.device))
        ax.set_ylim(bottom=0)
        ax.legend(loc="upper left")
        return ax

    def __repr__(self) -> str:
        if self._first is None:
            return "<Timeline: not entered>"
        points = self.points
        highest = format_bytes(max(point.in_use for point in points))
        lost = f", {self.lost} events lost" if self.lost else ""
        return f"<Timeline {self.device}: {len(points)} points, highest {highest} in use{lost}>"

    def _read(self) -> None:
        """Take what the device has recorded since the start. Events from before it belong to another recorder."""
        told = call_json("Events", resolve_with_buffers(self.device))
        self.lost = max(0, told["lost"] - self._before)  # the oldest ones are overwritten first: those from before the start, where there are any
        self._events = [event for event in told["events"] if event["ns"] >= self._start]


def record_timeline(device: Device = None, *, capacity: int = CAPACITY) -> Timeline:
    """Record the memory of a device over time: `with record_timeline() as timeline: ...`, then `timeline.plot()`.

    Parameters
    ----------
    device : device, optional
        Which device; by default the current one. It is looked up on entry.
    capacity : int
        Events to keep. Where another timeline records the same device already, its capacity stays.

    Raises
    ------
    TypeError, ValueError
        The capacity is no int between 1 and 2**26; on entry: there is no such device.
    ForkError
        On entry, in a forked child process, for any device. The figures of the CPU go on there, as they are counted in C; events are kept by the
        Go half of the library, and nothing of it can run in a forked child.

    Notes
    -----
    May be called from any thread. Recording costs about 100 ns an event, most of it for reading the clock, and nothing while nobody records.
    """
    return Timeline(device, capacity=capacity)


def _scale(nbytes: int) -> tuple[int, str]:
    for scale, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if nbytes >= scale:
            return scale, unit
    return 1, "B"
