"""A report by line as a profile of pprof."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .._pprof import Frame, Profile

if TYPE_CHECKING:
    from ._track_report import Report

SAMPLES = (("live", "bytes"), ("peak", "bytes"), ("allocations", "count"), ("total", "bytes"))
"""What each sample has, and its unit; `peak` is what was live at the peak."""


def profile(report: Report) -> bytes:
    """The bytes of the file."""
    made = Profile(SAMPLES, "peak", "array memory by line")
    for row in report.rows:
        # pprof adds up what has one function's name, so that has the line of what is in no function
        name = row.function if row.function not in (None, "<module>") else row.name
        values = (row.live, row.at_peak or 0, row.allocations or 0, row.total or 0)
        made.add([Frame(name or "", row.file or "", row.line or 0)], values, {"device": row.device})
    return made.to_bytes(time.time_ns(), int(report.seconds * 1e9))
