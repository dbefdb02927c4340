"""A report as a profile of pprof."""

from __future__ import annotations

import re

from ._pprof import Frame, Profile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._errors import Holder
    from ._report import MemoryReport

SAMPLES = (("in_use", "bytes"), ("buffers", "count"), ("at_peak", "bytes"), ("spilled", "bytes"))
"""What each sample has, and its unit. `in_use` is on the device now, `at_peak` was on it when the peak was reached, `spilled` lies in host memory now."""


def profile(report: MemoryReport, kind: str = "in_use") -> bytes:
    """The bytes of the file. A holder of now and one of the peak are two samples, which pprof adds up."""
    kinds = [name for name, _ in SAMPLES]
    if not isinstance(kind, str):
        raise TypeError(f"kind must be a str, one of {', '.join(kinds)}, not {type(kind).__name__}")
    if kind not in kinds:
        raise ValueError(f"there is no kind {kind!r} of sample; there are {', '.join(kinds)}")
    made = Profile(SAMPLES, kind, f"device memory of {report.device}, by what allocated it")
    for holder in report.holders:
        made.add(frames(holder), (holder.resident, holder.count, 0, holder.spilled), _labels(holder))
    for holder in report.at_peak.holders if report.at_peak is not None else ():
        made.add(frames(holder), (0, 0, holder.resident, 0), _labels(holder))
    return made.to_bytes(round(report.seconds * 1e9))


def _labels(holder: Holder) -> dict[str, str]:
    return {"device": holder.device, "label": holder.label or ""}


def frames(holder: Holder) -> list[Frame]:
    """The stack of a holder, the innermost frame first: its origin alone, where stacks are not recorded. A label is a frame of its own inside of that,
    so that a profile shows it where nothing else is known."""
    places = holder.stack or ((holder.origin,) if holder.origin else ())
    found = [frame(place) for place in places]
    if holder.label or not found:
        found.insert(0, Frame(holder.label or "(no label)", "", 0))
    return found


def frame(place: str) -> Frame:
    """Of "file.py:12 function", or "file.py:12" alone."""
    parts = re.fullmatch(r"(.*):(\d+)(?: (.+))?", place, re.DOTALL)
    if parts is None:
        return Frame(place, "", 0)
    name = parts[3] if parts[3] and parts[3] != "<module>" else f"{parts[1]}:{parts[2]}"  # pprof adds up what has one name
    return Frame(name, parts[1], int(parts[2]))
