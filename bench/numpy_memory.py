"""NumPy's arrays with a counting allocator in force, against NumPy's own: ratios, in one process, in turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from measure import NANO, Row, Times, interleave, ratio, statement

import tack_memory.numpy

FREED = 1_000_000


def in_force(case: Callable[[], float], **arguments: Any) -> Callable[[], float]:
    """The same measurement with an allocator of ours."""

    def measured() -> float:
        with tack_memory.numpy.use(**arguments):
            return case()

    return measured


def compared(what: str, cases: dict[str, Callable[[], float]], targets: dict[str, float | None], rounds: int) -> list[Row]:
    times = interleave(cases, rounds)
    return [row(f"{what}, {name}", times[name], times["own"], target) for name, target in targets.items()]


def row(name: str, ours: Times, theirs: Times, target: float | None) -> Row:
    value, median = ratio(ours, theirs)
    return Row(name, value, "x NumPy's own", target, median=median, note=f"{ours.least * NANO:,.0f} ns against {theirs.least * NANO:,.0f} ns")


def of_statement(code: str, arguments: dict[str, dict[str, Any]], repeat: int = 1) -> dict[str, Callable[[], float]]:
    import numpy

    case = statement(code, {"np": numpy, "u1": numpy.dtype("u1")}, repeat)
    return {"own": case, **{name: in_force(case, **given) for name, given in arguments.items()}}


def freeing(rounds: int) -> list[Row]:
    """All frees of a list of arrays. A round is long, and its memory is the same each time, so few are enough."""
    import numpy

    def case() -> float:
        arrays = [numpy.empty(100, "u1") for _ in range(FREED)]
        began = time.thread_time()  # so long a measurement is interrupted now and then: what it costs is the processor's time
        del arrays
        return (time.thread_time() - began) / FREED

    return compared(f"free of {FREED:,} arrays of 100 B", {"own": case, "counted": in_force(case)}, {"counted": 1.25}, rounds)


ALL: dict[str, dict[str, Any]] = {"counted": {}, "aligned 64": {"allocator": "aligned"}, "hugepage": {"allocator": "hugepage"}}


def rows(rounds: int) -> list[Row]:
    import numpy_lines  # which takes from here what both need

    page = {"aligned 4096": {"allocator": "aligned", "align": 4096}}
    large = max(rounds // 15, 5)
    return [
        *compared("np.empty(100 B)", of_statement("np.empty(100, u1)", ALL, 4), {"counted": 1.1, "aligned 64": None, "hugepage": None}, rounds),
        *compared("np.zeros(100 B)", of_statement("np.zeros(100, u1)", ALL, 4), {"counted": None}, rounds),
        *compared("np.empty(10 kB)", of_statement("np.empty(10_000, u1)", ALL | page, 4), {"counted": None, "aligned 4096": None}, rounds),
        *compared("touch 1 MB, warm", of_statement("np.empty(1_000_000, u1)[::4096] = 1", page | ALL), {"counted": None, "aligned 4096": 1.2}, rounds),
        *compared(
            "touch 100 MB", of_statement("np.empty(100_000_000, u1)[::4096] = 1", ALL | page), {"counted": 1.05, "aligned 4096": None, "hugepage": None}, large
        ),
        *compared("np.zeros(100 MB)", of_statement("np.zeros(100_000_000, u1)", ALL | page), {"counted": 1.05, "aligned 4096": None, "hugepage": None}, rounds),
        *freeing(max(rounds // 50, 5)),
        *numpy_lines.rows(rounds),
    ]
