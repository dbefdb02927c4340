"""Who holds array memory, by source line: a block in which each line's allocations are counted, and its report."""

from __future__ import annotations

import collections
import contextlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from .. import _devices
from .._native import _numpy
from .._sizes import parse_size
from ._scopes import _process
from ._statistics import resident_memory, statistics
from ._track_coverage import Coverage, look_for_arrays
from ._track_devices import DeviceWatch, Watched
from ._track_report import Freed, Report, Row
from ._track_skip import beginnings_of, skips
from ._track_undo import Undo

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal, Self

    from ._track_churn import Tally
    from ._track_skip import Skip

DOMAINS = ("numpy", "device")

MOST_FREED = 4
"""As many of the lines that free a line's memory are named."""

OTHER, NO_LINE, SMALL = 1, 2, 3
"""Numbers that are no line's (bindings/numpy/sites.h)."""


class track:
    """Count array memory by the line that allocates it: `with tack_memory.numpy.track() as t: ...`, then `t.report()`.

    What is counted: every array whose memory NumPy allocates inside the block, in any thread. Where nothing is installed (`install`, `use`), the allocator
    that only counts is in force in the whole process meanwhile. Device memory is counted by tack_memory's core, with origins on (`set_origins`).

    Parameters
    ----------
    by : {"line"}, optional
        What a row of the report is.
    threshold : int or str, optional
        Bytes; arrays smaller than that share one row, and cost less.
    domains : iterable of {"numpy", "device"}, optional
        Whose memory.
    skip : iterable of str, path or module, optional
        Code that does not count as the allocating line: its caller does. A module or package, its dotted name, or a file or folder. NumPy and tack_memory
        are always skipped. What one open track skips, all do.

    Raises
    ------
    ValueError
        There is no such `by` or domain; the threshold is no size; no module or file has a name in `skip`.
    TypeError
        A wrong type of argument.
    RuntimeError
        On entering twice, on leaving without having entered, and on asking for a report before.

    Notes
    -----
    May be used in any thread; entered in one and left in another. Any number may be open, nested or overlapping: each has figures of its own interval. It
    keeps no array alive. In a forked child an open track goes on, with what its parent had counted; device memory is missing there.

    A resized array stays with the line that made it; to a track that was opened in between it is a new one. Lives and freeing lines are looked at for the first
    64 arrays of a line, and then for one in 16. There are at most 32,764 lines in a process, until it ends: what later ones allocate (code that is made
    again and again, each time with another file name, has many) is in one row, "(other lines)", in later tracks, too, and the report says so.
    """

    __slots__ = ("_began", "_devices", "_domains", "_ended", "_skip", "_threshold", "_track", "_undo")

    def __init__(
        self, by: Literal["line"] = "line", threshold: int | str = 0, domains: str | Iterable[str] = DOMAINS, skip: Skip | Iterable[Skip] = ()
    ) -> None:
        if by != "line":
            raise ValueError(f'a report is by "line", not by {by!r}')
        self._threshold = parse_size(threshold, None, of="an array")
        self._domains = _checked(domains)
        self._skip = beginnings_of(skip)
        self._track: object | None = None
        self._devices: DeviceWatch | None = None
        self._began = self._ended = False
        self._undo = Undo()

    def __enter__(self) -> Self:
        if self._began:
            raise RuntimeError("this track was entered already: make another one")
        _end_dropped()
        self._began = True
        try:
            self._begin()
        except BaseException:  # Ctrl-C may come at the end of any call
            self._ended = True
            self._end()
            raise
        return self

    def _begin(self) -> None:
        if "device" in self._domains:
            self._devices = DeviceWatch()
            self._undo.add(self._devices.end)
            self._devices.begin()
        if "numpy" in self._domains:
            _devices.count_numpy(_numpy.books())
            me = object()  # not the track itself: one that is dropped while it is open is to end
            self._undo.add(partial(skips.remove, me))
            skips.add(me, self._skip)
            self._undo.add(partial(_process.release_track, me))
            _process.hold_track(me)
            self._track = _numpy.track(self._threshold)

    def __exit__(self, *unused: object) -> None:
        if not self._began or self._ended:
            raise RuntimeError("this track was not entered, or has ended already")
        try:
            self._ended = True
            self._end()
            _end_dropped()
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        """Once more is no harm."""
        if self._track is not None:
            _numpy.end_track(self._track)
        self._undo.run()

    def __del__(self) -> None:
        if not getattr(self, "_undo", None):
            return
        if self._track is not None:
            _numpy.end_track(self._track)
        _dropped.append(self._undo)  # what takes locks cannot be done here

    def report(self, coverage: bool = True) -> Report:
        """Return what each line has allocated so far, or had at the end of the block.

        Parameters
        ----------
        coverage : bool, optional
            Look for arrays that are not counted, too: through all objects that Python's garbage collector knows, as they are now. That takes some tenths of
            a second for a million of them.

        Raises
        ------
        RuntimeError
            The block was not entered yet.

        Notes
        -----
        May be called from any thread, also while others allocate: NumPy's figures are those of one moment, and so are those of each device, except where its
        summary says that they are not `exact`: others have changed them each of the ten times that they were read.
        """
        if not self._began:
            raise RuntimeError("this track was not entered yet: there is nothing to report")
        report = Report(threshold=self._threshold, domains=self._domains)
        if self._track is not None:
            _fill(report, _numpy.read_track(self._track))
            report.overhead, report.resident = statistics().overhead, resident_memory()
        if self._devices is not None:
            for device in self._devices.read():
                _add_device(report, device)
        report.rows.sort(key=lambda row: (-(row.at_peak or 0), -(row.live or 0), -(row.total or 0), row.name))
        if coverage:
            report.coverage = Coverage(look_for_arrays(self._track is not None))
        return report

    def __repr__(self) -> str:
        return f"<track of {' and '.join(self._domains)}: {'ended' if self._ended else 'open' if self._began else 'not entered yet'}>"


_dropped: collections.deque[Undo] = collections.deque()
"""Of tracks that were dropped while open, or whose end Ctrl-C has stopped: what is left to undo, by the next one that is entered or left."""


def _end_dropped() -> None:
    for left in list(_dropped):
        left.run()
        with contextlib.suppress(ValueError):  # another thread has taken it out
            _dropped.remove(left)


def _checked(domains: str | Iterable[str]) -> tuple[str, ...]:
    names = (domains,) if isinstance(domains, str) else tuple(domains)
    for name in names:
        if name not in DOMAINS:
            raise ValueError(f"there is no domain {name!r} to track; there are {', '.join(DOMAINS)}")
    if not names:
        raise ValueError(f"domains is empty: name at least one of {', '.join(DOMAINS)}")
    return names


def _fill(report: Report, told: _numpy.Track) -> None:
    """The rows of NumPy's memory, and what was there before."""
    (in_use, peak, first, failed, peak_site, peak_after, seconds, is_open), rows = told
    report.in_use, report.peak, report.before, report.failed, report.seconds, report.open = in_use, peak, first, failed, seconds, is_open
    report.peak_after = peak_after
    report.peak_line = _name(peak_site, report.threshold) if peak_site else None
    for site, live, count, most, at_peak, at_peak_count, allocations, resizes, frees, total, largest, lifetime, freers, elsewhere in rows:
        freed = sorted((Freed(_name(line, report.threshold), times) for line, times in freers), key=lambda one: (-one.times, one.name))
        if elsewhere:
            freed.append(Freed("(other lines)", elsewhere))
        file, line, function = _numpy.site_name(site) or (None, None, None)
        report.rows.append(
            Row(
                "numpy",
                _name(site, report.threshold),
                file,
                line,
                function,
                live,
                count,
                at_peak,
                at_peak_count,
                most,
                allocations,
                resizes,
                frees,
                total,
                largest,
                lifetime,
                tuple(freed),
            )
        )
    live_before, peak_before = in_use - sum(row.live for row in report.rows), peak - sum(row.at_peak or 0 for row in report.rows)
    if live_before or peak_before:
        report.rows.append(Row("numpy", "(from before the track)", live=live_before, at_peak=peak_before))


def _name(site: int, threshold: int) -> str:
    found = _numpy.site_name(site)
    if found is not None:
        return f"{found[0]}:{found[1]}"
    return {OTHER: "(other lines)", NO_LINE: "(no line of Python)", SMALL: f"(arrays of less than {threshold:,} bytes)"}[site]


def _add_device(report: Report, watched: Watched) -> None:
    """The rows of one device. What lives, and what lived at the peak, is told by label and line; what was allocated and freed, by line: where buffers of one
    line have several labels, that is in a row of its own."""
    device = watched.summary.device
    report.devices.append(watched.summary)
    rows: dict[tuple[str | None, str | None], Row] = {}
    for holder in watched.holders:
        at_peak, at_peak_count = watched.at_peak.get((holder.label, holder.origin), (0, 0)) if watched.at_peak is not None else (None, None)
        rows[holder.label, holder.origin] = _device_row(device, holder.label, holder.origin, holder.bytes, holder.count, at_peak, at_peak_count)
    for origin, tally in watched.churn.items():
        keys = [key for key in rows if key[1] == origin]
        key = keys[0] if len(keys) == 1 else (None, origin)
        row = rows.get(key) or _device_row(device, None, origin, 0, 0, None if watched.at_peak is None else 0, None if watched.at_peak is None else 0)
        rows[key] = _with_churn(row, tally, alone=len(keys) <= 1)
    report.rows.extend(rows.values())


def _device_row(device: str, label: str | None, origin: str | None, live: int, count: int, at_peak: int | None, at_peak_count: int | None) -> Row:
    file, number = None, None
    if origin is not None and (last := origin.rpartition(":"))[2].isdecimal():  # else there are too many lines to tell them apart
        file, number = last[0], int(last[2])
    if label is None:
        name = origin or "(no line: allocated while origins were off)"
    else:
        name = label if origin is None else f"{label} ({origin})"
    return Row(device, name, file, number, None, live, count, at_peak, at_peak_count, label=label)


def _with_churn(row: Row, tally: Tally, *, alone: bool) -> Row:
    """alone: the row has all that lives of its line."""
    freed = sorted((Freed(line, times) for line, times in tally.freed_by.items()), key=lambda one: (-one.times, one.name))
    rest = tally.freed_elsewhere + sum(one.times for one in freed[MOST_FREED:])
    return replace(
        row,
        peak=row.live - tally.change + tally.most if alone else None,
        allocations=tally.allocations,
        frees=tally.frees,
        total=tally.total,
        largest=tally.largest,
        median_lifetime=tally.median_lifetime(),
        freed_by=(*freed[:MOST_FREED], *([Freed("(other lines)", rest)] if rest else [])),
    )
