"""Programs whose lines are known, and what their report must say."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tack_memory.numpy as tn
from tack_memory.numpy._track_report import Report, Row

_numbers = itertools.count()


def program(folder: Path, source: str, **names: Any) -> SimpleNamespace:
    """Runs a module with this text, of a file of its own; `file` is its name. Line 1 is the text's first."""
    file = folder / f"program{next(_numbers)}.py"
    file.write_text(source)
    namespace = {"__name__": file.stem, **names}
    exec(compile(source, str(file), "exec"), namespace)
    return SimpleNamespace(file=str(file), **{name: value for name, value in namespace.items() if not name.startswith("__")})


def rows_of(report: Report, file: str) -> dict[int, Row]:
    """The rows of one file, by line."""
    return {row.line: row for row in report.rows if row.file == file and row.line is not None}


def row_named(report: Report, beginning: str) -> Row | None:
    found = [row for row in report.rows if row.name.startswith(beginning)]
    assert len(found) <= 1, found
    return found[0] if found else None


def check_sums(report: Report) -> None:
    """What holds of every report of NumPy's memory."""
    numpys = [row for row in report.rows if row.device == "numpy"]
    assert sum(row.live for row in numpys) == report.in_use
    assert sum(row.at_peak or 0 for row in numpys) == report.peak >= report.in_use
    for row in numpys:
        assert row.live >= 0 and (row.at_peak or 0) >= 0, row
        if row.peak is not None:
            assert row.peak >= row.live and row.peak >= (row.at_peak or 0), row
            assert row.allocations is not None and row.resizes is not None and row.frees is not None and row.live_count is not None
            assert row.total is not None and row.largest is not None and row.total >= row.peak and row.largest <= row.peak


@dataclass
class Line:
    live: int = 0
    live_count: int = 0
    peak: int = 0
    allocations: int = 0
    resizes: int = 0
    frees: int = 0
    total: int = 0
    largest: int = 0


@dataclass
class Oracle:
    """The same figures, kept in plain Python, with a copy of all lines at each new peak."""

    in_use: int = 0
    peak: int = 0
    lines: dict[Any, Line] = field(default_factory=lambda: defaultdict(Line))
    at_peak: dict[Any, tuple[int, int]] = field(default_factory=dict)
    peak_line: Any = None

    def _enter(self, key: Any, size: int) -> None:
        line = self.lines[key]
        line.live += size
        line.live_count += 1
        line.total += size
        line.peak = max(line.peak, line.live)
        line.largest = max(line.largest, size)
        self.in_use += size
        if self.in_use > self.peak:
            self.peak, self.peak_line = self.in_use, key
            self.at_peak = {key: (line.live, line.live_count) for key, line in self.lines.items()}

    def new(self, key: Any, size: int) -> None:
        self.lines[key].allocations += 1
        self._enter(key, size)

    def free(self, key: Any, size: int, inside: bool = True) -> None:
        self.in_use -= size
        if inside:
            line = self.lines[key]
            line.live -= size
            line.live_count -= 1
            line.frees += 1

    def resize(self, key: Any, before: int, size: int, inside: bool = True) -> None:
        self.in_use -= before
        if inside:
            self.lines[key].live -= before
            self.lines[key].live_count -= 1
        self.lines[key].resizes += 1
        self._enter(key, size)

    def check(self, report: Report, rows: dict[Any, Row]) -> None:
        assert (report.in_use, report.peak) == (self.in_use, self.peak)
        assert set(rows) == set(self.lines)
        for key, line in self.lines.items():
            row = rows[key]
            found = Line(row.live, *(getattr(row, name) for name in list(Line.__annotations__)[1:]))
            assert found == line, key
            assert (row.at_peak, row.at_peak_count) == self.at_peak.get(key, (0, 0)), key
        check_sums(report)


def report_of(track: tn.track) -> Report:
    """Without looking for what is not covered, which takes long."""
    return track.report(coverage=False)
