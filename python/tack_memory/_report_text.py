"""A report as text."""

from __future__ import annotations

import time

from ._accounting import format_info
from ._sizes import format_bytes, format_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ._errors import Holder
    from ._report import MemoryReport

AGAINST_THRASHING = "a larger budget (set_memory_budget), smaller pieces at a time, or to finish with one array before the next is used"
"""What helps, after "try"."""

FEW = 10
"""Rows of the parts that come after the holders: the rest is added up in a line. JSON, pages and files have all of it."""


def to_text(report: MemoryReport, top: int | None = None) -> str:
    """The whole report; of the holders the `top` largest, where that is given."""
    lines = [format_info(report.info), *holders_table(report.holders, top)]
    lines += [f"cannot be spilled now: {format_bytes(nbytes)} ({reason})" for reason, nbytes in report.holds.items()]
    lines.append(f"host memory: {format_bytes(report.host_used)} of spilled copies, {format_bytes(report.host_pooled)} pooled")
    lines += at_peak(report) + spills(report) + thrashing(report)
    return "\n".join(lines)


def holders_table(holders: Sequence[Holder], most: int | None = None) -> list[str]:
    """A line for each, under a head."""
    if not holders:
        return ["no live buffers"]
    lines = [f"{'bytes':>10} {'on device':>10} {'spilled':>10} {'count':>7}  holder"]
    for holder in holders[:most]:
        sizes = [f"{format_bytes(nbytes):>10}" for nbytes in (holder.bytes, holder.resident, holder.spilled)]
        lines.append(f"{' '.join(sizes)} {holder.count:>7}  {holder.name}" + (f"  [{holder.holds}]" if holder.holds else ""))
        lines += [f"{'':41}  {frame}" for frame in (holder.stack or ())[1:]]  # the first one is the origin
    return lines + more(holders[most:] if most is not None else (), "holders")


def more(left_out: Sequence[Any], what: str) -> list[str]:
    """The line for what is not shown."""
    if not left_out:
        return []
    return [f"{format_bytes(sum(one.bytes for one in left_out)):>10} in {len(left_out):,} more {what}"]


def clock(seconds: float) -> str:
    """A time of day, in the local zone."""
    return time.strftime("%H:%M:%S", time.localtime(seconds))


def at_peak(report: MemoryReport) -> list[str]:
    """What was live at the peak, where that was more than now."""
    peak = report.at_peak
    if peak is None or peak.bytes == report.info.in_use and peak.spilled == report.info.spilled:
        return []
    spilled = f", and {format_bytes(peak.spilled)} spilled" if peak.spilled else ""
    return ["", f"at the peak, {clock(peak.seconds)}: {format_bytes(peak.bytes)} in use{spilled}", *holders_table(peak.holders, FEW)]


def spills(report: MemoryReport) -> list[str]:
    """Which request pushed what out."""
    if not report.spills:
        return []
    known = sum(spill.times for spill in report.spills)
    lost = f"; of {report.spills_lost:,} more the cause is not known, for origins were off" if report.spills_lost else ""
    lines = ["", f"why buffers were spilled, {known:,} time{'' if known == 1 else 's'}{lost}"]
    lines.append(f"{'moved':>10} {'times':>7} {'were out':>10}  what, and why")
    for spill in report.spills[:FEW]:
        still = f", {spill.still_out:,} still out" if spill.still_out else ""
        lines.append(f"{format_bytes(spill.bytes):>10} {spill.times:>7,} {format_seconds(spill.out_seconds):>10}  {spill.name}{still}")
        lines.append(f"{'':29}  {sentence(spill.why, spill.by_name, spill.by_nbytes)}")
    return lines + more(report.spills[FEW:], "rows")


def sentence(why: str, by: str, nbytes: int | None) -> str:
    """ "to stay within the budget, for 24 MiB of mesh (a.py:7)"."""
    needed = "" if nbytes is None else f", for {format_bytes(nbytes)}"
    return why + needed + (f" of {by}" if by and needed else f", at {by}" if by else "")


def thrashing(report: MemoryReport) -> list[str]:
    """Those that take turns, and what to do."""
    found = report.thrashing
    if found is None:
        return []
    lines = ["", f"thrashing since {clock(found.since)}: these take turns, up to {found.rounds:,} times; {format_bytes(found.bytes)} moved"]
    lines += [f"{format_bytes(one.bytes):>10} {one.spills:>7,} out {one.restores:>5,} back  {one.name}" for one in found.holders[:FEW]]
    return [*lines, *more(found.holders[FEW:], "holders"), f"  try: {AGAINST_THRASHING}"]
