"""A report as a web page: tables of who holds memory, of the peak and of spills, and a flame graph."""

from __future__ import annotations

import time

from . import _page
from ._accounting import format_info
from ._flame import flame_graph
from ._page import Cell, escaped, table
from ._report_text import AGAINST_THRASHING, sentence
from ._sizes import format_bytes, format_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._errors import Holder
    from ._report import MemoryReport


def page(report: MemoryReport) -> str:
    """The whole file."""
    return _page.page(f"Device memory of {report.device}", body(report), "flame.css", "flame.js")


def body(report: MemoryReport) -> str:
    """What is between the page's title and its script."""
    parts = [f"<p>{moment(report.seconds)}: {escaped(format_info(report.info))}</p>"]
    parts += [f"<p>cannot be spilled now: {format_bytes(nbytes)} ({escaped(reason)})</p>" for reason, nbytes in report.holds.items()]
    parts.append(f"<p>host memory: {format_bytes(report.host_used)} of spilled copies, {format_bytes(report.host_pooled)} pooled</p>")
    if report.thrashing is not None:
        parts.append(_thrashing(report))
    parts.append(flame_graph(report))
    parts.append(f"<h2>What holds memory</h2>{_holders(report.holders) if report.holders else '<p>no live buffers</p>'}")
    peak = report.at_peak
    if peak is not None:
        spilled = f", and {format_bytes(peak.spilled)} spilled" if peak.spilled else ""
        parts.append(f"<h2>At the peak</h2><p>{moment(peak.seconds)}: {format_bytes(peak.bytes)} in use{spilled}</p>{_holders(peak.holders)}")
    if report.spills:
        parts.append(_spills(report))
    return "\n".join(parts)


def moment(seconds: float) -> str:
    """Day and time, in the local zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _bytes(nbytes: int) -> Cell:
    return Cell(nbytes, format_bytes(nbytes))


def _count(number: int) -> Cell:
    return Cell(number, f"{number:,}")


SPILLS = (
    ("moved", "to host memory"), ("times", ""), ("were out", "time in host memory, all of these buffers together"), ("out now", ""), ("what, and why", "")
)  # fmt: skip
HOLDERS = (("bytes", "on the device and in host memory"), ("on device", ""), ("spilled", "in host memory"), ("buffers", ""), ("holder", "label and origin"))


def _holders(holders: Sequence[Holder]) -> str:
    rows = [(*map(_bytes, (holder.bytes, holder.resident, holder.spilled)), _count(holder.count), Cell(holder.name, _holder(holder))) for holder in holders]
    return table(HOLDERS, rows)


def _holder(holder: Holder) -> str:
    small = [f"cannot be spilled: {holder.holds}"] if holder.holds else []
    return escaped(holder.name) + "".join(f"<small>{escaped(text)}</small>" for text in [*small, *(holder.stack or ())[1:]])


def _spills(report: MemoryReport) -> str:
    rows = [
        (
            _bytes(spill.bytes),
            _count(spill.times),
            Cell(spill.out_seconds, format_seconds(spill.out_seconds)),
            _count(spill.still_out),
            Cell(spill.name, f"{escaped(spill.name)}<small>{escaped(sentence(spill.why, spill.by_name, spill.by_nbytes))}</small>"),
        )
        for spill in report.spills
    ]
    lost = f"<p>Of {report.spills_lost:,} more the cause is not known, for origins were off.</p>" if report.spills_lost else ""
    return f"<h2>Why buffers were spilled</h2>{lost}{table(SPILLS, rows)}"


def _thrashing(report: MemoryReport) -> str:
    found = report.thrashing
    assert found is not None
    heads = ("moved", "out and back"), ("out", "times"), ("back", "times"), ("these take turns", "")
    rows = [(_bytes(one.bytes), _count(one.spills), _count(one.restores), Cell(one.name, escaped(one.name))) for one in found.holders]
    said = f"Since {moment(found.since)}, up to {found.rounds:,} times; {format_bytes(found.bytes)} moved. Try {AGAINST_THRASHING}."
    return f"<h2>Thrashing</h2><p>{escaped(said)}</p>{table(heads, rows)}"
