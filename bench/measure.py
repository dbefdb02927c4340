"""Interleaved measurements, and the rows that come of them.

Machines are noisy: other programs run, clocks change. So everything that is compared runs in turn in one process, many rounds, and what counts is the
smallest time of each (what it costs when nothing else interferes). The medians stand beside it.
"""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

NANO = 1e9


@dataclass
class Row:
    """One line of the table. target is the most (or, with at_least, the least) that is fine; None: reported only."""

    name: str
    value: float
    unit: str
    target: float | None = None
    at_least: bool = False
    median: float | None = None
    note: str = ""
    ok: bool | None = field(init=False)

    def __post_init__(self) -> None:
        if self.target is None:
            self.ok = None
        else:
            self.ok = self.value >= self.target if self.at_least else self.value <= self.target

    def as_json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if key in ("name", "value", "unit", "target", "ok")}


@dataclass
class Times:
    """Seconds of one operation in each round."""

    rounds: list[float]

    @property
    def least(self) -> float:
        return min(self.rounds)

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)


def statement(code: str, names: Mapping[str, Any], repeat: int = 1, aim: float = 0.0004) -> Callable[[], float]:
    """A function that measures the statement once: seconds for one of its runs. It stands `repeat` times in the
    loop, so the loop costs next to nothing. One measurement is shorter than a scheduler's slice, so that many of them are not interrupted."""
    timer = timeit.Timer("\n".join([code] * repeat), globals=dict(names))
    number = 1
    while (seconds := timer.timeit(number)) < aim and number < 10_000_000:
        number = max(number + 1, int(number * min(20.0, aim / max(seconds, 1e-7))))
    return lambda: timer.timeit(number) / number / repeat


def interleave(cases: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Times]:
    """Runs all cases in turn, `rounds` times."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            times[name].append(case())
    return {name: Times(rounds) for name, rounds in times.items()}


def difference(ours: Times, *theirs: Times) -> tuple[float, float]:
    """How many nanoseconds ours takes more than all of theirs together: of the smallest times, and of the medians."""
    return (ours.least - sum(t.least for t in theirs)) * NANO, (ours.median - sum(t.median for t in theirs)) * NANO


def ratio(ours: Times, theirs: Times) -> tuple[float, float]:
    return ours.least / theirs.least, ours.median / theirs.median
