"""A report as a web page: tables of who holds memory, of the peak and of spills, and a flame graph."""

from __future__ import annotations

import time

from . import _page
from ._accounting import format_info
from ._flame import flame_graph
from ._page import escaped
from ._report_text import advice, sentence
from ._sizes import format_bytes, format_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

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


def table(heads: Sequence[tuple[str, str]], rows: Iterable[Sequence[tuple[Any, str]]]) -> str:
    """One that can be sorted. A head is its text and what it says when it is pointed at; a cell what it is sorted by and its HTML; the last column is text."""
    *numbers, last = [f'<button type="button">{escaped(head)}</button>' for head, _ in heads]
    says = [f' title="{escaped(text)}"' if text else "" for _, text in heads]
    head = "".join(f'<th scope="col"{said}>{cell}</th>' for cell, said in zip(numbers, says, strict=False))
    head += f'<th scope="col" class="line"{says[-1]}>{last}</th>'
    lines = []
    for *cells, name in rows:
        shown = "".join(f'<td data-value="{_page.value(value)}">{html}</td>' for value, html in cells)
        lines.append(f'<tr>{shown}<td class="line" data-value="{_page.value(name[0])}">{name[1]}</td></tr>')
    return f'<div class="scroll"><table class="tack-lines">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{chr(10).join(lines)}\n</tbody></table></div>'


def _bytes(nbytes: int) -> tuple[int, str]:
    return nbytes, format_bytes(nbytes)


SPILLS = (
    ("moved", "to host memory"), ("times", ""), ("were out", "time in host memory, all of these buffers together"), ("out now", ""), ("what, and why", "")
)  # fmt: skip
HOLDERS = (("bytes", "on the device and in host memory"), ("on device", ""), ("spilled", "in host memory"), ("buffers", ""), ("holder", "label and origin"))


def _holders(holders: Sequence[Holder]) -> str:
    rows = [
        (*map(_bytes, (holder.bytes, holder.resident, holder.spilled)), (holder.count, f"{holder.count:,}"), (holder.name, _holder(holder)))
        for holder in holders
    ]
    return table(HOLDERS, rows)


def _holder(holder: Holder) -> str:
    small = [f"cannot be spilled: {holder.holds}"] if holder.holds else []
    return escaped(holder.name) + "".join(f"<small>{escaped(text)}</small>" for text in [*small, *(holder.stack or ())[1:]])


def _spills(report: MemoryReport) -> str:
    rows = [
        (
            _bytes(spill.bytes),
            (spill.times, f"{spill.times:,}"),
            (spill.out_seconds, format_seconds(spill.out_seconds)),
            (spill.still_out, f"{spill.still_out:,}"),
            (spill.name, f"{escaped(spill.name)}<small>{escaped(sentence(spill.why, spill.by_name, spill.by_nbytes))}</small>"),
        )
        for spill in report.spills
    ]
    lost = f"<p>Of {report.spills_lost:,} more the cause is not known, for origins were off.</p>" if report.spills_lost else ""
    return f"<h2>Why buffers were spilled</h2>{lost}{table(SPILLS, rows)}"


def _thrashing(report: MemoryReport) -> str:
    found = report.thrashing
    assert found is not None
    heads = ("moved", "out and back"), ("out", "times"), ("back", "times"), ("these take turns", "")
    rows = [(_bytes(one.bytes), (one.spills, f"{one.spills:,}"), (one.restores, f"{one.restores:,}"), (one.name, escaped(one.name))) for one in found.holders]
    said = f"Since {moment(found.since)}, up to {found.rounds:,} times; {format_bytes(found.bytes)} moved. Try {advice(found.holders)}."
    return f"<h2>Thrashing</h2><p>{escaped(said)}</p>{table(heads, rows)}"
