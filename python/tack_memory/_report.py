"""What holds the memory of a device: a consistent copy of the holders, the holds, what is spilled and why, and the caches."""

from __future__ import annotations

import sys
import time

from ._control import call_json
from ._devices import resolve_name, resolve_with_buffers
from ._errors import Holder
from ._native import _fast
from ._report_parts import PeakHolders, Spill, Thrashing
from ._sizes import format_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import PathLike
    from typing import Any, TextIO

    from ._devices import Device
    from ._native._fast import MemoryInfo
    from ._report_diff import ReportDiff


class MemoryReport:
    """What held the memory of one device at one moment. It keeps no buffer alive.

    Reports are made by `memory_report`, or read from a file (`MemoryReport.load`).

    Attributes
    ----------
    device : str
        "cuda:0".
    info : MemoryInfo
        The figures of the device.
    holders : list of Holder
        What holds memory, by label and origin (and stack, where stacks are recorded), the largest first.
    at_peak : PeakHolders or None
        What held memory when the peak was reached, since the last `reset_peak_memory`; None where origins are not recorded (`set_origins`).
    holds : dict of str to int
        Bytes on the device that cannot be spilled now, by reason.
    spilled : int
        Bytes of buffers that lie in host memory.
    spills : list of Spill
        Why buffers were spilled: which allocation or launch pushed which of them out, how often, and how long they stayed out; the one that moved most
        first. Recorded while origins are.
    spills_lost : int
        Spills of which the cause is not known, for origins were not recorded then.
    thrashing : Thrashing or None
        Arrays that take turns: each pushes another one out, again and again. None: there are none.
    cached : int or None
        Bytes that the device's caches keep and could give back; None: unknown.
    host_used, host_pooled : int
        Host memory of spilled copies, and what is kept ready for more of them, of all devices together.
    origins : {"off", "line", "stack"}
        What was recorded of buffers that are allocated, at that moment.
    seconds : float
        When it was, in seconds since 1970.
    """

    __slots__ = (
        "at_peak", "cached", "device", "holders", "holds", "host_pooled", "host_used", "info", "origins", "seconds", "spilled", "spills", "spills_lost",
        "thrashing",
    )  # fmt: skip

    def __init__(self, info: MemoryInfo, told: dict[str, Any]) -> None:
        pool, peak, thrashing = told.get("host_pool") or {}, told.get("at_peak"), told.get("thrashing")
        self.device: str = str(info.device)
        self.info: MemoryInfo = info
        self.holders: list[Holder] = [Holder(fields) for fields in told.get("holders") or ()]
        self.at_peak: PeakHolders | None = None if peak is None else PeakHolders.of(peak)
        self.holds: dict[str, int] = dict(sorted((told.get("unspillable") or {}).items(), key=lambda item: (-item[1], item[0])))
        self.spilled: int = sum(holder.spilled for holder in self.holders)
        self.spills: list[Spill] = [Spill.of(fields) for fields in told.get("spills") or ()]
        self.spills_lost: int = told.get("spills_lost") or 0
        self.thrashing: Thrashing | None = None if thrashing is None else Thrashing.of(thrashing)
        self.cached: int | None = info.cached
        self.host_used: int = pool.get("used") or 0
        self.host_pooled: int = pool.get("pooled") or 0
        self.origins: str = told.get("origins") or "off"
        self.seconds: float = (told.get("time_ns") or time.time_ns()) / 1e9

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values (ints of bytes; times in ns, as ints), fit for JSON."""
        return {
            "device": self.device,
            "time_ns": round(self.seconds * 1e9),
            "info": info_to_dict(self.info),
            "holders": [holder.to_dict() for holder in self.holders],
            "at_peak": None if self.at_peak is None else self.at_peak.to_dict(),
            "holds": dict(self.holds),
            "spilled": self.spilled,
            "spills": [spill.to_dict() for spill in self.spills],
            "spills_lost": self.spills_lost,
            "thrashing": None if self.thrashing is None else self.thrashing.to_dict(),
            "cached": self.cached,
            "host_pool": {"used": self.host_used, "pooled": self.host_pooled},
            "origins": self.origins,
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Write the report to a file, for `MemoryReport.load`, `python -m tack_memory report FILE` and `diff`.

        Raises
        ------
        TypeError
            The path is none: neither a string nor an os.PathLike.
        OSError
            The file cannot be written.
        """
        from ._snapshot import save

        save(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> MemoryReport:
        """Read a report that `save` wrote.

        Raises
        ------
        ValueError
            The file is no report, or one of a newer version of this package.
        TypeError
            The path is none: neither a string nor an os.PathLike.
        OSError
            The file cannot be read.
        """
        from ._snapshot import load

        return load(path)

    def relative_to(self, root: str | PathLike[str]) -> MemoryReport:
        """The same report, with the paths of files below a folder, such as the project's, shortened to what comes after it.

        Raises
        ------
        TypeError
            `root` is no path: neither a string nor an os.PathLike.
        """
        from ._snapshot import relative_to

        return relative_to(self, root)

    def diff(self, later: MemoryReport) -> ReportDiff:
        """Compare with a later report: what grew, shrank, is new or is gone, by label and origin. For leaks.

        Raises
        ------
        TypeError
            `later` is no MemoryReport.
        """
        from ._report_diff import ReportDiff

        return ReportDiff(self, later)

    def print(self, file: TextIO | None = None) -> None:
        """Write the report as text, to `file` or to the standard output.

        Raises
        ------
        TypeError
            `file` is no open text file.
        """
        write_text(str(self), file)

    def to_html(self, path: str | PathLike[str]) -> None:
        """Write the report as a web page: one file that needs no network, with tables that can be sorted and a flame graph.

        Raises
        ------
        TypeError
            The path is none: neither a string nor an os.PathLike.
        OSError
            The file cannot be written.
        """
        from ._report_page import page

        write_file(path, page(self).encode("utf-8"))

    def to_pprof(self, path: str | PathLike[str], *, kind: str = "in_use") -> None:
        """Write the report as a profile for `go tool pprof FILE`: what is in use and how many buffers that are, what was in use at the peak, and what is
        spilled (`-sample_index=in_use`, `buffers`, `at_peak`, `spilled`), by origin; by stack where stacks are recorded.

        Parameters
        ----------
        path : str or os.PathLike
            The file; "memory.pb.gz" is a usual name.
        kind : {"in_use", "buffers", "at_peak", "spilled"}
            What pprof shows unless it is asked for another one; the file has all of them.

        Raises
        ------
        ValueError
            There is no such kind.
        TypeError
            The path is none: neither a string nor an os.PathLike. Or the kind is no string.
        OSError
            The file cannot be written.
        """
        from ._report_pprof import profile

        write_file(path, profile(self, kind))

    def __str__(self) -> str:
        from ._report_text import to_text

        return to_text(self)

    def __repr__(self) -> str:
        return f"<MemoryReport {self.device}: {format_bytes(self.info.in_use)} in use by {len(self.holders)} holder{'' if len(self.holders) == 1 else 's'}>"

    def _repr_html_(self) -> str:
        from ._cards import report_card

        return report_card(self)


def write_text(text: str, file: TextIO | None) -> None:
    """Print a text, and say what is wrong with a file that is no open text file."""
    wrong = f"file must be an open text file (what print() writes to), not {type(file).__name__}"
    if file is not None and not callable(getattr(file, "write", None)):
        raise TypeError(wrong)
    try:
        print(text, file=sys.stdout if file is None else file)
    except TypeError as error:  # a file of bytes, which only tells by its write
        raise TypeError(f"{wrong}, which takes no str") from error


def write_file(path: str | PathLike[str], content: bytes) -> None:
    """Write a file. The content is whole before it is opened: what cannot be made leaves an old file as it was."""
    name = file_path(path)
    try:
        with open(name, "wb") as file:
            file.write(content)
    except OSError as error:
        if error.filename is None:  # as where the disk is full
            error.filename = name
        raise


def file_path(path: str | PathLike[str]) -> str:
    """The name of a file. `open` would take an int for the number of an open file, write there, and close it."""
    import os

    try:
        name: object = os.fspath(path)
    except TypeError:
        name = None
    if not isinstance(name, str):
        raise TypeError(f"path must be the name of a file (a str or an os.PathLike), not {type(path).__name__}")
    return name


def memory_report(device: Device = None) -> MemoryReport:
    """Return what holds the memory of a device: holders by origin, holds by reason, what is spilled, and caches.

    Parameters
    ----------
    device : device, optional
        Which device; by default the current one.

    Raises
    ------
    ValueError, TypeError
        There is no such device.
    ForkError
        In a forked child process, for any device but the CPU.

    Notes
    -----
    May be called from any thread, also while others allocate. All of it is of one moment: the holders' parts on the device add up to
    `info.in_use`, those in host memory to `info.spilled`.
    """
    name = resolve_name(device)
    if name == "cpu" and _fast.forked():
        return _report_in_child(name)
    told = call_json("Report", resolve_with_buffers(name))
    return MemoryReport(info_from(told), told)


def info_from(told: dict[str, Any]) -> MemoryInfo:
    """The MemoryInfo of what Go's Report tells, with what follows from it."""
    figures: dict[str, Any] = {name: None if value == -1 else value for name, value in told["info"].items()}
    in_use, budget, free, cached = (figures[name] for name in ("in_use", "budget", "device_free", "cached"))
    figures.update(
        device=told["device"],
        footprint=in_use + figures["spilled"],
        available=None if free is None or cached is None else free + cached,
        over_budget=0 if budget is None else max(0, in_use - budget),
        pending_free=figures["pending_free"] + figures["driver_pending"],
        host_bytes=told["host_pool"]["used"] + told["host_pool"]["pooled"],
    )
    shown = ("in_use", "peak", "cached", "spilled", "device_free", "device_total")
    others = {name: figures[name] for name in INFO_FIELDS if name not in shown}
    return _fast.MemoryInfo([figures[name] for name in shown], others)  # type: ignore[call-arg]  # as every structure sequence: its fields, and the rest by name


_TRIES = 100


def _report_in_child(name: str) -> MemoryReport:
    """The report of a device that works in a forked child, where Go cannot be asked: from the Buffers themselves.

    Where another thread allocates between the look at them and at the figures, they do not add up, and both are looked at again."""
    for _ in range(_TRIES):
        told, info = _told_in_child(name), _fast.memory_info(name)
        if sum(holder["bytes"] for holder in told["holders"]) == info.in_use:
            break
    return MemoryReport(info, told)


def _told_in_child(name: str) -> dict[str, Any]:
    """What Go's Report would tell, without the figures."""
    groups: dict[tuple[str | None, str | None], dict[str, Any]] = {}
    total = 0
    for buffer in _fast.alive():
        if buffer.device != name:
            continue
        empty = {"label": buffer.label, "origin": buffer.origin, "device": name, "bytes": 0, "resident": 0, "spilled": 0, "count": 0}
        group = groups.setdefault((buffer.label, buffer.origin), empty)
        group["bytes"] += buffer.nbytes
        group["resident"] += buffer.nbytes
        group["count"] += 1
        total += buffer.nbytes
    holders = sorted(groups.values(), key=lambda group: (-group["bytes"], group["label"] or "", group["origin"] or ""))
    return {"holders": holders, "unspillable": {"device memory is host memory": total} if total else {}}


def info_to_dict(info: MemoryInfo) -> dict[str, Any]:
    """A MemoryInfo with its attributes as a dict of plain values."""
    return {name: getattr(info, name) for name in INFO_FIELDS}


INFO_FIELDS = (
    "device", "in_use", "peak", "cached", "spilled", "device_free", "device_total", "budget", "strict", "footprint", "available", "reserved",
    "pending_free", "over_budget", "over_budget_count", "spill_count", "restore_count", "spilled_bytes", "restored_bytes", "received_bytes", "host_bytes",
    "driver_allocated",
)  # fmt: skip
