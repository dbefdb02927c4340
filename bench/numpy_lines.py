"""What it costs to know which line allocates: tack_memory.numpy.track, and beside it tracemalloc with one frame and memray."""

from __future__ import annotations

import importlib.util
import os
import tracemalloc
from collections.abc import Callable

from measure import Row, interleave
from numpy_memory import in_force, of_statement, row

import tack_memory.numpy
from tack_memory._native import _numpy

WHAT = "np.empty(100 B), lines by"


def with_numpys_own(case: Callable[[], float]) -> Callable[[], float]:
    """The same while a track is open, in which this context would count otherwise."""

    def measured() -> float:
        variable = _numpy.context_variable()
        token = variable.set(own)
        try:
            return case()
        finally:
            variable.reset(token)

    own = _numpy.current_handler()
    return measured


def with_tracemalloc(case: Callable[[], float]) -> Callable[[], float]:
    def measured() -> float:
        tracemalloc.start(1)
        try:
            return case()
        finally:
            tracemalloc.stop()

    return measured


def with_memray(case: Callable[[], float]) -> Callable[[], float]:
    import memray

    def measured() -> float:
        with memray.Tracker(destination=memray.FileDestination(os.devnull, overwrite=True)):
            return case()

    return measured


def rows(rounds: int) -> list[Row]:
    case = of_statement("np.empty(100, u1)", {}, 4)["own"]
    own = with_numpys_own(case)
    with tack_memory.numpy.track(domains="numpy"):
        times = interleave({"own": own, "tack_memory": in_force(case)}, rounds)
    found = [row(f"{WHAT} tack_memory", times["tack_memory"], times["own"], 1.3)]
    others = {"tracemalloc(1)": with_numpys_own(with_tracemalloc(case))}
    if importlib.util.find_spec("memray"):
        others["memray"] = with_numpys_own(with_memray(case))
    beside = interleave({"own": own, **others}, max(rounds // 5, 10))  # starting and ending them takes much longer than what is measured
    return [*found, *(row(f"{WHAT} {name}", beside[name], beside["own"], None) for name in others)]
