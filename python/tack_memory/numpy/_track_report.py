"""A report of array memory by source line."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from .._sizes import format_bytes, format_seconds

if TYPE_CHECKING:
    from typing import TextIO

    from ._track_coverage import Coverage
    from ._track_devices import DeviceSummary


class Freed(NamedTuple):
    """A line that freed arrays of another line."""

    name: str
    """"file:line"."""
    times: int
    """How many, of those that were looked at: all up to 64 of a line, then one in 16."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one line of Python allocated, on one device. Bytes and numbers of arrays (or buffers); None: not known."""

    device: str
    """"numpy", "cuda:0"."""
    name: str
    """"file:line", or in brackets what it is instead; of device memory with a label, that."""
    file: str | None = None
    line: int | None = None
    function: str | None = None
    """The function that the line is in; of code that was made several times, the first one's."""
    live: int = 0
    live_count: int | None = None
    at_peak: int | None = None
    """What of it was live when the device's peak was reached: these add up to the peak."""
    at_peak_count: int | None = None
    peak: int | None = None
    """The most that `live` was."""
    allocations: int | None = None
    resizes: int | None = None
    frees: int | None = None
    total: int | None = None
    """Of all allocations and resizes."""
    largest: int | None = None
    """The largest one."""
    median_lifetime: float | None = None
    """Seconds from an array's making, or its last resize, to its free: half of those that were freed lived longer. Less than a quarter off; None: none was
    freed."""
    freed_by: tuple[Freed, ...] = ()
    """The lines that freed most of them: at most four, the most frequent first, and the rest."""
    label: str | None = None

    @property
    def churn(self) -> float | None:
        """How often the line's peak was allocated: `total / peak`. None: not known."""
        return self.total / self.peak if self.total is not None and self.peak else None


@dataclass
class Report:
    """What held array memory, line by line, at one moment. It keeps no array alive.

    Attributes
    ----------
    rows : list of Row
        What held most at the peak first.
    in_use, peak, before : int
        Bytes of NumPy's counted arrays: at that moment, the most since the track was opened, and when it was opened.
    peak_after, peak_line : float, str or None
        When the peak was reached, in seconds since the track was opened, and the line whose allocation did it; None: it was as high when the track was opened.
    seconds : float
        How long the track was open so far.
    failed : int
        Requests that got no memory.
    devices : list of DeviceSummary
        The figures of each device with memory of tack_memory.
    coverage : Coverage or None
        What is not in the report, and how much; None: it was not asked for.
    threshold : int
        Smaller arrays share a row. Bytes.
    open : bool
        The track was open still.
    domains : tuple of str
        Whose memory was tracked; figures of the others are 0 here.
    overhead : int
        Bytes around NumPy's counted arrays that no array sees, when the report was made: headers and alignment.
    resident : int or None
        Memory that the system gave the whole process, when the report was made: array memory that was freed mostly stays with it for a while. Bytes; None:
        the system does not say.
    """

    rows: list[Row] = field(default_factory=list)
    in_use: int = 0
    peak: int = 0
    before: int = 0
    peak_after: float = 0.0
    peak_line: str | None = None
    seconds: float = 0.0
    failed: int = 0
    devices: list[DeviceSummary] = field(default_factory=list)
    coverage: Coverage | None = None
    threshold: int = 0
    open: bool = False
    domains: tuple[str, ...] = ("numpy", "device")
    overhead: int = 0
    resident: int | None = None

    def summary(self) -> list[str]:
        """The totals in words, a line each."""
        state = "so far" if self.open else "at the end"
        reached = f"reached after {format_seconds(self.peak_after)} by {self.peak_line}" if self.peak_line is not None else "as when the track was opened"
        lines = []
        if "numpy" in self.domains:
            lines = [
                f"NumPy's arrays: {format_bytes(self.in_use)} in use {state}, after {format_seconds(self.seconds)};"
                f" {format_bytes(self.before)} when the track was opened",
                f"peak: {format_bytes(self.peak)}, {reached}",
                f"around them: {format_bytes(self.overhead)} of headers and alignment"
                + ("" if self.resident is None else f"; the whole process has {format_bytes(self.resident)} of memory"),
            ]
        if self.failed:
            lines.append(f"requests that got no memory: {self.failed:,}")
        if any(row.device == "numpy" and row.name == "(other lines)" for row in self.rows):
            lines.append("no more lines can be told apart in this process (32,764 have allocated): what new ones allocate is in the row (other lines)")
        for one in self.devices:
            lines.append(f"{one.device}: {format_bytes(one.in_use)} in use, {format_bytes(one.spilled)} spilled; peak: {format_bytes(one.peak)}")
            if not one.exact:
                lines.append(f"{one.device}: other threads allocated and freed while this was read: what is alive and what was freed may differ by that")
        if self.coverage is not None:
            lines.append(str(self.coverage))
        return lines

    def print(self, file: TextIO | None = None, top: int = 20, width: int | None = None) -> None:
        """Write the report as text.

        Parameters
        ----------
        file : text file, optional
            Where to; by default the standard output.
        top : int, optional
            How many rows.
        width : int, optional
            Columns of text; by default those of the terminal.

        Raises
        ------
        OSError
            It cannot be written.

        Notes
        -----
        May be called from any thread.
        """
        out = sys.stdout if file is None else file
        text = self.to_text(top, shutil.get_terminal_size((100, 24)).columns if width is None else width) + "\n"
        encoding = getattr(out, "encoding", None) or "utf-8"
        out.write(text.encode(encoding, "backslashreplace").decode(encoding))

    def to_text(self, top: int = 20, width: int = 100) -> str:
        """The report as text of that many columns; totals are never cut."""
        columns = fitting(width)
        room = width - sum(1 + column.width for column in columns)
        lines = [plain(line) for line in self.summary()]
        lines.append(" ".join(f"{column.head:>{column.width}}" for column in columns) + " line")
        for row in self.rows[:top]:
            lines.append(" ".join(f"{column.text(row):>{column.width}}" for column in columns) + " " + described(row, room))
        rest = self.rows[top:]
        if rest:
            at_peak, live = sum(row.at_peak or 0 for row in rest), sum(row.live for row in rest)
            lines.append(f"and {len(rest):,} more lines: {format_bytes(at_peak)} at the peak, {format_bytes(live)} live")
        if not self.rows:
            lines.append("nothing was allocated")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.to_text()

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values (bytes, seconds), fit for JSON."""
        found = asdict(self)
        found["rows"] = [{**asdict(row), "freed_by": [one._asdict() for one in row.freed_by], "churn": row.churn} for row in self.rows]
        found["devices"] = [one._asdict() for one in self.devices]
        found["coverage"] = None if self.coverage is None else self.coverage.to_dict()
        return found

    def to_json(self, indent: int | None = None) -> str:
        """The same as JSON."""
        return json.dumps(self.to_dict(), indent=indent)

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """The report as a web page of one file, whose table is sorted by clicks on its heads. It needs no network.

        Parameters
        ----------
        path : path, optional
            Where to write it, too.

        Raises
        ------
        OSError
            It cannot be written.

        Notes
        -----
        May be called from any thread.
        """
        from ._track_html import page

        text = page(self)
        if path is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return text

    def to_pprof(self, path: str | os.PathLike[str]) -> None:
        """Write the report for `go tool pprof`: bytes live, bytes at the peak, allocations and bytes of all of them, by line.

        Raises
        ------
        OSError
            It cannot be written.

        Notes
        -----
        May be called from any thread.
        """
        from ._track_pprof import profile

        with open(path, "wb") as file:
            file.write(profile(self))

    def _repr_html_(self) -> str:
        from ._track_html import notebook_card

        return notebook_card(self)

    def __repr__(self) -> str:
        return f"<Report: peak {format_bytes(self.peak)}, {format_bytes(self.in_use)} in use, {len(self.rows)} line{'' if len(self.rows) == 1 else 's'}>"


class Column(NamedTuple):
    """A figure of a row, in the order of the table."""

    head: str
    width: int
    rank: int
    """Those with low ranks are there even on narrow terminals."""
    attribute: str
    says: str

    def value(self, row: Row) -> float | None:
        found: float | None = getattr(row, self.attribute)
        return found

    def text(self, row: Row) -> str:
        value = self.value(row)
        if value is None:
            return "-"
        if self.attribute == "median_lifetime":
            return format_seconds(value)
        if self.attribute == "churn":
            return f"{value:.3g}x" if value < 1000 else f"{value:,.0f}x"
        return f"{value:,}" if self.attribute in ("live_count", "allocations") else format_bytes(int(value))


COLUMNS = (
    Column("at peak", 10, 0, "at_peak", "bytes of it when the device's peak was reached"),
    Column("live", 10, 1, "live", "bytes alive at the moment of the report"),
    Column("arrays", 8, 5, "live_count", "number of arrays alive"),
    Column("peak", 10, 4, "peak", "the most bytes alive of this line"),
    Column("made", 9, 2, "allocations", "number of allocations"),
    Column("total", 10, 3, "total", "bytes of all allocations"),
    Column("churn", 7, 7, "churn", "total / peak"),
    Column("largest", 10, 8, "largest", "bytes of the largest"),
    Column("lifetime", 9, 6, "median_lifetime", "median, less than a quarter off"),
)
NARROWEST = 28
"""Columns for the line's name, on a terminal that has them."""


def fitting(width: int) -> list[Column]:
    """The columns that leave room for the lines' names."""
    room, chosen = width - NARROWEST, set()
    for column in sorted(COLUMNS, key=lambda column: column.rank):
        room -= column.width + 1
        if room < 0:
            break
        chosen.add(column)
    return [column for column in COLUMNS if column in chosen]


def described(row: Row, room: int | None = None) -> str:
    """A row's line for people: what device, which file (as seen from here), and, where there is room, which function, and where most was freed."""
    name = row.name
    if row.file is not None and row.label is None:
        name = f"{_from_here(row.file)}:{row.line}"
    name = plain(("" if row.device == "numpy" else f"[{row.device}] ") + name)
    inside = plain(f" {row.function}") if row.function and row.function != "<module>" else ""
    if room is None:
        return name + inside
    for more in (inside + _freed(row), inside):
        if len(name) + len(more) <= room:
            return name + more
    return shortened(name, room)


def _freed(row: Row) -> str:
    if not row.freed_by:
        return ""
    most = row.freed_by[0]
    name = most.name.removeprefix(row.file) if row.file is not None and most.name.startswith(f"{row.file}:") else _from_here(most.name)
    share = most.times / sum(one.times for one in row.freed_by)
    return plain(f", freed at {name}" + ("" if share == 1 else f" ({share:.0%})"))


def _from_here(file: str) -> str:
    try:
        here = os.path.join(os.getcwd(), "")
    except OSError:  # it was deleted
        return file
    return file[len(here) :] if file.startswith(here) else file


def plain(text: str) -> str:
    """Without what would move the cursor or break a line."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape", "backslashreplace").decode("ascii") for letter in text)


def shortened(text: str, room: int) -> str:
    """Its end is what tells lines apart."""
    room = max(room, 12)
    return text if len(text) <= room else "..." + text[len(text) - room + 3 :]
