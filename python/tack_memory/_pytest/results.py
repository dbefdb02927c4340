"""`--device-memory-report`: what each test held, as a table for people and a file for machines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tack_memory._sizes import format_bytes

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = (("own", "own"), ("set-up", "set_up"), ("peak", "peak"), ("spilled", "spilled_bytes"), ("left", "leak"))
"""Titles, and what the figures of a test call them."""


class Result:
    """What is known of a test: of its last run, where it was run again."""

    def __init__(self, test: str, outcome: str, told: dict[str, Any]) -> None:
        self.test = test
        self.outcome = outcome
        self.complete: bool = told["complete"]
        self.figures: dict[str, dict[str, int | None]] = told["figures"]  # by device, of those that it used; None: not known
        self.open: list[str] = told["open"]  # the devices that were open when it ended

    def tell(self) -> dict[str, Any]:
        return {"test": self.test, "outcome": self.outcome, "devices": self.figures}


def table(results: list[Result], most: int) -> list[str]:
    """The tests that held most, one line a test and device; all where most is 0."""
    rows = [(device, figures, result.test) for result in results for device, figures in result.figures.items()]
    rows.sort(key=lambda row: (-(row[1]["own"] or 0), -(row[1]["set_up"] or 0), row[2], row[0]))
    if not rows:
        return ["no test held any"]
    shown = rows[:most] if most else rows
    cells = [[*(title for title, _ in COLUMNS), "device", "test"]]
    cells += [[*(size(figures[name]) for _, name in COLUMNS), device, test] for device, figures, test in shown]
    numbers = range(len(COLUMNS))
    widths = [max(len(row[place]) for row in cells) for place in range(len(COLUMNS) + 1)]
    lines = ["  ".join([*(f"{row[place]:>{widths[place]}}" for place in numbers), f"{row[-2]:<{widths[-1]}}", row[-1]]) for row in cells]
    if len(rows) > len(shown):
        lines.append(f"({len(rows) - len(shown)} more held less; all: --device-memory-report-top=0)")
    return lines


def size(nbytes: int | None) -> str:
    return "-" if nbytes is None else format_bytes(nbytes)


def to_file(file: Path, results: list[Result]) -> None:
    """All figures in bytes, sorted by test."""
    told = {"version": 1, "unit": "bytes", "tests": [result.tell() for result in sorted(results, key=lambda result: result.test)]}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
