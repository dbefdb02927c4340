"""Baselines: a text file of a project with what each test's body held (`own`), and how a run differs from it.

One line a test and device, sorted, so that a change of the file reads like a review:

    tests/test_filters.py::test_smooth sim:0 25165824
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING

from tack_memory._sizes import format_bytes, parse_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

HEADER = (
    "# Device memory of tests: the most bytes that a test's body held at one time of what it allocated.\n"
    "# Compared by pytest --device-memory-baseline FILE, written by pytest --device-memory-baseline FILE --device-memory-update.\n"
)

ESCAPES = "surrogateescape"
"""How bytes are kept that are no UTF-8: names of files may have such."""

Key = tuple[str, str]
"""A test's id, and a device."""


class Tolerance:
    """How far a test may be from its baseline: a size, or a percentage of the baseline."""

    def __init__(self, text: str) -> None:
        """Raises ValueError."""
        self.text = text.strip() or "0"
        try:
            self.nbytes(0)
        except ValueError as wrong:
            raise ValueError(f"device_memory_baseline_tolerance: {wrong}") from None

    def nbytes(self, baseline: int) -> int:
        return parse_size(self.text, lambda: baseline, of="the baseline")


def read(file: Path) -> dict[Key, int]:
    """The rows of a file. Raises ValueError, naming the line, for what is none. A `#` before a blank begins a comment; before anything else it may be the
    name of a folder."""
    rows: dict[Key, int] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8-sig", errors=ESCAPES).splitlines(), 1):
        if not line.strip() or line.startswith("# "):
            continue
        test, device, nbytes = ("", "", *line.rsplit(maxsplit=2))[-3:]
        if not test or not (nbytes.isascii() and nbytes.isdigit()):
            if line.startswith("#"):
                continue
            raise ValueError(f"{file}:{number}: {line!r} is not a test's id, a device and a number of bytes")
        if (test, device) in rows:
            raise ValueError(f"{file}:{number}: {test} on {device} is there twice")
        rows[test, device] = int(nbytes)
    return rows


def write(file: Path, rows: dict[Key, int]) -> bool:
    """Write the rows, sorted, all or nothing. False: the file has them already, and is left alone."""
    text = HEADER + "".join(f"{test} {device} {nbytes}\n" for (test, device), nbytes in sorted(rows.items()))
    if file.exists() and file.read_text(encoding="utf-8", errors=ESCAPES) == text:
        return False
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f"{file.name}.{os.getpid()}.new")
    new.write_text(text, encoding="utf-8", errors=ESCAPES)
    new.replace(file)
    return True


@dataclass
class Seen:
    """What a process knows of the tests that it collected."""

    tests: set[str] = field(default_factory=set)  # ids of all, those that were deselected included
    files: set[str] = field(default_factory=set)  # files of which every test was collected
    doctests: bool = False  # those of modules, too

    def lacks(self, test: str, root: Path) -> bool:
        """Whether a test is known to be no more: its file is gone, or was collected without it."""
        file, _, name = test.partition("::")
        if test in self.tests:
            return False
        if not (root / file).exists():
            return True
        return file in self.files and (self.doctests or not self.may_be_doctest(file, name))

    @staticmethod
    def may_be_doctest(file: str, name: str) -> bool:
        """Whether a module's doctest may have this name: that of the module, or of something in it, with dots."""
        return "." in name.partition("[")[0] or name == PurePath(file).stem


@dataclass(frozen=True)
class Change:
    """A test that differs from its baseline."""

    what: str  # "grew", "shrank", "new" or "gone"
    test: str
    device: str
    before: int
    now: int

    def cells(self) -> tuple[str, str, str, str]:
        """What happened, by how much, and the figures, as a person reads them; of what was not there before, or is not there now, a dash."""
        before, now = ("-" if self.what == "new" else format_bytes(self.before)), ("-" if self.what == "gone" else format_bytes(self.now))
        difference = self.now - self.before
        if self.what in ("new", "gone") or not self.before:
            return self.what, "", before, now
        return self.what, f"{'+' if difference > 0 else ''}{format_bytes(difference)} ({100 * difference / self.before:+.3g}%)", before, now


ORDER = ("grew", "shrank", "new", "gone")


@dataclass
class Comparison:
    """A run beside its baseline."""

    changes: list[Change]
    same: int  # tests that are as before
    rows: dict[Key, int]  # the baseline with the changes

    def summary(self) -> str:
        """How many tests grew, shrank, are new, are gone."""
        parts = []
        for what in ORDER:
            those = [change for change in self.changes if change.what == what]
            if those:
                total = sum(change.now - change.before for change in those)
                parts.append(f"{len(those)} {what}" + (f" ({'+' if total > 0 else ''}{format_bytes(total)})" if what in ("grew", "shrank") else ""))
        return ", ".join([*parts, f"{self.same} as before"])

    def lines(self) -> Iterator[str]:
        """One a change: those that grew first, of each kind the largest first."""
        rows = [(change.cells(), change) for change in self.changes]
        widths = [max((len(cells[place]) for cells, _ in rows), default=0) for place in range(4)]
        for (what, difference, before, now), change in rows:
            figures = f"{before:>{widths[2]}} -> {now:<{widths[3]}}"
            yield f"{what:<{widths[0]}}  {difference:>{widths[1]}}  {figures}  {change.device}  {change.test}"


def compare(before: dict[Key, int], now: dict[Key, int], ran: Mapping[str, Iterable[str]], gone: set[str], tolerance: Tolerance) -> Comparison:
    """How a run differs from its baseline.

    `now` has what tests held; `ran` each test that ran to its end, with the devices that were open then: of others nothing is said, and their rows
    stay. `gone` are tests that are no more. What differs by less than the tolerance is as before, and its row stays.
    """
    changes: list[Change] = []
    rows = dict(before)
    same = 0
    for test, devices in ran.items():
        for device in devices:
            key = (test, device)
            old, new = before.get(key), now.get(key, 0)
            if old is None and not new:
                continue
            if old is not None and abs(new - old) <= tolerance.nbytes(old):
                same += 1
                continue
            changes.append(Change("new" if old is None else "grew" if new > old else "shrank", test, device, old or 0, new))
            rows[key] = new
            if not new:
                del rows[key]
    for key, old in before.items():
        if key[0] in gone:
            changes.append(Change("gone", *key, old, 0))
            del rows[key]
    changes.sort(key=lambda change: (ORDER.index(change.what), -abs(change.now - change.before), change.test, change.device))
    return Comparison(changes, same, rows)
