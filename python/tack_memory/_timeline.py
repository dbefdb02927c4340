"""What was resident and spilled over time, from the events that a device records while somebody asks for them."""

from __future__ import annotations

import time
from _thread import RLock
from typing import NamedTuple

from ._control import call, call_json
from ._devices import resolve, resolve_name
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
"""Events that a device keeps by default, 48 bytes each; when there are more, the oldest are lost, and counted in `lost`."""

_lock = RLock()  # guards _recorders and the switching on and off
_recorders: dict[str, int] = {}  # device -> recorders that are open: the ring is switched off by the last one


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
        Events that are missing because more happened than the device keeps.

    Raises
    ------
    RuntimeError
        On entering twice, leaving without having entered, and asking for points before it was entered.

    Notes
    -----
    May be entered in one thread and left in another; any number may record the same device at a time.
    """

    __slots__ = ("_asked", "_capacity", "_end", "_events", "_first", "_start", "device", "lost")

    def __init__(self, device: Device = None, *, capacity: int = CAPACITY) -> None:
        if isinstance(capacity, bool) or not isinstance(capacity, int):
            raise TypeError(f"capacity must be an int (a number of events), not {type(capacity).__name__}")
        if not 1 <= capacity <= 2**26:
            raise ValueError(f"capacity must be between 1 and 2**26 events, not {capacity}")
        self._asked, self._capacity = device, capacity
        self.device: str | None = None
        self.lost = 0
        self._start = self._end = 0  # nanoseconds since 1970; _end is 0 while it records
        self._first: Point | None = None
        self._events: list[dict[str, Any]] = []

    def __enter__(self) -> Timeline:
        """Begin to record."""
        if self.device is not None:
            raise RuntimeError("this timeline was entered already; make another one")
        name = resolve_name(self._asked)
        with _lock:
            if not _recorders.get(name):
                call("RecordEvents", resolve(name), self._capacity)
            _recorders[name] = _recorders.get(name, 0) + 1
        info = _fast.memory_info(name)
        self._start = time.time_ns()
        self._first = Point(0.0, "start", 0, info.in_use, info.spilled, info.budget)
        self.device = name
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /) -> None:
        """Stop recording; the points stay."""
        if self.device is None or self._end:
            raise RuntimeError("this timeline is not recording")
        try:
            self._read()
        finally:
            self._end = time.time_ns()
            with _lock:
                _recorders[self.device] -= 1
                if not _recorders[self.device]:
                    call("RecordEvents", resolve(self.device), 0)

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
        """Write the points as a table: seconds, event, bytes, in_use, spilled, budget (empty where there is none), elapsed."""
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write("seconds,event,bytes,in_use,spilled,budget,elapsed\r\n")
            for point in self.points:
                budget = "" if point.budget is None else point.budget
                file.write(f"{point.seconds:.9f},{point.event},{point.nbytes},{point.in_use},{point.spilled},{budget},{point.elapsed:.9f}\r\n")

    def plot(self, ax: Any = None) -> Any:
        """Draw resident, spilled and budget over time; needs matplotlib.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; by default new axes.

        Returns
        -------
        matplotlib Axes
        """
        if ax is None:
            from matplotlib import pyplot

            _, ax = pyplot.subplots()
        points = self.points
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
        told = call_json("Events", resolve(self.device))
        self.lost = told["lost"]
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

    Notes
    -----
    May be called from any thread. Recording costs some nanoseconds an event, and nothing while nobody records.
    """
    return Timeline(device, capacity=capacity)


def _scale(nbytes: int) -> tuple[int, str]:
    for scale, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if nbytes >= scale:
            return scale, unit
    return 1, "B"
