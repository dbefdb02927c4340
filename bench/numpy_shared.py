"""NumPy's arrays in memory that other processes can map, and in a file, against NumPy's own memory: ratios, in one process, in turn."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

from measure import Row
from numpy_memory import compared, of_statement

import tack_memory.numpy
from tack_memory._native import _numpy


def in_new_memory(case: Callable[[], float]) -> Callable[[], float]:
    """The measurement in an arena that nothing was ever written to."""

    def measured() -> float:
        tokens: list[object] = []
        _numpy.enter_context(_numpy.shared(0, True), tokens)
        try:
            return case()
        finally:
            _numpy.leave_context(tokens, ())

    return measured


def rows(rounds: int) -> list[Row]:
    large = max(rounds // 15, 5)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        file = {"allocator": "mmap", "path": f"{folder}/arrays"}
        with tack_memory.numpy.use(**file):
            kept = tack_memory.numpy.use(**file)  # has the file open all the time: without, each block would begin it anew
        both: dict[str, dict[str, Any]] = {"shared": {"allocator": "shared"}, "mmap": file}
        first = of_statement("np.empty(100_000_000, u1)[::4096] = 1", {})
        found = [
            *compared("np.empty(100 B)", of_statement("np.empty(100, u1)", both, 4), {"shared": None, "mmap": None}, rounds),
            *compared("np.zeros(100 B)", of_statement("np.zeros(100, u1)", both, 4), {"shared": None, "mmap": None}, rounds),
            *compared("touch 1 MB, a block used before", of_statement("np.empty(1_000_000, u1)[::4096] = 1", both), {"shared": 1.1, "mmap": None}, rounds),
            *compared("touch 100 MB, a block used before", of_statement("np.empty(100_000_000, u1)[::4096] = 1", both), {"shared": 1.1, "mmap": None}, large),
            *compared("touch 100 MB for the first time", first | {"shared": in_new_memory(first["own"])}, {"shared": None}, large),
        ]
        del kept
    return found
