"""What the books of NumPy's memory say beside memory_info("numpy")."""

from __future__ import annotations

import os
from typing import NamedTuple

from .._native import _numpy


class Statistics(NamedTuple):
    """NumPy's counted memory in one moment. Bytes, and numbers of blocks; totals are since the process began (in a forked child: since its parent did)."""

    in_use: int
    """Bytes of arrays alive, as NumPy asked for them."""
    peak: int
    """The most `in_use` has been since the last `reset_peak_memory("numpy")`."""
    overhead: int
    """Bytes around those arrays that no array sees: headers and alignment."""
    live: int
    """Blocks alive."""
    allocations: int
    frees: int
    resizes: int
    failed: int
    """Requests that got no memory."""
    unknown_frees: int
    """Frees and resizes of memory that no counting handler gave: somebody put memory of his own into an array."""
    inherited: int
    """Of `in_use`: bytes of arrays that were made before the fork that made this process."""
    inherited_live: int
    """Their number."""


def statistics() -> Statistics:
    """Return what is counted of NumPy's memory, in one consistent moment.

    Notes
    -----
    May be called from any thread, and in a forked child. What was made while nothing was installed is in none of the figures.
    """
    return Statistics(*_numpy.statistics())


def resident_memory() -> int | None:
    """Memory that the system gave this process: bytes; None where it does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
